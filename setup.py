"""Compiles the core where a working C compiler is found; installs it uncompiled elsewhere.

Every ``X.py`` under ``src/slipstream`` with an ``X.pxd`` beside it is a core module.  The types of
a method that the .pxd declares are the .pxd's; hints in its signature are for readers and checkers,
and Cython would compare them, so it reads a mirror of the sources (``build/mirror``) without them.
Generated C and objects go to ``build/`` too; what nothing changed for is used again.
"""

from __future__ import annotations

import ast
import importlib
import os
import re
import subprocess
import sys
import tempfile
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
PACKAGE = Path("src") / "slipstream"
MIRROR = Path("build") / "mirror"
LOOPS = Path("build") / "loops"
NUMBERS = {"int", "float", "bool", "complex", "None"}
MACHINE = "slipstream.core.kernels.cpu.machine"
OPTIMIZE = ["-O2", "-g0", "-ffp-contract=off"]
# The interpreter is called through the table of addresses itself, not by a jump beside it.
CALLS = ["-fno-plt"] if sys.platform == "linux" else []
LOOP_FLAGS = ["-O3", "-g0", "-ffp-contract=off", "-fno-math-errno", "-pthread"]
# Dicts of these Pythons tell by a number that they changed: a module's names are looked up again
# only then.  Cython uses it before 3.12 alone, which deprecated the field but keeps it as it was.
VERSIONED_DICTS = sys.version_info < (3, 14)
QUIET = ["-Wno-deprecated-declarations"]
DIRECTIVES = {
    "language_level": 3,
    # Lists and tuples keep Python's indexing: negative places, and IndexError past the end.
    "boundscheck": True,
    "wraparound": True,
    # A field of a record made by hand may be None: that is an AttributeError, never a crash.
    # Modules whose objects users never hold turn it off in their first line.
    "nonecheck": True,
    "initializedcheck": False,
    "cdivision": True,
    "binding": True,
    "embedsignature": False,
    "warn.unreachable": False,
}
PROBE = """
#include <Python.h>
static struct PyModuleDef probe = {PyModuleDef_HEAD_INIT, "probe", NULL, -1, NULL};
PyMODINIT_FUNC PyInit_probe(void) { return PyModule_Create(&probe); }
"""


def core_modules() -> list[Path]:
    """Return the sources, relative to the checkout, that have a .pxd beside them."""
    return sorted(
        path.relative_to(ROOT)
        for path in (ROOT / PACKAGE).rglob("*.py")
        if path.with_suffix(".pxd").exists()
    )


def module_name(path: Path) -> str:
    """Return the dotted name of a source under src/."""
    return ".".join(path.relative_to("src").with_suffix("").parts)


def is_number(annotation: ast.expr) -> bool:
    """Tell whether an annotation is made of plain numbers and None alone."""
    names = {ast.unparse(node) for node in ast.walk(annotation) if not isinstance(
        node, ast.BinOp | ast.BitOr | ast.Load)}
    return names <= NUMBERS


def declared_methods(pxd: str) -> set[str]:
    """Return the names of the methods that a .pxd declares."""
    return set(re.findall(r"^\s+cp?def\b[^(=\n]*?(\w+)\(", pxd, re.MULTILINE))


def without_fields(tree: ast.Module, lines: list[bytes], pxd: str) -> None:
    """Empty the lines that declare a field of a class whose fields the .pxd declares."""
    known = set(re.findall(r"^cdef class (\w+)", pxd, re.MULTILINE))
    bodies = [node.body for node in ast.walk(tree)
              if isinstance(node, ast.ClassDef) and node.name in known]
    for node in (each for body in bodies for each in body):
        if isinstance(node, ast.AnnAssign) and node.value is None:
            for number in range(node.lineno - 1, node.end_lineno or node.lineno):
                lines[number] = b""


def mirrored(text: str, pxd: str) -> str:
    """Return a source without the hints that the .pxd stands for, every line in its place.

    Plain numbers are left out everywhere: Cython would refuse what is no exact int or float.
    """
    declared = declared_methods(pxd)
    lines = text.encode().split(b"\n")
    without_fields(ast.parse(text), lines, pxd)
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    for function in functions:
        spec = function.args
        for argument in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs):
            note = argument.annotation
            if note is None or note.lineno != note.end_lineno:
                continue
            if function.name in declared or is_number(note):
                line = lines[note.lineno - 1]
                start = argument.col_offset + len(argument.arg.encode())
                blank = b" " * (note.end_col_offset - start)
                lines[note.lineno - 1] = line[:start] + blank + line[note.end_col_offset :]
    return b"\n".join(lines).decode()


def update(path: Path, text: str) -> None:
    """Write a file unless it says the same already, so that its time tells of changes."""
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def update_mirror() -> None:
    """Bring the mirror of core modules, .pxd files and packages up to date."""
    compiled = set(core_modules())
    wanted = {ROOT / path for path in compiled} | set((ROOT / PACKAGE).rglob("*.pxd"))
    wanted |= set((ROOT / PACKAGE).rglob("__init__.py"))
    targets = {MIRROR / path.relative_to(ROOT / "src"): path for path in wanted}
    for stale in set(MIRROR.rglob("*.p*")) - targets.keys():
        stale.unlink()
    for target, path in targets.items():
        text = path.read_text()
        if path.relative_to(ROOT) in compiled:
            text = mirrored(text, path.with_suffix(".pxd").read_text())
        update(target, text)


def extensions() -> list[Extension]:
    """Return one extension for each core module."""
    include = ["src", str(LOOPS)]
    # Records are made without arguments: their tp_new is called as it is, not as a vectorcall.
    macros = [("CYTHON_CLINE_IN_TRACEBACK", "0"), ("CYTHON_VECTORCALL_TPNEW", "0")]
    if VERSIONED_DICTS:
        macros.append(("CYTHON_USE_DICT_VERSIONS", "1"))
    return [
        Extension(module_name(path), [str(path)], include_dirs=include, define_macros=macros)
        for path in core_modules()
    ]


def stand_in_packages(*names: str) -> None:
    """Put bare packages into sys.modules, so that a submodule loads without their __init__."""
    for name in names:
        package = types.ModuleType(name)
        package.__path__ = [str(ROOT / "src" / Path(*name.split(".")))]
        sys.modules[name] = package


def print_loops() -> list[Path]:
    """Write the C text of the typed loops where it changed, and return the files to compile."""
    stand_in_packages("slipstream", "slipstream.core")
    # Compiled modules that lie about may be older than the sources that the loops come from.
    importlib.import_module("slipstream._uncompiled").install()
    texts = importlib.import_module("slipstream.core.kernels.cpu.loops").print_loops()
    for name, text in texts.items():
        update(LOOPS / name, text)
    return [LOOPS / name for name in sorted(texts) if name.endswith(".c")]


def newest(paths: list[str]) -> float:
    """Return the time of the newest of some files."""
    return max(Path(path).stat().st_mtime for path in paths)


class BuildCore(build_ext):
    """Cythonizes, compiles what changed, and takes away compiled modules that lost their source."""

    def finalize_options(self) -> None:
        """Compile on every core and keep the objects of editable installs between builds."""
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()
        if self.inplace or self.editable_mode:
            self.build_lib = str(Path("build") / f"modules-{sys.implementation.cache_tag}")
            self.build_temp = str(Path("build") / f"objects-{sys.implementation.cache_tag}")

    def run(self) -> None:
        """Print the loops, turn the core into C, build."""
        has_loops = any(extension.name == MACHINE for extension in self.extensions)
        loops = print_loops() if has_loops else []
        generated = {extension.name: extension for extension in self.cythonized()}
        for extension in self.extensions:
            made = generated[extension.name]
            extension.sources = [os.path.relpath(path, ROOT) for path in made.sources]
            extension.depends = [str(MIRROR / path) for path in made.depends]
            self.add_flags(extension, loops)
        self.stale = [each.name for each in self.extensions if self.is_stale(each)]
        self.begun = 0
        super().run()
        if self.inplace:
            self.remove_orphans()

    def is_stale(self, extension: Extension) -> bool:
        """Tell whether an extension has to be compiled."""
        target = Path(self.get_ext_fullpath(extension.name))
        inputs = [*extension.sources, *extension.depends]
        return bool(self.force) or not target.exists() or (
            target.stat().st_mtime < newest(inputs))

    def tell(self, name: str) -> None:
        """Say how far the compilation is: on a terminal in place, else at every tenth module."""
        if name not in self.stale:
            return
        self.begun += 1
        count, terminal = len(self.stale), sys.stdout.isatty()
        if terminal or self.begun % 10 == 0 or self.begun == count:
            end = "\r" if terminal and self.begun < count else "\n"
            print(f"compiling {self.begun} of {count}", end=end, flush=True)

    def cythonized(self) -> list[Extension]:
        """Generate C where a module or a .pxd that it cimports changed; return what was made.

        Cython runs inside the mirror, so that compiled code names its files ``slipstream/...``: a
        traceback then finds the lines of the sources by sys.path.
        """
        update_mirror()
        sources = [Extension(e.name, [str(Path(*e.name.split(".")).with_suffix(".py"))])
                   for e in self.extensions]
        os.chdir(MIRROR)
        try:
            return cythonize(
                sources,
                build_dir=str(ROOT / "build" / "cython"),
                compiler_directives=DIRECTIVES,
                include_path=["."],
                nthreads=os.cpu_count() or 1,
                force=bool(self.force),
            )
        finally:
            os.chdir(ROOT)

    def add_flags(self, extension: Extension, loops: list[Path]) -> None:
        """Set the compiler's flags; give the machine its loops."""
        extension.extra_compile_args = [*OPTIMIZE, *CALLS, *QUIET]
        if extension.name == MACHINE:
            extension.extra_compile_args = [*LOOP_FLAGS, *CALLS, *QUIET]
            extension.depends = [*extension.depends, *map(str, LOOPS.glob("*"))]
            extension.extra_link_args = ["-pthread"]
            extension.loops = loops

    def build_extension(self, ext: Extension) -> None:
        """Compile one extension, the loops it links with first."""
        self.tell(ext.name)
        loops = [str(path) for path in getattr(ext, "loops", [])]
        with ThreadPoolExecutor(self.parallel) as pool:
            objects = list(pool.map(self.loop_object, loops))
        ext.extra_objects = [*(ext.extra_objects or []), *objects]
        super().build_extension(ext)

    def loop_object(self, source: str) -> str:
        """Return the object of one file of loops, compiled again only where it changed."""
        target = self.compiler.object_filenames([source], output_dir=self.build_temp)[0]
        inputs = [source, *map(str, LOOPS.glob("*.h"))]
        if not Path(target).exists() or Path(target).stat().st_mtime < newest(inputs):
            self.compiler.compile(
                [source],
                output_dir=self.build_temp,
                include_dirs=[str(LOOPS)],
                extra_postargs=LOOP_FLAGS,
            )
        return target

    def remove_orphans(self) -> None:
        """Remove compiled modules in src/ whose source is gone or is compiled no more."""
        wanted = {ROOT / "src" / self.get_ext_filename(e.name) for e in self.extensions}
        suffix = self.get_ext_filename("x")[1:]
        for path in (ROOT / PACKAGE).rglob("*" + suffix):
            if path not in wanted:
                path.unlink()


def compiler_works() -> bool:
    """Tell whether a trivial extension compiles and links here, with Python's headers."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "probe.c"
        source.write_text(PROBE)
        code = (
            "from setuptools import Distribution, Extension\n"
            "from setuptools.command.build_ext import build_ext\n"
            f"extension = Extension('probe', [{str(source)!r}])\n"
            "command = build_ext(Distribution({'name': 'probe', 'ext_modules': [extension]}))\n"
            f"command.build_lib = command.build_temp = {folder!r}\n"
            "command.ensure_finalized()\n"
            "command.run()\n"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=folder)
        return done.returncode == 0


def main() -> None:
    """Install compiled or uncompiled, as the probe says."""
    os.chdir(ROOT)
    requires = ["numpy>=2", "ml_dtypes>=0.5"]
    commands = {"build_ext": BuildCore}
    if compiler_works():
        setup(ext_modules=extensions(), cmdclass=commands, install_requires=requires)
    else:
        print("no working C compiler with Python's headers: the core is installed uncompiled")
        setup(install_requires=[*requires, "cython>=3.1"])


if __name__ == "__main__":
    main()

"""`load_inline`: the sources become a module of functions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from slipstream.core.api.cuda.hosting import host_library
from slipstream.core.api.cuda.kernels import Kernel
from slipstream.core.api.cuda.raw import CompileError
from slipstream.core.api.cuda.signatures import Reader
from slipstream.core.api.cuda.sources import complaints, pointed
from slipstream.utils.cpp_extension.bridge import Bridge
from slipstream.utils.cpp_extension.functions import Function, attach
from slipstream.utils.cpp_extension.texts import SUBSET, parts_of

HEADER = Path(__file__).with_name("extension.h")
WRAPPER = ("SLIP_EXPORT int slip_call_{name}(const slip::value *given, int64_t slip_count) {{\n"
           "    return slip::guarded(&::{function}, given, slip_count);\n}}\n")
# How compilers say that a name is missing: g++, then clang++.
MISSING = (
    re.compile(r"[‘'](?P<name>\w+)[’'] is not a member of [‘'](?P<space>torch|at|c10)[\w:]*[’']"),
    re.compile(r"[‘'][^’']*\b(?P<space>Tensor|TensorOptions|Device|IntArrayRef)[’'] has no member "
               r"named [‘'](?P<name>\w+)[’']"),
    re.compile(r"no member named '(?P<name>\w+)' in (?:namespace )?'(?P<space>[\w:]+)'"),
    re.compile(r"[‘'](?P<name>cuda\w+|AT_\w+|TORCH_\w+|C10_\w+)[’'] was not declared(?P<space>)"),
    re.compile(r"[‘'](?P<name>\w+)[’'] in namespace [‘'](?P<space>torch|at|c10)[\w:]*[’'] does "
               r"not name a type"),
)
UNDECLARED = re.compile(r"error: [‘'](?:::)?(\w+)[’'] (?:was not|has not been) declared")


def load_inline(
    name: str, cpp_sources: Any, cuda_sources: Any = None, functions: Any = None,
    extra_cflags: Sequence[str] | None = None, extra_cuda_cflags: Sequence[str] | None = None,
    extra_ldflags: Sequence[str] | None = None, extra_include_paths: Any = None,
    build_directory: Any = None, verbose: bool = False, with_cuda: bool | None = None,
    is_python_module: bool = True, with_pytorch_error_handling: bool = True,
    keep_intermediates: bool = True, use_pch: bool = False, no_implicit_headers: bool = False,
) -> ModuleType:
    """A module of C++ functions from sources in PyTorch's style.

    ``cpp_sources`` and ``cuda_sources`` are a str or a list of them; ``functions`` names those that
    become Python's: a name, a list, or a dict from name to doc; without it, what a PYBIND11_MODULE
    defines.  ``extra_cflags`` go to the C++ compiler, ``extra_cuda_cflags`` to the kernels'.  Of
    the other arguments none is needed: they are taken as PyTorch's are and change nothing, but
    ``extra_ldflags`` and ``extra_include_paths``, which are refused.

    Raises ValueError (with the source's line) for what is outside the subset, CompileError for
    what does not compile, RuntimeError where no C++ compiler is found.
    """
    if extra_ldflags or extra_include_paths:
        raise ValueError(f"load_inline links no libraries and has no include paths: {SUBSET}")
    sources = [(f"{name}.cpp", text) for text in texts_of(cpp_sources)]
    sources += [(f"{name}.cu", text) for text in texts_of(cuda_sources)]
    files = {numbered(file, place, sources): text for place, (file, text) in enumerate(sources)}
    parts = {file: parts_of(text) for file, text in files.items()}
    bound = {key: value for each in parts.values() for key, value in each.bindings.items()}
    wanted = wanted_functions(functions, bound)
    kernels: dict[str, Kernel] = {}
    for file, each in parts.items():
        for signature in Reader(each.device, tuple(extra_cuda_cflags or ())).kernels():
            kernels[signature.name] = Kernel(
                each.device, signature.name, tuple(extra_cuda_cflags or ()), file)
    text = host_text({file: each.host for file, each in parts.items()},
                     {key: bound.get(key, key) for key in wanted})
    try:
        library = host_library(name, text, tuple(extra_cflags or ()))
    except CompileError as error:
        raise explained(error, files) from None
    return module_of(name, library, kernels, wanted)


def texts_of(sources: Any) -> list[str]:
    """The sources as a list."""
    if sources is None:
        return []
    return [sources] if isinstance(sources, str) else list(sources)


def numbered(file: str, place: int, sources: Sequence[tuple[str, str]]) -> str:
    """The name of a source in messages: add.cu, or add_2.cu where there are several."""
    same = [at for at, (each, _) in enumerate(sources) if each == file]
    stem, _, ending = file.rpartition(".")
    return file if len(same) == 1 else f"{stem}_{same.index(place) + 1}.{ending}"


def wanted_functions(functions: Any, bound: Mapping[str, str]) -> dict[str, str]:
    """The functions to make, with their docs."""
    if functions is None:
        return dict.fromkeys(bound, "")
    if isinstance(functions, str):
        return {functions: ""}
    return dict(functions) if isinstance(functions, Mapping) else dict.fromkeys(functions, "")


def host_text(sources: Mapping[str, str], wanted: Mapping[str, str]) -> str:
    """The C++ text: our header, the sources' host parts, an entry for each function."""
    parts = ['#line 1 "extension.h"\n', HEADER.read_text()]
    for file, text in sources.items():
        parts += [f'\n#line 1 "{file}"\n', text]
    parts.append('\n#line 1 "functions"\n')
    parts += [WRAPPER.format(name=name, function=function) for name, function in wanted.items()]
    return "".join(parts)


def module_of(name: str, library: Any, kernels: dict[str, Kernel],
              wanted: Mapping[str, str]) -> ModuleType:
    """The module; it keeps the library and what C++ calls."""
    bridge = Bridge(kernels)
    attach(library, bridge)
    module = ModuleType(name, f"Functions of the extension {name}.")
    for each, doc in wanted.items():
        setattr(module, each, Function(each, doc, library, bridge))
    module.__dict__["_bridge"] = bridge
    return module


def explained(error: CompileError, files: Mapping[str, str]) -> Exception:
    """The C++ compiler's complaints in the user's lines; what is missing here is called so."""
    parts = []
    for file, source in files.items():
        for line, column, text in complaints(error.log, file):
            shown = pointed(source, (line, column), text, file)
            match = next(filter(None, (each.search(text) for each in MISSING)), None)
            if match is not None:
                space = f"{match['space']}::" if match["space"] else ""
                return ValueError(f"{space}{match['name']} is outside the subset of load_inline\n"
                                  f"{shown}\n  mend: {SUBSET}")
            parts.append(f"{text}\n{shown}")
    if not parts:
        undeclared = UNDECLARED.search(error.log)
        if undeclared:
            return ValueError(f"the sources define no function {undeclared[1]}, which functions= "
                              "names")
        return error
    made = CompileError(error.name, "\n".join(parts[:5]))
    made.log = error.log
    return made

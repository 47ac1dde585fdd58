"""``slipstream doctor``: says how the core runs here, what the machine offers, what is missing.

Looks for things and starts none of them: no device context, no compilation, no thread.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
import site
import sys
import sysconfig
from pathlib import Path
from typing import Any

import numpy

import slipstream as ss
from slipstream import _uncompiled
from slipstream.core.api.cuda.installation import installation
from slipstream.core.vocab.optional import install_command
from slipstream.core.vocab.settings import settings

SUMMARY = "say how the core runs here and what the machine offers"
PACKAGE = Path(__file__).resolve().parent.parent
COMPILERS = ("cc", "gcc", "clang")
OPTIONAL = {
    "safetensors": "saving and loading safetensors files",
    "rich": "progress bars",
    "scikit-learn": "the demo's digits",
}
CUDA_LIBRARIES = {
    "libcuda": "the driver: install NVIDIA's driver, 580 or newer",
    "libnvrtc": install_command("cuda"),
    "libcublasLt": install_command("cuda"),
}
BINDINGS = "cuda-bindings"
SYSTEM_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib/wsl/lib",
    "/usr/local/cuda/lib64",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("--json", action="store_true", help="print the report as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print the report; the status is 0 whatever it says."""
    found = report()
    print(json.dumps(found, indent=2) if arguments.json else as_text(found))
    return 0


def report() -> dict[str, Any]:
    """Return what is here: plain data, every missing thing with its mend under ``missing``."""
    found: dict[str, Any] = {
        "slipstream": version_of("slipstream") or "not installed, run from its sources",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "platform": platform.platform(),
        "core": core_state(),
        "compiler": compiler_state(),
        "numpy": f"{numpy.__version__}, BLAS {blas_name()}",
        "cores": usable_cores(),
        "memory_gib": memory_gib(),
        "packages": {name: version_of(name) for name in OPTIONAL},
        "driver": {"kind": "sim" if simulated() else "real", "usable": ss.cuda.is_available()},
        "cuda": {} if simulated() else {
            BINDINGS: version_of(BINDINGS),
            **{name: find_library(name) for name in CUDA_LIBRARIES},
        },
        "gpu": installation(),
    }
    found["missing"] = missing(found)
    return found


def simulated() -> bool:
    """Tell whether the simulated driver stands in for a card's."""
    return settings.driver == "sim"


def core_state() -> dict[str, Any]:
    """Return whether the core runs compiled, how many of its modules do, and why."""
    names = sorted(
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        for path in PACKAGE.rglob("*.pxd")
        # Those without a source beside them are declarations alone.
        if path.with_suffix(".py").exists()
    )
    compiled = [name for name in names if is_compiled(name)]
    return {
        "compiled": bool(names) and len(compiled) == len(names),
        "modules": len(names),
        "modules_compiled": len(compiled),
        "why": why_so(len(compiled), len(names)),
    }


def why_so(compiled: int, modules: int) -> str:
    """Return the reason for the state of the core."""
    if _uncompiled.wanted():
        return "SLIPSTREAM_CORE=uncompiled asks for the Python sources"
    if compiled == modules:
        return "built at install"
    if compiled:
        return "some modules were not compiled: the build is older than the sources"
    return "no compiled modules: no C compiler was found when it was installed"


def is_compiled(name: str) -> bool:
    """Tell whether a module would be loaded (or was loaded) from machine code."""
    spec = importlib.util.find_spec(name)
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    return spec is not None and (spec.origin or "").endswith(suffix)


def compiler_state() -> dict[str, Any]:
    """Return the C compiler on the PATH and whether Python's headers are there."""
    found = [path for path in map(shutil.which, COMPILERS) if path]
    header = Path(sysconfig.get_path("include")) / "Python.h"
    return {"path": found[0] if found else None, "headers": header.exists()}


def blas_name() -> str:
    """Return the BLAS that NumPy was built with."""
    config = numpy.show_config(mode="dicts")
    blas = (config or {}).get("Build Dependencies", {}).get("blas", {})
    return f"{blas.get('name', 'unknown')} {blas.get('version', '')}".strip()


def usable_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_gib() -> float:
    """Return the machine's memory in GiB."""
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return round(pages * size / 2**30, 1)


def version_of(name: str) -> str | None:
    """Return the version of an installed distribution, or None."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def library_folders() -> list[Path]:
    """Return where NVIDIA's libraries lie: wheels in site-packages first, then the system's."""
    roots = {*site.getsitepackages(), sysconfig.get_path("purelib")}
    wheels = [path for root in sorted(roots) for path in Path(root).glob("nvidia/*/lib")]
    return wheels + [Path(folder) for folder in SYSTEM_FOLDERS]


def find_library(name: str) -> str | None:
    """Return the path of a shared library by looking for its file; nothing is loaded."""
    for folder in library_folders():
        found = sorted(folder.glob(f"{name}.so*"))
        if found:
            return str(found[0])
    return None


def missing(found: dict[str, Any]) -> list[str]:
    """Return one line for each missing thing: what it is and the mend."""
    lines = []
    if not found["core"]["compiled"]:
        lines.append(f"compiled core ({found['core']['why']}): {mend_of_core(found)}")
    if found["compiler"]["path"] is None:
        lines.append("C compiler: install gcc or clang (Debian: apt install gcc)")
    if not found["compiler"]["headers"]:
        lines.append("Python's C headers: install them (Debian: apt install python3-dev)")
    for name, use in OPTIONAL.items():
        if found["packages"][name] is None:
            lines.append(f"{name}, for {use}: pip install {name}")
    for name, mend in {BINDINGS: install_command("cuda"), **CUDA_LIBRARIES}.items():
        if name in found["cuda"] and found["cuda"][name] is None:
            lines.append(f"{name} (only for NVIDIA GPUs): {mend}")
    if simulated() and not found["driver"]["usable"]:
        lines.append("the simulated driver's C++ compiler: install g++ (Debian: apt install g++)")
    elif found["cuda"].get("libcuda") is not None or found["gpu"]["driver"] is not None:
        # Without a driver's library the lines above say it all.
        lines += found["gpu"]["faults"]
    return lines


def mend_of_core(found: dict[str, Any]) -> str:
    """Return what would make the core run compiled."""
    if _uncompiled.wanted():
        return "unset SLIPSTREAM_CORE"
    if found["compiler"]["path"] is None:
        return "install a C compiler, then install slipstream again"
    return "install slipstream again (in a checkout: make build)"


def gpu_rows(gpu: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the rows on CUDA: driver, compiler, cards, library and kept kernels."""
    kept = gpu["cache"]
    rows = [("kernels", f"{kept['kernels']} kept, {kept['mib']} MiB, in {kept['folder']}")]
    if gpu["driver"] is None:
        return rows
    rows = [("driver", f"{gpu['driver']}, CUDA {gpu['cuda']}"), ("runtime", gpu["compiler"]), *rows]
    if gpu["cublaslt"] is not None:
        rows.insert(2, ("cuBLASLt", gpu["cublaslt"]))
    if gpu["cupti"] is not None:
        rows.insert(-1, ("CUPTI", gpu["cupti"]))
    for index, card in enumerate(gpu["cards"]):
        capability = "{}.{}".format(*card["capability"])
        rows.append((f"card {index}", f"{card['name']}, capability {capability}, "
                     f"{card['memory_gib']} GiB, {card['multiprocessors']} multiprocessors"))
    return rows


def as_text(found: dict[str, Any]) -> str:
    """Return the report as lines for a reader."""
    core, compiler = found["core"], found["compiler"]
    partly = "partly compiled" if core["modules_compiled"] else "uncompiled"
    state = "compiled" if core["compiled"] else partly
    headers = "with" if compiler["headers"] else "without"
    driver = found["driver"]
    usable = "yes" if driver["usable"] else "no"
    rows = [
        ("slipstream", found["slipstream"]),
        ("python", f"{found['python']} ({sys.executable})"),
        ("platform", found["platform"]),
        ("core", f"{state}, {core['modules_compiled']} of {core['modules']} modules are "
                 f"({core['why']})"),
        ("compiler", f"{compiler['path'] or 'none'}, {headers} Python's headers"),
        ("numpy", found["numpy"]),
        ("machine", f"{found['cores']} cores, {found['memory_gib']} GiB"),
        *((name, version or "missing") for name, version in found["packages"].items()),
        ("driver", f"{driver['kind']} (usable: {usable})"),
        *((name, path or "not found") for name, path in found["cuda"].items()),
        *gpu_rows(found["gpu"]),
    ]
    width = max(len(name) for name, _ in rows)
    lines = [f"{name:<{width}}  {value}" for name, value in rows]
    return "\n".join(lines + [f"missing: {line}" for line in found["missing"]])

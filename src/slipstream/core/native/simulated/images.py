"""Images: kernels built for the host, loaded, with what the driver must know of each."""

from __future__ import annotations

import _ctypes
import ctypes
import re
import weakref
from pathlib import Path

from slipstream.core.native.simulated.toolchain import Toolchain, load_library
from slipstream.core.native.simulated.transform import KernelText, transform

HERE = Path(__file__).parent
HEADER = "\n".join(
    (HERE / name).read_text() for name in ("abi.h", "device.h", "arithmetic.h", "warps.h"))
TABLE = """
}}
extern "C" __attribute__((visibility("default"))) void slip_image_of(slip_image *image) {{
    static const slip_kernel kernels[] = {{ {kernels} }};
    image->kernels = kernels;
    image->count = {count};
    image->shared_start = SLIP_SHARED_START;
    image->shared_end = SLIP_SHARED_END;
    image->dynamic_shared = slip_shared_memory;
}}
"""
ROW = ("slip_describe<decltype(&{symbol}), &{symbol}>::kernel(\"{name}\", "
       "(unsigned)({threads}), (unsigned)({cluster})), ")
KEPT_OPTIONS = re.compile(r"(-D\s*|--define-macro=|-U\s*|--undefine-macro=|-std=|--std=)(.*)")
SHORT = {"--define-macro=": "-D", "--undefine-macro=": "-U", "--std=": "-std="}


class Parameter(ctypes.Structure):
    """slip_parameter."""

    _fields_ = (("offset", ctypes.c_uint), ("size", ctypes.c_uint), ("kind", ctypes.c_uint))


class Kernel(ctypes.Structure):
    """slip_kernel."""

    _fields_ = (
        ("name", ctypes.c_char_p), ("run", ctypes.c_void_p),
        ("parameters", ctypes.POINTER(Parameter)), ("count", ctypes.c_uint),
        ("nbytes", ctypes.c_uint), ("max_threads", ctypes.c_uint), ("local", ctypes.c_uint),
        ("cluster", ctypes.c_uint),
    )


class ImageTable(ctypes.Structure):
    """slip_image."""

    _fields_ = (
        ("kernels", ctypes.POINTER(Kernel)), ("count", ctypes.c_uint),
        ("shared_start", ctypes.c_size_t), ("shared_end", ctypes.c_size_t),
        ("dynamic_shared", ctypes.c_size_t),
    )


class Image:
    """A loaded image; its library is closed when nothing refers to it any longer."""

    def __init__(self, content: bytes) -> None:
        library = load_library(content)
        self.table = ImageTable()
        library.slip_image_of(ctypes.byref(self.table))
        self.address = ctypes.addressof(self.table)
        kernels = (self.table.kernels[n] for n in range(self.table.count))
        self.kernels = {kernel.name.decode(): kernel for kernel in kernels}
        weakref.finalize(self, _ctypes.dlclose, library._handle).atexit = False

    def static_shared(self) -> int:
        """Bytes of the static shared arrays of all kernels together."""
        return self.table.shared_end - self.table.shared_start


def build(toolchain: Toolchain, name: str, source: str, options: tuple[str, ...], arch: str,
          arrays: bool = True) -> bytes:
    """Build CUDA C++ for the host; raises CompileError with the user's lines.

    ``arrays``: check the indices of shared and local arrays.
    """
    text, kernels = transform(source)
    number = re.sub(r"\D", "", arch) or "90"
    whole = "".join((
        HEADER, f"\n#define __CUDA_ARCH__ {number}0\n",
        f'namespace {{\n#line 1 "{file_name(name)}"\n', text, table(kernels, name)))
    return toolchain.build(name, whole, (*host_options(options), *toolchain.kernel_flags(arrays)))


def rewriting() -> str:
    """The sources that rewrite kernels: an image depends on them as on the header."""
    return "".join((HERE / name).read_text() for name in ("tokens.py", "checking.py",
                                                           "transform.py"))


def file_name(name: str) -> str:
    """What the compiler's messages call a source."""
    return re.sub(r"[^\w.<>-]", "_", name) + ".cu"


def host_options(options: tuple[str, ...]) -> tuple[str, ...]:
    """Those of NVRTC's options that mean something to the host's compiler, in its words."""
    found = []
    for option in options:
        match = KEPT_OPTIONS.fullmatch(option)
        if match and not match[2].endswith(("11", "14")):
            found.append(SHORT.get(match[1], match[1].strip()) + match[2])
    return tuple(found)


def table(kernels: list[KernelText], wanted: str) -> str:
    """The C++ text that lists the kernels; ``wanted`` may name an instance of a template."""
    rows = []
    for kernel in kernels:
        symbol, name = f"slip_global_{kernel.name}", kernel.name
        if kernel.template:
            base, _, arguments = wanted.partition("<")
            if base.strip() != kernel.name or not arguments:
                continue
            symbol, name = f"{symbol}<{arguments}", wanted
        rows.append(ROW.format(symbol=symbol, name=name, threads=kernel.max_threads,
                               cluster=kernel.cluster))
    return TABLE.format(kernels="".join(rows) or "{0, 0, 0, 0, 0, 0, 0, 0}", count=len(rows))

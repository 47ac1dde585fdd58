"""Code for the host beside kernels: built by the machine's C++ compiler, kept on disk, loaded."""

from __future__ import annotations

import ctypes
import hashlib
from typing import Any

from slipstream.core.api.interop import wrap
from slipstream.core.launch.cuda.modules import folder, keep, read_kept
from slipstream.core.shapes.specs import specs
from slipstream.core.vocab import optional
from slipstream.core.vocab.dtypes import DType
from slipstream.core.vocab.settings import settings

FLAGS = ("-std=c++17", "-O2", "-w", "-x", "c++")
MISSING = ("a C++ compiler builds the host's part, and none was found: install g++ or clang++ "
           "(Debian and Ubuntu: apt install g++; macOS: xcode-select --install), or name one in "
           "CXX; slipstream.cuda.kernel needs none")


def host_library(name: str, text: str, flags: tuple[str, ...] = ()) -> ctypes.PyDLL:
    """A library of C++ text, loaded; its functions are called with the interpreter's lock held.

    Raises RuntimeError where there is no compiler, CompileError with the compiler's words.
    """
    toolchain = compiler()
    parts = (text, toolchain.version, *FLAGS, *flags)
    key = "host" + hashlib.sha256("\0".join(parts).encode()).hexdigest()
    path = folder() / key[4:6] / key
    image = read_kept(path, key)
    if image is None:
        image = toolchain.build(name, text, (*FLAGS, *flags))
        keep(path, key, image)
    library = optional.load("core.native.simulated.toolchain").load_library(image)
    return ctypes.PyDLL(None, handle=library._handle)


def compiler() -> Any:
    """The machine's C++ compiler; raises RuntimeError with the mend where there is none."""
    try:
        return optional.load("core.native.simulated.toolchain").Toolchain(
            settings.simulated.compiler)
    except RuntimeError as error:
        raise RuntimeError(MISSING) from error


def address_in(tensor: Any) -> int:
    """The address of a tensor's first element; does not wait."""
    address: int = tensor.storage.address + tensor.offset * tensor.spec.itemsize
    return address


def tensor_at(tensor: Any, address: int, dtype: DType) -> Any:
    """What lies in a tensor's memory from an address on, as one dimension of a dtype.

    None where the address is elsewhere; raises ValueError where it is between two elements.
    """
    storage = tensor.storage
    offset = address - storage.address
    if not 0 <= offset <= storage.nbytes or (offset == storage.nbytes and offset):
        return None
    if offset % dtype.itemsize:
        raise ValueError(f"a pointer to {dtype.name} starts between two elements")
    count = (storage.nbytes - offset) // dtype.itemsize
    spec = specs.contiguous(tensor.spec.device, dtype, (count,))
    return wrap(spec, storage, offset // dtype.itemsize)

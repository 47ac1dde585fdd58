"""Sharing memory with other libraries: DLPack, and arrays that NumPy makes of tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from slipstream.core.api.interop import from_numpy, shared_array
from slipstream.core.engine.tape import tape
from slipstream.core.launch.door import door
from slipstream.core.vocab import dtypes
from slipstream.core.vocab.devices import CPU


def wrapped(self: Any, array: np.ndarray, context: Any = None, return_scalar: bool = False) -> Any:
    """A NumPy function's result of tensors: a tensor over it."""
    return from_numpy(np.asarray(array))


def dlpack_device(self: Any) -> tuple[int, int]:
    """(device type, index) in DLPack's numbering: 1 is the CPU."""
    if self.spec.device is not CPU:
        raise BufferError(f"no DLPack device for {self.spec.device}")
    return 1, 0


def dlpack(self: Any, *, stream: Any = None, max_version: Any = None, dl_device: Any = None,
           copy: bool | None = None) -> Any:
    """A DLPack capsule over the tensor's memory (versioned where the consumer asks for 1.x)."""
    if tape.requires_grad(self):
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
    if self.spec.dtype is dtypes.bfloat16:
        raise BufferError("bfloat16 cannot be exported through NumPy's DLPack")
    dlpack_device(self)
    source = self.clone() if copy else self
    door.settle_storage(source.storage)
    keywords = {} if max_version is None else {"max_version": max_version}
    if source.storage.read_only and max_version is None:
        raise BufferError("a read-only tensor needs a DLPack 1.x consumer")
    return shared_array(source).__dlpack__(**keywords)


class Capsule:
    """A bare DLPack capsule of CPU memory, as an object that hands it out."""

    def __init__(self, capsule: Any) -> None:
        self.capsule = capsule

    def __dlpack__(self, **options: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


def from_dlpack(source: Any) -> Any:
    """A tensor that shares the memory of any object with ``__dlpack__`` on the CPU, or of a
    DLPack capsule, which is used up by that.

    Raises TypeError for anything else, BufferError for memory that the CPU cannot reach.
    """
    if type(source).__name__ == "PyCapsule":
        source = Capsule(source)
    if not hasattr(source, "__dlpack__"):
        raise TypeError("from_dlpack(): expected a DLPack capsule or an object with __dlpack__, "
                        f"but got {type(source).__name__}")
    return from_numpy(np.from_dlpack(source))

"""DLPack: memory shared with other libraries, on the CPU and on cards.

The structures are those of DLPack 1.0; a consumer that asks for no version gets those of 0.8.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64
from typing import Any

from slipstream.core.api.guarded import CAPSULE, MEMORY, guarded
from slipstream.core.api.handing import LEGACY, Lease, send
from slipstream.core.api.interop import moved, wrap
from slipstream.core.engine.tape import tape
from slipstream.core.launch.door import backend_of, door
from slipstream.core.shapes.specs import specs
from slipstream.core.shapes.strides import contiguous_strides
from slipstream.core.vocab import dtypes
from slipstream.core.vocab.devices import CPU, Device
from slipstream.core.vocab.dtypes import DType
from slipstream.core.vocab.records import FOR_GOOD, Storage

# Device types: the CPU, a CUDA card, pinned memory.
ON_CPU, ON_CUDA, PINNED = 1, 2, 3
# Kinds of elements: signed, unsigned, float, bfloat, complex, bool.
SIGNED, UNSIGNED, FLOAT, BFLOAT, COMPLEX, BOOL = 0, 1, 2, 4, 5, 6
READ_ONLY = 1
OLD, NEW = b"dltensor", b"dltensor_versioned"
USED_OLD, USED_NEW = b"used_dltensor", b"used_dltensor_versioned"


class DLDevice(Structure):
    """Where memory lies."""

    _fields_ = (("type", c_int32), ("index", c_int32))


class DLDataType(Structure):
    """What an element is."""

    _fields_ = (("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16))


class DLTensor(Structure):
    """The tensor itself."""

    _fields_ = (("data", ctypes.c_void_p), ("device", DLDevice), ("ndim", c_int32),
                ("dtype", DLDataType), ("shape", POINTER(c_int64)), ("strides", POINTER(c_int64)),
                ("byte_offset", c_uint64))


class Managed(Structure):
    """A tensor and how it is let go of, before version 1.0."""

    _fields_ = (("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class ManagedVersioned(Structure):
    """The same since version 1.0."""

    _fields_ = (("major", c_uint32), ("minor", c_uint32), ("context", ctypes.c_void_p),
                ("deleter", ctypes.c_void_p), ("flags", c_uint64), ("tensor", DLTensor))


Deleter = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
# What consumers hold: the structure's address -> what it needs.
alive: dict[int, Any] = {}

api = ctypes.pythonapi
new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p,
                                ctypes.c_void_p)(("PyCapsule_New", api))
is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_IsValid", api))
pointer_in = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", api))
rename = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_SetName", api))


def let_go(address: int) -> None:
    """The deleter: the consumer is done."""
    alive.pop(address, None)


def capsule_gone(capsule: int) -> None:
    """The destructor of a capsule: one that nobody consumed lets go."""
    for name in (OLD, NEW):
        if is_valid(capsule, name):
            alive.pop(pointer_in(capsule, name), None)


# Kept for as long as anybody may call them.
by_ctypes = Deleter(let_go), Deleter(capsule_gone)
deleter, destructor = (
    guarded(slot, function) or ctypes.cast(called, ctypes.c_void_p).value
    for slot, function, called in zip((MEMORY, CAPSULE), (let_go, capsule_gone), by_ctypes,
                                      strict=True))


# -- out -----------------------------------------------------------------------------------------
def dlpack_device(self: Any) -> tuple[int, int]:
    """(device type, index) in DLPack's numbering: 1 is the CPU, 2 a CUDA card."""
    device = self.spec.device
    if device is CPU:
        return ON_CPU, 0
    if device.type != "cuda":
        raise BufferError(f"no DLPack device for {device}")
    return ON_CUDA, device.index or 0


def dlpack(self: Any, *, stream: Any = None, max_version: Any = None, dl_device: Any = None,
           copy: bool | None = None) -> Any:
    """A DLPack capsule over the tensor's memory (versioned where the consumer asks for 1.x).

    ``stream``: the consumer's stream of a card, whose work comes after what wrote the tensor: a
    handle, 1 or None the legacy default stream, 2 the thread's, -1 no order wanted.  Raises
    BufferError for what cannot be shared.
    """
    if tape.requires_grad(self):
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
    own = dlpack_device(self)
    source = self
    if dl_device is not None and tuple(dl_device) != own:
        if copy is False or tuple(dl_device) != (ON_CPU, 0):
            raise BufferError(f"the tensor is on DLPack device {own}, not {tuple(dl_device)}")
        source = moved(self, CPU)
    elif copy:
        source = self.clone()
    versioned = max_version is not None and max_version[0] >= 1
    if source.storage.read_only and not versioned:
        raise BufferError("a read-only tensor needs a DLPack 1.x consumer")
    order(source, stream)
    return capsule_of(source, versioned)


def order(source: Any, stream: Any) -> None:
    """Let the consumer's work come after what wrote the tensor."""
    device = source.spec.device
    if device is CPU:
        door.settle_storage(source.storage)
        return
    if isinstance(stream, bool) or not isinstance(stream, int | None) or stream == 0:
        raise TypeError(f"__dlpack__: 'stream' is None, -1 or a stream's handle, not {stream!r}")
    send(source.storage)
    if stream != -1:
        backend: Any = backend_of(device)
        backend.edges.let_follow(LEGACY if stream is None else stream)


def capsule_of(source: Any, versioned: bool) -> Any:
    """A capsule whose consumer keeps the tensor's storage, exported."""
    spec = source.spec
    made: Any = ManagedVersioned() if versioned else Managed()
    shape, strides = ((c_int64 * max(spec.ndim, 1))(*sizes) for sizes in (spec.shape, spec.strides))
    tensor = made.tensor
    tensor.device.type, tensor.device.index = dlpack_device(source)
    tensor.ndim = spec.ndim
    tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes = *element(spec.dtype), 1
    tensor.shape, tensor.strides = shape, strides
    tensor.data = source.storage.address + source.offset * spec.itemsize if spec.numel else None
    tensor.byte_offset = 0
    made.deleter = deleter
    if versioned:
        made.major, made.minor = 1, 0
        made.flags = READ_ONLY if source.storage.read_only else 0
    address = ctypes.addressof(made)
    alive[address] = (made, shape, strides, Lease(source.storage))
    return new_capsule(address, NEW if versioned else OLD, destructor)


def element(dtype: DType) -> tuple[int, int]:
    """(code, bits) of a dtype."""
    bits = 8 * dtype.itemsize
    if dtype is dtypes.bfloat16:
        return BFLOAT, bits
    if dtype is dtypes.bool_:
        return BOOL, bits
    kinds = {"i": SIGNED, "u": UNSIGNED, "f": FLOAT, "c": COMPLEX}
    return kinds[dtype.numpy.kind], bits


ELEMENTS = {element(dtype): dtype for dtype in dtypes.ALL}


# -- in ------------------------------------------------------------------------------------------
class Foreign:
    """Another library's memory, given back when the storage over it is released.

    ``lent``: the storage of ours that it is, where the capsule was made here.
    """

    def __init__(self, managed: Any, address: int) -> None:
        self.address = address
        held = alive.get(address)
        self.lent: Storage | None = None if held is None else held[3].storage
        self.deleter = managed.deleter

    def __del__(self) -> None:
        if self.deleter:
            Deleter(self.deleter)(self.address)


def from_dlpack(source: Any, *, device: Any = None, copy: bool | None = None) -> Any:
    """A tensor that shares the memory of a DLPack capsule, or any object with ``__dlpack__``.

    Memory of a card is ordered after the producer's work on our current stream.  ``device`` and
    ``copy``: where and whether it is copied.  Raises BufferError for what no tensor can be.
    """
    made = imported(source if type(source).__name__ == "PyCapsule" else asked(source))
    if device is not None and Device(device) is not made.spec.device:
        if copy is False:
            raise BufferError(f"from_dlpack: {made.spec!r} on {Device(device)} needs a copy")
        return moved(made, Device(device))
    return made.clone() if copy else made


def asked(source: Any) -> Any:
    """The capsule of an object: versioned where it knows of versions."""
    if not hasattr(source, "__dlpack__"):
        raise TypeError("from_dlpack(): expected a DLPack capsule or an object with __dlpack__, "
                        f"but got {type(source).__name__}")
    keywords: dict[str, Any] = {}
    kind, index = source.__dlpack_device__()
    if kind == ON_CUDA:
        queue = backend_of(Device("cuda", index)).queue()  # type: ignore[attr-defined]
        queue.send("exported storage")
        keywords["stream"] = queue.stream
    try:
        return source.__dlpack__(max_version=(1, 0), **keywords)
    except TypeError:
        return source.__dlpack__(**keywords)


def imported(capsule: Any) -> Any:
    """A tensor over what a capsule holds, which is used up."""
    at = id(capsule)
    versioned = bool(is_valid(at, NEW))
    if not versioned and not is_valid(at, OLD):
        raise BufferError(f"from_dlpack: {capsule!r} is used up, or no DLPack capsule")
    address = pointer_in(at, NEW if versioned else OLD)
    managed: Any = (ManagedVersioned if versioned else Managed).from_address(address)
    if versioned and managed.major != 1:
        raise BufferError(f"from_dlpack: DLPack version {managed.major} is not known")
    made = over(managed.tensor)
    rename(at, USED_NEW if versioned else USED_OLD)
    made.storage.keep = Foreign(managed, address)
    made.storage.read_only = bool(versioned and managed.flags & READ_ONLY)
    return made


def over(tensor: Any) -> Any:
    """A tensor over foreign memory."""
    dtype = ELEMENTS.get((tensor.dtype.code, tensor.dtype.bits))
    if dtype is None or tensor.dtype.lanes != 1:
        raise BufferError("from_dlpack: no dtype has elements of DLPack kind "
                          f"{tensor.dtype.code}, {tensor.dtype.bits} bits")
    if tensor.device.type not in (ON_CPU, ON_CUDA, PINNED):
        raise BufferError(f"from_dlpack: memory of DLPack device {tensor.device.type} is no "
                          "memory of the CPU or a CUDA card")
    device = Device("cuda", tensor.device.index) if tensor.device.type == ON_CUDA else CPU
    shape = tuple(tensor.shape[place] for place in range(tensor.ndim))
    strides = (tuple(tensor.strides[place] for place in range(tensor.ndim))
               if tensor.strides else contiguous_strides(shape))
    low, high = extent(shape, strides)
    storage = Storage(device, (tensor.data or 0) + tensor.byte_offset + low * dtype.itemsize,
                      (high - low) * dtype.itemsize)
    # Its owner may use it at any time.
    storage.exported = FOR_GOOD
    return wrap(specs.intern(device, dtype, shape, strides), storage, -low)


def extent(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, int]:
    """The lowest offset that is touched, and the one behind the highest."""
    if 0 in shape:
        return 0, 0
    reach = [(size - 1) * step for size, step in zip(shape, strides, strict=True)]
    return sum(min(each, 0) for each in reach), sum(max(each, 0) for each in reach) + 1

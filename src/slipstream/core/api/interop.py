"""Tensors and the world outside: NumPy, Python numbers, copies between devices."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from slipstream.core.api.handing import Lease, export, typestr
from slipstream.core.api.values import array_of_data
from slipstream.core.catalog import copying
from slipstream.core.catalog.table import ops
from slipstream.core.engine.tape import tape
from slipstream.core.kernels.cpu.arrays import array_of, tensor_array
from slipstream.core.launch.door import backend_of, door
from slipstream.core.launch.waiting import asked, wait
from slipstream.core.shapes import formats
from slipstream.core.shapes.specs import specs
from slipstream.core.vocab import dtypes
from slipstream.core.vocab.devices import CPU, Device
from slipstream.core.vocab.dtypes import BY_NUMPY, DType, spelled
from slipstream.core.vocab.modes import modes
from slipstream.core.vocab.records import Storage, TensorBase


class UntypedStorage:
    """A tensor's storage as bytes."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def nbytes(self) -> int:
        """Its size in bytes."""
        return self._storage.nbytes

    size = nbytes

    def __len__(self) -> int:
        return self._storage.nbytes

    def data_ptr(self) -> int:
        """Its address; other code may read and write there."""
        return export(self._storage)

    @property
    def device(self) -> Device:
        """Where it lies."""
        return self._storage.device

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UntypedStorage) and other._storage is self._storage

    def __hash__(self) -> int:
        return id(self._storage)


class Owner:
    """Keeps a tensor's storage alive under an array, and tells NumPy where the memory lies."""

    def __init__(self, tensor: TensorBase, writable: bool) -> None:
        self.lease = Lease(tensor.storage)
        spec = tensor.spec
        itemsize = spec.itemsize
        self.__array_interface__ = {
            "shape": spec.shape, "version": 3, "typestr": typestr(spec.dtype),
            "strides": tuple(step * itemsize for step in spec.strides),
            "data": (tensor.storage.address + tensor.offset * itemsize, not writable),
        }


def shared_array(tensor: Any) -> np.ndarray:
    """An array over the tensor's memory that keeps it alive."""
    if not tensor.spec.numel:
        return np.empty(tensor.spec.shape, tensor.spec.dtype.numpy)
    array = np.asarray(Owner(tensor, not tensor.storage.read_only))
    return array.view(tensor.spec.dtype.numpy) if array.dtype.kind == "V" else array


def to_numpy(self: Any, *, force: bool = False) -> np.ndarray:
    """An array that shares the tensor's memory.

    Raises RuntimeError for a tensor that requires grad, TypeError for one that is not on the CPU;
    ``force=True`` detaches and copies to the CPU first.  bfloat16 comes as ml_dtypes.bfloat16.
    """
    if tape.requires_grad(self):
        if not force:
            raise RuntimeError("Can't call numpy() on Tensor that requires grad. "
                               "Use tensor.detach().numpy() instead.")
        self = self.detach()
    if self.spec.device is not CPU:
        if not force:
            raise TypeError(f"can't convert {self.spec.device} device type tensor to numpy. Use "
                            "Tensor.cpu() to copy the tensor to host memory first.")
        self = asked("numpy", self, to, self, "cpu")
    door.settle_storage(self.storage)
    return shared_array(self)


def as_array(self: Any, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
    """NumPy's own conversion; ValueError where ``copy`` is False and another dtype asks for one."""
    array = to_numpy(self)
    if dtype is not None and array.dtype != dtype:
        if copy is False:
            raise ValueError("Unable to avoid copy while creating an array as requested: the "
                             f"tensor is of {self.spec.dtype}, not {np.dtype(dtype)}")
        return array.astype(dtype)
    return array.copy() if copy else array


def from_numpy(array: np.ndarray) -> Any:
    """A tensor that shares the array's memory, whatever its strides.

    Raises TypeError for what is no array or for a dtype that no tensor has.  A read-only array
    gives a tensor that refuses in-place writes.
    """
    if not isinstance(array, np.ndarray):
        raise TypeError(f"expected np.ndarray (got {type(array).__name__})")
    dtype = BY_NUMPY.get(array.dtype)
    if dtype is None:
        known = ", ".join(each.name for each in dtypes.ALL)
        raise TypeError(f"can't convert np.ndarray of type {array.dtype}. The only supported types "
                        f"are: {known}.")
    if any(step % dtype.itemsize for step in array.strides):
        raise ValueError("given numpy array strides not a multiple of the element byte size. "
                         "Copy the numpy array to reallocate the memory.")
    strides = tuple(step // dtype.itemsize for step in array.strides)
    address, nbytes, offset = _extent(array, strides)
    storage = Storage(CPU, address, nbytes)
    storage.keep = array
    storage.read_only = not array.flags.writeable
    return wrap(specs.intern(CPU, dtype, array.shape, strides), storage, offset)


def _extent(array: np.ndarray, strides: tuple[int, ...]) -> tuple[int, int, int]:
    """The lowest address that the array touches, the bytes from there, the first's offset."""
    if not array.size:
        return array.ctypes.data, 0, 0
    low = sum((n - 1) * s for n, s in zip(array.shape, strides, strict=True) if s < 0)
    high = sum((n - 1) * s for n, s in zip(array.shape, strides, strict=True) if s > 0)
    itemsize = array.itemsize
    return array.ctypes.data + low * itemsize, (high - low + 1) * itemsize, -low


def wrap(spec: Any, storage: Storage, offset: int = 0) -> Any:
    """A tensor over a storage."""
    out: Any = TensorBase.__new__(tape.tensor_class)
    out.spec = spec
    out.storage = storage
    out.offset = offset
    out.record = None
    out.base = None
    return out


# What reads one element where the host may at once; ctypes has no type for the other dtypes.
READERS: dict[DType, Any] = {dtypes.float32: ctypes.c_float, dtypes.float64: ctypes.c_double,
           dtypes.int64: ctypes.c_int64, dtypes.int32: ctypes.c_int32,
           dtypes.uint8: ctypes.c_uint8, dtypes.bool_: ctypes.c_bool}


# -- Python numbers ------------------------------------------------------------------------------
def item(self: Any) -> Any:
    """The only element as a Python number; waits for the device.

    Raises RuntimeError for tensors of another size, or without data.
    """
    if self.spec.numel != 1:
        raise RuntimeError(f"a Tensor with {self.spec.numel} elements cannot be converted to "
                           f"Scalar: {self.spec!r}\n  mend: tolist() gives every element, "
                           "x[i].item() one of them")
    reader = READERS.get(self.spec.dtype)
    if (reader is not None and modes.listeners is None
            and backend_of(self.spec.device).immediate):
        door.settle_storage(self.storage)
        return reader.from_address(
            self.storage.address + self.offset * self.spec.itemsize).value
    return host_array(self, "item").reshape(()).astype(_wide(self.spec.dtype)).item()


def _wide(dtype: DType) -> Any:
    return np.float32 if dtype is dtypes.bfloat16 else dtype.numpy


def host_array(self: Any, reason: str) -> np.ndarray:
    """The elements as an array, after waiting; RuntimeError on the meta device."""
    device = self.spec.device
    if not backend_of(device).has_data:
        raise RuntimeError(f"Tensor.{reason}() cannot be called on meta tensors: {self.spec!r}")
    if not backend_of(device).on_host:
        # The copy is what waits; the array keeps it alive.
        return shared_array(asked(reason, self, moved, self.detach(), CPU))
    wait(device, reason)
    door.settle_storage(self.storage)
    return tensor_array(self)


def tolist(self: Any) -> Any:
    """Nested lists of Python numbers; a number for a 0-dim tensor."""
    if not self.spec.ndim:
        return item(self)
    return host_array(self, "tolist").astype(_wide(self.spec.dtype)).tolist()


def truth(self: Any) -> bool:
    """The truth of the only element."""
    if self.spec.numel != 1:
        what = "no values" if not self.spec.numel else "more than one value"
        raise RuntimeError(f"Boolean value of Tensor with {what} is ambiguous: {self.spec!r}"
                           "\n  mend: ask any() or all() of it, or use & and | in place of and, or")
    return bool(_number(self, "bool"))


def _number(self: Any, name: str) -> Any:
    """`item`, for a call that the user wrote in another way."""
    return item(self) if self.spec.device is CPU else asked(name, self, item, self)


def _converted(self: Any, name: str) -> Any:
    """`_number`, for Python's own types: they raise ValueError for tensors of another size."""
    if self.spec.numel != 1:
        raise ValueError("only one element tensors can be converted to Python scalars: "
                         f"{name}() of {self.spec!r}\n  mend: tolist() gives every element")
    return _number(self, name)


def as_int(self: Any) -> int:
    """int(tensor)."""
    return int(_converted(self, "int"))


def as_index(self: Any) -> int:
    """The only element of an integer tensor, as an index."""
    if self.spec.dtype.category > 1 or self.spec.numel != 1:
        raise TypeError("only integer tensors of a single element can be converted to an index")
    return int(_number(self, "__index__"))


def as_float(self: Any) -> float:
    """float(tensor); RuntimeError where an imaginary part would be lost."""
    value = _converted(self, "float")
    if isinstance(value, complex):
        if value.imag:
            raise RuntimeError("value cannot be converted to type double without overflow: it is "
                               f"complex: {value}")
        value = value.real
    return float(value)


def as_complex(self: Any) -> complex:
    """complex(tensor)."""
    return complex(_converted(self, "complex"))


# -- making tensors ------------------------------------------------------------------------------
def tensor(data: Any, *, dtype: DType | None = None, device: Any = None,
           requires_grad: bool = False, pin_memory: bool = False) -> Any:
    """A new tensor of a Python number, nested lists, an array or a tensor (copied).

    Without ``dtype``: bool, int64, the default dtype or its complex dtype, by the kind of the
    values; an array's, NumPy scalar's or tensor's own dtype, in lists too.  Raises ValueError for
    ragged lists, TypeError for what is no number, RuntimeError for integers that the dtype cannot
    hold.
    """
    dtype = dtype_of_argument("tensor", dtype)
    if isinstance(data, TensorBase):
        made = to(data.detach().clone(), device, dtype)  # type: ignore[attr-defined]
    else:
        made = copied(array_of_data(data, dtype), _target_device(device))
    if pin_memory:
        made = ops.pinned.call((made, None), None)
    return made.requires_grad_(True) if requires_grad else made


def dtype_of_argument(name: str, dtype: Any) -> DType | None:
    """A dtype, or the one that a Python type of numbers stands for; TypeError for other values."""
    dtype = spelled(dtype)
    if dtype is None or isinstance(dtype, DType):
        return dtype
    raise TypeError(f"{name}(): argument 'dtype' must be slipstream.dtype, not "
                    f"{type(dtype).__name__}")


def _target_device(device: Any) -> Device:
    if device is not None:
        return Device(device)
    return tape_device() or CPU


def tape_device() -> Device | None:
    """The thread's default device."""
    return default_device()


def copied(array: np.ndarray, device: Device) -> Any:
    """A tensor with memory of its own holding the array's elements."""
    source = from_numpy(np.array(array, order="C", copy=True))
    backend = backend_of(device)
    if not backend.on_host:
        return moved(source, device)
    spec = specs.contiguous(device, source.spec.dtype, source.spec.shape)
    storage = Storage(device, backend.memory.allocate(spec.nbytes), spec.nbytes, backend.owner)
    made = wrap(spec, storage)
    if backend.has_data:
        # Nothing is pending on a new block, so its bytes may be set at once.
        tensor_array(made)[...] = tensor_array(source)
    return made


def as_tensor(data: Any, dtype: DType | None = None, device: Any = None) -> Any:
    """A tensor of the data, sharing its memory where that is possible."""
    dtype = dtype_of_argument("as_tensor", dtype)
    if isinstance(data, np.ndarray):
        data = from_numpy(data)
    if isinstance(data, TensorBase):
        return to(data, device, dtype)
    return tensor(data, dtype=dtype, device=device)


class Defaults:
    """Where `tensor` finds the default device; set by `api.defaults`."""

    device: Any = staticmethod(lambda: None)


def default_device() -> Device | None:
    """The thread's default device, or None."""
    return Defaults.device()


# -- copies between devices and dtypes ------------------------------------------------------------
def to(self: Any, *args: Any, **kwargs: Any) -> Any:
    """The tensor on a device and in a dtype: itself if it is that already.

    ``to(dtype)``, ``to(device)``, ``to(device, dtype)``, ``to(other)``, with ``non_blocking``,
    ``copy`` and ``memory_format``.
    """
    dtype, device, rest = _parse_to(self, args, dict(kwargs))
    copy_wanted, memory_format, hurry = rest
    spec = self.spec
    out = self
    if device is not None and device is not spec.device:
        out = hurried(self) if hurry and device is CPU else moved(self, device)
    if dtype is not None and dtype is not spec.dtype:
        keywords = {} if memory_format is None else {"memory_format": memory_format}
        return ops.to_dtype.call((out, dtype), keywords)
    if memory_format not in (None, formats.preserve_format) and not formats.is_in_format(
            memory_format, out.spec.shape, out.spec.strides):
        return ops.clone.call((out,), {"memory_format": memory_format})
    return ops.clone.call((out,), None) if copy_wanted and out is self else out


def _parse_to(self: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    dtype, device = spelled(kwargs.pop("dtype", None)), kwargs.pop("device", None)
    flags = []
    for value in args:
        value = spelled(value)
        if isinstance(value, DType):
            dtype = value
        elif isinstance(value, TensorBase):
            dtype, device = value.spec.dtype, value.spec.device
        elif isinstance(value, (str, Device)) or (isinstance(value, int) and not isinstance(
                value, bool)):
            device = value
        elif value is None or isinstance(value, bool):
            flags.append(value)
        else:
            raise TypeError(f"to() received an invalid argument of type {type(value).__name__}")
    other = kwargs.pop("other", None)
    if other is not None:
        dtype, device = other.spec.dtype, other.spec.device
    hurry = kwargs.pop("non_blocking", bool(flags and flags[0]))
    copy_wanted = kwargs.pop("copy", flags[1] if len(flags) > 1 and flags[0] is not None else False)
    memory_format = kwargs.pop("memory_format", None)
    if kwargs:
        raise TypeError(f"to() got an unexpected keyword argument '{next(iter(kwargs))}'")
    rest = (bool(copy_wanted), memory_format, bool(hurry))
    return dtype, None if device is None else Device(device), rest


def to_card(self: Any, device: Any = None) -> Any:
    """The tensor on a CUDA device, by default the current one; RuntimeError for another kind."""
    wanted = Device("cuda" if device is None else device)
    if wanted.type != "cuda":
        raise RuntimeError(f"Invalid device, must be cuda device: {wanted}\n"
                           f"  mend: x.to('{wanted}')")
    return to(self, wanted)


def moved(self: Any, device: Device) -> Any:
    """The tensor's elements on another device."""
    if device is CPU and self.spec.device is not CPU:
        return asked("to", self, ops.to_device.call, (self, device), None)
    return ops.to_device.call((self, device), None)


def hurried(self: Any) -> Any:
    """The elements in pinned memory of the CPU; what reads them waits, the host goes on until then.

    As `moved` where they cannot come so.
    """
    if self.spec.device.type == "cuda" and self.spec.contiguous and not tape.requires_grad(self):
        made = copying.pinned_memory(
            specs.contiguous(CPU, self.spec.dtype, self.spec.shape), self.spec.device)
        if copy_from_device(made, self):
            return made
    return moved(self, CPU)


def as_class(self: Any, cls: Any) -> Any:
    """The same tensor as an instance of a subclass."""
    if type(self) is cls:
        return self
    if not issubclass(cls, TensorBase):
        raise TypeError(f"as_subclass expects a subclass of Tensor, not {cls.__name__}")
    # Not the class's own __new__, which may take data and call this function.
    out = TensorBase.__new__(cls)
    out.spec, out.storage, out.offset = self.spec, self.storage, self.offset
    out.record, out.base = self.record, self.base
    return out


# -- pinned memory -------------------------------------------------------------------------------
def pin_memory(self: Any, device: Any = None) -> Any:
    """A copy in pinned memory, which copies to and from the card need not wait for.

    Raises RuntimeError for a tensor that is not on the CPU, and where there is no CUDA driver.
    """
    return ops.pinned.call((self, device), None)


def is_pinned(self: Any, device: Any = None) -> bool:
    """Whether the tensor lies in pinned memory of a CUDA device."""
    return copying.is_pinned(self)


def record_stream(self: Any, stream: Any) -> None:
    """Let the tensor's memory serve nobody else before what ``stream`` has to do by now is done.

    What Slipstream launches is known without it: it is for other code's work on the stream.
    Raises RuntimeError for a tensor that is not on the stream's device.
    """
    queue = getattr(stream, "queue", None)
    if queue is None:
        raise TypeError("record_stream(): argument 'stream' must be Stream, not "
                        f"{type(stream).__name__}")
    if stream.device is not self.spec.device:
        raise RuntimeError(f"record_stream(): the stream is of {stream.device}, and the tensor "
                           f"lies on {self.spec.device}")
    if queue.owner.memory.uses is not None:
        # Nobody counted what other code launched: it counts as one launch, the last one so far.
        queue.sequence += 1
        queue.note_uses((self,), queue.sequence)


def copy_from_device(self: Any, source: Any) -> bool:
    """Let a copy from a card into a pinned tensor run while the host goes on.

    False where it cannot: another dtype, shape or layout.
    """
    fits = (self.spec.dtype is source.spec.dtype and self.spec.shape == source.spec.shape
            and self.spec.contiguous and source.spec.contiguous and self.spec.nbytes)
    if not fits or tape.requires_grad(self) or tape.requires_grad(source):
        return False
    backend: Any = backend_of(source.spec.device)
    if backend.on_host or not is_pinned(self):
        return False
    itemsize = self.spec.itemsize
    backend.pins().to_host(self.storage, self.storage.address + self.offset * itemsize,
                           source.storage.address + source.offset * itemsize, self.spec.nbytes)
    queue = backend.queue()
    if queue.shared:
        queue.note_uses((source,), queue.sequence)
    if queue.capture is not None:
        queue.capture.hold((source,))
    self.storage.version += 1
    return True


__all__ = ["array_of", "from_numpy", "tensor"]

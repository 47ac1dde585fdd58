"""The class Tensor: attributes, conversions to Python, history; ops' methods are installed."""

from __future__ import annotations

import numbers
import operator
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from slipstream.core.api import (
    arrays,
    constructors,
    copies,
    dlpack,
    handing,
    history,
    indexing,
    interop,
    methods,
    text,
)
from slipstream.core.api.constructors import construct, dtype_named, new_tensor, type_name
from slipstream.core.api.size import Size
from slipstream.core.catalog.table import ops
from slipstream.core.dispatch.writing import resize
from slipstream.core.engine.tape import tape
from slipstream.core.launch.waiting import asked
from slipstream.core.shapes import formats
from slipstream.core.vocab.devices import CPU, Device
from slipstream.core.vocab.dtypes import DType
from slipstream.core.vocab.records import TensorBase

if TYPE_CHECKING:
    from slipstream._tensor_methods import TensorMethods

    class Methods(TensorMethods, TensorBase):
        """What checkers see: the ops' methods, which are installed at import."""

else:
    Methods = TensorBase


class Tensor(Methods):
    """An array of elements of one dtype on one device, with PyTorch's names and semantics.

    Tensors are made by functions such as `slipstream.tensor`, `zeros` and `randn`; called, the
    class makes them in PyTorch's old way, `constructors.construct`.
    """

    __slots__ = ()
    # NumPy leaves operators to us, and makes tensors of its functions' results.
    __array_priority__ = 1000
    __array_wrap__ = arrays.array_wrap

    def __new__(cls, *data: Any, **options: Any) -> Any:
        """PyTorch's constructor: `Tensor(2, 3)` by sizes, `Tensor([2, 3])` by values, of the
        default dtype; see `constructors.made_by`."""
        return constructors.made_by(cls, data, options)

    # -- what it is ------------------------------------------------------------------------------
    @property
    def shape(self) -> Size:
        """The sizes of the dims."""
        return Size(self.spec.shape)

    def size(self, dim: int | None = None) -> Any:
        """All sizes, or that of one dim."""
        return Size(self.spec.shape) if dim is None else history.item_of_dims(self.spec.shape, dim)

    def stride(self, dim: int | None = None) -> Any:
        """All strides in elements, or that of one dim."""
        return self.spec.strides if dim is None else history.item_of_dims(self.spec.strides, dim)

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.spec.dtype

    @property
    def device(self) -> Device:
        """Where the memory lies."""
        return self.spec.device

    @property
    def ndim(self) -> int:
        """Number of dims."""
        return self.spec.ndim

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.spec.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.spec.nbytes

    @property
    def layout(self) -> formats.Layout:
        """Always strided."""
        return formats.strided

    def dim(self) -> int:
        """Number of dims."""
        return self.spec.ndim

    def numel(self) -> int:
        """Number of elements."""
        return self.spec.numel

    # Kinds of tensors that there are not.
    is_sparse = is_nested = is_quantized = False
    nelement = numel
    ndimension = dim

    def element_size(self) -> int:
        """Bytes of one element."""
        return self.spec.itemsize

    def storage_offset(self) -> int:
        """Where the first element lies in the storage, in elements."""
        return self.offset

    def data_ptr(self) -> int:
        """The address of the first element; other code may read and write there."""
        return handing.address_of(self)

    def untyped_storage(self) -> interop.UntypedStorage:
        """The storage, as bytes."""
        return interop.UntypedStorage(self.storage)

    def is_contiguous(self, memory_format: Any = formats.contiguous_format) -> bool:
        """Whether the elements lie in the order of the memory format, without gaps."""
        return formats.is_in_format(memory_format, self.spec.shape, self.spec.strides)

    def is_floating_point(self) -> bool:
        """Whether the dtype is a float dtype."""
        return self.spec.dtype.is_floating_point

    def is_complex(self) -> bool:
        """Whether the dtype is complex."""
        return self.spec.dtype.is_complex

    def is_signed(self) -> bool:
        """Whether the dtype has negative numbers."""
        return self.spec.dtype.is_signed

    def get_device(self) -> int:
        """The device's index; -1 on the CPU."""
        return -1 if self.spec.device.index is None else self.spec.device.index

    @property
    def is_cuda(self) -> bool:
        """Whether the device is a CUDA device."""
        return self.spec.device.type == "cuda"

    @property
    def is_cpu(self) -> bool:
        """Whether the device is the CPU."""
        return self.spec.device.type == "cpu"

    @property
    def is_meta(self) -> bool:
        """Whether the tensor has no data."""
        return self.spec.device.type == "meta"

    # -- history ---------------------------------------------------------------------------------
    @property
    def requires_grad(self) -> bool:
        """Whether backward computes a gradient for it."""
        return tape.requires_grad(self)

    @requires_grad.setter
    def requires_grad(self, wanted: bool) -> None:
        history.set_requires_grad(self, wanted)

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Say whether backward shall compute a gradient for this leaf; returns self."""
        history.set_requires_grad(self, requires_grad)
        return self

    grad = property(history.grad_of, history.set_grad, history.delete_grad,
                    "The gradient that backward accumulated, or None.")
    grad_fn = property(history.node_of, doc="The node of the tape that made this tensor, or None.")
    is_leaf = property(history.is_leaf, doc="Whether it was made by the user, not by an op.")
    retains_grad = property(history.retains_grad, doc="Whether retain_grad was called.")
    output_nr = property(history.output_number, doc="Which result of its node it is.")
    _version = property(lambda self: self.storage.version, doc="In-place writes so far.")
    _base = property(lambda self: self.base, doc="The tensor it is a view of, or None.")
    data = property(history.data_of, history.set_data, doc="The tensor outside the tape.")
    T = property(lambda self: ops.permute.call(
        (self, tuple(range(self.spec.ndim - 1, -1, -1))), None), doc="The dims reversed.")
    mT = property(lambda self: ops.transpose.call((self, -2, -1), None),
                  doc="The last two dims swapped.")
    mH = property(lambda self: ops.transpose.call((ops.conj.call((self,), None), -2, -1), None),
                  doc="The last two dims swapped, and conjugated.")
    H = property(lambda self: ops.transpose.call((ops.conj_physical.call((self,), None), -2, -1),
                                                 None), doc="Conjugate transpose of a matrix.")
    real = property(lambda self: ops.real.call((self,), None), doc="The real parts, as a view.")
    imag = property(lambda self: ops.imag.call((self,), None),
                    doc="The imaginary parts, as a view.")

    backward = history.backward
    register_hook = history.register_hook
    register_post_accumulate_grad_hook = history.register_post_accumulate_grad_hook
    retain_grad = history.retain_grad
    detach_ = history.detach_

    def resize_(self, *size: Any, memory_format: Any = None) -> Tensor:
        """Change the shape in place, with new memory where the storage is too small."""
        sizes = size[0] if len(size) == 1 and isinstance(size[0], (tuple, list)) else size
        if tape.requires_grad(self):
            raise RuntimeError("cannot resize variables that require grad")
        before = self.spec
        resize(self, tuple(operator.index(each) for each in sizes))
        # Whoever saved this tensor for backward finds it changed.
        self.storage.version += self.spec is not before
        return self

    transpose_ = swapaxes_ = swapdims_ = history.view_in_place("transpose")
    squeeze_ = history.view_in_place("squeeze")
    unsqueeze_ = history.view_in_place("unsqueeze")
    t_ = history.view_in_place("t")
    as_strided_ = history.view_in_place("as_strided")

    set_ = history.set_
    copy_ = history.copy_

    def zero_(self) -> Tensor:
        """Set every element to zero."""
        return ops.fill.call_inplace((self, 0), None)

    # -- to Python -------------------------------------------------------------------------------
    item = interop.item
    tolist = interop.tolist
    numpy = interop.to_numpy
    __array__ = interop.as_array
    __dlpack__ = dlpack.dlpack
    __dlpack_device__ = dlpack.dlpack_device
    __cuda_array_interface__ = property(handing.cuda_array_interface)
    __bool__ = interop.truth
    __int__ = interop.as_int
    __index__ = interop.as_index
    __float__ = interop.as_float
    __complex__ = interop.as_complex
    __repr__ = text.represent

    def __format__(self, form: str) -> str:
        if self.spec.ndim == 0 and self.spec.device.type != "meta":
            return format(self.item(), form)
        return object.__format__(self, form)

    def __len__(self) -> int:
        if not self.spec.ndim:
            raise TypeError("len() of a 0-d tensor")
        return self.spec.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        if not self.spec.ndim:
            raise TypeError("iteration over a 0-d tensor")
        return iter(ops.unbind.call((self, 0), None))

    __getitem__ = indexing.get_item
    __setitem__ = indexing.set_item
    __delitem__ = methods.delete_item
    positive = __pos__ = methods.positive
    __invert__ = methods.inverted

    def __contains__(self, value: Any) -> bool:
        if not isinstance(value, (TensorBase, numbers.Number)):
            raise RuntimeError("Tensor.__contains__ only supports Tensor or scalar, but you passed "
                               f"in a {type(value)}.")
        return bool((self == value).any())

    __copy__ = copies.shallow_copy
    __deepcopy__ = copies.deep_copy

    def __reduce_ex__(self, protocol: Any) -> Any:
        return copies.reduced(self)

    # -- conversions -----------------------------------------------------------------------------
    to = interop.to
    contiguous = methods.contiguous

    def type(self, dtype: Any = None) -> Any:
        """The name of its kind, or the tensor in a dtype, also given as FloatTensor or a name."""
        if dtype is None:
            return type_name(self.spec)
        return ops.cast.call((self, dtype_named(dtype)), None)

    def type_as(self, other: Tensor) -> Tensor:
        """The tensor in the dtype of another."""
        if not isinstance(other, TensorBase):
            raise TypeError(f"type_as(): argument 'other' must be Tensor, not "
                            f"{other.__class__.__name__}")
        return ops.cast.call((self, other.spec.dtype), None)

    def where(self, condition: Tensor, other: Any) -> Tensor:
        """The tensor where ``condition``, else ``other``."""
        return ops.where.call((condition, self, other), None)

    def new(self, *args: Any) -> Any:
        """A tensor of sizes or of data, of this one's dtype and device."""
        return construct(args, self.spec.dtype, self.spec.device)

    new_tensor = new_tensor

    def cpu(self) -> Tensor:
        """The tensor on the CPU."""
        if self.spec.device is CPU:
            return self
        return asked("cpu", self, interop.to, self, "cpu")

    def cuda(self, device: Any = None, non_blocking: bool = False) -> Tensor:
        """The tensor on a CUDA device."""
        return interop.to_card(self, device)

    def pin_memory(self, device: Any = None) -> Tensor:
        """A copy in pinned memory; see `interop.pin_memory`."""
        return interop.pin_memory(self, device)

    def is_pinned(self, device: Any = None) -> bool:
        """Whether the tensor lies in pinned memory."""
        return interop.is_pinned(self, device)

    def record_stream(self, stream: Any) -> None:
        """Keep the memory for other code's work on a stream; see `interop.record_stream`."""
        interop.record_stream(self, stream)

    def as_subclass(self, cls: Callable[..., Any]) -> Any:
        """The same tensor as an instance of a subclass."""
        return interop.as_class(self, cls)


Tensor.__module__ = "slipstream"

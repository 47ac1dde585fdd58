"""The old constructors: ``Tensor([1.0, 2.0])``, ``Tensor(2, 3)``, ``FloatTensor(...)``.

Integers are sizes of a tensor whose elements are not set; a sequence or an array is data.  New
programs write ``tensor`` and ``empty``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from slipstream.core.api import interop
from slipstream.core.api.size import Size
from slipstream.core.catalog.table import ops
from slipstream.core.dispatch.promotion import defaults
from slipstream.core.vocab import dtypes
from slipstream.core.vocab.devices import CPU, Device
from slipstream.core.vocab.dtypes import DType
from slipstream.core.vocab.records import TensorBase


def _is_size(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def construct(args: tuple[Any, ...], dtype: DType | None, device: Any = None) -> Any:
    """A tensor of sizes or of data, in ``dtype`` or the default float dtype.

    TypeError for anything else, and for a tensor of another dtype.
    """
    wanted = defaults.dtype if dtype is None else dtype
    options = {"dtype": wanted, "device": device}
    if all(_is_size(each) for each in args) or (len(args) == 1 and isinstance(args[0], Size)):
        size = tuple(args[0]) if args and isinstance(args[0], Size) else args
        return ops.empty.call((size or (0,),), options)
    if len(args) != 1:
        raise TypeError("new() takes sizes, or one sequence of data, but got "
                        f"({', '.join(type(each).__name__ for each in args)})")
    data = args[0]
    if isinstance(data, TensorBase):
        if dtype is not None and data.spec.dtype is not wanted:
            raise TypeError(f"expected a tensor of {wanted.name} (got {data.spec!r})\n"
                            f"  mend: .to(slipstream.{wanted.name})")
        return ops.view.call((data, data.spec.shape), None)
    if not isinstance(data, (Sequence, np.ndarray)) or isinstance(data, str):
        raise TypeError(f"new(): data must be a sequence (got {type(data).__name__})\n"
                        "  mend: slipstream.tensor takes single numbers")
    return interop.tensor(data, dtype=wanted, device=device)


def made_by(cls: Any, data: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """What ``Tensor(...)`` gives, as an instance of ``cls``; see `construct`.

    ``data=`` and ``size=`` name the one argument.
    """
    given = dict(options)
    for name in ("data", "size"):
        if name in given and not data:
            data = (given.pop(name) if name == "data" else Size(given.pop(name)),)
    device = _device(given)
    if device is not None and Device(device) is not CPU:
        raise RuntimeError("legacy constructor expects device type: cpu but device type: "
                           f"{Device(device).type} was passed\n"
                           "  mend: slipstream.tensor(data, device=...)")
    return interop.as_class(construct(data, None, None), cls)


def _device(kwargs: dict[str, Any]) -> Any:
    """The one keyword that there is."""
    unknown = [name for name in kwargs if name != "device"]
    if unknown:
        raise TypeError(f"new() got an unexpected keyword argument '{unknown[0]}'")
    return kwargs.get("device")


class TypedConstructor(type):
    """The class of FloatTensor and its like: calls make tensors, isinstance looks at the dtype."""

    dtype: DType

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """A tensor of sizes or of data; see `construct`."""
        return construct(args, cls.dtype, _device(kwargs))

    def __instancecheck__(cls, value: Any) -> bool:
        return (isinstance(value, TensorBase) and value.spec.dtype is cls.dtype
                and value.spec.device.type == "cpu")


_TYPES = {"Float": dtypes.float32, "Double": dtypes.float64, "Half": dtypes.float16,
          "BFloat16": dtypes.bfloat16, "Long": dtypes.int64, "Int": dtypes.int32,
          "Short": dtypes.int16, "Char": dtypes.int8, "Byte": dtypes.uint8, "Bool": dtypes.bool_}
_NAMES = {dtypes.complex64: "ComplexFloat", dtypes.complex128: "ComplexDouble",
          **{_dtype: _name for _name, _dtype in _TYPES.items()}}
TYPED: dict[str, Any] = {
    f"{_name}Tensor": TypedConstructor(f"{_name}Tensor", (), {
        "dtype": _dtype, "__module__": "slipstream",
        "__doc__": f"Constructs tensors of {_dtype.name}; isinstance tells those on the CPU."})
    for _name, _dtype in _TYPES.items()}


def new_tensor(self: Any, data: Any, *, dtype: Any = None, device: Any = None,
               requires_grad: bool = False, pin_memory: bool = False) -> Any:
    """``tensor(data)``, of this one's dtype and device where none is given."""
    return interop.tensor(data, dtype=self.spec.dtype if dtype is None else dtype,
                  device=self.spec.device if device is None else device,
                  requires_grad=requires_grad, pin_memory=pin_memory)


def type_name(spec: Any) -> str:
    """What ``tensor.type()`` says, in PyTorch's words: scripts compare it with such names."""
    place = "" if spec.device.type == "cpu" else f"{spec.device.type}."
    return f"torch.{place}{_NAMES[spec.dtype]}Tensor"


def dtype_named(value: Any) -> Any:
    """The dtype that Tensor.type is given: itself, FloatTensor, or a name such as these have."""
    if not isinstance(value, str):
        return getattr(value, "dtype", value)
    name = value.rpartition(".")[2]
    found = TYPED[name].dtype if name in TYPED else dtypes.BY_NAME.get(name)
    if found is None:
        raise ValueError(f"invalid type: '{value}'")
    return found


def where(*args: Any, **kwargs: Any) -> Any:
    """``where(condition, self, other)``: self where condition, else other; broadcasting.

    ``where(condition)``: the places of what is true, an int64 vector for each dim.
    """
    if len(args) == 1 and not kwargs:
        return ops.nonzero.call(args, {"as_tuple": True})
    return ops.where(*args, **kwargs) if "out" in kwargs else ops.where.call(args, kwargs)

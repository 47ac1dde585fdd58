"""Copies, casts and fills."""

from __future__ import annotations

from typing import Any

from slipstream.core.catalog import samples
from slipstream.core.catalog.table import define, ops
from slipstream.core.dispatch import promotion
from slipstream.core.dispatch.entry import COMPOUND, POINTWISE, Entry
from slipstream.core.shapes import formats
from slipstream.core.shapes.strides import strides_like
from slipstream.core.vocab import dtypes


def _format_layout(call: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    given = call.arguments.get("memory_format")
    spec = call.spec("self")
    if given is None or given is formats.preserve_format:
        return strides_like(spec.shape, spec.strides)
    return formats.strides_for(given, shape)


def _cast_dtypes(call: Any) -> Any:
    return call.spec("self").dtype, call["dtype"]


def _copied(call: Any) -> Any:
    own = call.spec("self").dtype
    return call.spec("source").dtype, own


def _fill_dtypes(call: Any) -> Any:
    own = call.spec("self").dtype
    value = call["value"]
    kind = value.spec.dtype.category if hasattr(value, "spec") else (
        promotion.dtype_of_number(value).category)
    if kind == 3 and own.category < 3:
        raise call.error(RuntimeError, "value cannot be converted to type "
                                       f"{own.name} without loss: it is complex")
    return own, own


def _fill_check(call: Any) -> None:
    value = call["value"]
    if hasattr(value, "spec") and value.spec.ndim:
        raise call.error(RuntimeError, "fill_ only supports 0-dimension value tensor but got tensor "
                                       f"with {value.spec.ndim} dimensions.")


define(Entry(
    "clone(Tensor self, *, any memory_format=None)", POINTWISE,
    formula=lambda self: self, gradient={"self": lambda g: g}, path="clone",
    promotion=promotion.cast_to_self, layout=_format_layout, samples=samples.unary,
    reference=lambda x: x.copy(), doc="A copy with memory of its own.",
))
define(Entry(
    "to_dtype(Tensor self, dtype dtype, *, any memory_format=None)", POINTWISE,
    formula=lambda self: self,
    gradient={"self": lambda g, self_spec: ops.to_dtype.call((g, self_spec.dtype), None)},
    promotion=_cast_dtypes, layout=_format_layout, path="", method=False,
    doc="A copy in another dtype.",
))
define(Entry(
    "copy(Tensor self, Tensor source, bool non_blocking=False)", POINTWISE,
    formula=lambda source: source,
    gradient={"self": lambda g: g * 0,
              "source": lambda g, source_spec: ops.cast_like.call((g, source_spec), None)},
    promotion=_copied, converts=True, inplace=True, path="", method=False,
    doc="copy_: the elements of source, broadcast and cast, written into self.",
))
define(Entry(
    "fill(Tensor self, Tensor|Number value)", POINTWISE,
    formula=lambda value: value, check=_fill_check,
    gradient={"self": lambda g: g * 0, "value": lambda g: g}, promotion=_fill_dtypes,
    converts=True, inplace=True, path="fill",
    doc="self's shape and dtype, every element the value.",
))


def _contiguous(self: Any, memory_format: Any) -> Any:
    wanted = memory_format or formats.contiguous_format
    if wanted is formats.preserve_format:
        raise RuntimeError("preserve memory format is unsupported by the contiguous operator")
    spec = self.spec
    if formats.is_in_format(wanted, spec.shape, spec.strides):
        return self
    return ops.clone.call((self,), {"memory_format": wanted})


def _cast(self: Any, dtype: Any) -> Any:
    return self if self.spec.dtype is dtype else ops.to_dtype.call((self, dtype), None)


define(Entry("contiguous(Tensor self, *, any memory_format=None)", COMPOUND, function=_contiguous,
             path="", doc="The tensor itself if it is in the memory format, else such a copy."))
define(Entry("cast(Tensor self, dtype dtype)", COMPOUND, function=_cast, path="", method=False,
             doc="The tensor itself if it has the dtype, else a copy in it."))
define(Entry("cast_like(Tensor self, any spec)", COMPOUND, path="", method=False,
             function=lambda self, spec: _cast(self, spec.dtype),
             doc="The tensor in a spec's dtype."))
for _name, _dtype in (("float", dtypes.float32), ("double", dtypes.float64),
                      ("half", dtypes.float16), ("bfloat16", dtypes.bfloat16),
                      ("int", dtypes.int32), ("long", dtypes.int64), ("short", dtypes.int16),
                      ("char", dtypes.int8), ("byte", dtypes.uint8), ("bool", dtypes.bool_),
                      ("cfloat", dtypes.complex64), ("cdouble", dtypes.complex128)):
    define(Entry(f"{_name}(Tensor self)", COMPOUND, path="",
                 function=lambda self, dtype=_dtype: _cast(self, dtype),
                 doc=f"The tensor as {_dtype.name}."))


def _to_device(self: Any, device: Any) -> Any:
    """A copy on another device: an empty tensor there, filled by copy_."""
    made = ops.empty_strided_memory.call(
        (self.spec.shape, strides_like(self.spec.shape, self.spec.strides), self.spec.dtype, None,
         device), None)
    return ops.copy_between.call((made, self), None)


define(Entry("to_device(Tensor self, device device)", COMPOUND, path="", method=False,
             function=_to_device, doc="A copy on another device."))

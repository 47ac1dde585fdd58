# cython: annotation_typing=False
"""New tensors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from slipstream.core.catalog import samples
from slipstream.core.catalog.table import define, ops
from slipstream.core.dispatch.arguments import ints
from slipstream.core.dispatch.entry import COMPOUND, CREATION, POINTWISE, Entry
from slipstream.core.dispatch.numbers import check_fits
from slipstream.core.dispatch.promotion import defaults, dtype_of_number
from slipstream.core.dispatch.registry import Candidate
from slipstream.core.dispatch.signature import parse
from slipstream.core.kernels.cpu.arrays import no_kernel
from slipstream.core.kernels.cpu.ranges import RangeKernel
from slipstream.core.shapes import formats
from slipstream.core.shapes.strides import strides_like
from slipstream.core.vocab import dtypes
from slipstream.core.vocab.records import TensorBase

PLACE = "dtype? dtype=None, any layout=None, device? device=None"
TAIL = f"{PLACE}, bool requires_grad=False, bool pin_memory=False"


def _empty_shape(call: Any) -> Any:
    shape = ints(call["size"])
    dtype = call["dtype"] or defaults.dtype
    given = call["memory_format"]
    if given is None or given is formats.preserve_format:
        return [(dtype, shape)]
    return [(dtype, shape, formats.strides_for(given, shape))]


def _strided_shape(call: Any) -> Any:
    size, stride = tuple(call["size"]), tuple(call["stride"])
    if len(size) != len(stride):
        raise call.error(RuntimeError, f"dimensionality of sizes ({len(size)}) must match "
                                       f"dimensionality of strides ({len(stride)})")
    if any(step < 0 for step in stride):
        raise call.error(RuntimeError, "empty_strided needs strides that are not negative")
    return [(call["dtype"] or defaults.dtype, size, stride)]


_nothing = Candidate("nothing", lambda plan, call: no_kernel)
define(Entry(f"empty_memory(int[] size, {PLACE}, any memory_format=None)", CREATION,
             shape=_empty_shape, method=False, path="", doc="Memory that is not filled."),
       cpu=_nothing, cuda="creation.nothing")
define(Entry(f"empty_strided_memory(int[] size, int[] stride, {PLACE})", CREATION,
             shape=_strided_shape, method=False, path="", doc="Memory that is not filled."),
       cpu=_nothing, cuda="creation.nothing")


define(Entry("full_memory(int[] size, Number value, dtype dtype, device? device=None)", POINTWISE,
             formula=lambda value: value, shape=lambda call: ints(call["size"]),
             promotion=lambda call: (call["dtype"], call["dtype"]), method=False, path="",
             doc="One value everywhere."))


def _grad(tensor: Any, requires_grad: bool) -> Any:
    return tensor.requires_grad_(True) if requires_grad else tensor


def _empty(size: Any, *options: Any) -> Any:
    dtype, _, device, requires_grad, _, memory_format = options
    made = ops.empty_memory.call((ints(size), dtype, None, device, memory_format), None)
    return _grad(made, requires_grad)


def filled(size: Any, value: Any, dtype: Any, device: Any, requires_grad: bool = False) -> Any:
    """A tensor of one value."""
    if isinstance(value, TensorBase):
        made = ops.empty_memory.call((ints(size), dtype, None, device, None), None)
        made = ops.fill.call_inplace((made, value), None)
        return made.requires_grad_(True) if requires_grad else made
    kind = dtype_of_number(value).category
    if dtype is None:
        dtype = defaults.dtype
    if kind == 3 and dtype.category < 3:
        raise RuntimeError(f"value cannot be converted to type {dtype.name} without overflow: "
                           f"{value} is complex")
    # Zeros and ones every dtype holds; new sizes of full_memory are bound the short way.
    if type(value) is not int or not -1 < value < 2:
        check_fits(dtype, value)
    made = ops.full_memory.call((size, value, dtype, device), None)
    return made.requires_grad_(True) if requires_grad else made


def _full(size: Any, fill_value: Any, *options: Any) -> Any:
    dtype, _, device, requires_grad, _ = options
    if dtype is None:
        own = fill_value.spec.dtype if hasattr(fill_value, "spec") else dtype_of_number(fill_value)
        dtype = own
    return filled(size, fill_value, dtype, device, requires_grad)


def pinning(signature: str, function: Any) -> Any:
    """The function of an entry, whose result lies in pinned memory where ``pin_memory`` is set."""
    names = parse(signature).names
    if "pin_memory" not in names:
        return function
    place = names.index("pin_memory")

    def make(*values: Any) -> Any:
        made = function(*values)
        return ops.pinned.call((made, None), None) if values[place] else made

    return make


def creation(signature: str, function: Any, doc: str, **facts: Any) -> None:
    """An entry of a function that makes tensors."""
    facts.setdefault("path", signature.partition("(")[0])
    facts.setdefault("method", False)
    define(Entry(signature, COMPOUND, function=pinning(signature, function), doc=doc, **facts))


_sizes = samples.plain_arguments(((2, 3),), ((),), ((0, 2),))
UNSET = {"samples": "its elements are not set"}
creation(f"empty(int... size, *, {TAIL}, any memory_format=None)", _empty,
         "A tensor whose elements are not set.", exceptions=UNSET,
         memory=lambda size: (ops.empty_memory, (size, defaults.dtype, None, None, None)))
creation(f"empty_strided(int[] size, int[] stride, *, {TAIL})",
         lambda size, stride, dtype, layout, device, requires_grad, pin_memory: _grad(
             ops.empty_strided_memory.call((tuple(size), tuple(stride), dtype, None, device), None),
             requires_grad),
         "A tensor of given strides whose elements are not set.", exceptions=UNSET)
creation(f"zeros(int... size, *, {TAIL})",
         lambda size, dtype, layout, device, requires_grad, pin_memory: filled(
             size, 0, dtype, device, requires_grad), "Zeros.",
         memory=lambda size: (ops.full_memory, (size, 0, defaults.dtype, None)),
         samples=_sizes, reference=np.zeros)
creation(f"ones(int... size, *, {TAIL})",
         lambda size, dtype, layout, device, requires_grad, pin_memory: filled(
             size, 1, dtype, device, requires_grad), "Ones.",
         memory=lambda size: (ops.full_memory, (size, 1, defaults.dtype, None)),
         samples=_sizes, reference=np.ones)
creation(f"full(int[] size, any fill_value, *, {TAIL})", _full,
         "One value everywhere; its dtype is the value's unless given.",
         samples=samples.plain_arguments(((2, 3), 2.5), ((), 7), ((0, 2), True), ((2,), 1 + 2j)),
         reference=np.full)


def _like(value: Any) -> Any:
    def make(self: Any, *options: Any, fill_value: Any = value) -> Any:
        dtype, _, device, requires_grad, _, memory_format = options
        spec = self.spec
        preserve = memory_format is None or memory_format is formats.preserve_format
        strides = strides_like(spec.shape, spec.strides) if preserve else (
            formats.strides_for(memory_format, spec.shape))
        made = ops.empty_strided_memory.call(
            (spec.shape, strides, dtype or spec.dtype, None, device or spec.device), None)
        if fill_value is not None:
            ops.fill.call_inplace((made, fill_value), None)
        return _grad(made, requires_grad)

    return make


def _known(value: Any, shapes: Any) -> dict[str, Any]:
    """Samples and the reference of a function that makes tensors of one value, if it has one."""
    if value is None:
        return {"exceptions": UNSET}
    return {"samples": shapes, "reference": lambda x, shape=None: np.full(
        x.shape if shape is None else shape, value)}


for _name, _value in (("empty", None), ("zeros", 0), ("ones", 1)):
    creation(f"{_name}_like(Tensor self, *, {TAIL}, any memory_format=None)", _like(_value),
             f"{_name} of the shape, dtype and layout of self.", **_known(_value, samples.unary))


def _full_like(self: Any, fill_value: Any, *rest: Any) -> Any:
    if fill_value is None:
        raise TypeError("full_like(): argument 'fill_value' must be Number, not NoneType")
    return _like(None)(self, *rest, fill_value=fill_value)


creation(f"full_like(Tensor self, any fill_value, *, {TAIL}, any memory_format=None)",
         _full_like, "One value in the shape, dtype and layout of self.",
         samples=samples.with_arguments(((2, 3), (2,)), ((), (True,)), ((0, 2), (3,))),
         reference=lambda x, value: np.full(x.shape, value))


def _new(value: Any) -> Any:
    def make(self: Any, size: Any, dtype: Any, layout: Any, device: Any, requires_grad: bool,
             pin_memory: bool) -> Any:
        spec = self.spec
        if value is None:
            made = ops.empty_memory.call(
                (ints(size), dtype or spec.dtype, None, device or spec.device, None), None)
            return _grad(made, requires_grad)
        return filled(size, value, dtype or spec.dtype, device or spec.device, requires_grad)

    return make


for _name, _value in (("empty", None), ("zeros", 0), ("ones", 1)):
    creation(f"new_{_name}(Tensor self, int... size, *, {TAIL})", _new(_value),
             f"{_name} with the dtype and device of self.", path="", method=True,
             **_known(_value, samples.with_arguments(((2,), ((3, 2),)), ((), ((),)))))
creation(f"new_full(Tensor self, int[] size, any fill_value, *, {TAIL})",
         lambda self, size, fill_value, dtype, layout, device, requires_grad, pin_memory: filled(
             size, fill_value, dtype or self.spec.dtype, device or self.spec.device, requires_grad),
         "One value with the dtype and device of self.", path="", method=True,
         samples=samples.with_arguments(((2,), ((3, 2), 2)), ((), ((), True))),
         reference=lambda x, shape, value: np.full(shape, value))


def _count(start: Any, end: Any, step: Any) -> int:
    if step == 0:
        raise RuntimeError("step must be nonzero")
    if (step > 0 and start > end) or (step < 0 and start < end):
        raise RuntimeError("upper bound and lower bound inconsistent with step sign: "
                           f"arange({start}, {end}, {step})")
    if isinstance(start, int) and isinstance(end, int) and isinstance(step, int):
        return max(0, -((start - end) // step))
    if not all(math.isfinite(value) for value in (start, end, step)):
        raise RuntimeError(f"unsupported range: {start} -> {end}")
    return max(0, math.ceil((end - start) / step))


define(Entry(f"range_of(int count, Number start, Number step, {PLACE})", CREATION, method=False,
             path="", shape=lambda call: [(call["dtype"], (call["count"],))],
             doc="start + step * index."),
       cpu=Candidate("range", lambda plan, call: RangeKernel()), cuda="creation.arange")


def _arange(start: Any, end: Any, step: Any, *options: Any) -> Any:
    dtype, _, device, requires_grad, _ = options
    if start is None and end is None:
        raise TypeError("arange() missing 1 required positional arguments: 'end'")
    if end is None or start is None:
        start, end = 0, start if end is None else end
    if type(start) is int and type(end) is int and type(step) is int:
        values = [start, end, step]
    else:
        values = [v.item() if hasattr(v, "item") else v for v in (start, end, step)]
    if dtype is None:
        whole = all([isinstance(v, int) for v in values])
        dtype = dtypes.int64 if whole else defaults.dtype
    elif dtype is dtypes.int64:
        values = [int(value) for value in values]
    count = _count(*values)
    if dtype.category == 1:
        values = [int(value) for value in values]
        if not values[2]:
            raise RuntimeError("step must be nonzero: arange() of integers cuts its fraction off")
    made = ops.range_of.call((count, values[0], values[2], dtype, None, device), None)
    return _grad(made, requires_grad)


creation(f"arange(any start=None, any end=None, any step=1, *, {TAIL})", _arange,
         "start, start + step, ... up to but without end.", reference=np.arange,
         samples=samples.plain_arguments((5,), (2, 7), (7, 2, -2), (0.5, 3.0, 0.25), (0,)))

"""Masks as indices: how many elements are true, where they are, which they are.

The result's shape depends on data: these ops wait for the device, and have none on meta.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from slipstream.core.catalog import indexing_samples, samples
from slipstream.core.catalog.table import define, ops
from slipstream.core.dispatch.entry import COMPOUND, INDEX, Entry
from slipstream.core.dispatch.registry import Candidate
from slipstream.core.kernels.cpu.arrays import tensor_array
from slipstream.core.kernels.cpu.gathering import MaskBinding
from slipstream.core.kernels.cpu.indexing import (
    CountKernel,
    NonzeroKernel,
    SelectKernel,
    SpreadKernel,
)
from slipstream.core.kernels.crossing import address_of
from slipstream.core.launch.door import backend_of
from slipstream.core.launch.waiting import read, wait
from slipstream.core.shapes.broadcast import broadcast_shapes
from slipstream.core.vocab import dtypes


def _mask_binding(spec: Any) -> MaskBinding:
    return MaskBinding(dtypes.bool_, spec.shape, spec.strides, spec.strides)


def _pair_binding(spec: Any, mask: Any) -> MaskBinding:
    return MaskBinding(spec.dtype, mask.shape, spec.strides, mask.strides)


define(Entry("count_true(Tensor mask)", INDEX, shape=lambda call: [(dtypes.int64, ())], path="",
             method=False, doc="How many elements of a mask are true, int64[]."),
       cpu=Candidate("mask loops", lambda plan, call: CountKernel(
           _mask_binding(call.spec("mask")))), cuda="masks.count")
define(Entry("true_places(Tensor mask, int count)", INDEX, path="", method=False,
             shape=lambda call: [(dtypes.int64, (call["count"], call.spec("mask").ndim),
                                  (1, max(call["count"], 1)))],
             doc="The coordinates of a mask's true elements, of which there are count."),
       cpu=Candidate("mask loops", lambda plan, call: NonzeroKernel(
           _mask_binding(call.spec("mask")))), cuda="masks.places")
define(Entry("true_elements(Tensor self, Tensor mask, int count)", INDEX, path="", method=False,
             shape=lambda call: [(call.spec("self").dtype, (call["count"],))],
             gradient={"self": lambda g, mask: ops.spread_true.call((g, mask), None)},
             doc="The elements where a mask of the same shape is true, of which there are count."),
       cpu=Candidate("mask loops", lambda plan, call: SelectKernel(
           _pair_binding(call.spec("self"), call.spec("mask")))), cuda="masks.select")


def _spread_kernel(plan: Any, call: Any) -> SpreadKernel:
    return SpreadKernel(_pair_binding(plan.out_spec, call.spec("mask")))


define(Entry("spread_dense(Tensor source, Tensor mask)", INDEX, path="", method=False,
             shape=lambda call: [(call.spec("source").dtype, call.spec("mask").shape)],
             gradient={"source": lambda g, mask, source_spec: ops.true_elements.call(
                 (g, mask, source_spec.numel), None)},
             doc="Zeros of the mask's shape, with the source's elements in turn where it is true."),
       cpu=Candidate("mask loops", _spread_kernel), cuda="masks.spread")
define(Entry("spread_true(Tensor source, Tensor mask)", COMPOUND, path="", method=False,
             function=lambda source, mask: ops.spread_dense.call(
                 (ops.contiguous.call((source,), None), mask), None),
             doc="spread_dense of a source with any strides."))


def readable(tensor: Any, name: str) -> np.ndarray:
    """A tensor's elements as an array; waits for the device, NotImplementedError on meta."""
    device = tensor.spec.device
    if not backend_of(device).has_data:
        raise NotImplementedError(f"{name}() of a meta tensor: its result depends on data, and "
                                  f"{tensor.spec!r} has none")
    if backend_of(device).on_host:
        wait(device, name)
        return tensor_array(tensor)
    dense = ops.contiguous.call((tensor,), None)
    data = read(device, address_of(dense), dense.spec.nbytes, name)
    return np.frombuffer(data, dense.spec.dtype.numpy).reshape(dense.spec.shape)


def counted(mask: Any, name: str) -> int:
    """How many elements of a mask are true; waits for the device."""
    return int(readable(ops.count_true.call((mask,), None), name))


def _first_true(mask: Any, size: int) -> tuple[Any, Any]:
    """The places of the first ``size`` true elements in order, and which of these there are.

    The k-th one is the first place up to which k elements are true: nothing has to be counted.
    """
    if size < 0:
        raise RuntimeError(f"'size' must be a non-negative integer, not {size}")
    numel = mask.spec.numel
    up_to = ops.cumsum.call((ops.reshape.call((mask, (-1,)), None), 0), None)
    numbers = ops.arange.call((1, size + 1), {"device": mask.spec.device})
    found = ops.searchsorted.call((up_to, numbers), None)
    return found, ops.lt.call((found, numel), None)


def _padded(mask: Any, size: int, fill_value: int) -> Any:
    """The coordinates of the first ``size`` true elements; rows of ``fill_value`` for the rest."""
    found, there = _first_true(mask, size)
    columns, step = [], 1
    for length in reversed(mask.spec.shape):
        part = ops.floor_divide.call((found, step), None)
        columns.append(ops.remainder.call((part, max(length, 1)), None))
        step *= max(length, 1)
    if not columns:
        return ops.empty.call(((size, 0),), {"dtype": dtypes.int64, "device": mask.spec.device})
    places = ops.stack.call((columns[::-1], 1), None)
    missing = ops.unsqueeze.call((ops.logical_not.call((there,), None), 1), None)
    return ops.masked_fill.call((places, missing, fill_value), None)


def _nonzero(self: Any, as_tuple: bool, size: int | None, fill_value: int) -> Any:
    mask = self if self.spec.dtype is dtypes.bool_ else ops.ne.call((self, 0), None)
    if as_tuple and not mask.spec.ndim:
        mask = ops.unsqueeze.call((mask, 0), None)
    if size is None:
        places = ops.true_places.call((mask, counted(mask, "nonzero")), None)
    else:
        places = _padded(mask, size, fill_value)
    return ops.unbind.call((places, 1), None) if as_tuple else places


def _mask_of(mask: Any) -> Any:
    if mask.spec.dtype is dtypes.uint8:
        return ops.ne.call((mask, 0), None)
    if mask.spec.dtype is not dtypes.bool_:
        raise RuntimeError("masked_select: expected BoolTensor or ByteTensor for mask, but got "
                           f"{mask.spec!r}")
    return mask


def _expanded(tensor: Any, shape: tuple[int, ...]) -> Any:
    return tensor if tensor.spec.shape == shape else ops.expand.call((tensor, shape), None)


def _masked_select(self: Any, mask: Any, size: int | None, fill_value: Any) -> Any:
    mask = _mask_of(mask)
    shape = broadcast_shapes(self.spec.shape, mask.spec.shape)
    mask = _expanded(mask, shape)
    if size is not None:
        return _padded_select(_expanded(self, shape), mask, size, fill_value)
    count = counted(mask, "masked_select")
    return ops.true_elements.call((_expanded(self, shape), mask, count), None)


def _padded_select(self: Any, mask: Any, size: int, fill_value: Any) -> Any:
    """The first ``size`` elements where a mask of the same shape is true, padded."""
    found, there = _first_true(mask, size)
    if not self.spec.numel:
        return ops.new_full.call((self, (size,), fill_value), None)
    inside = ops.clamp.call((found, None, self.spec.numel - 1), None)
    taken = ops.index_select.call((ops.reshape.call((self, (-1,)), None), 0, inside), None)
    return ops.masked_fill.call((taken, ops.logical_not.call((there,), None), fill_value), None)


def _masked_scatter(self: Any, mask: Any, source: Any) -> Any:
    if source.spec.dtype is not self.spec.dtype:
        raise RuntimeError("masked_scatter: expected self and source to have same dtypes but got "
                           f"{self.spec!r} and {source.spec!r}")
    if mask.spec.dtype is not dtypes.bool_:
        raise RuntimeError("masked_scatter_ only supports boolean masks, but got mask with dtype "
                           f"{mask.spec.dtype.name}")
    shape = broadcast_shapes(self.spec.shape, mask.spec.shape)
    mask = _expanded(mask, shape)
    count = counted(mask, "masked_scatter")
    if count > source.spec.numel:
        raise RuntimeError(f"masked_scatter: expected number of elements in source "
                           f"({source.spec.numel}) to be at least the number of ones in mask "
                           f"({count})")
    flat = ops.reshape.call((source, (-1,)), None)
    dense = ops.spread_true.call((ops.narrow.call((flat, 0, 0, count), None), mask), None)
    return ops.where.call((mask, dense, self), None)


def _nonzero_static(self: Any, size: Any, fill_value: Any) -> Any:
    for name, value in (("size", size), ("fill_value", fill_value)):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
            raise TypeError(f"nonzero_static(): argument '{name}' must be int, not "
                            f"{type(value).__name__}")
    return _nonzero(self, False, size, fill_value)


define(Entry(
    "nonzero(Tensor self, *, bool as_tuple=False, int? size=None, int fill_value=-1)", COMPOUND,
    function=_nonzero, path="nonzero", waits="data", samples=samples.unary, reference=np.argwhere,
    doc="Coordinates of the elements that are not zero, int64[count, ndim]; as_tuple: one tensor "
        "for each dim.  With size the first size of them, int64[size, ndim], where rows that are "
        "too many hold fill_value: then nothing waits.",
))
define(Entry(
    "nonzero_static(Tensor self, *, int size, int fill_value=-1)", COMPOUND, path="nonzero_static",
    function=_nonzero_static,
    samples=indexing_samples.sized, reference=indexing_samples.first_places,
    doc="Coordinates of the first size elements that are not zero, int64[size, ndim]; rows that "
        "are too many hold fill_value.  Never waits.",
))
define(Entry("argwhere(Tensor self)", COMPOUND, path="argwhere", waits="always",
             function=lambda self: _nonzero(self, False, None, -1), samples=samples.unary,
             reference=np.argwhere,
             doc="Coordinates of the elements that are not zero, int64[count, ndim]."))
define(Entry(
    "masked_select(Tensor self, Tensor mask, *, int? size=None, Number fill_value=0)", COMPOUND,
    function=_masked_select, out=True, path="masked_select", waits="data", samples=samples.masked,
    reference=lambda x, mask: np.broadcast_arrays(x, mask)[0][np.broadcast_arrays(x, mask)[1]],
    doc="The elements where the mask is true, one after another; both broadcast.  With size the "
        "first size of them, and fill_value where there are fewer: then nothing waits.",
))
define(Entry("masked_scatter(Tensor self, Tensor mask, Tensor source)", COMPOUND,
             function=_masked_scatter, path="masked_scatter", waits="always",
             samples=indexing_samples.sources, reference=indexing_samples.scattered,
             doc="self with the source's elements in turn where the mask is true."))
define(Entry("masked_scatter_(Tensor self, Tensor mask, Tensor source)", COMPOUND,
             function=lambda self, mask, source: ops.copy.call_inplace(
                 (self, _masked_scatter(self, mask, source)), None),
             path="", waits="always", doc="masked_scatter in place."))

# cython: annotation_typing=False
"""Sorting and searching: sort, topk, median, unique, searchsorted, bincount."""

from __future__ import annotations

from typing import Any

import numpy as np

from slipstream.core.catalog import checks, reasons, results, samples
from slipstream.core.catalog.masks import readable
from slipstream.core.catalog.scans import check_dim
from slipstream.core.catalog.table import define, ops
from slipstream.core.dispatch import promotion
from slipstream.core.dispatch.entry import COMPOUND, INDEX, Entry
from slipstream.core.dispatch.registry import Candidate
from slipstream.core.kernels.cpu import lines, sorting
from slipstream.core.kernels.cpu.arrays import ArrayKernel
from slipstream.core.shapes.views import normalize_dim
from slipstream.core.vocab import dtypes
from slipstream.core.vocab.records import TensorBase

REAL = ("int", "float")


def dim_of(call: Any) -> int:
    """The dim counted from the front."""
    return normalize_dim(call["dim"], max(call.spec("self").ndim, 1))


def array_kernel(name: str, function: Any, facts: Any) -> Candidate:
    """A kernel over NumPy arrays that knows what ``facts`` finds in the call."""
    shared = ArrayKernel(name, function)

    def make(plan: Any, call: Any) -> ArrayKernel:
        plan.statics = facts(call)
        return shared

    return Candidate(name, make)


def looped(work: Any, *others: Candidate) -> tuple[Candidate, ...]:
    """The compiled loops that do ``work(call)``, and what takes the calls that they refuse."""
    def make(plan: Any, call: Any) -> lines.LineKernel:
        return lines.LineKernel("cpu order", work(call), (call.spec("self"), *plan.out_specs))

    return (Candidate("loops", make, lambda call: lines.order_refusal(call.spec("self"))), *others)


def _both(call: Any) -> Any:
    spec = call.spec("self")
    return [(dtypes.int64, spec.shape), (spec.dtype, spec.shape)]


def _check_sort(call: Any) -> None:
    checks.no_complex(call)
    check_dim(call)


def scattered(g: Any, places: Any, self_spec: Any, dim: int) -> Any:
    """Zeros of the operand's shape with the gradient at distinct places along dim."""
    zeros = ops.new_zeros.call((g, self_spec.shape), None)
    return ops.scatter.call((zeros, dim, places, g), None)


define(Entry(
    "sort_places(Tensor self, int dim, bool descending)", INDEX, shape=_both, check=_check_sort,
    gradient={"self": lambda grads, out, self_spec, dim: scattered(grads[1], out, self_spec, dim)},
    path="", method=False, dtypes=REAL, doc="Places, then values, in sorted order along dim.",
), cpu=looped(
    lambda call: lines.Work(lines.SORT, dim_of(call), 0, lines.DOWN * call["descending"]),
    array_kernel("numpy stable argsort", sorting.sort,
                 lambda call: (dim_of(call), call["descending"]))), cuda="sorting.sort")


define(Entry(
    "sorted_values(Tensor self, int dim)", INDEX, check=_check_sort, path="", method=False,
    shape=lambda call: [(call.spec("self").dtype, call.spec("self").shape)], dtypes=REAL,
    doc="The values in sorted order along dim; without gradient.",
), cpu=looped(
    lambda call: lines.Work(lines.SORT, dim_of(call)),
    array_kernel("numpy sort", sorting.values, lambda call: (dim_of(call),))),
   cuda="sorting.values")


def _sort(self: Any, dim: Any, descending: Any, stable: Any) -> Any:
    if isinstance(dim, bool):
        # sort(stable, dim) is written by name only; sort(x, True) asks for a dim that is a bool.
        raise TypeError("sort(): argument 'dim' must be int, not bool")
    places, values = ops.sort_places.call((self, dim, bool(descending)), None)
    return results.Sort(values, places)


def _argsort(self: Any, dim: int, descending: bool, stable: bool) -> Any:
    return _sort(self, dim, descending, stable).indices


def _sort_reference(x: Any, dim: int = -1, descending: bool = False) -> Any:
    places = np.argsort(-x if descending else x, dim, kind="stable")
    return np.take_along_axis(x, places, dim), places


def _sort_samples() -> Any:
    x = samples.random_array(130, 3, 5)
    return [((x,), {}), ((x, 0), {}), ((x, 1, True), {}), ((samples.random_array(131, 6),), {})]


define(Entry(
    "sort(Tensor self, int dim=-1, bool descending=False, *, bool? stable=None)", COMPOUND,
    function=_sort, path="sort", samples=_sort_samples, dtypes=REAL,
    reference=_sort_reference,
    exceptions=reasons.TIES,
    doc="(values, indices) in sorted order along dim; always stable; nan counts as the largest.",
))
define(Entry(
    "argsort(Tensor self, int dim=-1, bool descending=False, *, bool stable=False)", COMPOUND,
    function=_argsort, path="argsort", out=True, samples=_sort_samples, dtypes=REAL,
    reference=lambda *args: _sort_reference(*args)[1],
    exceptions=reasons.TIES,
    doc="The places of the elements in sorted order along dim; always stable.",
))
define(Entry("msort(Tensor self)", COMPOUND, path="msort", out=True, dtypes=REAL,
             function=lambda self: _sort(self, 0, False, True).values,
             samples=lambda: [((samples.random_array(132, 4, 3),), {})],
             reference=lambda x: np.sort(x, 0), doc="The values in sorted order along dim 0."))


# -- some of them --------------------------------------------------------------------------------
def _check_topk(call: Any) -> None:
    _check_sort(call)
    spec, k = call.spec("self"), call["k"]
    size = spec.shape[dim_of(call)] if spec.ndim else 1
    if not 0 <= k <= size:
        raise call.error(RuntimeError, "selected index k out of range",
                         f"the dim has {size} elements: min(k, {size})")
    if spec.dtype is dtypes.bool_:
        raise call.error(NotImplementedError, "\"topk\" not implemented for 'Bool'")


def _topk_shape(call: Any) -> Any:
    spec = call.spec("self")
    shape = spec.shape
    if spec.ndim:
        dim = dim_of(call)
        shape = (*shape[:dim], call["k"], *shape[dim + 1:])
    return [(dtypes.int64, shape), (spec.dtype, shape)]


def _wanted(call: Any) -> int:
    """How many are wanted of a line; of a tensor of no dims the one element, also for k = 0."""
    return int(call["k"]) if call.spec("self").ndim else 1


def _topk_work(call: Any) -> lines.Work:
    """The best of a line, or a whole sort where no much smaller part is asked for."""
    spec = call.spec("self")
    size = spec.shape[dim_of(call)] if spec.ndim else 1
    way = lines.SORT if _wanted(call) * sorting.MOST > size else lines.BEST
    return lines.Work(way, dim_of(call), _wanted(call), lines.DOWN * call["largest"])


define(Entry(
    "topk_places(Tensor self, int k, int dim, bool largest)", INDEX, shape=_topk_shape,
    check=_check_topk, path="", method=False, dtypes=REAL,
    gradient={"self": lambda grads, out, self_spec, dim: scattered(grads[1], out, self_spec, dim)},
    doc="Places, then values, of the k largest or smallest along dim, sorted.",
), cpu=looped(
    _topk_work, array_kernel("numpy partition", sorting.topk,
                             lambda call: (dim_of(call), call["largest"], _wanted(call)))),
   cuda="sorting.topk")


def _topk(self: Any, k: Any, dim: int, largest: bool, sorted: bool) -> Any:
    places, values = ops.topk_places.call((self, int(k), dim, bool(largest)), None)
    return results.Topk(values, places)


def _topk_reference(x: Any, k: int, dim: int = -1, largest: bool = True) -> Any:
    values, places = _sort_reference(x, dim, largest)
    return np.take(values, range(k), dim), np.take(places, range(k), dim)


define(Entry(
    "topk(Tensor self, any k, int dim=-1, bool largest=True, bool sorted=True)", COMPOUND,
    function=_topk, path="topk", dtypes=REAL, reference=_topk_reference,
    samples=samples.with_arguments(((3, 5), (2,)), ((4, 3), (3, 0, False)), ((20,), (1,))),
    exceptions=reasons.TIES,
    doc="(values, indices) of the k largest, or smallest, along dim, sorted.",
))


def _kth_shape(call: Any) -> Any:
    spec = call.spec("self")
    if not spec.ndim:
        return [(dtypes.int64, ()), (spec.dtype, ())]
    dim = dim_of(call)
    middle = (1,) if call["keepdim"] else ()
    shape = (*spec.shape[:dim], *middle, *spec.shape[dim + 1:])
    return [(dtypes.int64, shape), (spec.dtype, shape)]


def _check_kth(call: Any) -> None:
    _check_sort(call)
    spec = call.spec("self")
    size = spec.shape[dim_of(call)] if spec.ndim else 1
    if not 1 <= call["k"] <= size:
        raise call.error(RuntimeError, "kthvalue(): selected number k out of range for dimension "
                                       f"{call['dim']}")


def _kth_slope(grads: Any, out: Any, self_spec: Any, dim: int, keepdim: bool) -> Any:
    g = grads[1]
    if self_spec.ndim and not keepdim:
        g, out = g.unsqueeze(dim), out.unsqueeze(dim)
    return scattered(g, out, self_spec, dim)


def _kth_work(call: Any) -> lines.Work:
    nans = call["nans"] and call.spec("self").dtype.kind == "float"
    return lines.Work(lines.KTH, dim_of(call), call["k"], lines.NANS * nans)


def _even_slope(grads: Any, out_1: Any, self: Any) -> Any:
    """To all elements that equal the result, in equal parts."""
    alike = (self == out_1).logical_or(self.isnan().logical_and(out_1.isnan()))
    return alike * (grads[1] / alike.sum())


for _name, _slope, _doc in (
        ("kth_place", _kth_slope, "Place, then value, of the k-th smallest along dim"),
        ("kth_of_all", _even_slope, "As kth_place; elements equal to it share the gradient")):
    define(Entry(
        f"{_name}(Tensor self, int k, int dim, bool keepdim, bool nans)", INDEX, shape=_kth_shape,
        check=_check_kth, path="", method=False, dtypes=REAL, gradient={"self": _slope},
        doc=f"{_doc}; nans: a nan wins.",
    ), cpu=looped(
        _kth_work, array_kernel("numpy partition", sorting.kth,
                                lambda call: (dim_of(call), call["k"], call["nans"]))),
       cuda="sorting.kth")


def _kthvalue(self: Any, k: int, dim: int, keepdim: bool) -> Any:
    place, value = ops.kth_place.call((self, k, dim, keepdim, False), None)
    return results.Kthvalue(value, place)


def _median(self: Any, dim: Any, keepdim: bool) -> Any:
    if dim is None:
        flat = ops.reshape.call((self, (-1,)), None)
        if not flat.spec.numel:
            if self.spec.dtype.category < 2:
                raise RuntimeError("median(): no integer stands for the middle of no elements: "
                                   f"{self.spec!r}")
            return ops.full_like.call((ops.sum.call((self,), None), float("nan")),
                                      {"dtype": self.spec.dtype})
        return ops.kth_of_all.call((flat, (flat.spec.numel + 1) // 2, 0, False, True), None)[1]
    size = self.spec.shape[normalize_dim(dim, self.spec.ndim)] if self.spec.ndim else 1
    if not size:
        raise IndexError("median(): Expected reduction dim to have non-zero size")
    place, value = ops.kth_place.call((self, (size + 1) // 2, dim, keepdim, True), None)
    return results.Median(value, place)


def _kth_reference(x: Any, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    values, places = _sort_reference(x, dim)
    found = [np.take(each, [k - 1], dim) for each in (values, places)]
    return tuple(each if keepdim else np.squeeze(each, dim) for each in found)


def _median_reference(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
    if dim is None:
        return np.sort(x.reshape(-1))[(x.size - 1) // 2]
    return _kth_reference(x, (x.shape[dim] + 1) // 2, dim, keepdim)


define(Entry("kthvalue(Tensor self, int k, int dim=-1, bool keepdim=False)", COMPOUND,
             function=_kthvalue, path="kthvalue", dtypes=REAL, reference=_kth_reference,
             samples=samples.with_arguments(((3, 5), (2,)), ((4, 3), (4, 0, True))),
             doc="(values, indices) of the k-th smallest element along dim."))
define(Entry("median(Tensor self, int? dim=None, bool keepdim=False)", COMPOUND, function=_median,
             path="median", dtypes=REAL, reference=_median_reference,
             samples=samples.with_arguments(((3, 5), ()), ((3, 4), (1,)), ((4, 3), (0, True))),
             doc="The lower of the middle elements; with dim (values, indices); nan wins."))


# -- searching -----------------------------------------------------------------------------------
def _check_search(call: Any) -> None:
    table, values = call.spec("sorted_sequence"), call.spec("values")
    if table.ndim != 1 and (table.ndim != values.ndim or table.shape[:-1] != values.shape[:-1]):
        raise call.error(RuntimeError, "searchsorted(): boundaries tensor should be 1 "
                                       "dimension or the first N-1 dimensions of boundaries "
                                       "tensor and input value tensor must match")
    if not table.ndim:
        raise call.error(RuntimeError, "searchsorted(): sorted_sequence must have a dim")
    for spec in (table, values):
        if spec.dtype.category not in (1, 2):
            raise call.error(RuntimeError, f"searchsorted() does not take {spec.dtype.name}")


define(Entry(
    "places_in(Tensor sorted_sequence, Tensor values, Tensor? sorter, bool right, bool narrow)",
    INDEX, path="", method=False, check=_check_search, dtypes=REAL,
    shape=lambda call: [(dtypes.int32 if call["narrow"] else dtypes.int64,
                         call.spec("values").shape)],
    doc="For each value the place in its sorted row where it goes.",
), cpu=array_kernel("numpy searchsorted", sorting.searchsorted, lambda call: (
    "right" if call["right"] else "left", call.spec("sorted_sequence").ndim == 1)),
   cuda="sorting.search")


def _searched(table: Any, values: Any, sorter: Any, right: bool, narrow: bool) -> Any:
    # Compared in the dtype in which both would be added, as PyTorch does: 0.1 is then found again.
    common = promotion.result_type((table, values))
    if common.category == 1:
        # None is wrapped: integers are compared as they are.
        common = dtypes.promote(table.spec.dtype, values.spec.dtype if isinstance(
            values, TensorBase) else dtypes.int64)
    if not isinstance(values, TensorBase):
        if table.spec.ndim != 1:
            raise RuntimeError("input value can be a scalar only when boundaries tensor dimension "
                               "is 1")
        # Cast below: what a half cannot hold is infinite.
        kind = common if common.category == 1 else dtypes.float64
        values = ops.full.call(((), values), {"dtype": kind, "device": table.spec.device})
    table, values = [each if each.spec.dtype is common else ops.cast.call((each, common), None)
                     for each in (table, values)]
    return ops.places_in.call((table, values, sorter, right, narrow), None)


def _searchsorted(sorted_sequence: Any, values: Any, out_int32: bool, right: bool, side: Any,
                  sorter: Any) -> Any:
    if side not in (None, "left", "right"):
        raise RuntimeError(f"side can only be 'left' or 'right' but got {side}")
    if side == "left" and right:
        raise RuntimeError("side and right can't be set to opposites, got side of left while "
                           "right was True")
    if sorter is not None and (sorter.spec.shape != sorted_sequence.spec.shape
                               or sorter.spec.dtype is not dtypes.int64):
        raise RuntimeError("boundary and sorter must have the same size, and sorter be of dtype "
                           f"long, but got {sorted_sequence.spec!r} and {sorter.spec!r}")
    return _searched(sorted_sequence, values, sorter, right or side == "right", out_int32)


def _bucketize(self: Any, boundaries: Any, out_int32: bool, right: bool) -> Any:
    if boundaries.spec.ndim != 1:
        raise RuntimeError(f"boundaries tensor must be 1 dimension, but got dim("
                           f"{boundaries.spec.ndim})")
    return _searched(boundaries, self, None, right, out_int32)


def _search_samples() -> Any:
    table = np.sort(samples.random_array(133, 6))
    wide = np.sort(samples.random_array(134, 2, 5), -1)
    return [((table, samples.random_array(135, 3, 4)), {}),
            ((table, samples.random_array(136, 4)), {"right": True}),
            ((wide, samples.random_array(137, 2, 3)), {"side": "right"})]


def _search_reference(table: Any, values: Any, right: bool = False, side: Any = None) -> Any:
    side = "right" if right or side == "right" else "left"
    if table.ndim == 1:
        return np.searchsorted(table, values, side)
    return np.stack([np.searchsorted(row, each, side) for row, each in zip(
        table, values, strict=True)])


define(Entry(
    "searchsorted(Tensor sorted_sequence, any input, *, bool out_int32=False, bool right=False, "
    "str? side=None, Tensor? sorter=None)", COMPOUND, function=_searchsorted, path="searchsorted",
    method=False, out=True, dtypes=REAL, samples=_search_samples, reference=_search_reference,
    doc="For each value the place where it goes in its sorted row, the first, or with right (side) "
        "the last.",
))
define(Entry(
    "bucketize(any self, Tensor boundaries, *, bool out_int32=False, bool right=False)", COMPOUND,
    function=_bucketize, path="bucketize", out=True, dtypes=REAL,
    samples=lambda: [((args[1], args[0]), facts) for args, facts in _search_samples()[:2]],
    reference=lambda values, table, right=False: np.searchsorted(
        table, values, "right" if right else "left"),
    doc="For each value the number of boundaries below it, with right those equal to it too.",
))


def _check_counts(self: Any, weights: Any, minlength: int) -> None:
    if self.spec.ndim != 1 or self.spec.dtype.category != 1:
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    if minlength < 0:
        raise RuntimeError("minlength should be >= 0")
    if weights is not None and weights.spec.shape != self.spec.shape:
        raise RuntimeError("weights should be 1-d and have the same length as input")


def _bincount(self: Any, weights: Any, minlength: int) -> Any:
    _check_counts(self, weights, minlength)
    if not self.spec.numel:
        return ops.zeros.call(((minlength,),), {"dtype": dtypes.int64, "device": self.spec.device})
    ends = ops.stack.call(([ops.amin.call((self,), None), ops.amax.call((self,), None)],), None)
    low, high = readable(ends, "bincount").tolist()
    if low < 0:
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    if weights is None:
        weights = ops.ones_like.call((self,), {"dtype": dtypes.int64})
    elif weights.spec.dtype not in (dtypes.float32, dtypes.float64):
        weights = ops.cast.call((weights, dtypes.float64), None)
    zeros = ops.new_zeros.call((weights, (max(high + 1, minlength),)), None)
    places = ops.cast.call((self, dtypes.int64), None)
    return ops.index_sum.call((zeros, 0, places, weights), None)


define(Entry(
    "bincount(Tensor self, Tensor? weights=None, int minlength=0)", COMPOUND, function=_bincount,
    path="bincount", waits="always", dtypes=("int",),
    samples=lambda: [((np.array([0, 3, 1, 3]),), {}), ((np.array([2, 0]),), {"minlength": 5})],
    reference=lambda x, minlength=0: np.bincount(x, minlength=minlength),
    doc="How often each number occurs, or the sum of its weights; looks at the largest: waits.",
))

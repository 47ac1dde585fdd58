# cython: annotation_typing=False
"""Distinct elements: sorted, neighbours compared, and the first of each kept."""

from __future__ import annotations

from typing import Any

import numpy as np

from slipstream.core.catalog import samples
from slipstream.core.catalog.table import define, ops
from slipstream.core.dispatch import promotion
from slipstream.core.dispatch.entry import COMPOUND, Entry
from slipstream.core.launch.waiting import asking_as
from slipstream.core.shapes.views import normalize_dim
from slipstream.core.vocab import dtypes
from slipstream.core.vocab.records import TensorBase

EVERY = ("bool", "int", "float")

# So many elements are compared one by one; of more a sorted table is searched.
FEW = 16


def _starts(ordered: Any) -> Any:
    """Where a row of ordered rows differs from the one before; true for the first."""
    count = ordered.spec.shape[0]
    first = ops.new_ones.call((ordered, (min(count, 1),)), {"dtype": dtypes.bool_})
    if count < 2:
        return first
    later = ops.narrow.call((ordered, 0, 1, count - 1), None)
    before = ops.narrow.call((ordered, 0, 0, count - 1), None)
    apart = ops.ne.call((later, before), None)
    if apart.spec.ndim > 1:
        apart = ops.any.call((ops.reshape.call((apart, (count - 1, -1)), None), 1), None)
    return ops.cat.call(([first, apart],), None)


def _summary(rows: Any, places: Any, inverse: bool, counts: bool) -> tuple[Any, ...]:
    """Distinct rows of ordered ``rows``, which came from ``places``; inverse and counts."""
    starts = _starts(rows)
    total = rows.spec.shape[0]
    at = ops.reshape.call((ops.nonzero.call((starts,), None), (-1,)), None)
    found = [ops.index_select.call((rows, 0, at), None)]
    if inverse:
        number = ops.cumsum.call((starts, 0), None) - 1
        back = number if places is None else ops.scatter.call(
            (ops.zeros_like.call((number,), None), 0, places, number), None)
        found.append(back)
    if counts:
        end = ops.full.call(((1,), total), {"dtype": dtypes.int64, "device": rows.spec.device})
        ends = ops.cat.call(([at, end],), None)
        found.append(ops.diff.call((ends,), None))
    return tuple(found)


def _order(rows: Any) -> Any:
    """The places of rows in lexicographic order: by the last column first, each sort stable."""
    count = rows.spec.shape[0]
    flat = ops.reshape.call((rows, (count, -1 if rows.spec.numel else 0)), None)
    places = ops.arange.call((count,), {"device": rows.spec.device})
    for column in range(flat.spec.shape[1] - 1, -1, -1):
        key = ops.index_select.call((ops.select.call((flat, 1, column), None), 0, places), None)
        places = ops.index_select.call(
            (places, 0, ops.argsort.call((key,), None)), None)
    return places


def _finish(found: tuple[Any, ...]) -> Any:
    return found[0] if len(found) == 1 else found


def _unique(self: Any, sorted: bool, return_inverse: bool, return_counts: bool, dim: Any) -> Any:
    self = ops.detach.call((self,), None)
    if dim is None:
        flat = ops.reshape.call((self, (-1,)), None)
        values, places = ops.sort.call((flat, 0), None) if return_inverse else (
            ops.sorted_values.call((flat, 0), None), None)
        found = list(_summary(values, places, return_inverse, return_counts))
        if return_inverse:
            found[1] = ops.reshape.call((found[1], self.spec.shape), None)
        return _finish(tuple(found))
    dim = normalize_dim(dim, self.spec.ndim)
    if not self.spec.numel:
        _refuse_empty(self, dim)
    rows = ops.movedim.call((self, dim, 0), None)
    places = _order(rows)
    ordered = ops.index_select.call((rows, 0, places), None)
    distinct, *rest = _summary(ordered, places, return_inverse, return_counts)
    return _finish((ops.movedim.call((distinct, 0, dim), None), *rest))


def _refuse_empty(self: Any, dim: int) -> None:
    if self.spec.shape[dim]:
        raise RuntimeError("There are 0 sized dimensions, and they aren't selected, so unique "
                           f"cannot be applied: {self.spec!r}")


def _consecutive(self: Any, return_inverse: bool, return_counts: bool, dim: Any) -> Any:
    self = ops.detach.call((self,), None)
    if dim is None:
        flat = ops.reshape.call((self, (-1,)), None)
        found = list(_summary(flat, None, return_inverse, return_counts))
        if return_inverse:
            found[1] = ops.reshape.call((found[1], self.spec.shape), None)
        return _finish(tuple(found))
    dim = normalize_dim(dim, self.spec.ndim)
    if not self.spec.numel:
        _refuse_empty(self, dim)
    rows = ops.movedim.call((self, dim, 0), None)
    distinct, *rest = _summary(rows, None, return_inverse, return_counts)
    return _finish((ops.movedim.call((distinct, 0, dim), None), *rest))


def _repeated() -> Any:
    return np.round(samples.random_array(140, 12))


def _consecutive_reference(x: Any, return_counts: bool = False) -> Any:
    starts = np.concatenate([[True], x[1:] != x[:-1]])
    counts = np.diff(np.append(np.flatnonzero(starts), len(x)))
    return (x[starts], counts) if return_counts else x[starts]


define(Entry(
    "unique(Tensor self, bool sorted=True, bool return_inverse=False, bool return_counts=False, "
    "int? dim=None)", COMPOUND, function=asking_as("unique", _unique), path="unique",
    waits="always", dtypes=EVERY,
    samples=lambda: [((_repeated(),), {}),
                     ((_repeated(),), {"return_inverse": True, "return_counts": True})],
    reference=lambda x, **facts: np.unique(
        x, False, facts.get("return_inverse", False),
        facts.get("return_counts", False)),
    doc="The distinct elements, or slices along dim, in sorted order; where each element is among "
        "them; how often each occurs. Waits: their number depends on data.",
))
define(Entry(
    "unique_consecutive(Tensor self, bool return_inverse=False, bool return_counts=False, "
    "int? dim=None)", COMPOUND,
    function=asking_as("unique_consecutive", _consecutive), path="unique_consecutive",
    waits="always", dtypes=EVERY,
    samples=lambda: [((_repeated(),), {}), ((_repeated(),), {"return_counts": True})],
    reference=_consecutive_reference,
    doc="Each run of equal elements, or slices along dim, once; see unique.",
))


def _among(elements: Any, table: Any) -> Any:
    """Whether each element is one of a vector's."""
    if table.spec.numel <= FEW:
        wide = ops.eq.call((ops.unsqueeze.call((elements, -1), None), table), None)
        return ops.any.call((wide, -1), None)
    # No number's rule: a 0-dim element keeps its dtype beside the table's.
    common = promotion.result_type((ops.reshape.call((elements, (-1,)), None), table))
    common = dtypes.uint8 if common is dtypes.bool_ else common
    elements, table = [ops.cast.call((each, common), None) for each in (elements, table)]
    ordered = ops.sort.call((table,), None)[0]
    places = ops.searchsorted.call((ordered, elements), None)
    places = ops.clamp.call((places, None, table.spec.numel - 1), None)
    return ops.eq.call((ops.take.call((ordered, places), None), elements), None)


def _isin(elements: Any, test_elements: Any, assume_unique: bool, invert: bool) -> Any:
    if not isinstance(elements, TensorBase):
        found = ops.any.call((ops.eq.call((test_elements, elements), None),), None)
    elif not isinstance(test_elements, TensorBase):
        found = ops.eq.call((elements, test_elements), None)
    else:
        found = _among(elements, ops.reshape.call((test_elements, (-1,)), None))
    return ops.logical_not.call((found,), None) if invert else found


def _memberships() -> Any:
    rows = [np.round(samples.random_array(160 + place, *shape))
            for place, shape in enumerate(((3, 4), (5,), (40,)))]
    return [((rows[0], rows[1]), {}), ((rows[0], rows[2]), {"invert": True}), ((rows[0], 1), {}),
            ((rows[1], rows[0][:0]), {})]


define(Entry(
    "isin(Tensor|Number elements, Tensor|Number test_elements, *, bool assume_unique=False, "
    "bool invert=False)", COMPOUND, function=_isin, path="isin", method=False, dtypes=EVERY,
    samples=_memberships, reference=np.isin,
    doc="Whether each element is one of test_elements, or with invert whether it is not.",
))

# cython: annotation_typing=False
"""Scans: running sums, products and extrema along a dim, and differences."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from slipstream.core.catalog import checks, reasons, results, samples
from slipstream.core.catalog.table import define, ops
from slipstream.core.dispatch.entry import COMPOUND, INDEX, Entry
from slipstream.core.dispatch.registry import Candidate
from slipstream.core.kernels.cpu import lines, scanning
from slipstream.core.kernels.cpu.arrays import ArrayKernel
from slipstream.core.shapes.views import normalize_dim
from slipstream.core.vocab import dtypes

REAL = ("int", "float")


def along(name: str, function: Any) -> Candidate:
    """A kernel over NumPy arrays that knows the axis."""
    shared = ArrayKernel(name, function)

    def make(plan: Any, call: Any) -> ArrayKernel:
        plan.statics = (normalize_dim(call["dim"], max(call.spec("self").ndim, 1)),)
        return shared

    return Candidate(name, make)


def looped(way: int, function: Any, name: str) -> tuple[Candidate, Candidate]:
    """The compiled loops of a scan, and the kernel over arrays for what they do not take."""
    def refuses(call: Any) -> str:
        sums = way in (lines.SUM, lines.PRODUCT)
        return lines.scan_refusal(call.spec("self").dtype, _summed(call)[0][0] if sums else None)

    def make(plan: Any, call: Any) -> lines.LineKernel:
        spec = call.spec("self")
        dim = normalize_dim(call["dim"], max(spec.ndim, 1))
        return lines.LineKernel("cpu scan", lines.Work(way, dim), (spec, *plan.out_specs))

    return Candidate("loops", make, refuses), along(name, function)


def check_dim(call: Any) -> None:
    """The dim exists."""
    try:
        normalize_dim(call["dim"], max(call.spec("self").ndim, 1))
    except IndexError as failure:
        raise call.error(IndexError, str(failure)) from None


def _summed(call: Any) -> Any:
    """In place the operand's dtype; else integers and bools give int64, or what ``out`` holds."""
    spec = call.spec("self")
    dtype = call["dtype"] or (dtypes.int64 if spec.dtype.category < 2 else spec.dtype)
    if call.form == 2 and call["dtype"] is None:
        # An out of a lower kind is refused, as of every op.
        own = call.target.spec.dtype
        dtype = own if own.category >= dtype.category else dtype
    if call.form == 1:
        dtype = spec.dtype
        if dtype is dtypes.bool_:
            raise call.error(NotImplementedError,
                             f"\"{call.op.name}\" not implemented for 'Bool'")
    return [(dtype, spec.shape)]


def turned(x: Any, dim: int) -> Any:
    """The order along a dim reversed."""
    return ops.flip.call((x, (dim,)), None) if x.spec.ndim else x


def sum_slope(g: Any, dim: int) -> Any:
    """Each element is in every sum after it."""
    return turned(ops.cumsum.call((turned(g, dim), dim), None), dim)


def shifted(x: Any, dim: int, first: Any) -> Any:
    """The elements moved on by one along dim, with a number in the first place."""
    size = x.spec.shape[dim]
    shape = (*x.spec.shape[:dim], min(size, 1), *x.spec.shape[dim + 1:])
    head = ops.new_full.call((x, shape, first), None)
    return ops.cat.call(([head, ops.narrow.call((x, dim, 0, size - 1), None)], dim), None)


def prod_slope(g: Any, self: Any, dim: int) -> Any:
    """P[<i] S[i], S[i] = g[i] + x[i + 1] S[i + 1]: right where elements are zero."""
    if not self.spec.ndim or not self.spec.numel:
        return g * 1
    dim = normalize_dim(dim, self.spec.ndim)
    x = checks.conj(self if self.spec.dtype is g.spec.dtype else ops.cast.call(
        (self, g.spec.dtype), None))
    before = shifted(ops.cumprod.call((x, dim), None), dim, 1)
    factors = turned(shifted(turned(x, dim), dim, 0), dim)
    return before * ops.linear_recurrence.call((g, factors, dim), None)


_SUM = "int dim, *, dtype? dtype=None"
define(Entry(
    f"cumsum(Tensor self, {_SUM})", INDEX, shape=_summed, check=check_dim, path="cumsum",
    gradient={"self": lambda g, dim: sum_slope(g, dim)}, samples=samples.rows,
    reference=lambda x, dim: np.cumsum(x, dim), inplace=True, out=True,
    doc="Running sums along dim; integers and bools give int64, in place their own dtype.",
    autocast={"cuda": "float32"},
), cpu=looped(lines.SUM, scanning.accumulated(np.add), "numpy add.accumulate"),
   cuda="scans.scan")
define(Entry(
    f"cumprod(Tensor self, {_SUM})", INDEX, shape=_summed, check=check_dim, path="cumprod",
    gradient={"self": lambda g, self, dim: prod_slope(g, self, dim)}, samples=samples.rows,
    reference=lambda x, dim: np.cumprod(x, dim), inplace=True, out=True,
    doc="Running products along dim; dtypes as for cumsum; the gradient is right at zeros.",
    autocast={"cuda": "float32"},
), cpu=looped(lines.PRODUCT, scanning.accumulated(np.multiply), "numpy multiply.accumulate"),
   cuda="scans.scan")


def _recurrence_factors(g: Any, self: Any, factors: Any, out: Any, dim: int) -> Any:
    """The slope by a[i]: z[i] y[i + 1], where z is the slope by g."""
    z = _recurrence_terms(g, factors, dim)
    later = turned(shifted(turned(out, dim), dim, 0), dim)
    return z * checks.conj(later)


def _recurrence_terms(g: Any, factors: Any, dim: int) -> Any:
    """z[i] = g[i] + a[i - 1] z[i - 1]: the same recurrence from the other end."""
    moved = turned(shifted(checks.conj(factors), dim, 0), dim)
    return turned(ops.linear_recurrence.call((turned(g, dim), moved, dim), None), dim)


define(Entry(
    "linear_recurrence(Tensor self, Tensor factors, int dim)", INDEX,
    shape=lambda call: [(call.spec("self").dtype, call.spec("self").shape)], path="", method=False,
    gradient={"self": lambda g, factors, dim: _recurrence_terms(g, factors, dim),
              "factors": _recurrence_factors},
    dtypes=("float", "complex"),
    doc="y[i] = self[i] + factors[i] y[i + 1] along dim, from its end.",
), cpu=along("numpy, by doubling", scanning.recurrence), cuda="scans.scan")


def _check_order(call: Any) -> None:
    checks.no_complex(call)
    check_dim(call)


for _name, _ufunc, _way in (("cummax", np.maximum, lines.HIGHEST),
                            ("cummin", np.minimum, lines.LOWEST)):
    define(Entry(
        f"{_name}_places(Tensor self, int dim)", INDEX, check=_check_order, path="", method=False,
        shape=lambda call: [(dtypes.int64, call.spec("self").shape),
                            (call.spec("self").dtype, call.spec("self").shape)],
        gradient={"self": lambda grads, out, self_spec, dim: ops.scatter_add.call(
            (ops.new_zeros.call((grads[1], self_spec.shape), None), dim, out, grads[1]), None)},
        dtypes=REAL, doc="Places, then values, of the running extremum; the last of equals.",
    ), cpu=looped(_way, scanning.extremes(_ufunc), f"numpy {_ufunc.__name__}.accumulate"),
       cuda="scans.scan")

    def _running(self: Any, dim: int, name: str = _name) -> Any:
        places, values = getattr(ops, f"{name}_places").call((self, dim), None)
        return results.RESULTS[name](values, places)

    def _running_reference(x: Any, dim: int, ufunc: Any = _ufunc) -> Any:
        values = ufunc.accumulate(x, dim)
        shape = [1] * x.ndim
        shape[dim] = -1
        index = np.arange(x.shape[dim]).reshape(shape)
        return values, np.maximum.accumulate(np.where(values == x, index, 0), dim)

    define(Entry(f"{_name}(Tensor self, int dim)", COMPOUND, function=_running, path=_name,
                 out=False, samples=samples.rows, dtypes=REAL, reference=_running_reference,
                 doc="(values, indices) of the largest, or smallest, element so far along dim; nan "
                     "wins, the last of equals."))


def _check_floats(call: Any) -> None:
    check_dim(call)
    if call.spec("self").dtype.category != 2:
        raise call.error(NotImplementedError, "\"logcumsumexp\" not implemented for "
                                              f"'{call.spec('self').dtype.name}'")


def _log_slope(g: Any, self: Any, out: Any, dim: int) -> Any:
    """e^(x[i] - out[i]) S[i], S[i] = g[i] + e^(out[i] - out[i + 1]) S[i + 1]."""
    if not self.spec.ndim or not self.spec.numel:
        return g * 1
    dim = normalize_dim(dim, self.spec.ndim)
    later = turned(shifted(turned(out, dim), dim, math.inf), dim)
    sums = ops.linear_recurrence.call((g, _share(out, later), dim), None)
    return _share(self, out) * sums


def _share(part: Any, whole: Any) -> Any:
    """e^(part - whole) of logarithms, 0 of nothing."""
    return ops.where.call((part == -math.inf, 0, (part - whole).exp()), None)


define(Entry(
    "logcumsumexp(Tensor self, int dim)", INDEX, path="logcumsumexp", check=_check_floats,
    shape=lambda call: [(call.spec("self").dtype, call.spec("self").shape)], inplace=False,
    out=True, gradient={"self": _log_slope}, samples=samples.rows, dtypes=("float",),
    reference=lambda x, dim: np.logaddexp.accumulate(x, dim),
    exceptions=reasons.REAL_ONLY,
    doc="log of the running sums of exp(self) along dim, without overflow.",
), cpu=looped(lines.LOGSUM, scanning.logsumexps, "numpy logaddexp.accumulate"),
   cuda="scans.scan")


def _diff(self: Any, n: int, dim: int, prepend: Any, append: Any) -> Any:
    if not self.spec.ndim:
        raise RuntimeError("diff expects input to be at least one-dimensional")
    if n < 0:
        raise RuntimeError(f"order must be non-negative but got {n}")
    if not n:
        return ops.clone.call((self,), None)
    pieces = [each for each in (prepend, self, append) if each is not None]
    whole = ops.cat.call((pieces, dim), None) if len(pieces) > 1 else self
    dim = normalize_dim(dim, self.spec.ndim)
    for _ in range(min(n, whole.spec.shape[dim])):
        size = whole.spec.shape[dim] - 1
        high = ops.narrow.call((whole, dim, 1, size), None)
        low = ops.narrow.call((whole, dim, 0, size), None)
        whole = ops.ne.call((high, low), None) if whole.spec.dtype is dtypes.bool_ else high - low
    return whole


define(Entry(
    "diff(Tensor self, int n=1, int dim=-1, Tensor? prepend=None, Tensor? append=None)", COMPOUND,
    function=_diff, path="diff", out=True, reference=lambda x, n=1, dim=-1: np.diff(x, n, dim),
    samples=samples.with_arguments(((3, 5), ()), ((3, 5), (2,)), ((3, 5), (1, 0))),
    doc="Differences of neighbours along dim, n times over.",
))

# cython: annotation_typing=False
"""Reductions made of others: variance, norms, counts, products and their gradients."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from slipstream.core.catalog import checks, samples
from slipstream.core.catalog.reductions import reduced, restored, valid_dim
from slipstream.core.catalog.table import define, ops
from slipstream.core.dispatch.entry import COMPOSITE, COMPOUND, POINTWISE, REDUCTION, Entry
from slipstream.core.fuse.formula import where
from slipstream.core.shapes import views
from slipstream.core.vocab import dtypes

INEXACT = ("float", "complex")


# -- variance ------------------------------------------------------------------------------------
def square_size(x: Any) -> Any:
    """|x|^2, real."""
    return (x * checks.conj(x)).real if x.is_complex() else x * x


def variance(self: Any, dim: Any, correction: float, keepdim: bool) -> Any:
    """The mean square distance from the mean, over count - correction, 0 if that is less."""
    centred = self - self.mean(dim, keepdim=True)
    squares = square_size(centred)
    count = squares.count(dim, keepdim=keepdim) - correction
    return squares.sum(dim, keepdim=keepdim) / where(count > 0, count, 0)


def _real(call: Any) -> Any:
    own = call.spec("self").dtype
    if own.category < 2:
        raise call.error(RuntimeError, f"{call.op.name}(): only support floating point and complex "
                                       f"dtypes, got {own.name}", "convert it with .float()")
    return own, own.to_real()


def _variance_slope(g: Any, self: Any, dim: Any, correction: float, keepdim: bool) -> Any:
    """2 (x - mean) / (count - correction)."""
    spec = self.spec
    dims = reduced(spec, dim)
    count = math.prod(spec.shape[d] for d in dims) - correction
    centred = self - self.mean(dims if spec.ndim else None, keepdim=True)
    factor = 2.0 / count if count > 0 else math.nan if count == 0 else 0.0
    if count <= 0:
        factor = math.inf
    return restored(g, spec, dim, keepdim) * (centred * factor)


define(Entry(
    "variance(Tensor self, int[]? dim=None, float correction=1.0, bool keepdim=False)", COMPOSITE,
    formula=variance, gradient={"self": _variance_slope}, promotion=_real, check=valid_dim,
    path="", method=False, dtypes=INEXACT,
    doc="Mean square distance from the mean over dim, divided by count - correction.",
))


def _arguments(dim: Any, unbiased: Any, correction: Any) -> tuple[Any, float]:
    """The dims and the correction of the several signatures."""
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    if correction is None:
        correction = 1.0 if unbiased is None or unbiased else 0.0
    return (None if dim in ((), []) else dim), float(correction)


def _var(self: Any, dim: Any, unbiased: Any, keepdim: bool, correction: Any) -> Any:
    dims, degrees = _arguments(dim, unbiased, correction)
    return ops.variance.call((self, dims, degrees, keepdim), None)


def _std(*args: Any) -> Any:
    return ops.root_or_zero.call((_var(*args),), None)


# The root of a variance of 0 has no slope: PyTorch gives 0 there.
define(Entry(
    "root_or_zero(Tensor self)", POINTWISE, formula=lambda self: self.sqrt(),
    gradient={"self": lambda g, out: where(out == 0, 0, g / (out * 2))}, path="", method=False,
    dtypes=("float",), doc="Square root, whose slope at 0 is taken to be 0.",
))


def _mean(self: Any, dim: Any, keepdim: bool) -> Any:
    return ops.mean.call((self, dim, keepdim), None)


def _paired(function: Any) -> Any:
    def both(self: Any, dim: Any, unbiased: Any, keepdim: bool, correction: Any) -> Any:
        return (function(self, dim, unbiased, keepdim, correction),
                _mean(self, _arguments(dim, unbiased, correction)[0], keepdim))

    return both


def _var_reference(x: Any, dim: Any = None, correction: int = 1, keepdim: bool = False) -> Any:
    return np.var(x, axis=dim, ddof=correction, keepdims=keepdim)


def _std_reference(*args: Any, **facts: Any) -> Any:
    return np.sqrt(_var_reference(*args, **facts))


def _paired_reference(function: Any) -> Any:
    def both(x: Any, dim: Any = None, keepdim: bool = False, **facts: Any) -> Any:
        return (function(x, dim, keepdim=keepdim, **facts),
                np.mean(x, axis=dim, keepdims=keepdim))

    return both


def _var_samples() -> Any:
    x = samples.random_array(120, 2, 3, 4)
    return [((x,), {}), ((x, 1), {}), ((x, (0, 2)), {"correction": 0, "keepdim": True}),
            ((samples.random_array(121, 5), 0), {"correction": 2})]


_VARIANCE = ("Tensor self, any dim=None, any unbiased=None, bool keepdim=False, *, "
             "any correction=None")
for _name, _function, _reference, _text in (
    ("var", _var, _var_reference, "Variance"),
    ("std", _std, _std_reference, "Standard deviation"),
    ("var_mean", _paired(_var), _paired_reference(_var_reference), "Variance, and mean,"),
    ("std_mean", _paired(_std), _paired_reference(_std_reference),
     "Standard deviation, and mean,"),
):
    define(Entry(
        f"{_name}({_VARIANCE})", COMPOUND, function=_function, path=_name,
        out=_name in ("var", "std"), dtypes=INEXACT, samples=_var_samples, reference=_reference,
        doc=f"{_text} over dim, all dims by default; the divisor is count - correction.",
    ))


# -- products ------------------------------------------------------------------------------------
def others(x: Any, dim: int) -> Any:
    """For each element along dim the product of all others; right where some are zero."""
    ones = ops.new_ones.call((x, (*x.spec.shape[:dim], 1, *x.spec.shape[dim + 1:])), None)
    size = x.spec.shape[dim]
    if not size:
        return x
    # prod of those before, times prod of those after.
    before = ops.cumprod.call((x.narrow(dim, 0, size - 1), dim), None)
    after = ops.cumprod.call((x.narrow(dim, 1, size - 1).flip(dim), dim), None).flip(dim)
    return ops.cat.call(([ones, before], dim), None) * ops.cat.call(([after, ones], dim), None)


def prod_slope(g: Any, self: Any, dim: Any, keepdim: bool) -> Any:
    """g times the product of the others, without division."""
    spec = self.spec
    if not spec.ndim:
        return g * ops.new_ones.call((self, ()), None)
    if dim is None:
        flat = ops.reshape.call((self, (-1,)), None)
        return ops.reshape.call((g * checks.conj(others(flat, 0)), spec.shape), None)
    dim = views.normalize_dim(dim, spec.ndim)
    return restored(g, spec, dim, keepdim) * checks.conj(others(self, dim))


define(Entry("prod_backward(Tensor g, Tensor self, int? dim, bool keepdim)", COMPOUND, path="",
             method=False, function=prod_slope, doc="Gradient of prod."))


# -- norms and counts ----------------------------------------------------------------------------
def _count_check(call: Any) -> None:
    valid_dim(call)


define(Entry(
    "count_nonzero(Tensor self, int[]? dim=None)", REDUCTION,
    formula=lambda self, dim: (self != 0).long().sum(dim), check=_count_check,
    promotion=lambda call: (call.spec("self").dtype, dtypes.int64), path="count_nonzero",
    samples=lambda: [((samples.random_array(122, 3, 4),), {}),
                     ((samples.random_array(123, 3, 4), 1), {})],
    reference=lambda x, dim=None: np.count_nonzero(x, axis=dim),
    doc="How many elements over dim are not zero, int64.",
))


def _nansum(self: Any, dim: Any, keepdim: bool, dtype: Any) -> Any:
    if self.spec.dtype.is_complex:
        raise RuntimeError("nansum does not support complex inputs")
    known = ops.where.call((ops.isnan.call((self,), None), 0, self), None)
    return ops.sum.call((known, dim, keepdim), {"dtype": dtype})


def _nanmean(self: Any, dim: Any, keepdim: bool, dtype: Any) -> Any:
    total = _nansum(self, dim, keepdim, dtype)
    known = ops.logical_not.call((ops.isnan.call((self,), None),), None)
    return total / ops.sum.call((known, dim, keepdim), None)


for _name, _function, _reference in (("nansum", _nansum, np.nansum),
                                     ("nanmean", _nanmean, np.nanmean)):
    define(Entry(
        f"{_name}(Tensor self, int[]? dim=None, bool keepdim=False, *, dtype? dtype=None)",
        COMPOUND, function=_function, path=_name, out=True,
        dtypes=("bool", "int", "float") if _name == "nansum" else ("float",),
        samples=samples.reductions,
        reference=lambda x, dim=None, keepdim=False, f=_reference: f(
            x, axis=dim, keepdims=keepdim),
        doc=f"{_name[3:].capitalize()} over dim of the elements that are not nan.",
        autocast={"cuda": "asleep"},
    ))


def _magnitude_power(self: Any, order: float, dim: Any, keepdim: bool) -> Any:
    """(sum |x|^p)^(1/p), with the largest and the smallest magnitude for infinite p."""
    size = self.abs()
    if math.isinf(order):
        return size.amax(dim, keepdim=keepdim) if order > 0 else size.amin(dim, keepdim=keepdim)
    if order == 0:
        return (size != 0).sum(dim, keepdim=keepdim)
    if order == 1:
        return size.sum(dim, keepdim=keepdim)
    if order == 2:
        return square_size(self).sum(dim, keepdim=keepdim).sqrt()
    return (size ** order).sum(dim, keepdim=keepdim) ** (1.0 / order)


def _norm_slope(g: Any, self: Any, out: Any, order: float, dim: Any, keepdim: bool) -> Any:
    """x |x|^(p-2) / |out|^(p-1); 0 where out is 0."""
    spec = self.spec
    if order == 0:
        return checks.lost(self)
    g, out = restored(g, spec, dim, keepdim), restored(out, spec, dim, keepdim)
    size = self.abs()
    sign = _direction(self, size)
    if math.isinf(order):
        hits = (size == out).logical_or((size != size).logical_and(out != out))
        count = hits.sum(reduced(spec, dim) if spec.ndim else None, keepdim=True)
        return sign * (g * (hits / count).to(out.spec.dtype))
    if order == 1:
        return g * sign
    if order == 2:
        return self * where(out == 0, 0, g / out)
    if order < 1:
        weight = where(size == 0, 0, size ** (order - 1))
    else:
        weight = size ** (order - 1)
    return sign * (g * where(out == 0, 0, weight * out ** (1 - order)))


def _direction(x: Any, size: Any) -> Any:
    if not x.is_complex():
        return x.sign()
    return where(size == 0, 0, x / where(size == 0, 1, size))


def _check_norm(call: Any) -> None:
    valid_dim(call)
    spec = call.spec("self")
    order = call["ord"]
    empty = spec.ndim and any(spec.shape[d] == 0 for d in reduced(spec, call["dim"]))
    if empty and (order < 0 or math.isinf(order)):
        raise call.error(RuntimeError, "linalg.vector_norm cannot compute the "
                                       f"{order:g} norm on an empty tensor because the operation "
                                       "does not have an identity")


define(Entry(
    "vector_norm_of(Tensor self, float ord, int[]? dim=None, bool keepdim=False)", REDUCTION,
    formula=lambda self, ord, dim, keepdim: _magnitude_power(self, ord, dim, keepdim),
    gradient={"self": lambda g, self, out, ord, dim, keepdim: _norm_slope(
        g, self, out, ord, dim, keepdim)},
    promotion=_real, check=valid_dim, check_sizes=_check_norm, path="", method=False,
    dtypes=INEXACT, doc="The norm of an order over dim.",
))


def _vector_norm(self: Any, ord: Any, dim: Any, keepdim: bool, dtype: Any) -> Any:
    if dtype is not None:
        self = ops.cast.call((self, dtype), None)
    if self.spec.dtype.category < 2:
        raise RuntimeError("linalg.vector_norm: Expected a floating point or complex tensor as "
                           f"input. Got {self.spec.dtype.name}")
    return ops.vector_norm_of.call((self, float(ord), None if dim in ((), []) else dim, keepdim),
                                   None)


def _norm(self: Any, p: Any, dim: Any, keepdim: bool, dtype: Any) -> Any:
    if p in ("fro", None):
        p = 2
    if isinstance(p, str):
        dims = (-2, -1) if dim is None else dim
        return ops.matrix_norm.call((self, p, dims, keepdim), {"dtype": dtype})
    return _vector_norm(self, p, dim, keepdim, dtype)


def _norm_reference(x: Any, order: Any = 2, dim: Any = None, keepdim: bool = False) -> Any:
    return (np.abs(x) ** order).sum(axis=dim, keepdims=keepdim) ** (1.0 / order)


def _norm_samples() -> Any:
    x = samples.random_array(124, 2, 3, 4)
    return [((x,), {}), ((x, 2, 1), {}), ((x, 3, (0, 2)), {"keepdim": True}), ((x, 1, -1), {})]


define(Entry(
    "norm(Tensor self, any p='fro', any dim=None, bool keepdim=False, dtype? dtype=None)",
    COMPOUND, function=_norm, path="norm", out=True, dtypes=INEXACT,
    samples=lambda: _norm_samples()[1:], reference=_norm_reference,
    doc="The norm of order p over dim, all dims by default: (sum |x|^p)^(1/p).",
    autocast={"cuda": "float32"},
))
define(Entry(
    "vector_norm(Tensor self, any ord=2, any dim=None, bool keepdim=False, *, dtype? dtype=None)",
    COMPOUND, function=_vector_norm, path="linalg.vector_norm", method=False, out=True,
    dtypes=INEXACT, samples=_norm_samples, reference=_norm_reference,
    doc="The norm of order ord over dim, all dims by default: (sum |x|^ord)^(1/ord).",
    autocast={"cuda": "float32"},
))

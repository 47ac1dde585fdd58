# cython: annotation_typing=False
"""Reductions: formulas over the dims that they reduce."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from slipstream.core.catalog import checks, samples
from slipstream.core.catalog.table import define, ops, table
from slipstream.core.dispatch import promotion
from slipstream.core.dispatch.entry import REDUCTION, Entry
from slipstream.core.shapes import views


def nonempty(call: Any) -> None:
    """Refuse to reduce over nothing where the reduction has no identity."""
    spec = call.spec("self")
    dims = reduced(spec, call["dim"])
    if spec.ndim and any(spec.shape[d] == 0 for d in dims):
        what = "Expected reduction dim to have non-zero size"
        if call["dim"] in (None, ()):
            what = ("Expected reduction dim to be specified for input.numel() == 0. Specify the "
                    "reduction dim with the 'dim' argument.")
        raise call.error(IndexError, f"{call.op.name}(): {what}")


def reduced(spec: Any, dim: Any) -> tuple[int, ...]:
    """The dims that a reduction reduces; all for None or ()."""
    if dim is None or (isinstance(dim, (tuple, list)) and not dim):
        return tuple(range(spec.ndim))
    given = tuple(dim) if isinstance(dim, (tuple, list)) else (dim,)
    return views.normalize_dims(given, spec.ndim)


def ordered(call: Any) -> None:
    """Refuse complex operands, and dims as `valid_dim` does."""
    checks.no_complex(call)
    valid_dim(call)


def valid_dim(call: Any) -> None:
    """Refuse dims out of range, or named twice."""
    try:
        reduced(call.spec("self"), call["dim"])
    except (IndexError, RuntimeError, ValueError) as failure:
        raise call.error(type(failure), str(failure)) from None


def spread(g: Any, self_spec: Any, dim: Any, keepdim: bool) -> Any:
    """A reduced gradient, given the reduced dims again and expanded to the operand's shape."""
    if not g.spec.ndim:
        # Once in most training steps: a single value goes straight on.
        return table["expand"].call((g, self_spec.shape), None)
    return restored(g, self_spec, dim, keepdim).expand(self_spec.shape)


def restored(g: Any, self_spec: Any, dim: Any, keepdim: bool) -> Any:
    """A reduced value with its reduced dims again, of size one."""
    # A single value broadcasts as it is.
    if not keepdim and self_spec.ndim and g.spec.ndim:
        dims = reduced(self_spec, dim)
        shape = [1 if i in dims else n for i, n in enumerate(self_spec.shape)]
        return g.reshape(tuple(shape))
    return g


def size_of(self_spec: Any, dim: Any) -> int:
    """How many elements each result is reduced from."""
    if dim is None or not self_spec.ndim:
        return self_spec.numel
    return math.prod(self_spec.shape[d] for d in reduced(self_spec, dim))


def extremum(g: Any, self: Any, out: Any, dim: Any, keepdim: bool) -> Any:
    """The gradient of amax and amin: shared evenly among the ties, counted in a wide type."""
    spec = self.spec
    g, out = restored(g, spec, dim, keepdim), restored(out, spec, dim, keepdim)
    hits = (self == out).logical_or((self != self).logical_and(out != out))
    dims = reduced(spec, dim)
    count = hits.sum(dims, keepdim=True)
    return g * (hits / count).to(g.spec.dtype)


define(Entry(
    "sum(Tensor self, int[]? dim=None, bool keepdim=False, *, dtype? dtype=None)", REDUCTION,
    formula=lambda self, dim, keepdim: self.sum(dim, keepdim=keepdim),
    gradient={"self": spread},
    promotion=promotion.summing, check=valid_dim, path="sum", out=True,
    samples=samples.reductions, reference=lambda x, dim=None, keepdim=False: np.sum(
        x, axis=dim, keepdims=keepdim),
    doc="Sum over dim (all dims by default); integers and bools sum to int64.",
    autocast={"cuda": "float32"},
))
define(Entry(
    "mean(Tensor self, int[]? dim=None, bool keepdim=False, *, dtype? dtype=None)", REDUCTION,
    formula=lambda self, dim, keepdim: self.mean(dim, keepdim=keepdim),
    gradient={"self": lambda g, self_spec, dim, keepdim: spread(
        g / max(size_of(self_spec, dim), 1), self_spec, dim, keepdim)},
    promotion=promotion.averaging, check=valid_dim, path="mean", out=True,
    samples=samples.reductions, dtypes=("float", "complex"),
    reference=lambda x, dim=None, keepdim=False: np.mean(x, axis=dim, keepdims=keepdim),
    doc="Mean over dim (all dims by default); of no elements nan; integers are refused.",
))
_reference: Any
for _name, _reference in (("amax", np.amax), ("amin", np.amin)):
    define(Entry(
        f"{_name}(Tensor self, int[] dim=(), bool keepdim=False)", REDUCTION,
        formula=lambda self, dim, keepdim, name=_name: getattr(self, name)(
            None if dim in ((), []) else dim, keepdim=keepdim),
        gradient={"self": lambda g, self, out, dim, keepdim: extremum(g, self, out, dim, keepdim)},
        check=ordered, check_sizes=nonempty, path=_name, out=True, samples=samples.reductions,
        dtypes=("bool", "int", "float"),
        reference=lambda x, dim=None, keepdim=False, f=_reference: f(
            x, axis=dim, keepdims=keepdim),
        doc="The extremum over dim (all dims by default); nan wins; ties share the gradient.",
    ))
for _name, _reference in (("argmax", np.argmax), ("argmin", np.argmin)):
    define(Entry(
        f"{_name}(Tensor self, int? dim=None, bool keepdim=False)", REDUCTION,
        formula=lambda self, dim, keepdim, name=_name: getattr(self, name)(dim, keepdim=keepdim),
        promotion=promotion.indices, check=ordered, check_sizes=nonempty, path=_name, out=True,
        samples=samples.rows, dtypes=("int", "float"),
        reference=lambda x, dim=None, keepdim=False, f=_reference: f(
            x, axis=dim, keepdims=keepdim),
        doc="Index of the extremum along dim, of the flattened tensor without dim; the first of "
            "equals, the first nan.",
    ))
for _name, _reference in (("any", np.any), ("all", np.all)):
    define(Entry(
        f"{_name}(Tensor self, int[]? dim=None, bool keepdim=False)", REDUCTION,
        formula=lambda self, dim, keepdim, name=_name: self != 0 if dim in ((), []) else getattr(
            self, name)(dim, keepdim=keepdim),
        promotion=promotion.truth_of_all, check=valid_dim, path=_name, out=True,
        samples=samples.reductions,
        reference=lambda x, dim=None, keepdim=False, f=_reference: f(
            x, axis=dim, keepdims=keepdim),
        doc=f"Whether {_name} elements over dim are nonzero; with no dims each one; uint8 gives "
            "uint8.",
    ))
define(Entry(
    "prod(Tensor self, int? dim=None, bool keepdim=False, *, dtype? dtype=None)", REDUCTION,
    formula=lambda self, dim, keepdim: self.prod(dim, keepdim=keepdim),
    gradient={"self": lambda g, self, dim, keepdim: ops.prod_backward.call(
        (g, self, dim, keepdim), None)},
    promotion=promotion.summing, check=valid_dim, path="prod", samples=samples.rows,
    reference=lambda x, dim=None, keepdim=False: np.prod(x, axis=dim, keepdims=keepdim),
    doc="Product over dim (all dims by default).",
    autocast="float32",
))

# cython: annotation_typing=False
"""Softmax and its kin: formulas over one dim, made stable by the largest element."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from slipstream.core.catalog import reasons, samples
from slipstream.core.catalog.checks import conj
from slipstream.core.catalog.reductions import restored, valid_dim
from slipstream.core.catalog.table import define
from slipstream.core.dispatch import promotion
from slipstream.core.dispatch.entry import COMPOSITE, Entry, contiguous_layout
from slipstream.core.fuse.formula import exp, share, where


def floats_only(call: Any) -> None:
    """Refuse dims out of range, and dtypes other than floats where no float ``dtype`` is given."""
    valid_dim(call)
    dtype = call["dtype"] or call.spec("self").dtype
    if dtype.kind != "float":
        raise call.error(NotImplementedError,
                         f"\"{call.op.name}\" not implemented for '{dtype.name}'",
                         "give a float dtype=, or convert the tensor with .float()")


def softmax(self: Any, dim: int) -> Any:
    """e^(x - max) / sum e^(x - max)."""
    grown = exp(self - self.amax(dim, keepdim=True))
    return share(grown, grown.sum(dim, keepdim=True))


def log_softmax(self: Any, dim: int) -> Any:
    """(x - max) - log sum e^(x - max)."""
    shifted = self - self.amax(dim, keepdim=True)
    return shifted - exp(shifted).sum(dim, keepdim=True).log()


def logsumexp(self: Any, dim: Any, keepdim: bool) -> Any:
    """max + log sum e^(x - max), where an infinite max counts as 0.

    Of complex numbers the real part alone says how large their exponentials are.
    """
    largest = finite(self.real.amax(dim, keepdim=True))
    total = (self - largest).exp().sum(dim, keepdim=keepdim)
    return total.log() + (largest if keepdim else finite(self.real.amax(dim)))


def finite(value: Any) -> Any:
    """The value, or 0 where it is infinite."""
    return where(value.abs() == math.inf, 0, value)


def logsumexp_slope(g: Any, self: Any, out: Any, dim: Any, keepdim: bool) -> Any:
    """g softmax(x), the softmax being e^(x - out); its conjugate for complex numbers."""
    spec = self.spec
    return restored(g, spec, dim, keepdim) * conj((self - restored(out, spec, dim, keepdim)).exp())


def softmax_reference(x: Any, dim: int) -> Any:
    """Softmax in NumPy."""
    grown = np.exp(x - np.max(x, axis=dim, keepdims=True))
    return grown / grown.sum(axis=dim, keepdims=True)


def logsumexp_reference(x: Any, dim: Any, keepdim: bool = False) -> Any:
    """Logsumexp in NumPy, for moderate values."""
    axis = tuple(dim) if isinstance(dim, (tuple, list)) else dim
    return np.log(np.sum(np.exp(x), axis=axis, keepdims=keepdim))


def _dims() -> Any:
    x = np.random.RandomState(16).uniform(-2.0, 2.0, (2, 3, 4))
    return [((x, 1), {}), ((x, -1), {"keepdim": True}), ((x, (0, 2)), {}), ((x[0, 0], 0), {})]


define(Entry(
    "softmax(Tensor self, int dim, dtype? dtype=None)", COMPOSITE,
    formula=softmax,
    gradient={"self": lambda g, out, dim: out * (g - (g * out).sum(dim, keepdim=True))},
    promotion=promotion.cast_argument, check=floats_only, layout=contiguous_layout, path="softmax",
    out=True, aliases=("special.softmax",), dtypes=("float",), samples=samples.rows,
    reference=softmax_reference,
    doc="exp(self) / sum(exp(self), dim), in dtype if given; a row of -inf gives nan. IndexError "
        "for a dim out of range, NotImplementedError for integers without dtype.",
    autocast={"cuda": "float32"},
))
define(Entry(
    "log_softmax(Tensor self, int dim, dtype? dtype=None)", COMPOSITE,
    formula=log_softmax,
    gradient={"self": lambda g, out, dim: g - exp(out) * g.sum(dim, keepdim=True)},
    promotion=promotion.cast_argument, check=floats_only, layout=contiguous_layout,
    path="log_softmax", out=True, aliases=("special.log_softmax",), dtypes=("float",),
    samples=samples.rows,
    reference=lambda x, dim: np.log(softmax_reference(x, dim)),
    exceptions=reasons.ROUNDED,
    doc="log(softmax(self, dim)) without the loss of precision; see softmax.",
    autocast={"cuda": "float32"},
))


define(Entry(
    "logsumexp(Tensor self, int[] dim, bool keepdim=False)", COMPOSITE, formula=logsumexp,
    gradient={"self": logsumexp_slope},
    promotion=promotion.floating, check=valid_dim, path="logsumexp", out=True,
    aliases=("special.logsumexp",),
    samples=_dims, reference=logsumexp_reference,
    doc="log(sum(exp(self), dim)) without overflow; over nothing -inf; integers become floats.",
    autocast={"cuda": "float32"},
))

# cython: annotation_typing=False
"""Activations with parameters, and dropout."""

from __future__ import annotations

from typing import Any

import numpy as np

from slipstream.core.catalog import checks
from slipstream.core.catalog.samples import unary
from slipstream.core.catalog.table import define, ops, table
from slipstream.core.dispatch import promotion
from slipstream.core.dispatch.entry import COMPOUND, POINTWISE, Entry
from slipstream.core.fuse.formula import where


def floats_only(call: Any) -> None:
    """Refuse dtypes other than floats."""
    dtype = call.spec("self").dtype
    if dtype.kind != "float" and not (dtype.kind == "complex" and call.op.name == "silu_of"):
        raise call.error(NotImplementedError,
                         f"\"{call.op.name}\" not implemented for '{dtype.name}'")


def silu_slope(g: Any, self: Any) -> Any:
    """s (1 + x (1 - s)), where s is the sigmoid of x."""
    s = self.sigmoid()
    slope = s * (1 + self * (1 - s))
    return g * checks.conj(slope)


def softplus(self: Any, beta: float, threshold: float) -> Any:
    """log(1 + e^(beta x)) / beta, and x itself where beta x exceeds the threshold."""
    scaled = self * beta
    small = where(scaled > threshold, 0, scaled)
    return where(scaled > threshold, self, small.exp().log1p() / beta)


def softplus_slope(g: Any, self: Any, beta: float, threshold: float) -> Any:
    """The sigmoid of beta x, and 1 above the threshold."""
    scaled = self * beta
    return where(scaled > threshold, g, g * scaled.sigmoid())


def activation(name: str, parameters: str, formula: Any, gradient: Any, reference: Any,
               **facts: Any) -> None:
    """An op of floats, and the function of nn.functional, which takes ``inplace`` too."""
    inplace = facts.pop("inplace", True)
    define(Entry(f"{name}_of(Tensor self{parameters})", POINTWISE, formula=formula,
                 gradient={"self": gradient}, check=facts.pop("check", floats_only),
                 promotion=facts.pop("promotion", promotion.arithmetic),
                 path="", method=False, inplace=True, dtypes=("float",), doc=facts["doc"]))

    def function(self: Any, *values: Any) -> Any:
        op = table[f"{name}_of"]
        if inplace and values[-1]:
            return op.call_inplace((self, *values[:-1]), None)
        return op.call((self, *(values[:-1] if inplace else values)), None)

    tail = ", bool inplace=False" if inplace else ""
    define(Entry(f"{name}(Tensor self{parameters}{tail})", COMPOUND, function=function,
                 path=f"nn.functional.{name}", method=False, dtypes=("float",), samples=unary,
                 reference=reference, **facts))


activation("silu", "", lambda self: self * self.sigmoid(), silu_slope,
           lambda x: x / (1 + np.exp(-x)), doc="self * sigmoid(self).")
activation("leaky_relu", ", float negative_slope=0.01",
           lambda self, negative_slope: where(self > 0, self, self * negative_slope),
           lambda g, self, negative_slope: where(self > 0, g, g * negative_slope),
           lambda x, negative_slope=0.01: np.where(x > 0, x, x * negative_slope),
           doc="self where positive, else self * negative_slope.")
activation("softplus", ", float beta=1, float threshold=20", softplus, softplus_slope,
           lambda x, beta=1, threshold=20: np.log1p(np.exp(beta * x)) / beta, inplace=False,
           doc="log(1 + exp(beta * self)) / beta; self itself where beta * self > threshold.",
           autocast={"cuda": "float32"})

define(Entry(
    "masked_scale(Tensor self, Tensor mask, Number scale)", POINTWISE,
    formula=lambda self, mask, scale: where(mask, self * scale, self * 0),
    gradient={"self": lambda g, mask, scale: where(mask, g * scale, g * 0)},
    promotion=promotion.cast_to_self, path="", method=False, inplace=True,
    dtypes=("float", "complex"), doc="self * scale where mask, else self * 0.",
))


def kept(self: Any, p: float) -> Any:
    """A bool mask of self's shape, true with probability 1 - p."""
    return ops.bernoulli_mask.call((self, 1.0 - p), None)


def _dropout(self: Any, p: float, training: bool, inplace: bool) -> Any:
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    if not training or p == 0.0:
        return self
    if self.spec.dtype.category < 2:
        raise RuntimeError("result type Float can't be cast to the desired output type "
                           f"{self.spec.dtype.name}")
    values = (self, kept(self, p), 1.0 / (1.0 - p) if p < 1.0 else 0.0)
    if inplace:
        return ops.masked_scale.call_inplace(values, None)
    return ops.masked_scale.call(values, None)


define(Entry(
    "dropout(Tensor self, float p=0.5, bool training=True, bool inplace=False)", COMPOUND,
    function=_dropout, path="nn.functional.dropout", method=False, dtypes=("float", "complex"),
    deterministic=False,
    doc="Each element zeroed with probability p, the others times 1 / (1 - p); without training "
        "the identity. ValueError unless 0 <= p <= 1.",
))

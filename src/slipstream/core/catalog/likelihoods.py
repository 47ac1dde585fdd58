# cython: annotation_typing=False
"""Losses of probabilities and of distances, as formulas that are reduced at once."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from slipstream.core.catalog import reasons
from slipstream.core.catalog.losses import LEGACY, reduced, reduction_of
from slipstream.core.catalog.table import define, ops
from slipstream.core.dispatch import promotion
from slipstream.core.dispatch.entry import COMPOSITE, COMPOUND, Entry
from slipstream.core.fuse.formula import where
from slipstream.core.shapes.broadcast import broadcast_shapes


def _floats(call: Any) -> Any:
    """The common dtype of all operands, which are floats."""
    common = promotion.result_type(call.tensors())
    if common.kind != "float":
        raise call.error(NotImplementedError,
                         f"\"{call.op.name}\" not implemented for '{common.name}'")
    return common, common


def _share(g: Any, specs: tuple[Any, ...], reduction: str) -> Any:
    """The gradient that reaches each term."""
    if reduction != "mean":
        return g
    shapes = [spec.shape for spec in specs if spec is not None]
    return g / max(math.prod(broadcast_shapes(*shapes)), 1)


# -- binary cross entropy ------------------------------------------------------------------------
def _softplus(x: Any) -> Any:
    """log(1 + e^-x) without overflow."""
    # At 0, where the slope of |x| counts as 0, the other part has that of the sum, minus a half.
    return (-x.abs()).exp().log1p() + where(x == 0, x * -0.5, (-x).clamp(min=0))


def _logit_terms(self: Any, target: Any, weight: Any, pos_weight: Any) -> Any:
    """(1 - y) x + (1 + (p - 1) y) log(1 + e^-x), weighted."""
    if pos_weight is None:
        terms = (1 - target) * self + _softplus(self)
    else:
        terms = (1 - target) * self + (1 + (pos_weight - 1) * target) * _softplus(self)
    return terms if weight is None else terms * weight


def _logit_slope(g: Any, self: Any, target: Any, weight: Any, pos_weight: Any) -> Any:
    """1 - y - (1 + (p - 1) y) sigmoid(-x)."""
    if pos_weight is None:
        slope = self.sigmoid() - target
    else:
        slope = 1 - target - (1 + (pos_weight - 1) * target) * (-self).sigmoid()
    return g * slope if weight is None else g * slope * weight


def _logit_target(g: Any, self: Any, weight: Any, pos_weight: Any) -> Any:
    """-x + (p - 1) log(1 + e^-x)."""
    slope = -self if pos_weight is None else (pos_weight - 1) * _softplus(self) - self
    return g * slope if weight is None else g * slope * weight


def _logit_weight(g: Any, self: Any, target: Any, pos_weight: Any) -> Any:
    return g * _logit_terms(self, target, None, pos_weight)


def _logit_positive(g: Any, self: Any, target: Any, weight: Any) -> Any:
    slope = target * _softplus(self)
    return g * slope if weight is None else g * slope * weight


define(Entry(
    "logit_entropy(Tensor self, Tensor target, Tensor? weight, Tensor? pos_weight, "
    "str reduction)", COMPOSITE,
    formula=lambda self, target, weight, pos_weight, reduction: reduced(
        _logit_terms(self, target, weight, pos_weight), reduction),
    gradient={
        "self": lambda g, self, target, weight, pos_weight, self_spec, reduction: _logit_slope(
            _share(g, (self_spec,), reduction), self, target, weight, pos_weight),
        "target": lambda g, self, weight, pos_weight, self_spec, reduction: _logit_target(
            _share(g, (self_spec,), reduction), self, weight, pos_weight),
        "weight": lambda g, self, target, pos_weight, self_spec, reduction: _logit_weight(
            _share(g, (self_spec,), reduction), self, target, pos_weight),
        "pos_weight": lambda g, self, target, weight, self_spec, reduction: _logit_positive(
            _share(g, (self_spec,), reduction), self, target, weight),
    },
    promotion=_floats, path="", method=False, dtypes=("float",),
    doc="The binary cross entropy of logits, weighted and reduced.",
))


def _same_size(self: Any, target: Any, name: str) -> None:
    if self.spec.shape != target.spec.shape:
        raise ValueError(f"Target size ({list(target.spec.shape)}) must be the same as input size "
                         f"({list(self.spec.shape)}): {name}")


def _bce_with_logits(self: Any, target: Any, weight: Any, *facts: Any) -> Any:
    size_average, reduce, reduction, pos_weight = facts
    reduction = reduction_of(size_average, reduce, reduction)
    _same_size(self, target, "binary_cross_entropy_with_logits")
    return ops.logit_entropy.call((self, target, weight, pos_weight, reduction), None)


def _entropy_terms(self: Any, target: Any, weight: Any) -> Any:
    """-(y log p + (1 - y) log(1 - p)), each logarithm at least -100."""
    inside = self.log().clamp(min=-100)
    outside = (-self).log1p().clamp(min=-100)
    terms = (target - 1) * outside - target * inside
    return terms if weight is None else terms * weight


def _entropy_slope(g: Any, self: Any, target: Any, weight: Any) -> Any:
    """(p - y) / max(p (1 - p), 1e-12)."""
    slope = (self - target) / ((1 - self) * self).clamp(min=1e-12)
    return g * slope if weight is None else g * slope * weight


def _entropy_target(g: Any, self: Any, weight: Any) -> Any:
    slope = (-self).log1p().clamp(min=-100) - self.log().clamp(min=-100)
    return g * slope if weight is None else g * slope * weight


define(Entry(
    "entropy(Tensor self, Tensor target, Tensor? weight, str reduction)", COMPOSITE,
    formula=lambda self, target, weight, reduction: reduced(
        _entropy_terms(self, target, weight), reduction),
    gradient={
        "self": lambda g, self, target, weight, self_spec, reduction: _entropy_slope(
            _share(g, (self_spec,), reduction), self, target, weight),
        "target": lambda g, self, weight, self_spec, reduction: _entropy_target(
            _share(g, (self_spec,), reduction), self, weight),
    },
    promotion=_floats, path="", method=False, dtypes=("float",),
    doc="The binary cross entropy of probabilities, weighted and reduced.",
))


def _binary_cross_entropy(self: Any, target: Any, weight: Any, *facts: Any) -> Any:
    size_average, reduce, reduction = facts
    reduction = reduction_of(size_average, reduce, reduction)
    if self.spec.shape != target.spec.shape:
        raise ValueError(f"Using a target size ({list(target.spec.shape)}) that is different to "
                         f"the input size ({list(self.spec.shape)}) is deprecated. Please ensure "
                         "they have the same size.")
    if weight is not None:
        weight = ops.expand.call((weight, broadcast_shapes(weight.spec.shape, target.spec.shape)),
                                 None)
    return ops.entropy.call((self, target, weight, reduction), None)


def _reduced_reference(terms: Any, reduction: str) -> Any:
    return terms if reduction == "none" else getattr(np, reduction)(terms)


def _logits_reference(x: Any, y: Any, weight: Any = None, pos_weight: Any = 1.0,
                      reduction: str = "mean") -> Any:
    soft = np.log1p(np.exp(-np.abs(x))) + np.maximum(-x, 0)
    terms = (1 - y) * x + (1 + (pos_weight - 1) * y) * soft
    return _reduced_reference(terms if weight is None else terms * weight, reduction)


def _entropy_reference(p: Any, y: Any, weight: Any = None, reduction: str = "mean") -> Any:
    terms = -(y * np.log(p) + (1 - y) * np.log1p(-p))
    return _reduced_reference(terms if weight is None else terms * weight, reduction)


def _logit_samples() -> Any:
    random = np.random.RandomState(25)
    x, y = random.randn(3, 4), random.rand(3, 4)
    return [((x, y), {}), ((x, y, random.rand(4)), {"reduction": "none"}),
            ((x, y), {"reduction": "sum"})]


def _probability_samples() -> Any:
    random = np.random.RandomState(26)
    return [((random.rand(3, 4) * 0.8 + 0.1, *args[1:]), facts)
            for args, facts in _logit_samples()]


define(Entry(
    "binary_cross_entropy_with_logits(Tensor self, Tensor target, Tensor? weight=None, "
    f"{LEGACY}, bool? reduce=None, str reduction='mean', Tensor? pos_weight=None)", COMPOUND,
    function=_bce_with_logits, path="nn.functional.binary_cross_entropy_with_logits", method=False,
    dtypes=("float",), samples=_logit_samples, reference=_logits_reference,
    exceptions=reasons.ROUNDED,
    doc="-(p y log s + (1 - y) log(1 - s)) for s = sigmoid(self), p = pos_weight: finite for "
        "finite logits. ValueError where the target has another size.",
    autocast="float32",
))
define(Entry(
    f"binary_cross_entropy(Tensor self, Tensor target, Tensor? weight=None, {LEGACY}, "
    "bool? reduce=None, str reduction='mean')", COMPOUND, function=_binary_cross_entropy,
    path="nn.functional.binary_cross_entropy", method=False, dtypes=("float",),
    samples=_probability_samples, reference=_entropy_reference,
    doc="-(y log p + (1 - y) log(1 - p)), each logarithm at least -100.",
    autocast={"cpu": "float32", "cuda": "refused"},
))


# -- robust distances ----------------------------------------------------------------------------
def _rounded_terms(self: Any, target: Any, delta: float, smooth: bool) -> Any:
    """d^2 / 2 near zero and delta (|d| - delta / 2) beyond; over delta where smooth."""
    size = (self - target).abs()
    if smooth and delta == 0:
        return size
    terms = where(size < delta, size * size * 0.5, delta * (size - 0.5 * delta))
    return terms / delta if smooth else terms


def _rounded_slope(g: Any, self: Any, target: Any, delta: float, smooth: bool) -> Any:
    apart = self - target
    if smooth and delta == 0:
        return g * apart.sign()
    slope = apart.clamp(-delta, delta)
    return g * (slope / delta if smooth else slope)


define(Entry(
    "rounded_error(Tensor self, Tensor target, float delta, bool smooth, str reduction)",
    COMPOSITE,
    formula=lambda self, target, delta, smooth, reduction: reduced(
        _rounded_terms(self, target, delta, smooth), reduction),
    gradient={
        "self": lambda g, self, target, self_spec, target_spec, delta, smooth, reduction:
            _rounded_slope(_share(g, (self_spec, target_spec), reduction), self, target, delta,
                           smooth),
        "target": lambda g, self, target, self_spec, target_spec, delta, smooth, reduction:
            -_rounded_slope(_share(g, (self_spec, target_spec), reduction), self, target, delta,
                            smooth),
    },
    promotion=_floats, path="", method=False, dtypes=("float",),
    doc="Squares of small differences, sizes of large ones, reduced.",
))

# cython: annotation_typing=False
"""Losses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from slipstream.core.catalog import entropies, reasons
from slipstream.core.catalog.checks import absolute
from slipstream.core.catalog.table import define, ops
from slipstream.core.dispatch import promotion
from slipstream.core.dispatch.entry import COMPOSITE, COMPOUND, LIBRARY, Entry
from slipstream.core.dispatch.registry import Candidate
from slipstream.core.kernels.cpu import class_losses, losses
from slipstream.core.kernels.cpu.arrays import ArrayKernel
from slipstream.core.kernels.cpu.class_losses import ClassLoss
from slipstream.core.shapes.broadcast import broadcast_shapes
from slipstream.core.vocab import dtypes
from slipstream.core.vocab.modes import modes
from slipstream.core.vocab.warned import warn_caller

REDUCTIONS = ("none", "mean", "sum")
LEGACY = "bool? size_average=None"


def reduction_of(size_average: bool | None, reduce: bool | None, reduction: str) -> str:
    """The reduction that the two older arguments ask for; ValueError for an unknown one."""
    if size_average is not None or reduce is not None:
        if reduce is False:
            return "none"
        return "sum" if size_average is False else "mean"
    if reduction not in REDUCTIONS:
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return reduction


# -- classes -------------------------------------------------------------------------------------
def check_classes(call: Any) -> None:
    """Target indices and weights that fit the scores."""
    spec, target = call.spec("self"), call.spec("target")
    check_target_shape(call, spec.shape, target.shape)
    if target.dtype.name not in ("int64", "uint8"):
        raise call.error(RuntimeError, "expected target dtype to be Long or Byte, but got "
                                       f"{target.dtype.name}", "convert it with .long()")
    if spec.dtype.kind != "float":
        raise call.error(NotImplementedError,
                         f"\"nll_loss\" not implemented for '{spec.dtype.name}'")
    check_weight(call, call["weight"], losses.split(spec.shape)[1], spec.dtype)


def check_target_shape(call: Any, scores: tuple[int, ...], target: tuple[int, ...]) -> None:
    """Scores (N, C, ...) or (C) want a target (N, ...) or ()."""
    if not scores:
        raise call.error(ValueError, "Expected 1 or more dimensions (got 0)")
    if len(scores) == 1 and len(target) <= 1 and math.prod(target) == 1:
        return
    if len(scores) > 1 and (not target or target[0] != scores[0]):
        raise call.error(ValueError, f"Expected input batch_size ({scores[0]}) to match target "
                                     f"batch_size ({target[0] if target else 0}).")
    wanted = (scores[0], *scores[2:]) if len(scores) > 1 else ()
    if target != wanted:
        raise call.error(RuntimeError, f"Expected target size {list(wanted)}, got {list(target)}")


def check_weight(call: Any, weight: Any, classes: int, dtype: Any) -> None:
    """One weight for each class, in the dtype of the scores."""
    if weight is None:
        return
    if weight.spec.shape != (classes,):
        raise call.error(RuntimeError, f"weight tensor should be defined either for all {classes} "
                                       "classes or no classes but got weight tensor of shape: "
                                       f"{list(weight.spec.shape)}")
    if weight.spec.dtype is not dtype:
        raise call.error(RuntimeError, f"expected scalar type {dtype.name} but found "
                                       f"{weight.spec.dtype.name}")


def bound(name: str, function: Any) -> Candidate:
    """A kernel over NumPy arrays that knows the static arguments."""
    shared = ArrayKernel(name, function)

    def make(plan: Any, call: Any) -> ArrayKernel:
        plan.statics = (terms_of(call),)
        return shared

    return Candidate(name, make)


def terms_of(call: Any) -> losses.Terms:
    """The static arguments of a call."""
    return losses.Terms(call["ignore_index"], call["reduction"], float(call["smoothing"]))


def loops(slope: bool) -> Candidate:
    """The compiled loops of the loss of classes, or of its transpose."""
    def make(plan: Any, call: Any) -> ClassLoss:
        scores = plan.out_spec if slope else call.spec("self")
        return ClassLoss(losses.split(scores.shape), terms_of(call), call.spec("target"),
                         scores.itemsize == 8, slope)

    return Candidate("loops", make, lambda call: class_losses.refusal(
        [tensor.spec for tensor in call.tensors()]))


def _loss_shape(call: Any) -> Any:
    shape = call.spec("target").shape if call["reduction"] == "none" else ()
    return [(call.spec("self").dtype, shape)]


TERMS = "int ignore_index, str reduction, float smoothing"

define(Entry(
    f"class_loss(Tensor self, Tensor target, Tensor? weight, {TERMS})", LIBRARY,
    shape=_loss_shape, check=check_classes,
    gradient={"self": lambda g, self_spec, target, weight, ignore_index, reduction, smoothing:
              ops.class_loss_grad.call((g, target, weight, self_spec.shape, ignore_index, reduction,
                                        smoothing), None)},
    path="", method=False, dtypes=("float",),
    doc="Minus the scores (N, C, ...) of the target classes (N, ...), weighted and reduced; "
        "smoothing mixes in the scores of all classes. IndexError for a target that is no class.",
), cpu=(loops(False), bound("numpy", losses.forward)), cuda="losses.forward")
define(Entry(
    f"class_loss_grad(Tensor grad, Tensor target, Tensor? weight, any size, {TERMS})", LIBRARY,
    shape=lambda call: [(call.spec("grad").dtype, tuple(call["size"]))],
    # class_loss is linear in the scores: the transpose of its transpose is the op itself.
    gradient={"grad": lambda g, target, weight, ignore_index, reduction, smoothing:
              ops.class_loss.call((g, target, weight, ignore_index, reduction, smoothing), None)},
    path="", method=False, dtypes=("float",),
    doc="The gradient of class_loss by its scores of shape size.",
), cpu=(loops(True), bound("numpy", losses.backward)), cuda="losses.backward")


def _class_loss(scores: Any, target: Any, weight: Any, ignore_index: int, reduction: str,
                smoothing: float = 0.0) -> Any:
    if weight is not None and modes.current().grad_enabled and weight.requires_grad:
        raise RuntimeError("nll_loss is not differentiable with respect to argument 'weight'. "
                           "This input cannot have requires_grad True.")
    return ops.class_loss.call((scores, target, weight, ignore_index, reduction, smoothing), None)


def _nll_loss(self: Any, target: Any, weight: Any, size_average: Any, ignore_index: int,
              reduce: Any, reduction: str) -> Any:
    return _class_loss(self, target, weight, ignore_index,
                       reduction_of(size_average, reduce, reduction))


def _cross_entropy(self: Any, target: Any, weight: Any, *facts: Any) -> Any:
    size_average, ignore_index, reduce, reduction, label_smoothing = facts
    reduction = reduction_of(size_average, reduce, reduction)
    if not 0.0 <= label_smoothing <= 1.0:
        raise RuntimeError("label_smoothing must be between 0.0 and 1.0. Got: "
                           f"{label_smoothing:g}")
    if entropies.fits(self, target, weight, label_smoothing):
        return entropies.cross_entropy(self, target, ignore_index, reduction)
    classes = 0 if self.spec.ndim == 1 else 1
    scores = ops.log_softmax.call((self, classes), None)
    if self.spec.shape == target.spec.shape:
        _check_probabilities(self, target, weight, ignore_index)
        return _expected(scores, target, weight, reduction, label_smoothing)
    return _class_loss(scores, target, weight, ignore_index, reduction, label_smoothing)


def _check_probabilities(self: Any, target: Any, weight: Any, ignore_index: int) -> None:
    classes = losses.split(self.spec.shape)[1]
    if not target.spec.dtype.is_floating_point:
        raise RuntimeError("Expected floating point type for target with class probabilities, got "
                           f"{target.spec.dtype.name}")
    if ignore_index >= 0:
        raise RuntimeError("ignore_index is not supported for floating point target")
    if weight is not None and weight.spec.shape != (classes,):
        raise RuntimeError("cross_entropy: weight tensor should be defined either for all "
                           f"{classes} classes or no classes but got weight tensor of shape: "
                           f"{list(weight.spec.shape)}")


def _expected(scores: Any, target: Any, weight: Any, reduction: str, smoothing: float) -> Any:
    """-sum_c w_c p_c x_c, for probabilities p."""
    shape = scores.spec.shape
    dim = 0 if len(shape) == 1 else 1
    classes = shape[dim]
    if smoothing > 0.0:
        target = target * (1 - smoothing) + smoothing / classes
    terms = scores * target
    if weight is not None:
        terms = terms * weight.reshape([classes if i == dim else 1 for i in range(len(shape))])
    if reduction == "none":
        return -terms.sum(dim)
    total = -terms.sum()
    if reduction == "sum":
        return total
    count = math.prod(shape) // classes if classes else 0
    return total / count


def _scores(seed: int, *shape: int) -> np.ndarray:
    return np.random.RandomState(seed).uniform(-2.0, 2.0, shape)


def _nll_samples() -> Any:
    target = np.array([0, 2, 3, 2])
    return [((_scores(1, 4, 5), target), {}), ((_scores(2, 4, 5), target), {"reduction": "none"}),
            ((_scores(3, 4, 5), target, np.arange(5) + 1.0), {"reduction": "sum"}),
            ((_scores(4, 2, 5, 2), target.reshape(2, 2)), {"ignore_index": 2})]


def nll_reference(x: Any, target: Any, weight: Any = None, ignore_index: int = -100,
                  reduction: str = "mean") -> Any:
    """Nll by the definition, in NumPy."""
    kept = target != ignore_index
    safe = np.where(kept, target, 0)
    each = np.ones(x.shape[1]) if weight is None else weight
    share = each[safe] * kept
    terms = -np.take_along_axis(x, safe[:, None], 1)[:, 0] * share
    if reduction == "none":
        return terms
    return terms.sum() / (share.sum() if reduction == "mean" else 1.0)


def cross_entropy_reference(x: Any, target: Any, weight: Any = None, **facts: Any) -> Any:
    """Nll of the logarithm of softmax."""
    return nll_reference(x - np.log(np.exp(x).sum(1, keepdims=True)), target, weight, **facts)


_LOSS = (f"Tensor self, Tensor target, Tensor? weight=None, {LEGACY}, int ignore_index=-100, "
         "bool? reduce=None, str reduction='mean'")

define(Entry(
    f"nll_loss({_LOSS})", COMPOUND, function=_nll_loss, path="nn.functional.nll_loss",
    method=False, dtypes=("float",), samples=_nll_samples, reference=nll_reference,
    exceptions=reasons.ROUNDED,
    doc="Minus the log-probability of the target class: self [N, C, ...] or [C], target [N, ...] "
        "or [] of class indices. ignore_index counts nowhere, in sum or divisor. IndexError for a "
        "target that is no class, ValueError or RuntimeError for shapes that do not fit.",
    autocast="float32",
))
define(Entry(
    f"cross_entropy({_LOSS}, float label_smoothing=0.0)", COMPOUND, function=_cross_entropy,
    path="nn.functional.cross_entropy", method=False, dtypes=("float",), samples=_nll_samples,
    reference=cross_entropy_reference,
    doc="nll_loss of log_softmax(self); a target of self's shape holds probabilities. "
        "label_smoothing mixes the uniform distribution into the target.",
    autocast="float32",
))


# -- differences ---------------------------------------------------------------------------------
def reduced(terms: Any, reduction: str) -> Any:
    """The terms themselves, their mean or their sum."""
    if reduction == "none":
        return terms
    return terms.mean() if reduction == "mean" else terms.sum()


def share(g: Any, self_spec: Any, target_spec: Any, reduction: str) -> Any:
    """The gradient that reaches each term."""
    if reduction != "mean":
        return g
    return g / max(math.prod(broadcast_shapes(self_spec.shape, target_spec.shape)), 1)


def check_squares(call: Any) -> None:
    """Squared errors are of floats."""
    common = promotion.result_type((call["self"], call["target"]))
    if common.kind != "float":
        raise call.error(NotImplementedError, f"\"mse_loss\" not implemented for '{common.name}'")


def check_distances(call: Any) -> None:
    """The mean of integers is refused, and the difference of bools."""
    common = promotion.result_type((call["self"], call["target"]))
    if common.kind == "bool":
        raise call.error(RuntimeError, "Subtraction, the `-` operator, with two bool tensors is "
                                       "not supported.")
    if common.kind == "int" and call["reduction"] == "mean":
        raise call.error(RuntimeError, "mean(): could not infer output dtype. Input dtype must be "
                                       "either a floating point or complex dtype. Got: "
                                       f"{common.name}", "convert the tensors with .float()")


def _common(call: Any) -> Any:
    common = promotion.result_type((call["self"], call["target"]))
    return common, common


def _distance(call: Any) -> Any:
    common = promotion.result_type((call["self"], call["target"]))
    summed = common.kind == "int" and call["reduction"] == "sum"
    return common, dtypes.int64 if summed else common.to_real()


def _toward(g: Any, self: Any, target: Any, specs: tuple[Any, Any], reduction: str) -> Any:
    """2 (self - target), times the gradient of each term."""
    return share(g, specs[0], specs[1], reduction) * ((self - target) * 2)


define(Entry(
    "squared_error(Tensor self, Tensor target, str reduction)", COMPOSITE,
    formula=lambda self, target, reduction: reduced(
        (self - target) * (self - target), reduction),
    gradient={
        "self": lambda g, self, target, self_spec, target_spec, reduction: _toward(
            g, self, target, (self_spec, target_spec), reduction),
        "target": lambda g, self, target, self_spec, target_spec, reduction: -_toward(
            g, self, target, (self_spec, target_spec), reduction),
    },
    promotion=_common, check=check_squares, path="", method=False, dtypes=("float",),
    doc="(self - target) ** 2, reduced.",
))
define(Entry(
    "absolute_error(Tensor self, Tensor target, str reduction)", COMPOSITE,
    formula=lambda self, target, reduction: reduced((self - target).abs(), reduction),
    gradient={
        "self": lambda g, self, target, self_spec, target_spec, reduction: absolute(
            share(g, self_spec, target_spec, reduction), self - target),
        "target": lambda g, self, target, self_spec, target_spec, reduction: -absolute(
            share(g, self_spec, target_spec, reduction), self - target),
    },
    promotion=_distance, check=check_distances, path="", method=False,
    dtypes=("int", "float", "complex"), doc="abs(self - target), reduced.",
))


def difference_loss(name: str, title: str) -> Any:
    """The function of a loss of differences: warns of shapes that differ, takes a weight."""
    def loss(self: Any, target: Any, size_average: Any, reduce: Any, reduction: str,
             weight: Any) -> Any:
        reduction = reduction_of(size_average, reduce, reduction)
        if self.spec.shape != target.spec.shape:
            warn_caller(
                f"{title}: the target's size {list(target.spec.shape)} is not the input's size "
                f"{list(self.spec.shape)}. They are broadcast against each other, which is seldom "
                "meant; reshape one of them.")
        op = getattr(ops, name)
        if weight is None:
            return op.call((self, target, reduction), None)
        if weight.spec.shape != self.spec.shape:
            raise ValueError("Weights and input must have the same size.")
        terms = op.call((self, target, "none"), None) * weight
        if reduction == "mean":
            return terms.sum() / weight.sum()
        return reduced(terms, reduction)

    return loss


def _pairs() -> Any:
    a, b = _scores(5, 3, 4), _scores(6, 3, 4)
    return [((a, b), {}), ((a, b), {"reduction": "sum"}), ((a, b), {"reduction": "none"})]


def _difference_reference(terms: Any) -> Any:
    def reference(a: Any, b: Any, reduction: str = "mean") -> Any:
        found = terms(a - b)
        return found if reduction == "none" else getattr(np, reduction)(found)

    return reference


for _title, _name, _terms in (("mse_loss", "squared_error", np.square),
                              ("l1_loss", "absolute_error", np.abs)):
    define(Entry(
        f"{_title}(Tensor self, Tensor target, {LEGACY}, bool? reduce=None, "
        "str reduction='mean', Tensor? weight=None)", COMPOUND,
        function=difference_loss(_name, _title), path=f"nn.functional.{_title}", method=False,
        dtypes=("float",), samples=_pairs, reference=_difference_reference(_terms),
        exceptions=reasons.ROUNDED_HALF if _title == "mse_loss" else {},
        doc=f"The {_name.replace('_', ' ')} of self and target, by reduction 'mean', 'sum' or "
            "'none'; weight weighs each term. Shapes that differ are broadcast, with a "
            "UserWarning.",
        autocast="float32",
    ))

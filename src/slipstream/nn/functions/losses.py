"""Losses made of ops."""

from __future__ import annotations

import math
from typing import Any

import slipstream as ss
from slipstream.core.api.autocasting import autocast_as
from slipstream.core.api.install import rounded_error
from slipstream.core.vocab.warned import warn_caller

REDUCTIONS = ("none", "mean", "sum")


def reduction_of(size_average: bool | None, reduce: bool | None, reduction: str) -> str:
    """The reduction that the two older arguments ask for; ValueError for an unknown one."""
    if size_average is not None or reduce is not None:
        if reduce is False:
            return "none"
        return "sum" if size_average is False else "mean"
    if reduction not in REDUCTIONS:
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return reduction


def reduced(terms: ss.Tensor, reduction: str) -> ss.Tensor:
    """The terms themselves, their mean or their sum."""
    if reduction == "none":
        return terms
    return terms.mean() if reduction == "mean" else terms.sum()


def warn_of_shapes(name: str, input: ss.Tensor, target: ss.Tensor) -> None:
    """A target of another size broadcasts, which is seldom meant."""
    if input.shape != target.shape:
        warn_caller(f"{name}: the target's size {list(target.shape)} is not the input's size "
                    f"{list(input.shape)}. They are broadcast against each other, which is "
                    "seldom meant; reshape one of them.")


@autocast_as("float32")
def smooth_l1_loss(input: ss.Tensor, target: ss.Tensor, size_average: bool | None = None,
                   reduce: bool | None = None, reduction: str = "mean",
                   beta: float = 1.0) -> ss.Tensor:
    """d^2 / (2 beta) for |d| < beta, else |d| - beta / 2; ValueError for a negative beta."""
    reduction = reduction_of(size_average, reduce, reduction)
    if beta < 0:
        raise RuntimeError("smooth_l1_loss does not support negative values for beta.")
    warn_of_shapes("smooth_l1_loss", input, target)
    return rounded_error(input, target, float(beta), True, reduction)


@autocast_as("float32")
def huber_loss(input: ss.Tensor, target: ss.Tensor, reduction: str = "mean", delta: float = 1.0,
               weight: ss.Tensor | None = None) -> ss.Tensor:
    """d^2 / 2 for |d| < delta, else delta (|d| - delta / 2), times ``weight`` of the same size."""
    if delta <= 0:
        raise RuntimeError("huber_loss does not support non-positive values for delta.")
    reduction = reduction_of(None, None, reduction)
    warn_of_shapes("huber_loss", input, target)
    if weight is None:
        return rounded_error(input, target, float(delta), False, reduction)
    if weight.shape != input.shape:
        raise ValueError("Weights and input must have the same size.")
    # As PyTorch: mse_loss and l1_loss divide by the weights' sum, this one by the count.
    return reduced(rounded_error(input, target, float(delta), False, "none") * weight, reduction)


@autocast_as("float32")
def kl_div(input: ss.Tensor, target: ss.Tensor, size_average: bool | None = None,
           reduce: bool | None = None, reduction: str = "mean",
           log_target: bool = False) -> ss.Tensor:
    """target (log target - input), for log-probabilities ``input``; batchmean: over the batch."""
    by_batch = reduction == "batchmean"
    reduction = "sum" if by_batch else reduction_of(size_average, reduce, reduction)
    if reduction == "mean" and input.shape[:1] != (1,):
        warn_caller("reduction: 'mean' divides the total loss by both the batch size and the "
                    "support size. 'batchmean' divides only by the batch size, and aligns with "
                    "the KL math definition.")
    terms = target.exp() * (target - input) if log_target else ss.xlogy(target, target) - (
        target * input)
    total = reduced(terms, reduction)
    return total / input.shape[0] if by_batch and input.ndim else total


@autocast_as("float32")
def poisson_nll_loss(input: ss.Tensor, target: ss.Tensor, log_input: bool = True,
                     full: bool = False, size_average: bool | None = None, eps: float = 1e-8,
                     reduce: bool | None = None, reduction: str = "mean") -> ss.Tensor:
    """exp(input) - target input, or input - target log(input + eps) without ``log_input``."""
    reduction = reduction_of(size_average, reduce, reduction)
    terms = input.exp() - target * input if log_input else input - target * (input + eps).log()
    if full:
        # Stirling's approximation of log(target!).
        safe = ss.where(target > 1, target, ss.ones_like(target))
        stirling = safe * safe.log() - safe + 0.5 * (2 * math.pi * safe).log()
        terms = terms + ss.where(target > 1, stirling, ss.zeros_like(stirling))
    return reduced(terms, reduction)


def gaussian_nll_loss(input: ss.Tensor, target: ss.Tensor, var: ss.Tensor | float,
                      full: bool = False, eps: float = 1e-6,
                      reduction: str = "mean") -> ss.Tensor:
    """(log var + (input - target)^2 / var) / 2, var at least eps.

    ``var`` has the input's shape, or lacks its last dim, or has size 1 in one dim.  ValueError for
    another shape and for a negative one.
    """
    spread = var if isinstance(var, ss.Tensor) else ss.full_like(input, var)
    if isinstance(var, float) and var < 0:
        raise ValueError("var has negative entry/entries")
    if isinstance(var, ss.Tensor) and bool((var < 0).any()):
        raise ValueError("var has negative entry/entries")
    if spread.shape != input.shape:
        if tuple(input.shape[:-1]) == tuple(spread.shape):
            spread = spread.unsqueeze(-1)
        elif spread.ndim != input.ndim or [own for whole, own in zip(
                input.shape, spread.shape, strict=True) if whole != own] != [1]:
            raise ValueError("var is of incorrect size")
    if reduction not in REDUCTIONS:
        raise ValueError(f"{reduction} is not valid")
    # Only the value is bounded: the slope goes through.
    bounded = spread + (spread.detach().clamp(min=eps) - spread.detach())
    terms = 0.5 * (bounded.log() + (input - target) ** 2 / bounded)
    if full:
        terms = terms + 0.5 * math.log(2 * math.pi)
    return reduced(terms, reduction)


@autocast_as("float32")
def soft_margin_loss(input: ss.Tensor, target: ss.Tensor, size_average: bool | None = None,
                     reduce: bool | None = None, reduction: str = "mean") -> ss.Tensor:
    """log(1 + exp(-target input))."""
    reduction = reduction_of(size_average, reduce, reduction)
    return reduced(-ss.nn.functional.logsigmoid(target * input), reduction)


@autocast_as("float32")
def hinge_embedding_loss(input: ss.Tensor, target: ss.Tensor, margin: float = 1.0,
                         size_average: bool | None = None, reduce: bool | None = None,
                         reduction: str = "mean") -> ss.Tensor:
    """input where target is 1, max(0, margin - input) where it is -1."""
    reduction = reduction_of(size_average, reduce, reduction)
    zero = ss.zeros_like(input)
    far = ss.where(target != 1, (margin - input).clamp(min=0), zero)
    near = ss.where(target != -1, input, zero)
    return reduced(far + near, reduction)


@autocast_as("float32")
def margin_ranking_loss(input1: ss.Tensor, input2: ss.Tensor, target: ss.Tensor,
                        margin: float = 0, size_average: bool | None = None,
                        reduce: bool | None = None, reduction: str = "mean") -> ss.Tensor:
    """max(0, -target (input1 - input2) + margin)."""
    reduction = reduction_of(size_average, reduce, reduction)
    if not input1.ndim == input2.ndim == target.ndim:
        raise RuntimeError("margin_ranking_loss : All input tensors should have same dimension but "
                           f"got sizes: input1: {list(input1.shape)}, input2: "
                           f"{list(input2.shape)}, target: {list(target.shape)}")
    return reduced((-target * (input1 - input2) + margin).clamp(min=0), reduction)


@autocast_as("float32")
def cosine_embedding_loss(input1: ss.Tensor, input2: ss.Tensor, target: ss.Tensor,
                          margin: float = 0, size_average: bool | None = None,
                          reduce: bool | None = None, reduction: str = "mean") -> ss.Tensor:
    """1 - cos where target is 1, max(0, cos - margin) where it is -1."""
    reduction = reduction_of(size_average, reduce, reduction)
    if target.ndim not in (0, 1):
        raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
    if input1.ndim != target.ndim + 1 or input2.ndim != target.ndim + 1:
        raise RuntimeError(f"{target.ndim}D target tensor expects {target.ndim + 1}D input "
                           f"tensors, but found inputs with sizes {list(input1.shape)} and "
                           f"{list(input2.shape)}.")
    product = (input1 * input2).sum(-1)
    sizes = ((input1 * input1).sum(-1) + 1e-12) * ((input2 * input2).sum(-1) + 1e-12)
    angle = product / sizes.sqrt()
    zero = ss.zeros_like(angle)
    near = ss.where(target == 1, 1 - angle, zero)
    far = ss.where(target == -1, (angle - margin).clamp(min=0), zero)
    return reduced(near + far, reduction)


@autocast_as("float32")
def triplet_margin_loss(anchor: ss.Tensor, positive: ss.Tensor, negative: ss.Tensor,
                        margin: float = 1.0, p: float = 2, eps: float = 1e-6, swap: bool = False,
                        size_average: bool | None = None, reduce: bool | None = None,
                        reduction: str = "mean") -> ss.Tensor:
    """max(0, d(anchor, positive) - d(anchor, negative) + margin)."""
    reduction = reduction_of(size_average, reduce, reduction)
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    if not anchor.ndim == positive.ndim == negative.ndim:
        raise RuntimeError("The anchor, positive, and negative tensors are expected to have the "
                           "same number of dimensions, but got: anchor "
                           f"{anchor.ndim}D, positive {positive.ndim}D, and negative "
                           f"{negative.ndim}D inputs")
    near = distance(anchor, positive, p, eps)
    far = distance(anchor, negative, p, eps)
    if swap:
        far = ss.minimum(far, distance(positive, negative, p, eps))
    return reduced((near - far + margin).clamp(min=0), reduction)


def distance(x1: ss.Tensor, x2: ss.Tensor, p: float, eps: float) -> ss.Tensor:
    """The norm of x1 - x2 + eps over the last dim."""
    return ss.norm(x1 - x2 + eps, p, -1)


@autocast_as("float32")
def multi_margin_loss(input: ss.Tensor, target: ss.Tensor, p: int = 1, margin: float = 1.0,
                      weight: ss.Tensor | None = None, size_average: bool | None = None,
                      reduce: bool | None = None, reduction: str = "mean") -> ss.Tensor:
    """The mean over other classes of max(0, margin - x[target] + x[class])^p."""
    reduction = reduction_of(size_average, reduce, reduction)
    if p not in (1, 2):
        raise ValueError("only p == 1 and p == 2 supported")
    if weight is not None and weight.ndim != 1:
        raise ValueError("weight must be one-dimensional")
    scores = input if input.ndim == 2 else input.reshape(1, -1)
    index = target.reshape(-1, 1)
    terms = (margin - scores.gather(1, index) + scores).clamp(min=0)
    terms = terms if p == 1 else terms * terms
    if weight is not None:
        terms = terms * weight[index]
    own = ss.ones_like(terms).scatter(1, index, 0)
    total = (terms * own).sum(1) / scores.shape[1]
    return reduced(total if input.ndim == 2 else total.reshape(()), reduction)


@autocast_as("float32")
def multilabel_margin_loss(input: ss.Tensor, target: ss.Tensor, size_average: bool | None = None,
                           reduce: bool | None = None, reduction: str = "mean") -> ss.Tensor:
    """The mean of max(0, 1 - x[label] + x[other]) over labels, which end at the first -1."""
    reduction = reduction_of(size_average, reduce, reduction)
    scores = input if input.ndim == 2 else input.reshape(1, -1)
    labels = target if target.ndim == 2 else target.reshape(1, -1)
    valid = (labels < 0).long().cumsum(1) == 0
    index = labels.clamp(min=0)
    chosen = ss.zeros_like(scores).scatter_add(1, index, valid.to(scores.dtype)) > 0
    picked = scores.gather(1, index)
    terms = (1 - picked.unsqueeze(2) + scores.unsqueeze(1)).clamp(min=0)
    used = valid.unsqueeze(2) & ~chosen.unsqueeze(1)
    total = (terms * used).sum((1, 2)) / max(scores.shape[1], 1)
    return reduced(total if input.ndim == 2 else total.reshape(()), reduction)


def multilabel_soft_margin_loss(input: ss.Tensor, target: ss.Tensor,
                                weight: ss.Tensor | None = None, size_average: bool | None = None,
                                reduce: bool | None = None, reduction: str = "mean") -> ss.Tensor:
    """The mean over classes of -(y log s + (1 - y) log(1 - s)), s the sigmoid of the input."""
    reduction = reduction_of(size_average, reduce, reduction)
    functional = ss.nn.functional
    terms = -(target * functional.logsigmoid(input) + (1 - target) * functional.logsigmoid(-input))
    if weight is not None:
        terms = terms * weight
    return reduced(terms.sum(-1) / input.shape[-1], reduction)


def triplet_margin_with_distance_loss(anchor: ss.Tensor, positive: ss.Tensor,
                                      negative: ss.Tensor, *, distance_function: Any = None,
                                      margin: float = 1.0, swap: bool = False,
                                      reduction: str = "mean") -> ss.Tensor:
    """triplet_margin_loss with a distance of one's own."""
    reduction = reduction_of(None, None, reduction)
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    measure = distance_function or (lambda a, b: distance(a, b, 2.0, 1e-6))
    near, far = measure(anchor, positive), measure(anchor, negative)
    if swap:
        far = ss.minimum(far, measure(positive, negative))
    return reduced((near - far + margin).clamp(min=0), reduction)

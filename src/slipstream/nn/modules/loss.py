"""Losses."""

from __future__ import annotations

from typing import Any

import slipstream as ss
from slipstream.nn import functional
from slipstream.nn.functional import cross_entropy, mse_loss, nll_loss
from slipstream.nn.modules.module import Module


class _Loss(Module):
    """A loss, reduced by "mean", "sum" or "none"."""

    def __init__(self, size_average: bool | None = None, reduce: bool | None = None,
                 reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = legacy_reduction(size_average, reduce, reduction)


class MSELoss(_Loss):
    """The mean of (input - target) ** 2; input and target have the same shape."""

    def forward(self, input: ss.Tensor, target: ss.Tensor) -> ss.Tensor:
        """Return the loss: a scalar, or of the input's shape without reduction."""
        return mse_loss(input, target, reduction=self.reduction)


class _WeightedLoss(_Loss):
    """A loss of classes, each with a weight or none."""

    weight: ss.Tensor | None

    def __init__(self, weight: ss.Tensor | None = None, size_average: bool | None = None,
                 reduce: bool | None = None, reduction: str = "mean") -> None:
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)


class NLLLoss(_WeightedLoss):
    """Minus the log-probability of the target class, weighted.

    Input (N, C, *) or (C), target (N, *) or () of class indices; ``ignore_index`` counts nowhere.
    """

    def __init__(self, weight: ss.Tensor | None = None, size_average: bool | None = None,
                 ignore_index: int = -100, reduce: bool | None = None,
                 reduction: str = "mean") -> None:
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index = ignore_index

    def forward(self, input: ss.Tensor, target: ss.Tensor) -> ss.Tensor:
        """Return the loss: a scalar, or of the target's shape without reduction."""
        return nll_loss(input, target, self.weight, ignore_index=self.ignore_index,
                        reduction=self.reduction)


class CrossEntropyLoss(_WeightedLoss):
    """Minus the log-probability of the target class under softmax(input), weighted.

    Input (N, C, *) or (C); target (N, *) or () of class indices, or probabilities of the input's
    shape.  ``ignore_index`` counts nowhere; ``label_smoothing`` mixes in the uniform distribution.
    """

    def __init__(self, weight: ss.Tensor | None = None, size_average: bool | None = None,
                 ignore_index: int = -100, reduce: bool | None = None, reduction: str = "mean",
                 label_smoothing: float = 0.0) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing

    def forward(self, input: ss.Tensor, target: ss.Tensor) -> ss.Tensor:
        """Return the loss: a scalar, or of the target's shape without reduction."""
        return cross_entropy(input, target, self.weight, ignore_index=self.ignore_index,
                             reduction=self.reduction, label_smoothing=self.label_smoothing)


class L1Loss(_Loss):
    """The mean of |input - target|."""

    def forward(self, input: ss.Tensor, target: ss.Tensor) -> ss.Tensor:
        """Return the loss: a scalar, or of the input's shape without reduction."""
        return functional.l1_loss(input, target, reduction=self.reduction)


class SmoothL1Loss(_Loss):
    """d^2 / (2 beta) for a difference below beta, else |d| - beta / 2."""

    def __init__(self, size_average: bool | None = None, reduce: bool | None = None,
                 reduction: str = "mean", beta: float = 1.0) -> None:
        super().__init__(size_average, reduce, reduction)
        self.beta = beta

    def forward(self, input: ss.Tensor, target: ss.Tensor) -> ss.Tensor:
        """Return the loss: a scalar, or of the input's shape without reduction."""
        return functional.smooth_l1_loss(input, target, reduction=self.reduction, beta=self.beta)


class HuberLoss(_Loss):
    """d^2 / 2 for a difference below delta, else delta (|d| - delta / 2)."""

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction=reduction)
        self.delta = delta

    def forward(self, input: ss.Tensor, target: ss.Tensor) -> ss.Tensor:
        """Return the loss: a scalar, or of the input's shape without reduction."""
        return functional.huber_loss(input, target, self.reduction, self.delta)


class BCELoss(_WeightedLoss):
    """Binary cross entropy of probabilities: -(y log p + (1 - y) log(1 - p))."""

    def forward(self, input: ss.Tensor, target: ss.Tensor) -> ss.Tensor:
        """Return the loss: a scalar, or of the input's shape without reduction."""
        return functional.binary_cross_entropy(input, target, self.weight,
                                               reduction=self.reduction)


class BCEWithLogitsLoss(_WeightedLoss):
    """Binary cross entropy of logits; ``pos_weight`` weighs the positive class."""

    pos_weight: ss.Tensor | None

    def __init__(self, weight: ss.Tensor | None = None, size_average: bool | None = None,
                 reduce: bool | None = None, reduction: str = "mean",
                 pos_weight: ss.Tensor | None = None) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, input: ss.Tensor, target: ss.Tensor) -> ss.Tensor:
        """Return the loss: a scalar, or of the input's shape without reduction."""
        return functional.binary_cross_entropy_with_logits(
            input, target, self.weight, pos_weight=self.pos_weight, reduction=self.reduction)


class KLDivLoss(_Loss):
    """target (log target - input), for log-probabilities; "batchmean" divides by the batch."""

    def __init__(self, size_average: bool | None = None, reduce: bool | None = None,
                 reduction: str = "mean", log_target: bool = False) -> None:
        super().__init__(size_average, reduce, reduction)
        self.log_target = log_target

    def forward(self, input: ss.Tensor, target: ss.Tensor) -> ss.Tensor:
        """Return the loss: a scalar, or of the input's shape without reduction."""
        return functional.kl_div(input, target, reduction=self.reduction,
                                 log_target=self.log_target)


class PoissonNLLLoss(_Loss):
    """Minus the log-likelihood of counts under a Poisson distribution."""

    def __init__(self, log_input: bool = True, full: bool = False,
                 size_average: bool | None = None, eps: float = 1e-8,
                 reduce: bool | None = None, reduction: str = "mean") -> None:
        super().__init__(size_average, reduce, reduction)
        self.log_input = log_input
        self.full = full
        self.eps = eps

    def forward(self, log_input: ss.Tensor, target: ss.Tensor) -> ss.Tensor:
        """Return the loss: a scalar, or of the input's shape without reduction."""
        return functional.poisson_nll_loss(log_input, target, self.log_input, self.full,
                                           eps=self.eps, reduction=self.reduction)


class GaussianNLLLoss(_Loss):
    """Minus the log-likelihood under normal distributions of the input and a variance."""

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        self.full = full
        self.eps = eps

    def forward(self, input: ss.Tensor, target: ss.Tensor, var: ss.Tensor | float) -> ss.Tensor:
        """Return the loss: a scalar, or of the input's shape without reduction."""
        return functional.gaussian_nll_loss(input, target, var, self.full, self.eps,
                                            self.reduction)


class SoftMarginLoss(_Loss):
    """log(1 + exp(-target input)), target 1 or -1."""

    def forward(self, input: ss.Tensor, target: ss.Tensor) -> ss.Tensor:
        """Return the loss: a scalar, or of the input's shape without reduction."""
        return functional.soft_margin_loss(input, target, reduction=self.reduction)


class MultiLabelSoftMarginLoss(_WeightedLoss):
    """The mean over classes of the binary cross entropy of logits."""

    def forward(self, input: ss.Tensor, target: ss.Tensor) -> ss.Tensor:
        """Return the loss: a scalar, or one for each sample without reduction."""
        return functional.multilabel_soft_margin_loss(input, target, self.weight,
                                                      reduction=self.reduction)


class MultiLabelMarginLoss(_Loss):
    """The mean of max(0, 1 - x[label] + x[other]) over labels and other classes."""

    def forward(self, input: ss.Tensor, target: ss.Tensor) -> ss.Tensor:
        """Return the loss: a scalar, or one for each sample without reduction."""
        return functional.multilabel_margin_loss(input, target, reduction=self.reduction)


class _MarginLoss(_Loss):
    """A loss with a margin."""

    start = 0.0

    def __init__(self, margin: float | None = None, size_average: bool | None = None,
                 reduce: bool | None = None, reduction: str = "mean") -> None:
        super().__init__(size_average, reduce, reduction)
        self.margin = self.start if margin is None else margin


class HingeEmbeddingLoss(_MarginLoss):
    """The input where target is 1, max(0, margin - input) where it is -1."""

    start = 1.0

    def forward(self, input: ss.Tensor, target: ss.Tensor) -> ss.Tensor:
        """Return the loss: a scalar, or of the input's shape without reduction."""
        return functional.hinge_embedding_loss(input, target, self.margin,
                                               reduction=self.reduction)


class MarginRankingLoss(_MarginLoss):
    """max(0, -target (input1 - input2) + margin)."""

    def forward(self, input1: ss.Tensor, input2: ss.Tensor, target: ss.Tensor) -> ss.Tensor:
        """Return the loss: a scalar, or one for each pair without reduction."""
        return functional.margin_ranking_loss(input1, input2, target, self.margin,
                                              reduction=self.reduction)


class CosineEmbeddingLoss(_MarginLoss):
    """1 - cos where target is 1, max(0, cos - margin) where it is -1."""

    def forward(self, input1: ss.Tensor, input2: ss.Tensor, target: ss.Tensor) -> ss.Tensor:
        """Return the loss: a scalar, or one for each pair without reduction."""
        return functional.cosine_embedding_loss(input1, input2, target, self.margin,
                                                reduction=self.reduction)


class TripletMarginLoss(_Loss):
    """max(0, d(anchor, positive) - d(anchor, negative) + margin)."""

    def __init__(self, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6, swap: bool = False,
                 size_average: bool | None = None, reduce: bool | None = None,
                 reduction: str = "mean") -> None:
        super().__init__(size_average, reduce, reduction)
        if margin <= 0:
            raise ValueError(f"TripletMarginLoss: expected margin to be greater than 0, got "
                             f"{margin} instead")
        self.margin = margin
        self.p = p
        self.eps = eps
        self.swap = swap

    def forward(self, anchor: ss.Tensor, positive: ss.Tensor, negative: ss.Tensor) -> ss.Tensor:
        """Return the loss: a scalar, or one for each triple without reduction."""
        return functional.triplet_margin_loss(anchor, positive, negative, self.margin, self.p,
                                              self.eps, self.swap, reduction=self.reduction)


class TripletMarginWithDistanceLoss(_Loss):
    """TripletMarginLoss with a distance of one's own."""

    def __init__(self, *, distance_function: Any = None, margin: float = 1.0, swap: bool = False,
                 reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        self.distance_function = distance_function
        self.margin = margin
        self.swap = swap

    def forward(self, anchor: ss.Tensor, positive: ss.Tensor, negative: ss.Tensor) -> ss.Tensor:
        """Return the loss: a scalar, or one for each triple without reduction."""
        return functional.triplet_margin_with_distance_loss(
            anchor, positive, negative, distance_function=self.distance_function,
            margin=self.margin, swap=self.swap, reduction=self.reduction)


class MultiMarginLoss(_WeightedLoss):
    """The mean over other classes of max(0, margin - x[target] + x[class])^p."""

    def __init__(self, p: int = 1, margin: float = 1.0, weight: ss.Tensor | None = None,
                 size_average: bool | None = None, reduce: bool | None = None,
                 reduction: str = "mean") -> None:
        super().__init__(weight, size_average, reduce, reduction)
        if p not in (1, 2):
            raise ValueError("only p == 1 and p == 2 supported")
        self.p = p
        self.margin = margin

    def forward(self, input: ss.Tensor, target: ss.Tensor) -> ss.Tensor:
        """Return the loss: a scalar, or one for each sample without reduction."""
        return functional.multi_margin_loss(input, target, self.p, self.margin, self.weight,
                                            reduction=self.reduction)


class CTCLoss(_Loss):
    """Minus the log-likelihood of sequences over all alignments with blanks."""

    def __init__(self, blank: int = 0, reduction: str = "mean",
                 zero_infinity: bool = False) -> None:
        super().__init__(reduction=reduction)
        self.blank = blank
        self.zero_infinity = zero_infinity

    def forward(self, log_probs: ss.Tensor, targets: ss.Tensor, input_lengths: Any,
                target_lengths: Any) -> ss.Tensor:
        """Return the loss: a scalar, or one for each sequence without reduction."""
        return functional.ctc_loss(log_probs, targets, input_lengths, target_lengths, self.blank,
                                   self.reduction, self.zero_infinity)


def legacy_reduction(size_average: bool | None, reduce: bool | None, reduction: str) -> str:
    """The reduction that PyTorch's two older arguments ask for, or ``reduction`` without them."""
    if size_average is None and reduce is None:
        return reduction
    if reduce is False:
        return "none"
    return "sum" if size_average is False else "mean"

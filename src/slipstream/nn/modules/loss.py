"""Losses."""

from __future__ import annotations

import slipstream as ss
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


def legacy_reduction(size_average: bool | None, reduce: bool | None, reduction: str) -> str:
    """The reduction that PyTorch's two older arguments ask for, or ``reduction`` without them."""
    if size_average is None and reduce is None:
        return reduction
    if reduce is False:
        return "none"
    return "sum" if size_average is False else "mean"

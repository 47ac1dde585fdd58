"""Dropout."""

from __future__ import annotations

import slipstream as ss
from slipstream.nn import functional
from slipstream.nn.modules.module import Module


class _Dropout(Module):
    """What is zeroed in training, with a probability; ValueError unless 0 <= p <= 1."""

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not 0.0 <= p <= 1.0:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p = p
        self.inplace = inplace

    def extra_repr(self) -> str:
        """What the printed module says of its options."""
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_Dropout):
    """In training, zero each element with probability ``p`` and scale the rest by 1 / (1 - p).

    Raises ValueError unless 0 <= p <= 1.
    """

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the output, of the input's shape; in evaluation mode the input itself."""
        return functional.dropout(input, self.p, self.training, self.inplace)


class Dropout1d(_Dropout):
    """In training, zero whole channels of (N, C, L) or (C, L)."""

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the output, of the input's shape."""
        return functional.dropout1d(input, self.p, self.training, self.inplace)


class Dropout2d(_Dropout):
    """In training, zero whole channels of images (N, C, H, W)."""

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the output, of the input's shape."""
        return functional.dropout2d(input, self.p, self.training, self.inplace)


class Dropout3d(_Dropout):
    """In training, zero whole channels of volumes (N, C, D, H, W)."""

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the output, of the input's shape."""
        return functional.dropout3d(input, self.p, self.training, self.inplace)


class AlphaDropout(_Dropout):
    """In training, dropout that keeps the mean and variance of selu's outputs."""

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the output, of the input's shape."""
        return functional.alpha_dropout(input, self.p, self.training)


class FeatureAlphaDropout(_Dropout):
    """In training, AlphaDropout of whole channels."""

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the output, of the input's shape."""
        return functional.feature_alpha_dropout(input, self.p, self.training)

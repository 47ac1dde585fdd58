"""Dropout."""

from __future__ import annotations

import slipstream as ss
from slipstream.nn.functional import dropout
from slipstream.nn.modules.module import Module


class Dropout(Module):
    """In training, zero each element with probability ``p`` and scale the rest by 1 / (1 - p).

    Raises ValueError unless 0 <= p <= 1.
    """

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not 0.0 <= p <= 1.0:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p = p
        self.inplace = inplace

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the output, of the input's shape; in evaluation mode the input itself."""
        return dropout(input, self.p, self.training, self.inplace)

    def extra_repr(self) -> str:
        """What the printed module says of its options."""
        return f"p={self.p}, inplace={self.inplace}"

"""Activations."""

from __future__ import annotations

import slipstream as ss
from slipstream.nn import functional
from slipstream.nn.modules.module import Module


class ReLU(Module):
    """max(input, 0), written into the input if ``inplace``."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the output, of the input's shape."""
        return input.relu_() if self.inplace else ss.relu(input)

    def extra_repr(self) -> str:
        """What the printed module says of its options."""
        return "inplace=True" if self.inplace else ""


class GELU(Module):
    """input times the normal distribution's cumulative function of it.

    ``approximate`` is "none" or "tanh".
    """

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the output, of the input's shape."""
        return functional.gelu(input, approximate=self.approximate)

    def extra_repr(self) -> str:
        """What the printed module says of its options."""
        return f"approximate={self.approximate!r}"


class Tanh(Module):
    """The hyperbolic tangent."""

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the output, of the input's shape."""
        return ss.tanh(input)


class _OverClasses(Module):
    """An activation over one dim."""

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def extra_repr(self) -> str:
        """What the printed module says of its options."""
        return f"dim={self.dim}"


class Softmax(_OverClasses):
    """exp(input) / sum(exp(input), dim)."""

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the output, of the input's shape."""
        return functional.softmax(input, self.dim)


class LogSoftmax(_OverClasses):
    """log(softmax(input, dim)), without the loss of precision."""

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the output, of the input's shape."""
        return functional.log_softmax(input, self.dim)

"""Parametrizations for use with `parametrize`."""

from __future__ import annotations

import slipstream as ss
from slipstream.nn.modules.module import Module
from slipstream.nn.utils.parametrize import register_parametrization
from slipstream.nn.utils.weight_norm import norm_except_dim, scaled_direction

__all__ = ["weight_norm"]


class _WeightNorm(Module):
    """A length (original0) and a direction (original1) as one weight."""

    def __init__(self, dim: int | None) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, length: ss.Tensor, direction: ss.Tensor) -> ss.Tensor:
        """length * direction / |direction|."""
        return scaled_direction(direction, length, self.dim)

    def right_inverse(self, weight: ss.Tensor) -> tuple[ss.Tensor, ss.Tensor]:
        """The lengths of a weight, and the weight as direction."""
        return norm_except_dim(weight, self.dim), weight


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Learn a weight's length and direction apart; the length is over every dim but ``dim``."""
    return register_parametrization(module, name, _WeightNorm(dim), unsafe=True)

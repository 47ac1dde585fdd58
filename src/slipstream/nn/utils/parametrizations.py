"""Parametrizations for use with `parametrize`."""

from __future__ import annotations

from functools import partial
from typing import Any

import slipstream as ss
from slipstream.nn.modules.module import Module
from slipstream.nn.utils.parametrize import is_parametrized, register_parametrization
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


def _take_older_names(name: str, module: Module, state: dict[str, Any], prefix: str,
                      *_: Any) -> None:
    """Before a load: <name>_g and <name>_v, of the older weight_norm, are the two originals."""
    older = [f"{prefix}{name}_{part}" for part in "gv"]
    if is_parametrized(module, name) and all(key in state for key in older):
        for place, key in enumerate(older):
            state[f"{prefix}parametrizations.{name}.original{place}"] = state.pop(key)


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Learn a weight's length and direction apart; the length is over every dim but ``dim``.

    States saved of `utils.weight_norm` are loaded too.
    """
    register_parametrization(module, name, _WeightNorm(dim), unsafe=True)
    module._register_load_state_dict_pre_hook(partial(_take_older_names, name), with_module=True)
    return module

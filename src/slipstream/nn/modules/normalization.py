"""Normalisation layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import slipstream as ss
from slipstream.nn import init
from slipstream.nn.functional import layer_norm
from slipstream.nn.modules.module import Module
from slipstream.nn.parameter import Parameter


class LayerNorm(Module):
    """(input - mean) / sqrt(variance + eps) * weight + bias, over the dims ``normalized_shape``.

    The input is (*, *normalized_shape); weight and bias have that shape, or are None.
    """

    weight: Parameter | None
    bias: Parameter | None

    def __init__(self, normalized_shape: int | Sequence[int], eps: float = 1e-5,
                 elementwise_affine: bool = True, bias: bool = True, device: Any = None,
                 dtype: ss.dtype | None = None) -> None:
        super().__init__()
        if isinstance(normalized_shape, int):
            normalized_shape = (normalized_shape,)
        self.normalized_shape = tuple(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        for name, wanted in (("weight", elementwise_affine), ("bias", elementwise_affine and bias)):
            empty = ss.empty(self.normalized_shape, device=device, dtype=dtype) if wanted else None
            self.register_parameter(name, None if empty is None else Parameter(empty))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set weight to 1 and bias to 0."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the output; raises RuntimeError unless the input ends in normalized_shape."""
        return layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """What the printed module says of its options."""
        return (f"{self.normalized_shape}, eps={self.eps}, "
                f"elementwise_affine={self.elementwise_affine}, bias={self.bias is not None}")

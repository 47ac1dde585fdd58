"""Normalisation layers."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from numbers import Integral
from typing import Any

import slipstream as ss
from slipstream.nn import functional, init
from slipstream.nn.modules.forwards import LayerNormForward
from slipstream.nn.modules.module import Module
from slipstream.nn.parameter import Parameter


@functools.lru_cache(maxsize=256)
def shared(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The same tuple for all layers of a shape: their calls are known again by it."""
    return shape


def sizes_of(normalized_shape: Any) -> tuple[int, ...]:
    """A size or several, NumPy's integers among them, as a tuple of ints."""
    if isinstance(normalized_shape, Integral):
        return (int(normalized_shape),)
    return tuple(operator.index(size) for size in normalized_shape)


class LayerNorm(LayerNormForward, Module):
    """(input - mean) / sqrt(variance + eps) * weight + bias, over the dims ``normalized_shape``.

    The input is (*, *normalized_shape); weight and bias have that shape, or are None.
    """

    weight: Parameter | None
    bias: Parameter | None

    def __init__(self, normalized_shape: int | Sequence[int], eps: float = 1e-5,
                 elementwise_affine: bool = True, bias: bool = True, device: Any = None,
                 dtype: ss.dtype | None = None) -> None:
        super().__init__()
        self.normalized_shape = shared(sizes_of(normalized_shape))
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

    def extra_repr(self) -> str:
        """What the printed module says of its options."""
        return (f"{self.normalized_shape}, eps={self.eps}, "
                f"elementwise_affine={self.elementwise_affine}, bias={self.bias is not None}")


class RMSNorm(Module):
    """input / sqrt(mean of squares + eps) * weight, over the dims ``normalized_shape``.

    ``eps`` is by default that of the input's dtype.
    """

    weight: Parameter | None

    def __init__(self, normalized_shape: int | Sequence[int], eps: float | None = None,
                 elementwise_affine: bool = True, device: Any = None,
                 dtype: ss.dtype | None = None) -> None:
        super().__init__()
        self.normalized_shape = shared(sizes_of(normalized_shape))
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        empty = ss.empty(self.normalized_shape, device=device, dtype=dtype)
        self.register_parameter("weight", Parameter(empty) if elementwise_affine else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set weight to 1."""
        if self.weight is not None:
            init.ones_(self.weight)

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the output; raises RuntimeError unless the input ends in normalized_shape."""
        return functional.rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        """What the printed module says of its options."""
        return (f"{self.normalized_shape}, eps={self.eps}, "
                f"elementwise_affine={self.elementwise_affine}")


class GroupNorm(Module):
    """Groups of channels of (N, C, ...) normalised for each sample, then weight and bias.

    Raises ValueError unless ``num_groups`` divides ``num_channels``.
    """

    weight: Parameter | None
    bias: Parameter | None

    def __init__(self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True,
                 device: Any = None, dtype: ss.dtype | None = None, *, bias: bool = True) -> None:
        super().__init__()
        if num_channels % num_groups:
            raise ValueError("num_channels must be divisible by num_groups")
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        for name, wanted in (("weight", affine), ("bias", affine and bias)):
            empty = ss.empty(num_channels, device=device, dtype=dtype) if wanted else None
            self.register_parameter(name, None if empty is None else Parameter(empty))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set weight to 1 and bias to 0."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the output, of the input's shape."""
        return functional.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """What the printed module says of its options."""
        return (f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, "
                f"bias={self.bias is not None}")


class LocalResponseNorm(Module):
    """The input divided by a power of the squares of its neighbour channels."""

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size = size
        self.alpha = alpha
        self.beta = beta
        self.k = k

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the output, of the input's shape."""
        return functional.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        """What the printed module says of its options."""
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"

"""Changes of shape."""

from __future__ import annotations

import math

import slipstream as ss
from slipstream.nn.modules.module import Module


class Flatten(Module):
    """Joins the dims from ``start_dim`` to ``end_dim``, both included, into one."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim = start_dim
        self.end_dim = end_dim

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the output; raises IndexError for a dim that the input does not have."""
        start = place_of(self.start_dim, input.ndim)
        end = place_of(self.end_dim, input.ndim)
        if start > end:
            raise RuntimeError("flatten() has invalid args: start_dim cannot come after end_dim")
        shape = tuple(input.shape) or (1,)
        joined = math.prod(shape[start:end + 1])
        return input.reshape(*shape[:start], joined, *shape[end + 1:])

    def extra_repr(self) -> str:
        """What the printed module says of its options."""
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """Splits dim ``dim`` into dims of the sizes ``unflattened_size``, of which one may be -1."""

    def __init__(self, dim: int, unflattened_size: tuple[int, ...]) -> None:
        super().__init__()
        self.dim = dim
        self.unflattened_size = unflattened_size

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the output; raises RuntimeError if the sizes do not multiply to the dim's."""
        place = place_of(self.dim, input.ndim)
        sizes = tuple(self.unflattened_size)
        if -1 not in sizes and math.prod(sizes) != input.shape[place]:
            raise RuntimeError(f"sizes {sizes} do not multiply to {input.shape[place]}, the size "
                               f"of dim {self.dim}")
        return input.reshape(*input.shape[:place], *sizes, *input.shape[place + 1:])

    def extra_repr(self) -> str:
        """What the printed module says of its options."""
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"


def place_of(dim: int, ndim: int) -> int:
    """``dim`` counted from the start; raises IndexError if a tensor of ``ndim`` has none such."""
    limit = max(ndim, 1)
    if not -limit <= dim < limit:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-limit}, "
                         f"{limit - 1}], but got {dim})")
    return dim % limit

"""Pooling layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import slipstream as ss
from slipstream.nn.functional import max_pool2d
from slipstream.nn.modules.module import Module

Size = int | Sequence[int]


class MaxPool2d(Module):
    """The largest value of each window: (N, C, H, W) or (C, H, W) to fewer pixels.

    ``stride`` is ``kernel_size`` unless given.  ``return_indices`` gives the places too, counted
    over H and W.  ``ceil_mode`` keeps windows that reach beyond the edge.
    """

    def __init__(self, kernel_size: Size, stride: Size | None = None, padding: Size = 0,
                 dilation: Size = 1, return_indices: bool = False,
                 ceil_mode: bool = False) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.dilation = dilation
        self.return_indices = return_indices
        self.ceil_mode = ceil_mode

    def forward(self, input: ss.Tensor) -> Any:
        """Return the output, and the indices if ``return_indices``."""
        return max_pool2d(input, self.kernel_size, self.stride, self.padding, self.dilation,
                          ceil_mode=self.ceil_mode, return_indices=self.return_indices)

    def extra_repr(self) -> str:
        """What the printed module says of its options."""
        return (f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
                f"dilation={self.dilation}, ceil_mode={self.ceil_mode}")

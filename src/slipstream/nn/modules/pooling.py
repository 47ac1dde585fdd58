"""Pooling layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import slipstream as ss
from slipstream.nn import functional
from slipstream.nn.modules.module import Module

Size = int | Sequence[int]


class _MaxPool(Module):
    """The largest value of each window."""

    rank = 2

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
        function = getattr(functional, f"max_pool{self.rank}d")
        return function(input, self.kernel_size, self.stride, self.padding, self.dilation,
                        ceil_mode=self.ceil_mode, return_indices=self.return_indices)

    def extra_repr(self) -> str:
        """What the printed module says of its options."""
        return (f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
                f"dilation={self.dilation}, ceil_mode={self.ceil_mode}")


class MaxPool1d(_MaxPool):
    """The largest value of each window: (N, C, L) or (C, L) to fewer places; see MaxPool2d."""

    rank = 1


class MaxPool2d(_MaxPool):
    """The largest value of each window: (N, C, H, W) or (C, H, W) to fewer pixels.

    ``stride`` is ``kernel_size`` unless given.  ``return_indices`` gives the places too, counted
    over H and W.  ``ceil_mode`` keeps windows that reach beyond the edge.
    """

    rank = 2


class MaxPool3d(_MaxPool):
    """The largest value of each window: (N, C, D, H, W) or (C, D, H, W); see MaxPool2d."""

    rank = 3


class AvgPool1d(Module):
    """The average of each window: (N, C, L) or (C, L) to fewer places; see AvgPool2d."""

    def __init__(self, kernel_size: Size, stride: Size | None = None, padding: Size = 0,
                 ceil_mode: bool = False, count_include_pad: bool = True) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the output."""
        return functional.avg_pool1d(input, self.kernel_size, self.stride, self.padding,
                                     self.ceil_mode, self.count_include_pad)

    def extra_repr(self) -> str:
        """What the printed module says of its options."""
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class _AvgPool(AvgPool1d):
    rank = 2

    def __init__(self, kernel_size: Size, stride: Size | None = None, padding: Size = 0,
                 ceil_mode: bool = False, count_include_pad: bool = True,
                 divisor_override: int | None = None) -> None:
        super().__init__(kernel_size, stride, padding, ceil_mode, count_include_pad)
        self.divisor_override = divisor_override

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the output."""
        function = getattr(functional, f"avg_pool{self.rank}d")
        return function(input, self.kernel_size, self.stride, self.padding, self.ceil_mode,
                        self.count_include_pad, self.divisor_override)


class AvgPool2d(_AvgPool):
    """The average of each window: (N, C, H, W) or (C, H, W) to fewer pixels.

    ``count_include_pad``: padding counts as zeros, else not at all.
    """

    rank = 2


class AvgPool3d(_AvgPool):
    """The average of each window: (N, C, D, H, W) or (C, D, H, W); see AvgPool2d."""

    rank = 3


class _Adaptive(Module):
    """Windows as many as are asked for."""

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size

    def extra_repr(self) -> str:
        """What the printed module says of its options."""
        return f"output_size={self.output_size}"


class AdaptiveAvgPool1d(_Adaptive):
    """The average of ``output_size`` windows of rows."""

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the output."""
        return functional.adaptive_avg_pool1d(input, self.output_size)


class AdaptiveAvgPool2d(_Adaptive):
    """The average of ``output_size`` windows of images."""

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the output."""
        return functional.adaptive_avg_pool2d(input, self.output_size)


class AdaptiveAvgPool3d(_Adaptive):
    """The average of ``output_size`` windows of volumes."""

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the output."""
        return functional.adaptive_avg_pool3d(input, self.output_size)


class _AdaptiveMax(_Adaptive):
    rank = 2

    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__(output_size)
        self.return_indices = return_indices

    def forward(self, input: ss.Tensor) -> Any:
        """Return the output, and the indices if ``return_indices``."""
        function = getattr(functional, f"adaptive_max_pool{self.rank}d")
        return function(input, self.output_size, self.return_indices)


class AdaptiveMaxPool1d(_AdaptiveMax):
    """The largest value of ``output_size`` windows of rows."""

    rank = 1


class AdaptiveMaxPool2d(_AdaptiveMax):
    """The largest value of ``output_size`` windows of images."""

    rank = 2


class AdaptiveMaxPool3d(_AdaptiveMax):
    """The largest value of ``output_size`` windows of volumes."""

    rank = 3


class _PowerPool(Module):
    rank = 2

    def __init__(self, norm_type: float, kernel_size: Any, stride: Any = None,
                 ceil_mode: bool = False) -> None:
        super().__init__()
        self.norm_type = norm_type
        self.kernel_size = kernel_size
        self.stride = stride
        self.ceil_mode = ceil_mode

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the output."""
        function = getattr(functional, f"lp_pool{self.rank}d")
        return function(input, float(self.norm_type), self.kernel_size, self.stride,
                        self.ceil_mode)

    def extra_repr(self) -> str:
        """What the printed module says of its options."""
        return (f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, "
                f"stride={self.stride}, ceil_mode={self.ceil_mode}")


class LPPool1d(_PowerPool):
    """The norm of each window of rows: (sum x^p)^(1/p)."""

    rank = 1


class LPPool2d(_PowerPool):
    """The norm of each window of images: (sum x^p)^(1/p)."""

    rank = 2


class LPPool3d(_PowerPool):
    """The norm of each window of volumes: (sum x^p)^(1/p)."""

    rank = 3

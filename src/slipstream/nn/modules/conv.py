"""Convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import slipstream as ss
from slipstream.nn.functional import conv2d, pad_images
from slipstream.nn.modules.linear import reset_uniform
from slipstream.nn.modules.module import Module
from slipstream.nn.parameter import Parameter

Size = int | Sequence[int]
MODES = ("zeros", "reflect", "replicate", "circular")


class Conv2d(Module):
    """Cross-correlation of images: (N, in, H, W) or (in, H, W) with kernels of ``kernel_size``.

    ``padding`` is a number of pixels, one for each dim, "same" or "valid"; ``padding_mode`` what
    they hold: zeros, reflect, replicate or circular.  Raises ValueError for channels that
    ``groups`` does not divide, for an unknown padding, and for "same" with a stride.
    """

    weight: Parameter
    bias: Parameter | None

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Size, stride: Size = 1,
                 padding: Size | str = 0, dilation: Size = 1, groups: int = 1, bias: bool = True,
                 padding_mode: str = "zeros", device: Any = None,
                 dtype: ss.dtype | None = None) -> None:
        super().__init__()
        check_channels(in_channels, out_channels, groups)
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = pair(kernel_size)
        self.stride = pair(stride)
        self.padding = padding if isinstance(padding, str) else pair(padding)
        self.dilation = pair(dilation)
        self.groups = groups
        self.padding_mode = padding_mode
        self._check_padding()
        shape = (out_channels, in_channels // groups, *self.kernel_size)
        self.weight = Parameter(ss.empty(shape, device=device, dtype=dtype))
        self.register_parameter(
            "bias", Parameter(ss.empty(out_channels, device=device, dtype=dtype)) if bias else None)
        self.reset_parameters()

    def _check_padding(self) -> None:
        if isinstance(self.padding, str):
            if self.padding not in ("same", "valid"):
                raise ValueError(f"Invalid padding string {self.padding!r}, should be one of "
                                 "{'same', 'valid'}")
            if self.padding == "same" and any(step != 1 for step in self.stride):
                raise ValueError("padding='same' is not supported for strided convolutions")
        if self.padding_mode not in MODES:
            raise ValueError(f"padding_mode must be one of {set(MODES)}, but got "
                             f"padding_mode='{self.padding_mode}'")

    def reset_parameters(self) -> None:
        """Draw weight and bias anew, uniform over ±1 / sqrt(in / groups * kernel elements)."""
        reset_uniform(self.weight, self.bias)

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the output; raises RuntimeError for an input of another number of channels."""
        if self.padding_mode == "zeros":
            return conv2d(input, self.weight, self.bias, self.stride, self.padding,
                          self.dilation, self.groups)
        padded = pad_images(input, self._sides(), self.padding_mode)
        return conv2d(padded, self.weight, self.bias, self.stride, 0, self.dilation, self.groups)

    def _sides(self) -> list[int]:
        """Pixels to add left, right, above and below."""
        height, width = ((step * (size - 1)) for step, size in
                         zip(self.dilation, self.kernel_size, strict=True))
        if self.padding == "same":
            # An odd total has its larger half behind.
            return [width // 2, width - width // 2, height // 2, height - height // 2]
        if isinstance(self.padding, str):
            return [0, 0, 0, 0]
        return [self.padding[1], self.padding[1], self.padding[0], self.padding[0]]

    def extra_repr(self) -> str:
        """What the printed module says of its options."""
        text = (f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, "
                f"stride={self.stride}")
        if self.padding != (0, 0):
            text += f", padding={self.padding}"
        if self.dilation != (1, 1):
            text += f", dilation={self.dilation}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        if self.bias is None:
            text += ", bias=False"
        if self.padding_mode != "zeros":
            text += f", padding_mode={self.padding_mode}"
        return text


def pair(size: Size) -> tuple[int, ...]:
    """One number for both dims, or one for each."""
    return tuple(size) if isinstance(size, Sequence) else (size, size)


def check_channels(in_channels: int, out_channels: int, groups: int) -> None:
    """Raise ValueError unless ``groups`` is positive and divides both."""
    if groups <= 0:
        raise ValueError("groups must be a positive integer")
    if in_channels % groups:
        raise ValueError("in_channels must be divisible by groups")
    if out_channels % groups:
        raise ValueError("out_channels must be divisible by groups")

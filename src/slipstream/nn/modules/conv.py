"""Convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import slipstream as ss
from slipstream.nn import functional
from slipstream.nn.modules.linear import reset_uniform
from slipstream.nn.modules.module import Module
from slipstream.nn.parameter import Parameter

Size = int | Sequence[int]
MODES = ("zeros", "reflect", "replicate", "circular")


class _Convolution(Module):
    """What all convolutions have: weight and bias, and the facts of their windows."""

    weight: Parameter
    bias: Parameter | None
    rank = 2
    transposed = False

    def __init__(self, channels: tuple[int, int], kernel_size: Size, window: tuple[Any, Any, Any],
                 groups: int, bias: bool, place: tuple[str, Any, Any]) -> None:
        super().__init__()
        stride, padding, dilation = window
        padding_mode, device, dtype = place
        self.in_channels, self.out_channels = channels
        check_channels(*channels, groups)
        self.kernel_size = several(kernel_size, self.rank)
        self.stride = several(stride, self.rank)
        self.padding = padding if isinstance(padding, str) else several(padding, self.rank)
        self.dilation = several(dilation, self.rank)
        self.output_padding = (0,) * self.rank
        self.groups = groups
        self.padding_mode = padding_mode
        self._check_padding()
        first, second = reversed(channels) if not self.transposed else channels
        shape = (first, second // groups, *self.kernel_size)
        self.weight = Parameter(ss.empty(shape, device=device, dtype=dtype))
        self.register_parameter(
            "bias", Parameter(ss.empty(self.out_channels, device=device, dtype=dtype))
            if bias else None)
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

    def _convolved(self, function: Any, input: ss.Tensor) -> ss.Tensor:
        if self.padding_mode == "zeros":
            return function(input, self.weight, self.bias, self.stride, self.padding,
                            self.dilation, self.groups)
        padded = functional.pad(input, self._sides(), self.padding_mode)
        return function(padded, self.weight, self.bias, self.stride, 0, self.dilation, self.groups)

    def _sides(self) -> list[int]:
        """Pixels to add before and behind, of the last dim first."""
        sides: list[int] = []
        for dim in range(self.rank - 1, -1, -1):
            if self.padding == "same":
                total = self.dilation[dim] * (self.kernel_size[dim] - 1)
                # An odd total has its larger half behind.
                sides += [total // 2, total - total // 2]
            elif isinstance(self.padding, str):
                sides += [0, 0]
            else:
                sides += [self.padding[dim], self.padding[dim]]
        return sides

    def extra_repr(self) -> str:
        """What the printed module says of its options."""
        none, ones = (0,) * self.rank, (1,) * self.rank
        text = (f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, "
                f"stride={self.stride}")
        for name, usual in (("padding", none), ("dilation", ones), ("output_padding", none),
                            ("groups", 1)):
            if getattr(self, name) != usual:
                text += f", {name}={getattr(self, name)}"
        if self.bias is None:
            text += ", bias=False"
        if self.padding_mode != "zeros":
            text += f", padding_mode={self.padding_mode}"
        return text


class Conv1d(_Convolution):
    """Cross-correlation of rows: (N, in, L) or (in, L) with kernels of ``kernel_size``."""

    rank = 1

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Size, stride: Size = 1,
                 padding: Size | str = 0, dilation: Size = 1, groups: int = 1, bias: bool = True,
                 padding_mode: str = "zeros", device: Any = None,
                 dtype: ss.dtype | None = None) -> None:
        super().__init__((in_channels, out_channels), kernel_size, (stride, padding, dilation),
                         groups, bias, (padding_mode, device, dtype))

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the output; raises RuntimeError for an input of another number of channels."""
        return self._convolved(functional.conv1d, input)


class Conv2d(_Convolution):
    """Cross-correlation of images: (N, in, H, W) or (in, H, W) with kernels of ``kernel_size``.

    ``padding`` is a number of pixels, one for each dim, "same" or "valid"; ``padding_mode`` what
    they hold: zeros, reflect, replicate or circular.  Raises ValueError for channels that
    ``groups`` does not divide, for an unknown padding, and for "same" with a stride.
    """

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Size, stride: Size = 1,
                 padding: Size | str = 0, dilation: Size = 1, groups: int = 1, bias: bool = True,
                 padding_mode: str = "zeros", device: Any = None,
                 dtype: ss.dtype | None = None) -> None:
        super().__init__((in_channels, out_channels), kernel_size, (stride, padding, dilation),
                         groups, bias, (padding_mode, device, dtype))

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the output; raises RuntimeError for an input of another number of channels."""
        return self._convolved(functional.conv2d, input)


class Conv3d(_Convolution):
    """Cross-correlation of volumes: (N, in, D, H, W) or (in, D, H, W); see Conv2d."""

    rank = 3

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Size, stride: Size = 1,
                 padding: Size | str = 0, dilation: Size = 1, groups: int = 1, bias: bool = True,
                 padding_mode: str = "zeros", device: Any = None,
                 dtype: ss.dtype | None = None) -> None:
        super().__init__((in_channels, out_channels), kernel_size, (stride, padding, dilation),
                         groups, bias, (padding_mode, device, dtype))

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the output; raises RuntimeError for an input of another number of channels."""
        return self._convolved(functional.conv3d, input)


class _Transposed(_Convolution):
    """A transposed convolution; ``output_size`` of a call chooses among the sizes possible."""

    transposed = True

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Size, stride: Size = 1,
                 padding: Size = 0, output_padding: Size = 0, groups: int = 1, bias: bool = True,
                 dilation: Size = 1, padding_mode: str = "zeros", device: Any = None,
                 dtype: ss.dtype | None = None) -> None:
        if padding_mode != "zeros":
            raise ValueError(f"Only \"zeros\" padding mode is supported for {type(self).__name__}")
        super().__init__((in_channels, out_channels), kernel_size, (stride, padding, dilation),
                         groups, bias, (padding_mode, device, dtype))
        self.output_padding = several(output_padding, self.rank)

    def _extra(self, input: ss.Tensor, output_size: Sequence[int] | None) -> tuple[int, ...]:
        """The output padding that gives the size asked for; ValueError where none does."""
        if output_size is None:
            return self.output_padding
        wanted = list(output_size)[-self.rank:]
        found = []
        for dim, size in enumerate(input.shape[-self.rank:]):
            least = ((size - 1) * self.stride[dim] - 2 * int(self.padding[dim])
                     + self.dilation[dim] * (self.kernel_size[dim] - 1) + 1)
            if not least <= wanted[dim] < least + self.stride[dim]:
                raise ValueError(f"requested an output size of {wanted}, but valid sizes range "
                                 f"from {least} to {least + self.stride[dim] - 1} in dim {dim}")
            found.append(wanted[dim] - least)
        return tuple(found)

    def forward(self, input: ss.Tensor, output_size: Sequence[int] | None = None) -> ss.Tensor:
        """Return the output; raises RuntimeError for an input of another number of channels."""
        function = getattr(functional, f"conv_transpose{self.rank}d")
        return function(input, self.weight, self.bias, self.stride, self.padding,
                        self._extra(input, output_size), self.groups, self.dilation)


class ConvTranspose1d(_Transposed):
    """The adjoint of Conv1d: (N, in, L) or (in, L)."""

    rank = 1


class ConvTranspose2d(_Transposed):
    """The adjoint of Conv2d: (N, in, H, W) or (in, H, W)."""

    rank = 2


class ConvTranspose3d(_Transposed):
    """The adjoint of Conv3d: (N, in, D, H, W) or (in, D, H, W)."""

    rank = 3


def several(size: Size, rank: int) -> tuple[int, ...]:
    """One number for every dim, or one for each."""
    return tuple(size) if isinstance(size, Sequence) else (size,) * rank


def check_channels(in_channels: int, out_channels: int, groups: int) -> None:
    """Raise ValueError unless ``groups`` is positive and divides both."""
    if groups <= 0:
        raise ValueError("groups must be a positive integer")
    if in_channels % groups:
        raise ValueError("in_channels must be divisible by groups")
    if out_channels % groups:
        raise ValueError("out_channels must be divisible by groups")


class _Columns(Module):
    """The windows of unfold and fold."""

    def __init__(self, kernel_size: Size, dilation: Size = 1, padding: Size = 0,
                 stride: Size = 1) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def extra_repr(self) -> str:
        """What the printed module says of its options."""
        return (f"kernel_size={self.kernel_size}, dilation={self.dilation}, "
                f"padding={self.padding}, stride={self.stride}")


class Unfold(_Columns):
    """The windows of images (N, C, H, W) as columns (N, C * cells, windows)."""

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the columns."""
        return functional.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)


class Fold(_Columns):
    """Columns (N, C * cells, windows) added up to images of ``output_size``."""

    def __init__(self, output_size: Size, kernel_size: Size, dilation: Size = 1,
                 padding: Size = 0, stride: Size = 1) -> None:
        super().__init__(kernel_size, dilation, padding, stride)
        self.output_size = output_size

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the images."""
        return functional.fold(input, self.output_size, self.kernel_size, self.dilation,
                               self.padding, self.stride)

    def extra_repr(self) -> str:
        """What the printed module says of its options."""
        return f"output_size={self.output_size}, {super().extra_repr()}"

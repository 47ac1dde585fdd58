"""Images of another size, and distances."""

from __future__ import annotations

from typing import Any

import slipstream as ss
from slipstream.nn import functional
from slipstream.nn.modules.module import Module


class Upsample(Module):
    """Images (N, C, ...) at another size; see `functional.interpolate` for the modes."""

    def __init__(self, size: Any = None, scale_factor: Any = None, mode: str = "nearest",
                 align_corners: bool | None = None,
                 recompute_scale_factor: bool | None = None) -> None:
        super().__init__()
        self.name = type(self).__name__
        self.size = size
        self.scale_factor = scale_factor
        self.mode = mode
        self.align_corners = align_corners
        self.recompute_scale_factor = recompute_scale_factor

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the images at their new size."""
        return functional.interpolate(input, self.size, self.scale_factor, self.mode,
                                      self.align_corners, self.recompute_scale_factor)

    def extra_repr(self) -> str:
        """What the printed module says of its options."""
        given = (f"scale_factor={self.scale_factor!r}" if self.scale_factor is not None
                 else f"size={self.size!r}")
        return f"{given}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """Upsample of images in mode nearest."""

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, "nearest")


class UpsamplingBilinear2d(Upsample):
    """Upsample of images in mode bilinear with align_corners."""

    def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
        super().__init__(size, scale_factor, "bilinear", True)


class PixelShuffle(Module):
    """(..., C * r * r, H, W) as (..., C, H * r, W * r)."""

    def __init__(self, upscale_factor: int) -> None:
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the larger images."""
        return functional.pixel_shuffle(input, self.upscale_factor)

    def extra_repr(self) -> str:
        """What the printed module says of its options."""
        return f"upscale_factor={self.upscale_factor}"


class PixelUnshuffle(Module):
    """(..., C, H * r, W * r) as (..., C * r * r, H, W)."""

    def __init__(self, downscale_factor: int) -> None:
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the smaller images."""
        return functional.pixel_unshuffle(input, self.downscale_factor)

    def extra_repr(self) -> str:
        """What the printed module says of its options."""
        return f"downscale_factor={self.downscale_factor}"


class ChannelShuffle(Module):
    """The channels of (N, C, ...) dealt out over groups."""

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the output, of the input's shape."""
        return functional.channel_shuffle(input, self.groups)

    def extra_repr(self) -> str:
        """What the printed module says of its options."""
        return f"groups={self.groups}"


class CosineSimilarity(Module):
    """The cosine of the angle between two inputs along a dim."""

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__()
        self.dim = dim
        self.eps = eps

    def forward(self, x1: ss.Tensor, x2: ss.Tensor) -> ss.Tensor:
        """Return the cosines."""
        return functional.cosine_similarity(x1, x2, self.dim, self.eps)


class PairwiseDistance(Module):
    """The norm of the difference of two inputs over the last dim."""

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__()
        self.norm = p
        self.eps = eps
        self.keepdim = keepdim

    def forward(self, x1: ss.Tensor, x2: ss.Tensor) -> ss.Tensor:
        """Return the distances."""
        return functional.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)

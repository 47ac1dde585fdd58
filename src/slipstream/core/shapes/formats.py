"""Memory formats: the names of layouts, as PyTorch has them."""

from __future__ import annotations

from collections.abc import Sequence

from slipstream.core.shapes import strides as layouts


class MemoryFormat:
    """A named layout; each exists once, so that ``is`` compares them."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"slipstream.{self.name}"

    def __reduce__(self) -> str:
        return self.name


contiguous_format = MemoryFormat("contiguous_format")
channels_last = MemoryFormat("channels_last")
channels_last_3d = MemoryFormat("channels_last_3d")
preserve_format = MemoryFormat("preserve_format")

ALL = (contiguous_format, channels_last, channels_last_3d, preserve_format)


def strides_for(
    memory_format: MemoryFormat, shape: Sequence[int], strides: Sequence[int] | None = None,
) -> layouts.Ints:
    """Strides of a new tensor of ``shape``; ``preserve_format`` takes after ``strides``.

    RuntimeError where the format wants another rank, or there is nothing to preserve.
    """
    if memory_format is contiguous_format:
        return layouts.contiguous_strides(shape)
    if memory_format is channels_last:
        return layouts.channels_last_strides(shape)
    if memory_format is channels_last_3d:
        return layouts.channels_last_3d_strides(shape)
    if strides is None:
        raise RuntimeError("preserve_format needs a tensor to take after")
    return layouts.strides_like(shape, strides)


def is_in_format(
    memory_format: MemoryFormat, shape: Sequence[int], strides: Sequence[int],
) -> bool:
    """Whether a tensor is laid out in the format; RuntimeError for ``preserve_format``."""
    if memory_format is contiguous_format:
        return layouts.is_contiguous(shape, strides)
    if memory_format is channels_last:
        return layouts.is_channels_last(shape, strides)
    if memory_format is channels_last_3d:
        return layouts.is_channels_last_3d(shape, strides)
    raise RuntimeError("preserve memory format is unsupported by the is_contiguous operator")


class Layout:
    """How a tensor's elements are kept; strided is the only layout."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"slipstream.{self.name}"


strided = Layout("strided")

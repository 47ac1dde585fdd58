"""Windows that slide over images: the geometry of convolutions and pooling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True, repr=False)
class Windows:
    """Windows of ``kernel`` cells, ``dilation`` apart, every ``stride`` pixels of a padded image.

    ``before`` and ``after`` are the padding above and left, below and right; ``size`` is the
    image's height and width, ``count`` how many windows there are along each.
    """

    size: Pair
    kernel: Pair
    stride: Pair
    before: Pair
    after: Pair
    dilation: Pair
    count: Pair

    @property
    def padded(self) -> Pair:
        """Height and width of the image with its padding."""
        a, b = [low + n + high for low, n, high in zip(
            self.before, self.size, self.after, strict=True)]
        return a, b

    @property
    def disjoint(self) -> bool:
        """Whether no pixel is in two windows."""
        return all(step >= reach for step, reach in zip(
            self.stride, reaches(self.kernel, self.dilation), strict=True))

    def cell(self, row: int, column: int) -> tuple[slice, slice]:
        """The pixels of the padded image that are one cell of all windows."""
        a, b = [slice(place * apart, place * apart + step * (n - 1) + 1, step)
                for place, apart, step, n in zip(
                    (row, column), self.dilation, self.stride, self.count, strict=True)]
        return a, b

    def inside(self) -> tuple[slice, slice]:
        """Where the image lies in the padded image."""
        a, b = [slice(low, low + n) for low, n in zip(self.before, self.size, strict=True)]
        return a, b


def reaches(kernel: Sequence[int], dilation: Sequence[int]) -> list[int]:
    """How many pixels a window spans in each dim."""
    return [apart * (n - 1) + 1 for n, apart in zip(kernel, dilation, strict=True)]


def pair(value: Any, name: str) -> Pair:
    """One int for both dims, or one for each.

    RuntimeError for any other number of values.
    """
    if isinstance(value, (tuple, list)):
        found = [int(each) for each in value]
        if len(found) == 1:
            return found[0], found[0]
        if len(found) == 2:
            return found[0], found[1]
        raise RuntimeError(f"expected {name} to be a single integer value or a list of 2 values to "
                           f"match the convolution dimensions, but got {name}={found}")
    return int(value), int(value)


def paddings(padding: Any, kernel: Pair, stride: Pair, dilation: Pair) -> tuple[Pair, Pair]:
    """The padding before and after: of ints, "valid" (none) or "same" (as many windows as pixels).

    RuntimeError for another word, and for "same" with a stride.
    """
    if not isinstance(padding, str):
        both = pair(padding, "padding")
        return both, both
    if padding == "valid":
        return (0, 0), (0, 0)
    if padding != "same":
        raise RuntimeError(f"Invalid padding string: '{padding}'")
    if stride != (1, 1):
        raise RuntimeError("padding='same' is not supported for strided convolutions")
    # An odd total has its larger half behind.
    totals = [reach - 1 for reach in reaches(kernel, dilation)]
    a, b = totals
    return (a // 2, b // 2), (a - a // 2, b - b // 2)


def convolution_windows(size: Sequence[int], kernel: Sequence[int], stride: Any, padding: Any,
                        dilation: Any) -> Windows:
    """The windows of a convolution; RuntimeError where they do not fit, as PyTorch words it."""
    cells = pair(kernel, "kernel_size")
    steps, apart = pair(stride, "stride"), pair(dilation, "dilation")
    before, after = paddings(padding, cells, steps, apart)
    for what, values, least in (("negative padding", before, 0), ("non-positive stride", steps, 1),
                                ("non-positive dilation", apart, 1)):
        if min(values) < least:
            raise RuntimeError(f"{what} is not supported")
    height, width = [low + n + high for low, n, high in zip(before, size, after, strict=True)]
    rows, columns = reaches(cells, apart)
    if rows > height or columns > width:
        raise RuntimeError(f"Calculated padded input size per channel: ({height} x {width}). "
                           f"Kernel size: ({rows} x {columns}). Kernel size can't be greater than "
                           "actual input size")
    count = (height - rows) // steps[0] + 1, (width - columns) // steps[1] + 1
    return Windows((size[0], size[1]), cells, steps, before, after, apart, count)


def _pooling_pair(value: Any, name: str, omitted: str = "") -> Pair:
    if isinstance(value, (tuple, list)) and len(value) not in (1, 2):
        raise RuntimeError(f"max_pool2d: {name} must {omitted or 'either be '}a single int, or a "
                           "tuple of two ints")
    return pair(value, name)


def pooling_windows(size: Sequence[int], kernel: Any, stride: Any, padding: Any, dilation: Any,
                    ceil_mode: bool) -> Windows:
    """The windows of a pooling; RuntimeError where they do not fit, as PyTorch words it.

    With ``ceil_mode`` the last windows may reach beyond the padding, but not begin there.
    """
    cells = _pooling_pair(kernel, "kernel_size")
    given = stride is not None and stride != () and stride != []
    steps = _pooling_pair(stride, "stride", "either be omitted, ") if given else cells
    before, apart = _pooling_pair(padding, "padding"), _pooling_pair(dilation, "dilation")
    _check_pooling(cells, steps, before, apart)
    after, count = [], []
    for n, reach, step, pad in zip(size, reaches(cells, apart), steps, before, strict=True):
        room = n + 2 * pad - reach
        windows = (room + (step - 1 if ceil_mode else 0)) // step + 1
        if ceil_mode and (windows - 1) * step >= n + pad:
            windows -= 1
        count.append(windows)
        after.append(max((windows - 1) * step + reach - n - pad, 0))
    return Windows((size[0], size[1]), cells, steps, before, (after[0], after[1]), apart,
                   (count[0], count[1]))


def _check_pooling(kernel: Pair, stride: Pair, padding: Pair, dilation: Pair) -> None:
    if min(stride) == 0:
        raise RuntimeError("stride should not be zero")
    if min(kernel) <= 0 or min(stride) < 0:
        raise RuntimeError("kernel size should be greater than zero, but got "
                           f"kH: {kernel[0]} kW: {kernel[1]}")
    if min(dilation) <= 0:
        raise RuntimeError("dilation should be greater than zero, but got "
                           f"dilationH: {dilation[0]} dilationW: {dilation[1]}")
    if min(padding) < 0:
        raise RuntimeError(f"pad must be non-negative, but got pad: {min(padding)}")
    for pad, cells, apart in zip(padding, kernel, dilation, strict=True):
        if 2 * pad > apart * (cells - 1) + 1:
            raise RuntimeError("pad should be at most half of effective kernel size, but got "
                               f"pad={pad}, kernel_size={cells} and dilation={apart}")


__all__ = ["Windows", "convolution_windows", "pair", "paddings", "pooling_windows", "reaches"]

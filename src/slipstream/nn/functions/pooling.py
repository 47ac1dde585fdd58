"""Pooling made of max_pool2d and of convolutions with ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import slipstream as ss
from slipstream.core.api.autocasting import autocast_as
from slipstream.nn.functions.convolution import batched, sizes, unbatched
from slipstream.nn.functions.widening import in_float32, in_layout_of

Size = int | Sequence[int]


def chosen(stride: Any, kernel_size: Any) -> Any:
    """The stride, which is the kernel's size unless given."""
    return kernel_size if stride is None or stride in ((), []) else stride


# -- largest -------------------------------------------------------------------------------------
def max_pool1d_with_indices(input: ss.Tensor, kernel_size: Size, stride: Any = None,
                            padding: Size = 0, dilation: Size = 1, ceil_mode: bool = False,
                            return_indices: bool = True) -> tuple[ss.Tensor, ss.Tensor]:
    """The largest element of each window of rows (N, C, L), and its place."""
    steps = chosen(stride, kernel_size)
    wide = [(1, *sizes(each, 1, name)) for each, name in (
        (kernel_size, "kernel_size"), (steps, "stride"), (dilation, "dilation"))]
    values, places = ss.max_pool2d(
        input.unsqueeze(-2), wide[0], wide[1], (0, *sizes(padding, 1, "padding")), wide[2],
        ceil_mode=ceil_mode, return_indices=True)
    return values.squeeze(-2), places.squeeze(-2)


def max_pool1d(input: ss.Tensor, kernel_size: Size, stride: Any = None, padding: Size = 0,
               dilation: Size = 1, ceil_mode: bool = False, return_indices: bool = False) -> Any:
    """The largest element of each window of rows (N, C, L) or (C, L); nan wins."""
    if input.ndim not in (2, 3):
        raise RuntimeError("max_pool1d() Expected 2D or 3D input tensor, but got "
                           f"{list(input.shape)}")
    found = max_pool1d_with_indices(input, kernel_size, stride, padding, dilation, ceil_mode)
    return found if return_indices else found[0]


def max_pool2d_with_indices(input: ss.Tensor, kernel_size: Size, stride: Any = None,
                            padding: Size = 0, dilation: Size = 1, ceil_mode: bool = False,
                            return_indices: bool = True) -> tuple[ss.Tensor, ss.Tensor]:
    """max_pool2d, and the places."""
    return ss.max_pool2d(input, kernel_size, stride, padding, dilation, ceil_mode=ceil_mode,
                         return_indices=True)


@autocast_as(cpu="float32")
def max_pool3d_with_indices(input: ss.Tensor, kernel_size: Size, stride: Any = None,
                            padding: Size = 0, dilation: Size = 1, ceil_mode: bool = False,
                            return_indices: bool = True) -> tuple[ss.Tensor, ss.Tensor]:
    """The largest element of each window of volumes, and its place: first over H and W."""
    volumes, had_batch = batched(input, 3, "max_pool3d")
    cells, steps = (sizes(kernel_size, 3, "kernel_size"),
                    sizes(chosen(stride, kernel_size), 3, "stride"))
    pads, apart = sizes(padding, 3, "padding"), sizes(dilation, 3, "dilation")
    batch, channels, depth, height, width = volumes.shape
    images = volumes.reshape(batch, channels * depth, height, width)
    flat, places = ss.max_pool2d(images, cells[1:], steps[1:], pads[1:], apart[1:],
                                 ceil_mode=ceil_mode, return_indices=True)
    rows, columns = flat.shape[2:]
    # Then along the depth, every place of the images being a row of its own.
    lines = flat.reshape(batch * channels, depth, rows * columns).transpose(1, 2)
    values, planes = ss.max_pool2d(lines.unsqueeze(2), (1, cells[0]), (1, steps[0]), (0, pads[0]),
                                   (1, apart[0]), ceil_mode=ceil_mode, return_indices=True)
    shape = (batch, channels, rows, columns, values.shape[-1])
    values = values.reshape(shape).movedim(-1, 2)
    planes = planes.reshape(shape).movedim(-1, 2)
    within = places.reshape(batch, channels, depth, rows, columns).gather(2, planes)
    index = planes * (height * width) + within
    return unbatched(values.contiguous(), had_batch), unbatched(index, had_batch)


def max_pool3d(input: ss.Tensor, kernel_size: Size, stride: Any = None, padding: Size = 0,
               dilation: Size = 1, ceil_mode: bool = False, return_indices: bool = False) -> Any:
    """The largest element of each window of volumes (N, C, D, H, W) or (C, D, H, W)."""
    found = max_pool3d_with_indices(input, kernel_size, stride, padding, dilation, ceil_mode)
    return found if return_indices else found[0]


# -- averages ------------------------------------------------------------------------------------
def _counts(size: int, window: tuple[int, int, int], ceil_mode: bool) -> tuple[int, int]:
    """How many windows there are, and how far the last one reaches beyond the padding."""
    cells, step, pad = window
    room = size + 2 * pad - cells
    count = (room + (step - 1 if ceil_mode else 0)) // step + 1
    if ceil_mode and (count - 1) * step >= size + pad:
        count -= 1
    return count, max((count - 1) * step + cells - size - 2 * pad, 0)


def _check_average(name: str, window: Sequence[tuple[int, int, int]], counts: Sequence[int],
                   divisor: Any) -> None:
    for cells, step, pad in window:
        if step <= 0:
            raise RuntimeError("stride should not be zero")
        if pad < 0 or 2 * pad > cells:
            raise RuntimeError("pad should be at most half of effective kernel size, but got "
                               f"pad={pad}, kernel_size={cells} and dilation=1")
    if min(counts) < 1:
        raise RuntimeError(f"{name}: Output size is too small: {list(counts)}")
    if divisor == 0:
        raise RuntimeError("divisor must be not zero")


def _summed(images: ss.Tensor, cells: tuple[int, int], steps: tuple[int, int]) -> ss.Tensor:
    """The sums of windows of images (N, C, H, W), as a convolution with ones."""
    batch, channels, height, width = images.shape
    single = images.reshape(batch * channels, 1, height, width)
    total = ss.conv2d(single, images.new_ones(1, 1, *cells), None, steps)
    return total.reshape(batch, channels, *total.shape[2:])


def _widths(size: int, window: tuple[int, int, int], count: int,
            count_include_pad: bool) -> list[int]:
    """How many places each window is divided by."""
    cells, step, pad = window
    found = []
    for place in range(count):
        first = place * step - pad
        last = min(first + cells, size + pad)
        if not count_include_pad:
            first, last = max(first, 0), min(last, size)
        found.append(last - first)
    return found


def _average(name: str, images: ss.Tensor, window: Sequence[tuple[int, int, int]],
             facts: tuple[bool, bool, Any]) -> ss.Tensor:
    """Averages over the last dims, two at a time from the end: windows are boxes."""
    ceil_mode, count_include_pad, divisor = facts
    rank = len(window)
    spatial = tuple(images.shape[-rank:])
    geometry = [_counts(size, each, ceil_mode) for size, each in zip(spatial, window, strict=True)]
    _check_average(name, window, [count for count, _ in geometry], divisor)
    total = images
    for dim in range(rank - 1, -1, -1):
        total = _summed_along(total, total.ndim - rank + dim, window[dim], geometry[dim])
    if divisor is not None:
        return total / divisor
    widths = [_widths(size, each, count, count_include_pad) for size, each, (count, _) in zip(
        spatial, window, geometry, strict=True)]
    if all(width == widths[dim][0] for dim in range(rank) for width in widths[dim]):
        return total / math.prod(each[0] for each in widths)
    for dim, each in enumerate(widths):
        share = ss.tensor(each, dtype=images.dtype, device=images.device)
        total = total / share.reshape(-1, *(1,) * (rank - 1 - dim))
    return total


def _summed_along(images: ss.Tensor, dim: int, window: tuple[int, int, int],
                  geometry: tuple[int, int]) -> ss.Tensor:
    """Sums of windows along one dim."""
    cells, step, pad = window
    _, beyond = geometry
    moved = images.movedim(dim, -1)
    lines = moved.reshape(1, math.prod(moved.shape[:-1]), 1, moved.shape[-1])
    if pad or beyond:
        edges = [lines.new_zeros(*lines.shape[:-1], width) for width in (pad, pad + beyond)]
        lines = ss.cat([edges[0], lines, edges[1]], -1)
    total = _summed(lines, (1, cells), (1, step))
    return total.reshape(*moved.shape[:-1], total.shape[-1]).movedim(-1, dim)


def _average_of(name: str, rank: int, input: ss.Tensor, window: tuple[Any, Any, Any],
                facts: tuple[bool, bool, Any]) -> ss.Tensor:
    images, had_batch = batched(input, rank, name)
    kernel_size, stride, padding = window
    given = [sizes(kernel_size, rank, "kernel_size"),
             sizes(chosen(stride, kernel_size), rank, "stride"), sizes(padding, rank, "padding")]
    if not images.is_floating_point() and images.dtype is not ss.int64:
        raise NotImplementedError(f"\"{name}\" not implemented for '{images.dtype}'")
    wide = images if images.is_floating_point() else images.double()
    output = in_layout_of(_average(name, wide, list(zip(*given, strict=True)), facts), images)
    if not images.is_floating_point():
        output = output.trunc().to(images.dtype)
    return unbatched(output, had_batch)


@autocast_as("asleep")
@in_float32
def avg_pool1d(input: ss.Tensor, kernel_size: Size, stride: Any = None, padding: Size = 0,
               ceil_mode: bool = False, count_include_pad: bool = True) -> ss.Tensor:
    """The average of each window of rows (N, C, L) or (C, L)."""
    return _average_of("avg_pool1d", 1, input, (kernel_size, stride, padding),
                       (ceil_mode, count_include_pad, None))


@autocast_as("asleep")
@in_float32
def avg_pool2d(input: ss.Tensor, kernel_size: Size, stride: Any = None, padding: Size = 0,
               ceil_mode: bool = False, count_include_pad: bool = True,
               divisor_override: int | None = None) -> ss.Tensor:
    """The average of each window of images (N, C, H, W) or (C, H, W)."""
    return _average_of("avg_pool2d", 2, input, (kernel_size, stride, padding),
                       (ceil_mode, count_include_pad, divisor_override))


@autocast_as(cpu="float32", cuda="asleep")
@in_float32
def avg_pool3d(input: ss.Tensor, kernel_size: Size, stride: Any = None, padding: Size = 0,
               ceil_mode: bool = False, count_include_pad: bool = True,
               divisor_override: int | None = None) -> ss.Tensor:
    """The average of each window of volumes (N, C, D, H, W) or (C, D, H, W)."""
    return _average_of("avg_pool3d", 3, input, (kernel_size, stride, padding),
                       (ceil_mode, count_include_pad, divisor_override))


def _power_pool(averaged: ss.Tensor, norm_type: float, cells: int) -> ss.Tensor:
    # As PyTorch: the sign of the average comes back, and an odd power leaves negative sums.
    return (averaged.sign() * averaged.abs().relu()).mul(cells).pow(1.0 / norm_type)


def _extreme_pool(pool: Any, input: ss.Tensor, norm_type: float, *window: Any) -> Any:
    """The norm of each window for p = inf or -inf: its largest or smallest size."""
    return pool(input.abs(), *window) if norm_type > 0 else -pool(-input.abs(), *window)


def lp_pool1d(input: ss.Tensor, norm_type: float, kernel_size: int, stride: Any = None,
              ceil_mode: bool = False) -> ss.Tensor:
    """The norm of each window of rows: (sum x^p)^(1/p)."""
    if math.isinf(norm_type):
        return _extreme_pool(max_pool1d, input, norm_type, kernel_size, stride, 0, 1, ceil_mode)
    averaged = avg_pool1d(input.pow(norm_type), kernel_size, stride, 0, ceil_mode)
    return _power_pool(averaged, norm_type, kernel_size)


def lp_pool2d(input: ss.Tensor, norm_type: float, kernel_size: Size, stride: Any = None,
              ceil_mode: bool = False) -> ss.Tensor:
    """The norm of each window of images: (sum x^p)^(1/p)."""
    if math.isinf(norm_type):
        return _extreme_pool(ss.max_pool2d, input, norm_type, kernel_size, stride, 0, 1, ceil_mode)
    averaged = avg_pool2d(input.pow(norm_type), kernel_size, stride, 0, ceil_mode)
    return _power_pool(averaged, norm_type, math.prod(sizes(kernel_size, 2, "kernel_size")))


def lp_pool3d(input: ss.Tensor, norm_type: float, kernel_size: Size, stride: Any = None,
              ceil_mode: bool = False) -> ss.Tensor:
    """The norm of each window of volumes: (sum x^p)^(1/p)."""
    if math.isinf(norm_type):
        return _extreme_pool(max_pool3d, input, norm_type, kernel_size, stride, 0, 1, ceil_mode)
    averaged = avg_pool3d(input.pow(norm_type), kernel_size, stride, 0, ceil_mode)
    return _power_pool(averaged, norm_type, math.prod(sizes(kernel_size, 3, "kernel_size")))


# -- adaptive ------------------------------------------------------------------------------------
def _spans(size: int, count: int) -> list[tuple[int, int]]:
    return [(place * size // count, -((place + 1) * size // -count)) for place in range(count)]


def _adaptive_max(name: str, rank: int, input: ss.Tensor,
                  output_size: Any) -> tuple[ss.Tensor, ss.Tensor]:
    """Along one dim after the other, keeping the place in the whole."""
    images, had_batch = batched(input, rank, name)
    given = output_size if isinstance(output_size, tuple | list) else (output_size,) * rank
    if len(given) != rank:
        raise RuntimeError(f"{name}(): internal error: output_size.size() must be {rank}")
    spatial = images.shape[-rank:]
    if 0 in spatial:
        raise RuntimeError(f"{name}(): Expected input to have non-zero size for non-batch "
                           f"dimensions, but input has sizes {list(input.shape)}")
    wanted = [size if each is None else each for each, size in zip(given, spatial, strict=True)]
    if any(each < 0 for each in wanted):
        raise RuntimeError(f"Trying to create tensor with negative dimension: {wanted}")
    values = images
    index = ss.arange(math.prod(spatial), device=images.device).reshape(spatial)
    index = index.expand(images.shape)
    # From the last dim to the first, so that of equals the first one wins.
    for dim in range(rank - 1, -1, -1):
        values, index = _adaptive_along(values, index, 2 + dim, _spans(spatial[dim], wanted[dim]))
    return unbatched(values, had_batch), unbatched(index, had_batch)


def _adaptive_along(values: ss.Tensor, index: ss.Tensor, dim: int,
                    spans: list[tuple[int, int]]) -> tuple[ss.Tensor, ss.Tensor]:
    found, places = [], []
    for first, last in spans:
        best = values.narrow(dim, first, last - first).max(dim, keepdim=True)
        found.append(best.values)
        places.append(index.narrow(dim, first, last - first).gather(dim, best.indices))
    if not spans:
        return values.narrow(dim, 0, 0), index.narrow(dim, 0, 0)
    return ss.cat(found, dim), ss.cat(places, dim)


def adaptive_max_pool1d(input: ss.Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """The largest element of ``output_size`` windows of rows."""
    found = _adaptive_max("adaptive_max_pool1d", 1, input, output_size)
    return found if return_indices else found[0]


def adaptive_max_pool2d(input: ss.Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """The largest element of ``output_size`` windows of images."""
    found = _adaptive_max("adaptive_max_pool2d", 2, input, output_size)
    return found if return_indices else found[0]


@autocast_as(cpu="float32")
def adaptive_max_pool3d(input: ss.Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """The largest element of ``output_size`` windows of volumes."""
    found = _adaptive_max("adaptive_max_pool3d", 3, input, output_size)
    return found if return_indices else found[0]

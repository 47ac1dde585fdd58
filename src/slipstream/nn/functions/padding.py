"""Padding, and images of another size: pad, interpolate, pixel_shuffle."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

import slipstream as ss
from slipstream.core.api.autocasting import autocast_as
from slipstream.nn.functions.widening import in_float32, in_layout_of

Array = np.ndarray
# More elements of an image than this are worth a look at the memory there is.
LISTED = 1 << 20
LINEAR = {"linear": 1, "bilinear": 2, "trilinear": 3}


# -- padding -------------------------------------------------------------------------------------
def pad_indices(size: int, before: int, after: int, mode: str) -> list[int]:
    """For each place of a padded dim, the place whose value it shows.

    Raises RuntimeError if the padding is wider than the mode can fill.
    """
    widest = {"reflect": size - 1, "circular": size}.get(mode, max(before, after))
    if max(before, after) > widest or (size == 0 and before + after):
        raise RuntimeError(f"{mode} padding ({before}, {after}) is too wide for a dim of "
                           f"size {size}")
    if size + before + after < (mode != "circular"):
        raise RuntimeError(f"padding ({before}, {after}) leaves nothing of a dim of size {size}")
    places = range(-before, size + after)
    if mode == "circular":
        return [place % size for place in places]
    if mode == "reflect":
        return [size - 1 - abs(size - 1 - abs(place)) for place in places]
    return [min(max(place, 0), size - 1) for place in places]


def _constant(input: ss.Tensor, pad: Sequence[int], value: Any) -> ss.Tensor:
    if len(pad) > 2 * input.ndim:
        raise RuntimeError("Length of pad should be no more than twice the number of dimensions of "
                           f"the input. Pad length is {len(pad)} while the input has {input.ndim} "
                           "dimensions.")
    shape = list(input.shape)
    inner, outer = [slice(None)] * input.ndim, [slice(None)] * input.ndim
    for number in range(len(pad) // 2):
        dim = input.ndim - 1 - number
        before, after = pad[2 * number], pad[2 * number + 1]
        shape[dim] += before + after
        if shape[dim] < 0:
            raise RuntimeError(f"The input size {input.shape[dim]}, plus negative padding {before} "
                               f"and {after} resulted in a negative output size")
        if min(before, 0) + min(after, 0) < -input.shape[dim]:
            raise RuntimeError(f"padding ({before}, {after}) takes away more than the "
                               f"{input.shape[dim]} places of dimension {dim}")
        outer[dim] = slice(max(before, 0), shape[dim] - max(after, 0))
        inner[dim] = slice(max(-before, 0), input.shape[dim] - max(-after, 0))
    value = 0 if value is None else value
    last = {4: ss.channels_last, 5: ss.channels_last_3d}.get(input.ndim)
    if last is None or input.is_contiguous() or not input.is_contiguous(memory_format=last):
        output = input.new_full(tuple(shape), value)
    else:
        output = ss.empty(tuple(shape), dtype=input.dtype, device=input.device,
                          memory_format=last).fill_(value)
    output[tuple(outer)] = input[tuple(inner)]
    return output


def pad(input: ss.Tensor, pad: Sequence[int], mode: str = "constant",
        value: Any = None) -> ss.Tensor:
    """Places added at both ends of the last dims: (before, after) of the last, then the next.

    ``mode``: constant, filled with ``value``; reflect, replicate or circular, filled from the
    input.  Negative numbers take places away.  RuntimeError for paddings that do not fit.
    """
    if len(pad) % 2:
        raise RuntimeError("Padding length must be divisible by 2")
    if mode == "constant":
        return _constant(input, pad, value)
    if mode not in ("reflect", "replicate", "circular"):
        raise NotImplementedError(f"Unrecognised padding mode {mode}")
    if value not in (None, 0):
        raise ValueError(f"Padding mode \"{mode}\" doesn't take in value argument")
    rank = len(pad) // 2
    if input.ndim not in (rank + 1, rank + 2):
        raise NotImplementedError("Only 2D, 3D, 4D, 5D padding with non-constant padding are "
                                  f"supported for now: {list(input.shape)} by {list(pad)}")
    wide = mode == "replicate" or (mode == "reflect" and rank < 3)
    return (_repeated_wide if wide else _repeated)(input, pad, mode)


def _repeated(input: ss.Tensor, pad: Sequence[int], mode: str) -> ss.Tensor:
    """Places filled from the input, dim by dim."""
    output = input
    for number in range(len(pad) // 2):
        before, after = pad[2 * number], pad[2 * number + 1]
        dim = input.ndim - 1 - number
        if mode == "circular" and min(before, after) < 0:
            # What is taken away is not there to be repeated.
            first, size = max(-before, 0), output.shape[dim]
            output = output.narrow(dim, first, size - first - max(-after, 0))
            before, after = max(before, 0), max(after, 0)
        if before or after:
            places = pad_indices(output.shape[dim], before, after, mode)
            output = output.index_select(dim, ss.tensor(places, device=input.device,
                                                        dtype=ss.int64))
    return output.clone() if output is input else output


_repeated_wide = autocast_as(cpu="float32")(_repeated)


def pad_images(input: ss.Tensor, padding: Any, mode: str) -> ss.Tensor:
    """Pad the last two dims by (left, right, top, bottom) with values of the input itself."""
    return pad(input, tuple(padding), mode)


# -- resampling ----------------------------------------------------------------------------------
def _target_sizes(input: ss.Tensor, size: Any, scale_factor: Any,
                  rank: int) -> tuple[list[int], list[float | None]]:
    """The sizes wanted, and the scales given."""
    if (size is None) == (scale_factor is None):
        raise ValueError("only one of size or scale_factor should be defined"
                         if size is not None else
                         "either size or scale_factor should be defined")
    if size is not None:
        given = list(size) if isinstance(size, tuple | list) else [size] * rank
        if len(given) != rank:
            raise ValueError(f"Input and output must have the same number of spatial dimensions, "
                             f"but got input with spatial dimensions of {list(input.shape[2:])} "
                             f"and output size of {size}.")
        return [int(each) for each in given], [None] * rank
    scales = list(scale_factor) if isinstance(scale_factor, tuple | list) else (
        [scale_factor] * rank)
    if len(scales) != rank:
        raise ValueError(f"Input and scale_factor must have the same number of spatial dimensions: "
                         f"{list(input.shape[2:])} and {scale_factor}")
    return [math.floor(n * scale) for n, scale in zip(input.shape[2:], scales, strict=True)], scales


def interpolate(input: ss.Tensor, size: Any = None, scale_factor: Any = None,
                mode: str = "nearest", align_corners: bool | None = None,
                recompute_scale_factor: bool | None = None, antialias: bool = False) -> ss.Tensor:
    """Images (N, C, ...) at another size, dim by dim.

    ``mode``: nearest, nearest-exact, linear (3D), bilinear and bicubic (4D), trilinear (5D) or
    area.  ``align_corners``: the outer pixels' centres, not their edges, stay where they are.
    """
    rank = input.ndim - 2
    if mode in ("nearest", "area", "nearest-exact"):
        if align_corners is not None:
            raise ValueError("align_corners option can only be set with the interpolating modes: "
                             "linear | bilinear | bicubic | trilinear")
    elif {**LINEAR, "bicubic": 2}.get(mode) != rank:
        raise NotImplementedError(f"Input Error: Only 3D, 4D and 5D input Tensors supported (got "
                                  f"{input.ndim}D) for the modes: nearest | linear | bilinear | "
                                  f"bicubic | trilinear | area | nearest-exact (got {mode})")
    if antialias:
        raise NotImplementedError("interpolate(antialias=True) is not there yet")
    _check_averaged(input, mode)
    sizes, scales = _target_sizes(input, size, scale_factor, rank)
    if min(sizes, default=1) < 1 or 0 in input.shape[2:]:
        raise RuntimeError("Input and output sizes should be greater than 0, but got input "
                           f"{list(input.shape[2:])} output {sizes}")
    _reserve(input, sizes)
    if mode == "area":
        return getattr(ss.nn.functional, f"adaptive_avg_pool{rank}d")(input, sizes)
    if recompute_scale_factor:
        scales = [None] * rank
    return _at_sizes(input, sizes, scales, (mode, bool(align_corners)))


def _check_averaged(input: ss.Tensor, mode: str) -> None:
    """Of the integers only uint8, as images are, is averaged, and only as images."""
    if mode in ("nearest", "nearest-exact", "area") or input.is_floating_point():
        return
    if input.dtype is not ss.uint8 or mode not in ("bilinear", "bicubic"):
        raise NotImplementedError(f"interpolate: mode '{mode}' is not implemented for "
                                  f"'{input.dtype}'\n  mend: input.float()")


def _reserve(input: ss.Tensor, sizes: list[int]) -> None:
    """Raise what making the result would, before places are listed for each of its elements."""
    if math.prod(sizes) > LISTED:
        input.new_empty((*input.shape[:2], *sizes))


@autocast_as(cpu="asleep", cuda="float32")
@in_float32
def _at_sizes(input: ss.Tensor, sizes: list[int], scales: list[float | None],
              facts: tuple[str, bool]) -> ss.Tensor:
    output = input
    targets = list(enumerate(zip(sizes, scales, strict=True), 2))
    if input.dtype is ss.uint8 and not facts[0].startswith("nearest"):
        # As PyTorch: columns before rows, and whole numbers between.
        for dim, target in reversed(targets):
            found = _resampled(output.float(), dim, target, facts)
            output = (found + 0.5).floor().clamp(0, 255).to(ss.uint8)
        return in_layout_of(output, input)
    for dim, target in targets:
        output = _resampled(output, dim, target, facts)
    return in_layout_of(output, input)


def _resampled(input: ss.Tensor, dim: int, target: tuple[int, float | None],
               how: tuple[str, bool]) -> ss.Tensor:
    mode, align_corners = how
    count, scale = target
    size = input.shape[dim]
    if mode.startswith("nearest"):
        offset = 0.5 if mode == "nearest-exact" else 0.0
        # PyTorch multiplies in float32, except for float64 on the CPU, and rounds to it there.
        exact = input.dtype is ss.float64 and input.device.type == "cpu"
        kind: Any = np.float64 if exact else np.float32
        share = kind(size) / kind(count) if scale is None else kind(1.0 / scale)
        centres = np.arange(count).astype(kind) + kind(offset)
        places = np.minimum(_whole((centres * share).astype(np.float32)), size - 1)
        return input.index_select(dim, ss.tensor(places, device=input.device))
    if align_corners:
        step = (size - 1) / (count - 1) if count > 1 else 0.0
        points = np.arange(count) * step
    else:
        step = size / count if scale is None else 1.0 / scale
        points = (np.arange(count) + 0.5) * step - 0.5
    taps = _cubic_taps(points, size) if mode == "bicubic" else _linear_taps(points, size)
    return _weighted(input, dim, taps)


def _whole(points: Array) -> Array:
    return np.floor(points).astype(np.int64)


def _linear_taps(points: Array, size: int) -> list[tuple[Array, Array]]:
    """For the neighbours below and above: places and weights."""
    points = np.maximum(points, 0.0)
    low = np.minimum(_whole(points), size - 1)
    shares = points - low
    return [(low, 1 - shares), (np.minimum(low + 1, size - 1), shares)]


def _cubic(distance: Array, a: float = -0.75) -> Array:
    """The cubic convolution kernel."""
    x = np.abs(distance)
    return np.where(x <= 1, ((a + 2) * x - (a + 3)) * x * x + 1,
                    ((a * x - 5 * a) * x + 8 * a) * x - 4 * a)


def _cubic_taps(points: Array, size: int) -> list[tuple[Array, Array]]:
    """For each of four neighbours: places and weights."""
    bases = _whole(points)
    return [(np.clip(bases + move, 0, size - 1), _cubic(points - bases - move))
            for move in (-1, 0, 1, 2)]


def _weighted(input: ss.Tensor, dim: int, taps: list[tuple[Array, Array]]) -> ss.Tensor:
    total = None
    for places, weights in taps:
        picked = input.index_select(dim, ss.tensor(places, device=input.device))
        share = ss.tensor(weights, dtype=input.dtype, device=input.device)
        part = picked * share.reshape(-1, *(1,) * (input.ndim - 1 - dim))
        total = part if total is None else total + part
    assert total is not None
    return total


def upsample(input: ss.Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest",
             align_corners: bool | None = None) -> ss.Tensor:
    """interpolate, under its older name."""
    return interpolate(input, size, scale_factor, mode, align_corners)


def pixel_shuffle(input: ss.Tensor, upscale_factor: int) -> ss.Tensor:
    """(..., C * r * r, H, W) as (..., C, H * r, W * r)."""
    r = upscale_factor
    if input.ndim < 3:
        raise RuntimeError("pixel_shuffle expects input to have at least 3 dimensions, but got "
                           f"input with {input.ndim} dimension(s)")
    if r <= 0:
        raise RuntimeError(f"pixel_shuffle expects a positive upscale_factor, but got {r}")
    *lead, channels, height, width = input.shape
    if channels % (r * r):
        raise RuntimeError("pixel_shuffle expects its input's 'channel' dimension to be divisible "
                           f"by the square of upscale_factor, but input.size(-3)={channels} is "
                           f"not divisible by {r * r}")
    own = channels // (r * r)
    split = input.reshape(*lead, own, r, r, height, width)
    base = len(lead)
    turned = split.permute(*range(base), base, base + 3, base + 1, base + 4, base + 2)
    return turned.clone(memory_format=ss.contiguous_format).reshape(
        *lead, own, height * r, width * r)


def pixel_unshuffle(input: ss.Tensor, downscale_factor: int) -> ss.Tensor:
    """(..., C, H * r, W * r) as (..., C * r * r, H, W)."""
    r = downscale_factor
    if input.ndim < 3:
        raise RuntimeError("pixel_unshuffle expects input to have at least 3 dimensions, but got "
                           f"input with {input.ndim} dimension(s)")
    if r <= 0:
        raise RuntimeError(f"pixel_unshuffle expects a positive downscale_factor, but got {r}")
    *lead, channels, height, width = input.shape
    if height % r or width % r:
        raise RuntimeError("pixel_unshuffle expects height and width to be divisible by "
                           f"downscale_factor, but {height} x {width} by {r} is not")
    split = input.reshape(*lead, channels, height // r, r, width // r, r)
    base = len(lead)
    turned = split.permute(*range(base), base, base + 2, base + 4, base + 1, base + 3)
    return turned.clone(memory_format=ss.contiguous_format).reshape(
        *lead, channels * r * r, height // r, width // r)


def channel_shuffle(input: ss.Tensor, groups: int) -> ss.Tensor:
    """The channels of (N, C, ...) dealt out over groups."""
    batch, channels, *rest = input.shape
    if channels % groups:
        raise RuntimeError(f"Number of channels must be divisible by groups. Got {channels} "
                           f"channels and {groups} groups.")
    return input.reshape(batch, groups, channels // groups, *rest).transpose(1, 2).reshape(
        input.shape)

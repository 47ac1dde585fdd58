"""Convolutions made of conv2d and its adjoint: of volumes, transposed, and columns of windows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import slipstream as ss
from slipstream.core.api.autocasting import autocast_as
from slipstream.core.api.install import adjoint_convolution
from slipstream.nn.functions.widening import in_float32

Size = int | Sequence[int]


def sizes(value: Any, rank: int, name: str) -> tuple[int, ...]:
    """One number for every dim, or one for each; RuntimeError for any other number of them."""
    given = tuple(value) if isinstance(value, tuple | list) else (value,)
    if len(given) == 1:
        given = given * rank
    if len(given) != rank:
        raise RuntimeError(f"expected {name} to be a single integer value or a list of {rank} "
                           f"values to match the convolution dimensions, but got {name}={value}")
    return tuple([int(each) for each in given])


def batched(input: ss.Tensor, rank: int, name: str) -> tuple[ss.Tensor, bool]:
    """The input with a batch dim, and whether it had one."""
    if input.ndim == rank + 2:
        return input, True
    if input.ndim == rank + 1:
        return input.unsqueeze(0), False
    raise RuntimeError(f"Expected {rank + 1}D (unbatched) or {rank + 2}D (batched) input to "
                       f"{name}, but got input of size: {list(input.shape)}")


def unbatched(output: ss.Tensor, had_batch: bool) -> ss.Tensor:
    """The output without the batch dim that `batched` put in."""
    return output if had_batch else output.squeeze(0)


def with_bias(output: ss.Tensor, bias: ss.Tensor | None) -> ss.Tensor:
    """The output with each channel's bias added."""
    if bias is None:
        return output
    return output + bias.reshape(1, -1, *(1,) * (output.ndim - 2))


# -- volumes -------------------------------------------------------------------------------------
def _planes(volumes: ss.Tensor) -> ss.Tensor:
    """(N, C, D, H, W) as a batch of N * D images."""
    batch, channels, depth, height, width = volumes.shape
    return volumes.transpose(1, 2).reshape(batch * depth, channels, height, width)


def _volumes(images: ss.Tensor, batch: int) -> ss.Tensor:
    """A batch of N * D images as (N, C, D, H, W)."""
    return images.reshape(batch, -1, *images.shape[1:]).transpose(1, 2)


def _same_padding(size: int, dilation: int) -> tuple[int, int]:
    total = dilation * (size - 1)
    return total // 2, total - total // 2


@autocast_as("lower")
@in_float32
def conv3d(input: ss.Tensor, weight: ss.Tensor, bias: ss.Tensor | None = None, stride: Size = 1,
           padding: Any = 0, dilation: Size = 1, groups: int = 1) -> ss.Tensor:
    """Cross-correlation of volumes (N, C, D, H, W) or (C, D, H, W) with weight (O, C / groups,
    kD, kH, kW): the sum over kD of convolutions of images.

    RuntimeError where channels, groups, bias or sizes do not fit.
    """
    volumes, had_batch = batched(input, 3, "conv3d")
    steps, apart = sizes(stride, 3, "stride"), sizes(dilation, 3, "dilation")
    if isinstance(padding, str):
        if padding == "same" and steps != (1, 1, 1):
            raise RuntimeError("padding='same' is not supported for strided convolutions")
        edges = (_same_padding(weight.shape[2], apart[0]) if padding == "same" else (0, 0))
        flat: Any = padding
    else:
        given = sizes(padding, 3, "padding")
        edges, flat = (given[0], given[0]), given[1:]
    if bias is not None and not isinstance(bias, ss.Tensor):
        raise TypeError(f"conv3d(): argument 'bias' must be Tensor, not {type(bias).__name__}")
    if bias is not None and tuple(bias.shape) != tuple(weight.shape[:1]):
        raise RuntimeError(f"Given weight of size {list(weight.shape)}, expected bias to be "
                           f"1-dimensional with {weight.shape[0]} elements, but got bias of size "
                           f"{list(bias.shape)} instead")
    if bias is not None and bias.dtype is not volumes.dtype:
        raise RuntimeError(f"Input type ({volumes.dtype.name}) and bias type ({bias.dtype.name}) "
                           "should be the same")
    if groups <= 0:
        raise RuntimeError("non-positive groups is not supported")
    if min(*steps, *apart) < 1:
        raise RuntimeError("non-positive stride or dilation is not supported")
    depth = volumes.shape[2] + sum(edges)
    reach = apart[0] * (weight.shape[2] - 1) + 1
    if reach > depth:
        raise RuntimeError(f"Calculated padded input size per channel: ({depth} x ...). Kernel "
                           f"size: ({reach} x ...). Kernel size can't be greater than actual "
                           "input size")
    padded = padded_depth(volumes, edges)
    count = (depth - reach) // steps[0] + 1
    total: Any = None
    for place in range(weight.shape[2]):
        first = place * apart[0]
        part = padded[:, :, first:first + (count - 1) * steps[0] + 1:steps[0]]
        own = ss.conv2d(_planes(part), weight[:, :, place], None, steps[1:], flat, apart[1:],
                        groups)
        total = own if total is None else total + own
    return unbatched(with_bias(_volumes(total, volumes.shape[0]), bias), had_batch)


def padded_depth(volumes: ss.Tensor, edges: tuple[int, int]) -> ss.Tensor:
    """Planes of zeros in front and behind."""
    if not any(edges):
        return volumes
    batch, channels, _, height, width = volumes.shape
    pieces = [volumes.new_zeros(batch, channels, edge, height, width) for edge in edges]
    return ss.cat([pieces[0], volumes, pieces[1]], 2)


# -- transposed ----------------------------------------------------------------------------------
def _transposed_size(size: int, cells: int, window: tuple[int, int, int, int]) -> int:
    step, pad, extra, apart = window
    return (size - 1) * step - 2 * pad + apart * (cells - 1) + extra + 1


def _check_transposed(input: ss.Tensor, weight: ss.Tensor, bias: ss.Tensor | None,
                      facts: Any) -> None:
    name, rank, groups, steps, extra, apart = facts
    if weight.ndim != rank + 2:
        raise RuntimeError(f"expected a {rank + 2}-dimensional weight, but got "
                           f"{list(weight.shape)}: {name}")
    if groups <= 0 or input.shape[1] != weight.shape[0] or weight.shape[0] % groups:
        raise RuntimeError(f"Given transposed=1, weight of size {list(weight.shape)}, expected "
                           f"input{list(input.shape)} to have {weight.shape[0]} channels, but got "
                           f"{input.shape[1]} channels instead")
    if bias is not None and tuple(bias.shape) != (weight.shape[1] * groups,):
        raise RuntimeError(f"Given transposed=1, weight of size {list(weight.shape)}, expected "
                           f"bias to be 1-dimensional with {weight.shape[1] * groups} elements, "
                           f"but got bias of size {list(bias.shape)} instead")
    if any(more >= max(step, gap) for more, step, gap in zip(extra, steps, apart, strict=True)):
        raise RuntimeError("output padding must be smaller than either stride or dilation")


def _transposed(name: str, rank: int, input: ss.Tensor, weight: ss.Tensor,
                bias: ss.Tensor | None, window: tuple[Any, ...]) -> ss.Tensor:
    stride, padding, output_padding, groups, dilation = window
    images, had_batch = batched(input, rank, name)
    steps, pads = sizes(stride, rank, "stride"), sizes(padding, rank, "padding")
    extra = sizes(output_padding, rank, "output_padding")
    apart = sizes(dilation, rank, "dilation")
    _check_transposed(images, weight, bias, (name, rank, groups, steps, extra, apart))
    wanted = [_transposed_size(size, cells, each) for size, cells, each in zip(
        images.shape[2:], weight.shape[2:], zip(steps, pads, extra, apart, strict=True),
        strict=True)]
    if min(wanted) < 1:
        raise RuntimeError(f"Given input size per channel: {list(images.shape[2:])}. Calculated "
                           f"output size per channel: {wanted}. Output size is too small")
    lead = (images.shape[0], weight.shape[1] * groups)
    spread = {1: _spread_rows, 2: _spread_images, 3: _spread_volumes}[rank]
    if all(more < step for more, step in zip(extra, steps, strict=True)):
        output = spread(images, weight, (*lead, *wanted), (steps, pads, apart, groups))
    else:
        # More than a step behind: the whole, of which the padding is cut off again.
        whole = tuple([size + 2 * pad - more for size, pad, more in zip(
            wanted, pads, extra, strict=True)])
        output = spread(images, weight, (*lead, *whole), (steps, (0,) * rank, apart, groups))
        sides = [side for size, own, pad in zip(reversed(wanted), reversed(whole), reversed(pads),
                                                strict=True)
                 for side in (-pad, pad + size - own)]
        output = ss.nn.functional.pad(output, sides)
    return unbatched(with_bias(output, bias), had_batch)


def _spread_images(images: ss.Tensor, weight: ss.Tensor, shape: Any, window: Any) -> ss.Tensor:
    steps, pads, apart, groups = window
    return adjoint_convolution(images, weight, shape, steps, pads, apart, groups)


def _spread_rows(rows: ss.Tensor, weight: ss.Tensor, shape: Any, window: Any) -> ss.Tensor:
    steps, pads, apart, groups = window
    images = _spread_images(rows.unsqueeze(2), weight.unsqueeze(2), (*shape[:2], 1, shape[2]),
                            ((1, *steps), (0, *pads), (1, *apart), groups))
    return images.squeeze(2)


def _spread_volumes(volumes: ss.Tensor, weight: ss.Tensor, shape: Any, window: Any) -> ss.Tensor:
    """Each plane of the kernel adds its images to every step-th plane of the padded result."""
    steps, pads, apart, groups = window
    batch, depth = volumes.shape[0], volumes.shape[2]
    planes = _planes(volumes)
    reach = (depth - 1) * steps[0] + apart[0] * (weight.shape[2] - 1) + 1
    total = volumes.new_zeros(batch, shape[1], max(reach, pads[0] + shape[2]), *shape[3:])
    for place in range(weight.shape[2]):
        images = _spread_images(planes, weight[:, :, place],
                                (batch * depth, shape[1], *shape[3:]),
                                (steps[1:], pads[1:], apart[1:], groups))
        first = place * apart[0]
        total[:, :, first:first + (depth - 1) * steps[0] + 1:steps[0]] += _volumes(images, batch)
    return total[:, :, pads[0]:pads[0] + shape[2]].contiguous()


@autocast_as("lower")
def conv_transpose1d(input: ss.Tensor, weight: ss.Tensor, bias: ss.Tensor | None = None,
                     stride: Size = 1, padding: Size = 0, output_padding: Size = 0,
                     groups: int = 1, dilation: Size = 1) -> ss.Tensor:
    """The adjoint of conv1d: input (N, C, L) or (C, L), weight (C, O / groups, k)."""
    return _transposed("conv_transpose1d", 1, input, weight, bias,
                       (stride, padding, output_padding, groups, dilation))


@autocast_as("lower")
def conv_transpose2d(input: ss.Tensor, weight: ss.Tensor, bias: ss.Tensor | None = None,
                     stride: Size = 1, padding: Size = 0, output_padding: Size = 0,
                     groups: int = 1, dilation: Size = 1) -> ss.Tensor:
    """The adjoint of conv2d: input (N, C, H, W) or (C, H, W), weight (C, O / groups, kH, kW)."""
    return _transposed("conv_transpose2d", 2, input, weight, bias,
                       (stride, padding, output_padding, groups, dilation))


@autocast_as("lower")
@in_float32
def conv_transpose3d(input: ss.Tensor, weight: ss.Tensor, bias: ss.Tensor | None = None,
                     stride: Size = 1, padding: Size = 0, output_padding: Size = 0,
                     groups: int = 1, dilation: Size = 1) -> ss.Tensor:
    """The adjoint of conv3d: input (N, C, D, H, W), weight (C, O / groups, kD, kH, kW)."""
    return _transposed("conv_transpose3d", 3, input, weight, bias,
                       (stride, padding, output_padding, groups, dilation))


# -- columns -------------------------------------------------------------------------------------
def _columns(size: Any, window: tuple[Any, ...]) -> tuple[list[int], Any]:
    """How many windows there are along each dim, and the cells' places in the padded image."""
    cells, apart, pads, steps = window
    counts = [(n + 2 * pad - gap * (cell - 1) - 1) // step + 1 for n, pad, gap, cell, step in zip(
        size, pads, apart, cells, steps, strict=True)]
    places = [tuple([slice(at * gap, at * gap + step * (count - 1) + 1, step)
                     for at, gap, step, count in zip(cell, apart, steps, counts, strict=True)])
              for cell in ((row, column) for row in range(cells[0]) for column in range(cells[1]))]
    return counts, places


def _windows(kernel_size: Size, dilation: Size, padding: Size, stride: Size) -> tuple[Any, ...]:
    window = tuple([sizes(each, 2, name) for each, name in (
        (kernel_size, "kernel_size"), (dilation, "dilation"), (padding, "padding"),
        (stride, "stride"))])
    for each, name, least in zip(window, ("kernel_size", "dilation", "padding", "stride"),
                                 (1, 1, 0, 1), strict=True):
        if min(each) < least:
            raise RuntimeError(f"{name} should be greater than {least - 1}, but got {each}")
    return window


@autocast_as("asleep")
def unfold(input: ss.Tensor, kernel_size: Size, dilation: Size = 1, padding: Size = 0,
           stride: Size = 1) -> ss.Tensor:
    """The windows of images (N, C, H, W) as columns (N, C * cells, windows)."""
    images, had_batch = batched(input, 2, "unfold")
    window = _windows(kernel_size, dilation, padding, stride)
    counts, places = _columns(images.shape[2:], window)
    if min(counts) < 1:
        raise RuntimeError(f"Given input with spatial size {tuple(images.shape[2:])}, calculated "
                           f"shape of the array of sliding blocks as {tuple(counts)}, but its "
                           "components must be at least one.")
    batch, channels, height, width = images.shape
    rows, columns = window[2]
    padded = images
    if rows or columns:
        padded = images.new_zeros(batch, channels, height + 2 * rows, width + 2 * columns)
        padded[:, :, rows:rows + height, columns:columns + width] = images
    cells = ss.stack([padded[(slice(None), slice(None), *place)] for place in places], 2)
    return unbatched(cells.reshape(batch, channels * len(places), math.prod(counts)), had_batch)


@autocast_as("asleep")
def fold(input: ss.Tensor, output_size: Size, kernel_size: Size, dilation: Size = 1,
         padding: Size = 0, stride: Size = 1) -> ss.Tensor:
    """Columns (N, C * cells, windows) added up to images (N, C, *output_size)."""
    if input.ndim not in (2, 3):
        raise RuntimeError("Input Error: Expected a 2D or 3D (batch mode) tensor, but got "
                           f"{list(input.shape)}")
    had_batch = input.ndim == 3
    given = input if had_batch else input.unsqueeze(0)
    window = _windows(kernel_size, dilation, padding, stride)
    height, width = sizes(output_size, 2, "output_size")
    counts, places = _columns((height, width), window)
    if min(counts) < 1 or given.shape[2] != math.prod(counts):
        raise RuntimeError(f"Given output_size={(height, width)}, expected size of input's "
                           f"dimension 2 to match the calculated number of sliding blocks "
                           f"{counts}, but got input.size(2)={given.shape[2]}.")
    if given.shape[1] % len(places):
        raise RuntimeError("Expected size of input's dimension 1 to be divisible by the product of "
                           f"kernel_size, but got input.size(1)={given.shape[1]}")
    channels = given.shape[1] // len(places)
    cells = given.reshape(given.shape[0], channels, len(places), *counts)
    rows, columns = window[2]
    total = given.new_zeros(given.shape[0], channels, height + 2 * rows, width + 2 * columns)
    for number, place in enumerate(places):
        total[(slice(None), slice(None), *place)] += cells[:, :, number]
    return unbatched(total[:, :, rows:rows + height, columns:columns + width], had_batch)

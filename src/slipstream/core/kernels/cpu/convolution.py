"""Convolutions on the CPU: columns of windows, and matrix products by NumPy's BLAS.

Images are turned to (N, H, W, C) with their padding; then a window's row is one run of memory, and
the columns (one line for each window) are copied in long runs.  A few images are done at a time,
so that their columns stay in the cache; how many depends on the shape only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from slipstream.core.shapes.windows import Windows

NARROW = ("float16", "bfloat16")
# Elements of the columns that are made at a time.
CHUNK = 1 << 17


class Layout(NamedTuple):
    """What a kernel knows of its call: the windows and how the channels are grouped."""

    windows: Windows
    groups: int
    batched: bool = True

    def images(self, array: np.ndarray) -> np.ndarray:
        """The array as a batch."""
        return array if self.batched else array[None]


def _wide(array: np.ndarray) -> np.ndarray:
    """Narrow floats are computed in float32."""
    return array.astype(np.float32) if array.dtype.name in NARROW else array


def _chunks(images: int, elements: int) -> Iterator[slice]:
    """Slices of the batch whose columns have at most CHUNK elements, where one image allows."""
    step = max(1, CHUNK // max(elements, 1))
    for first in range(0, images, step):
        yield slice(first, min(first + step, images))


def padded_images(images: np.ndarray, windows: Windows) -> np.ndarray:
    """The images as (N, H, W, C) with zeros around them."""
    turned = images.transpose(0, 2, 3, 1)
    if windows.padded == windows.size:
        return np.ascontiguousarray(turned)
    padded = np.zeros((len(images), *windows.padded, images.shape[1]), images.dtype)
    rows, columns = windows.inside()
    padded[:, rows, columns] = turned
    return padded


def columns_of(padded: np.ndarray, layout: Layout) -> np.ndarray:
    """One line for each window: (groups, N * windows, kernel height * width * channels)."""
    windows, groups = layout.windows, layout.groups
    batch, row, column, channel = padded.strides
    own = padded.shape[3] // groups
    down, right = windows.stride
    below, beside = windows.dilation
    shape = (groups, len(padded), *windows.count, *windows.kernel, own)
    steps = (own * channel, batch, down * row, right * column, below * row, beside * column,
             channel)
    view = as_strided(padded, shape, steps, writeable=False)
    lines = len(padded) * windows.count[0] * windows.count[1]
    return view.reshape(groups, lines, windows.kernel[0] * windows.kernel[1] * own)


def weight_rows(weight: np.ndarray, groups: int) -> np.ndarray:
    """The weight as (groups, outputs of a group, kernel height * width * channels)."""
    outputs, own, height, width = weight.shape
    split = weight.reshape(groups, outputs // groups, own, height, width)
    return split.transpose(0, 1, 3, 4, 2).reshape(groups, outputs // groups, height * width * own)


def channel_rows(images: np.ndarray, groups: int) -> np.ndarray:
    """Images as (groups, channels of a group, N * height * width): copied by whole images."""
    batch, channels, height, width = images.shape
    turned = images.transpose(1, 0, 2, 3)
    return turned.reshape(groups, channels // groups, batch * height * width)


def forward(outputs: list[Any], inputs: list[Any], numbers: tuple[Any, ...], plan: Any) -> None:
    """out[n, o] = bias[o] + the sum of weight[o] * window, for each window."""
    layout: Layout = plan.statics[0]
    out, images = layout.images(outputs[0]), layout.images(inputs[0])
    weight = weight_rows(_wide(inputs[1]), layout.groups)
    bias = _wide(inputs[2]) if len(inputs) > 2 else None
    windows, groups = layout.windows, layout.groups
    batch, channels = out.shape[:2]
    split = out.reshape(batch, groups, channels // groups, *windows.count)
    lines = windows.count[0] * windows.count[1]
    for part in _chunks(batch, lines * weight.shape[2] * groups):
        columns = columns_of(padded_images(_wide(images[part]), windows), layout)
        product = np.matmul(weight, columns.transpose(0, 2, 1))
        if bias is not None:
            product += bias.reshape(groups, -1, 1)
        product = product.reshape(groups, channels // groups, -1, *windows.count)
        split[part] = product.transpose(2, 0, 1, 3, 4)


def weight_grad(outputs: list[Any], inputs: list[Any], numbers: tuple[Any, ...],
                plan: Any) -> None:
    """out[o, c, i, j] = the sum over windows of grad[o] * the window's cell (c, i, j)."""
    layout: Layout = plan.statics[0]
    grad, images = layout.images(inputs[0]), layout.images(inputs[1])
    out, groups, windows = outputs[0], layout.groups, layout.windows
    height, width = windows.kernel
    own, kept = out.shape[1], out.shape[0] // groups
    total = None
    lines = windows.count[0] * windows.count[1]
    for part in _chunks(len(grad), lines * height * width * own * groups):
        columns = columns_of(padded_images(_wide(images[part]), windows), layout)
        product = np.matmul(channel_rows(_wide(grad[part]), groups), columns)
        total = product if total is None else np.add(total, product, out=total)
    split = out.reshape(groups, kept, own, height, width)
    if total is None:
        split[...] = 0
    else:
        split[...] = total.reshape(groups, kept, height, width, own).transpose(0, 1, 4, 2, 3)


def input_grad(outputs: list[Any], inputs: list[Any], numbers: tuple[Any, ...],
               plan: Any) -> None:
    """Each window's grad times the weight, added up where windows share a pixel."""
    layout: Layout = plan.statics[0]
    grad, weight = layout.images(inputs[0]), _wide(inputs[1])
    out, windows = layout.images(outputs[0]), layout.windows
    lines = windows.count[0] * windows.count[1]
    rows, columns = windows.inside()
    for part in _chunks(len(out), lines * (grad.shape[1] + 2 * out.shape[1])):
        padded = _spread(_wide(grad[part]), weight, layout)
        out[part] = padded[:, rows, columns].transpose(0, 3, 1, 2)


def _spread(grad: np.ndarray, weight: np.ndarray, layout: Layout) -> np.ndarray:
    """The padded images that the grads of all windows add up to, one cell after another."""
    windows, groups = layout.windows, layout.groups
    own = weight.shape[1]
    lines = channel_rows(grad, groups).transpose(0, 2, 1)
    # (kernel height, width, groups, outputs of a group, channels of a group)
    cells = np.ascontiguousarray(
        weight.reshape(groups, -1, own, *windows.kernel).transpose(3, 4, 0, 1, 2))
    padded = np.zeros((len(grad), *windows.padded, groups * own), grad.dtype)
    for row in range(windows.kernel[0]):
        for column in range(windows.kernel[1]):
            product = np.matmul(lines, cells[row, column])
            product = product.reshape(groups, len(grad), *windows.count, own)
            down, right = windows.cell(row, column)
            target = padded[:, down, right]
            target = target.reshape(*target.shape[:3], groups, own) if groups == 1 else as_strided(
                target, (*target.shape[:3], groups, own),
                (*target.strides[:3], own * target.strides[3], target.strides[3]))
            target += product.transpose(1, 2, 3, 0, 4)
    return padded

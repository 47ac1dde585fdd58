"""Convolutions of images of one row, by columns that keep the row together.

A column matrix has one line for each cell of a window, (channels * kernel, windows): with a step of
one each line is a run of the image.  Its product with the weight lies as the result does, so that
nothing is turned.  Images, or pieces of a long one, are taken so many at a time that the columns
stay in the cache; how many depends on the shape only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from slipstream.core.kernels.cpu.convolution import CHUNK, Layout, _wide
from slipstream.core.kernels.cpu.products import SMALL
from slipstream.core.native.blas import blas
from slipstream.core.shapes.windows import Windows

# Windows of a row from which it is kept together.
SHORTEST = 64


def refusal(windows: Windows) -> str:
    """Why a convolution is not done by rows, or ""."""
    if windows.size[0] != 1 or windows.kernel[0] != 1 or windows.count[0] != 1:
        return "the images have several rows"
    return "" if windows.count[1] >= SHORTEST else "the rows are short"


class Rows:
    """What the three products need to know of a call."""

    def __init__(self, layout: Layout, channels: int) -> None:
        windows = layout.windows
        self.groups = layout.groups
        self.own = channels // layout.groups
        self.length = windows.size[1]
        self.padded = windows.padded[1]
        self.before = windows.before[1]
        self.kernel = windows.kernel[1]
        self.cells = self.own * self.kernel
        self.step = windows.stride[1]
        self.apart = windows.dilation[1]
        self.count = windows.count[1]

    def parts(self, batch: int) -> Iterator[tuple[slice, slice]]:
        """Images and windows whose columns have at most CHUNK elements, where that can be."""
        height = max(self.groups * self.cells, 1)
        width = min(self.count, max(CHUNK // height, SHORTEST))
        together = max(CHUNK // (height * width), 1) if width == self.count else 1
        for first in range(0, batch, together):
            for start in range(0, self.count, width):
                yield (slice(first, min(first + together, batch)),
                       slice(start, min(start + width, self.count)))

    def use_threads(self, outputs: int, width: int) -> None:
        """By the size of one product alone."""
        small = outputs * self.cells * width < SMALL
        blas.use_threads(1 if small else blas.most)

    def filled(self, images: np.ndarray) -> np.ndarray:
        """Images (n, channels, length) with their padding, each row in one run."""
        if self.padded == self.length and images.strides[2] == images.itemsize:
            return images
        padded = np.zeros((*images.shape[:2], self.padded), images.dtype)
        padded[..., self.before:self.before + self.length] = images
        return padded

    def columns(self, padded: np.ndarray, windows: slice) -> np.ndarray:
        """The columns of some windows: (n, groups, own * kernel, windows)."""
        batch, channel, element = padded.strides
        width = windows.stop - windows.start
        shape = (len(padded), self.groups, self.own, self.kernel, width)
        steps = (batch, channel * self.own, channel, element * self.apart, element * self.step)
        view = as_strided(padded[..., windows.start * self.step:], shape, steps, writeable=False)
        return view.reshape(len(padded), self.groups, self.cells, width)


def _images(layout: Layout, array: np.ndarray) -> np.ndarray:
    """Images of one row as (n, channels, length)."""
    return layout.images(array)[:, :, 0]


def forward(outputs: list[Any], inputs: list[Any], numbers: tuple[Any, ...], plan: Any) -> None:
    """out[n] = weight @ columns of the image (+ bias)."""
    layout: Layout = plan.statics[0]
    out, images = _images(layout, outputs[0]), _images(layout, inputs[0])
    rows, weight = Rows(layout, images.shape[1]), _wide(inputs[1])
    groups, kept = rows.groups, out.shape[1] // rows.groups
    matrix = np.ascontiguousarray(weight.reshape(groups, kept, rows.cells))
    bias = _wide(inputs[2]).reshape(groups, kept, 1) if len(inputs) > 2 else None
    split = out.reshape(len(out), groups, kept, rows.count)
    for part, windows in rows.parts(len(images)):
        columns = rows.columns(rows.filled(_wide(images[part])), windows)
        rows.use_threads(len(weight), columns.shape[-1])
        _multiply(split[part, ..., windows], matrix, columns, bias)


def _multiply(out: np.ndarray, matrix: np.ndarray, columns: np.ndarray, bias: Any) -> None:
    """out = matrix @ columns (+ bias); a matrix of one line is no work for BLAS."""
    total = out if out.dtype == columns.dtype and out.strides[3] == out.itemsize else np.empty(
        out.shape, columns.dtype)
    if matrix.shape[1] > 1 or not columns.shape[2]:
        np.matmul(matrix, columns, out=total)
    else:
        np.multiply(columns[:, :, :1], matrix[:, :, :1], out=total)
        for cell in range(1, columns.shape[2]):
            total += columns[:, :, cell:cell + 1] * matrix[:, :, cell:cell + 1]
    if bias is not None:
        total += bias
    if total is not out:
        out[...] = total


def weight_grad(outputs: list[Any], inputs: list[Any], numbers: tuple[Any, ...],
                plan: Any) -> None:
    """The sum over images of grad @ columns^T."""
    layout: Layout = plan.statics[0]
    grad, images = _images(layout, inputs[0]), _images(layout, inputs[1])
    rows, out = Rows(layout, images.shape[1]), outputs[0]
    groups, kept = rows.groups, out.shape[0] // rows.groups
    total: Any = 0
    for part, windows in rows.parts(len(images)):
        columns = rows.columns(rows.filled(_wide(images[part])), windows)
        given = np.ascontiguousarray(_wide(grad[part, :, windows]))
        given = given.reshape(len(given), groups, kept, given.shape[2])
        rows.use_threads(len(out), columns.shape[-1])
        total = np.matmul(given, columns.swapaxes(2, 3)).sum(0) + total
    out[...] = np.reshape(total, out.shape) if len(images) else 0


def input_grad(outputs: list[Any], inputs: list[Any], numbers: tuple[Any, ...],
               plan: Any) -> None:
    """weight^T @ grad, the lines of a cell added to the pixels that it saw."""
    layout: Layout = plan.statics[0]
    grad, out = _images(layout, inputs[0]), _images(layout, outputs[0])
    rows, weight = Rows(layout, out.shape[1]), _wide(inputs[1])
    groups, kept = rows.groups, grad.shape[1] // rows.groups
    matrix = np.ascontiguousarray(weight.reshape(groups, kept, rows.cells).swapaxes(1, 2))
    together = max(CHUNK // max(out.shape[1] * rows.kernel * rows.count, 1), 1)
    for first in range(0, len(out), together):
        given = np.ascontiguousarray(_wide(grad[first:first + together]))
        rows.use_threads(len(weight), rows.count)
        lines = np.matmul(matrix, given.reshape(len(given), groups, kept, given.shape[2]))
        lines = lines.reshape(len(given), out.shape[1], rows.kernel, rows.count)
        padded = np.zeros((len(given), out.shape[1], rows.padded), lines.dtype)
        for cell in range(rows.kernel):
            start = cell * rows.apart
            end = start + (rows.count - 1) * rows.step + 1
            padded[..., start:end:rows.step] += lines[:, :, cell]
        out[first:first + together] = padded[..., rows.before:rows.before + rows.length]

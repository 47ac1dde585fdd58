"""Pooling on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from slipstream.core.shapes.windows import Windows

NARROW = ("float16", "bfloat16")


def _lowest(dtype: np.dtype) -> Any:
    return np.iinfo(dtype).min if dtype.kind in "iu" else -np.inf


def first_places(windows: Windows) -> np.ndarray:
    """The first pixel of each window that is not padding, as an index into the image."""
    places = []
    for axis in range(2):
        start = np.arange(windows.count[axis]) * windows.stride[axis] - windows.before[axis]
        apart = windows.dilation[axis]
        # Steps of the dilation until the image begins.
        skipped = np.maximum(0, -(start // apart))
        places.append(start + skipped * apart)
    return places[0][:, None] * windows.size[1] + places[1][None, :]


def largest(outputs: list[Any], inputs: list[Any], numbers: tuple[Any, ...], plan: Any) -> None:
    """For each window the index of its largest pixel in the image; nan wins, the first of equals.

    Cell after cell, all windows at a time.
    """
    windows: Windows = plan.statics[0]
    images = inputs[0]
    if images.dtype.name in NARROW:
        images = images.astype(np.float32)
    if windows.padded != windows.size or not _among_numbers(outputs[0], images, windows):
        _with_care(outputs[0], images, windows)


def _cells(windows: Windows) -> tuple[np.ndarray, np.ndarray]:
    """Index of each window's first cell (padding has negative places), and of cells after it."""
    rows, columns = [np.arange(n) * step - low for n, step, low in zip(
        windows.count, windows.stride, windows.before, strict=True)]
    below, beside = [np.arange(n) * apart for n, apart in zip(
        windows.kernel, windows.dilation, strict=True)]
    width = windows.size[1]
    return (rows[:, None] * width + columns,
            (below[:, None] * width + beside).reshape(-1))


def _among_numbers(out: np.ndarray, images: np.ndarray, windows: Windows) -> bool:
    """The short way for images without padding and nan; False if a nan was met."""
    corner, moves = _cells(windows)
    best = images[(..., *windows.cell(0, 0))].copy()
    place = np.zeros(best.shape, np.intp)
    wins = np.empty(best.shape, bool)
    for number in range(1, len(moves)):
        cell = images[(..., *windows.cell(*divmod(number, windows.kernel[1])))]
        np.greater(cell, best, out=wins)
        np.maximum(best, cell, out=best)
        np.putmask(place, wins, moves[number])
    if best.dtype.kind == "f" and np.isnan(best).any():
        return False
    np.add(place, corner, out=out)
    return True


def values(outputs: list[Any], inputs: list[Any], numbers: tuple[Any, ...], plan: Any) -> None:
    """The largest pixel of each window."""
    images = inputs[0]
    if images.dtype.name in NARROW:
        images = images.astype(np.float32)
    places = np.empty(outputs[0].shape, np.int64)
    outputs[0][...] = _with_care(places, images, plan.statics[0])


def _with_care(out: np.ndarray, images: np.ndarray, windows: Windows) -> np.ndarray:
    """The long way: padding never wins, nan always; returns the largest pixels."""
    padded = _padded(images, windows)
    floats = padded.dtype.kind == "f"
    best = np.full(out.shape, _lowest(padded.dtype), padded.dtype)
    index = np.empty(out.shape, np.int64)
    index[...] = first_places(windows)
    corner, moves = _cells(windows)
    for number, move in enumerate(moves):
        cell = padded[(..., *windows.cell(*divmod(number, windows.kernel[1])))]
        wins = cell > best
        if floats:
            wins |= np.isnan(cell)
        np.copyto(best, cell, where=wins)
        np.copyto(index, corner + move, where=wins)
    out[...] = index
    return best


def _padded(images: np.ndarray, windows: Windows) -> np.ndarray:
    """The images with the lowest value around them, which wins nowhere."""
    if windows.padded == windows.size:
        return images
    shape = (*images.shape[:-2], *windows.padded)
    padded = np.full(shape, _lowest(images.dtype), images.dtype)
    rows, columns = windows.inside()
    padded[..., rows, columns] = images
    return padded


def _lines(array: np.ndarray) -> np.ndarray:
    """The array as (images * channels, pixels)."""
    pixels = array.shape[-2] * array.shape[-1]
    return np.ascontiguousarray(array).reshape(array.size // max(pixels, 1), pixels)


def pick(outputs: list[Any], inputs: list[Any], numbers: tuple[Any, ...], plan: Any) -> None:
    """out = the pixels at the indices."""
    lines, places = _lines(inputs[0]), _lines(inputs[1])
    start = np.arange(len(lines))[:, None] * lines.shape[1]
    outputs[0][...] = lines.reshape(-1)[places + start].reshape(outputs[0].shape)


def spread(outputs: list[Any], inputs: list[Any], numbers: tuple[Any, ...], plan: Any) -> None:
    """out = zeros, with each value added at its index, in the order of the indices."""
    grad, places = _lines(inputs[0]), _lines(inputs[1])
    out = outputs[0]
    pixels = out.shape[-2] * out.shape[-1]
    flat = (places + np.arange(len(places))[:, None] * pixels).reshape(-1)
    values = grad.reshape(-1)
    if plan.statics[0] or values.dtype.kind == "c":
        total = np.zeros(out.size, values.dtype)
        if plan.statics[0]:
            total[flat] = values
        else:
            np.add.at(total, flat, values)
    else:
        total = np.bincount(flat, values.astype(np.float64), out.size)
    out[...] = total.reshape(out.shape)

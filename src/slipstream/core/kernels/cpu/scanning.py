"""Scans on the CPU: running sums, products and extrema along one axis, by NumPy's accumulators."""

from __future__ import annotations

from typing import Any

import numpy as np

NARROW = ("float16", "bfloat16")
# Elements that are widened at a time.
CHUNK = 1 << 14


def wide(array: np.ndarray, to: np.dtype) -> np.ndarray:
    """The array in the dtype that a scan of results in ``to`` adds up in."""
    if to.name in NARROW or to == np.float32:
        # A long running sum in float32 loses digits that the next terms need.
        return array.astype(np.float64)
    if to == np.complex64:
        return array.astype(np.complex128)
    return array.astype(to)


def _axis(array: np.ndarray, dim: int) -> np.ndarray:
    return array if array.ndim else array.reshape(1)


def accumulated(function: np.ufunc) -> Any:
    """The kernel of a scan by a ufunc."""
    def run(outputs: list[Any], inputs: list[Any], numbers: tuple[Any, ...], plan: Any) -> None:
        dim = plan.statics[0]
        out, source = _axis(outputs[0], dim), _axis(inputs[0], dim)
        if not out.size:
            return
        lines = np.moveaxis(source, dim, -1)
        target = np.moveaxis(out, dim, -1)
        if lines.ndim == 1 or dim < source.ndim - 1:
            target[...] = np.moveaxis(
                function.accumulate(wide(source, out.dtype), axis=dim), dim, -1)
            return
        # A few rows at a time, so that their wide copies stay in the cache.
        step = max(1, CHUNK // max(lines.shape[-1], 1))
        for first in range(0, len(lines), step):
            part = wide(lines[first:first + step], out.dtype)
            target[first:first + step] = function.accumulate(part, axis=-1)

    return run


def extremes(function: np.ufunc) -> Any:
    """The kernel of a running extremum: places, and values; the last of equals, nan wins."""
    def run(outputs: list[Any], inputs: list[Any], numbers: tuple[Any, ...], plan: Any) -> None:
        dim = plan.statics[0]
        places, values = outputs
        if not values.size:
            return
        source = _axis(inputs[0], dim)
        if source.dtype.name in NARROW:
            source = source.astype(np.float32)
        running = function.accumulate(source, axis=dim)
        hits = source == running
        if source.dtype.kind == "f":
            hits |= np.isnan(source)
        shape = [1] * source.ndim
        shape[dim] = source.shape[dim]
        index = np.arange(source.shape[dim]).reshape(shape)
        places[...] = np.maximum.accumulate(np.where(hits, index, 0), axis=dim).reshape(
            places.shape)
        # The element itself: a zero keeps its sign.
        found = np.take_along_axis(_axis(inputs[0], dim), places.reshape(source.shape), dim)
        values[...] = found.reshape(values.shape)

    return run


def logsumexps(outputs: list[Any], inputs: list[Any], numbers: tuple[Any, ...], plan: Any) -> None:
    """log of the running sums of e^x."""
    dim = plan.statics[0]
    out = outputs[0]
    if out.size:
        source = _axis(inputs[0], dim).astype(np.float64)
        out[...] = np.logaddexp.accumulate(source, axis=dim).reshape(out.shape)


def recurrence(outputs: list[Any], inputs: list[Any], numbers: tuple[Any, ...], plan: Any) -> None:
    """y[i] = g[i] + a[i] y[i + 1] along one axis, from its end.

    By doubling: after k passes y[i] holds the terms up to i + 2^k, a[i] the factor of the rest.
    """
    dim = plan.statics[0]
    out = outputs[0]
    if not out.size:
        return
    terms, factors = [np.moveaxis(wide(_axis(each, dim), out.dtype), dim, -1).copy()
                      for each in inputs]
    size = terms.shape[-1]
    step = 1
    while step < size:
        terms[..., :-step] += factors[..., :-step] * terms[..., step:]
        factors[..., :-step] *= factors[..., step:]
        # What has no successor so far away is complete.
        factors[..., size - step:] = 0
        step *= 2
    out[...] = np.moveaxis(terms, -1, dim).reshape(out.shape)

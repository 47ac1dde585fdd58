"""Samples and NumPy references of ops that pick, write and cut by index."""

from __future__ import annotations

from typing import Any

import numpy as np

from slipstream.core.catalog.samples import Sample, random_array

PLACES = np.array([2, 0])


def vector_writes() -> list[Sample]:
    """An operand, a dim, a vector of distinct indices and a source."""
    x = random_array(80, 3, 4)
    return [((x, 0, PLACES, random_array(81, 2, 4)), {}),
            ((x, -1, np.array([3, 1]), random_array(82, 3, 2)), {}),
            ((random_array(83, 5), 0, np.array([4]), random_array(84, 1)), {})]


def vector_fills() -> list[Sample]:
    """An operand, a dim, a vector of indices and a number."""
    return [((*args[:3], 2), {}) for args, _ in vector_writes()]


def writes() -> list[Sample]:
    """An operand, indices and values, also added."""
    x, values = random_array(85, 3, 4), random_array(86, 2)
    return [((x, [PLACES, np.array([1, 3])], values), {}),
            ((x, [np.array([1, 1])], random_array(87, 2, 4)), {"accumulate": True}),
            ((x, [np.arange(12).reshape(3, 4) % 6 == 1], values[:1]), {}),
            ((x, [np.ones((3, 4), bool)], random_array(88, 12)), {})]


def sources() -> list[Sample]:
    """An operand, a mask and a source of enough elements."""
    x = random_array(88, 3, 4)
    return [((x, x > 0, random_array(89, 12)), {}), ((x, x > 9, random_array(90, 2)), {})]


def flat_places() -> list[Sample]:
    """An operand and indices of its flattened elements."""
    return [((random_array(91, 3, 4), np.array([[11, 0], [5, -1]])), {})]


def classes() -> list[Sample]:
    """Class numbers."""
    return [((np.array([0, 2, 1]),), {}), ((np.array([[0, 2]]), 4), {})]


def _at(x: Any, dim: int, index: Any) -> tuple[Any, ...]:
    return (*[slice(None)] * (dim % x.ndim), index)


def written(x: Any, dim: int, index: Any, source: Any) -> Any:
    """A copy with a source, or a number, at a vector of indices of a dim."""
    out = x.copy()
    out[_at(x, dim, index)] = source
    return out


def added(x: Any, dim: int, index: Any, source: Any) -> Any:
    """A copy with a source added at a vector of indices of a dim."""
    out = x.copy()
    np.add.at(out, _at(x, dim, index), source)
    return out


def put(x: Any, indices: Any, values: Any, accumulate: bool = False) -> Any:
    """A copy with values written or added at indices."""
    out = x.copy()
    if accumulate:
        np.add.at(out, tuple(indices), values)
    else:
        out[tuple(indices)] = values
    return out


def scattered(x: Any, mask: Any, source: Any) -> Any:
    """A copy with the source's elements in turn where the mask is true."""
    out = x.copy()
    out[mask] = source[:int(mask.sum())]
    return out


def one_hot(places: Any, num_classes: int = -1) -> Any:
    """Rows of the unit matrix."""
    return np.eye(int(places.max()) + 1 if num_classes < 0 else num_classes, dtype=int)[places]


def sections(x: Any, sizes: Any, dim: int = 0) -> list[Any]:
    """Pieces of given lengths."""
    return np.split(x, np.cumsum(sizes)[:-1], dim)


def chunks(x: Any, count: int, dim: int = 0) -> list[Any]:
    """At most ``count`` pieces of one length, but the last."""
    length = -(-x.shape[dim] // count)
    return np.split(x, range(length, x.shape[dim], length), dim)


def sized() -> list[Any]:
    """Calls of nonzero_static: fewer places than there are, more, none."""
    x = np.round(random_array(150, 3, 4))
    return [((x,), {"size": 2}), ((x,), {"size": 20}), ((x,), {"size": 14, "fill_value": 7}),
            ((x,), {"size": 0}), ((x[:0],), {"size": 2}), ((x[1, 2],), {"size": 3})]


def first_places(x: Any, size: int, fill_value: int = -1) -> Any:
    """What nonzero_static gives."""
    found = np.full((size, np.ndim(x)), fill_value, np.int64)
    places = np.argwhere(x)[:size]
    found[:len(places)] = places
    return found

"""Sorting on the CPU: places and values along the last axis, nan counting as the largest."""

from __future__ import annotations

from typing import Any

import numpy as np

NARROW = ("float16", "bfloat16")
# A share of the row above which a whole sort is no slower than a partition.
MOST = 8


def comparable(array: np.ndarray) -> np.ndarray:
    """The array in a dtype that NumPy sorts fast, with the same order."""
    return array.astype(np.float32) if array.dtype.name in NARROW else array


def rows(array: np.ndarray, dim: int) -> np.ndarray:
    """The array with its sorted axis last; a scalar as a row of one."""
    return np.moveaxis(array, dim, -1) if array.ndim else array.reshape(1)


def order(source: np.ndarray, descending: bool) -> np.ndarray:
    """Places in sorted order along the last axis, equals in the order that they have."""
    if not descending:
        return np.argsort(source, axis=-1, kind="stable")
    places = np.argsort(source[..., ::-1], axis=-1, kind="stable")[..., ::-1]
    return source.shape[-1] - 1 - places


def store(outputs: list[Any], source: np.ndarray, places: np.ndarray, dim: int) -> None:
    """Write places and the values there to the outputs, which have the axis at ``dim``."""
    for out, found in zip(outputs, (places, np.take_along_axis(source, places, -1)), strict=True):
        rows(out, dim)[...] = found


def sort(outputs: list[Any], inputs: list[Any], numbers: tuple[Any, ...], plan: Any) -> None:
    """All places and values."""
    dim, descending = plan.statics
    source = rows(inputs[0], dim)
    if source.size:
        store(outputs, source, order(comparable(source), descending), dim)


def values(outputs: list[Any], inputs: list[Any], numbers: tuple[Any, ...], plan: Any) -> None:
    """The values in sorted order, without their places."""
    source = rows(inputs[0], plan.statics[0])
    rows(outputs[0], plan.statics[0])[...] = np.sort(comparable(source), -1, "stable")


def topk(outputs: list[Any], inputs: list[Any], numbers: tuple[Any, ...], plan: Any) -> None:
    """The k largest or smallest, sorted."""
    dim, largest, k = plan.statics
    source = rows(inputs[0], dim)
    if not outputs[0].size:
        return
    keys = comparable(source)
    size = keys.shape[-1]
    if k * MOST > size or (keys.dtype.kind == "f" and np.isnan(keys).any()):
        store(outputs, source, order(keys, largest)[..., :k], dim)
        return
    chosen = best(keys, k, largest)
    ranked = order(np.take_along_axis(keys, chosen, -1), largest)
    store(outputs, source, np.take_along_axis(chosen, ranked, -1), dim)


def best(keys: np.ndarray, k: int, largest: bool) -> np.ndarray:
    """Places of the k best of each row in their order; of equals the first ones."""
    at = keys.shape[-1] - k if largest else k - 1
    edge = np.partition(keys, at, -1)[..., at:at + 1]
    better = keys > edge if largest else keys < edge
    equal = keys == edge
    missing = k - better.sum(-1, keepdims=True)
    better |= equal & (np.cumsum(equal, -1) <= missing)
    return np.nonzero(better)[-1].reshape(*keys.shape[:-1], k)


def kth(outputs: list[Any], inputs: list[Any], numbers: tuple[Any, ...], plan: Any) -> None:
    """Place and value of the k-th smallest; with ``nans`` the first nan where there is one."""
    dim, k, nans = plan.statics
    source = rows(inputs[0], dim)
    if not source.size:
        return
    keys = comparable(source)
    chosen = np.partition(keys, k - 1, -1)[..., k - 1:k]
    hits, below = keys == chosen, keys < chosen
    if keys.dtype.kind == "f":
        missing = np.isnan(keys)
        hits = np.where(np.isnan(chosen), missing, hits)
        below = np.where(np.isnan(chosen), ~missing, below)
    # Of equals the one that a stable sort has there.
    ranks = np.cumsum(hits, -1) * hits
    places = (ranks == k - below.sum(-1, keepdims=True)).argmax(-1)[..., None]
    if nans and keys.dtype.kind == "f":
        places = np.where(missing.any(-1, keepdims=True), missing.argmax(-1)[..., None], places)
    for out, found in zip(outputs, (places, np.take_along_axis(source, places, -1)), strict=True):
        out[...] = found.reshape(out.shape)


def searchsorted(outputs: list[Any], inputs: list[Any], numbers: tuple[Any, ...],
                 plan: Any) -> None:
    """For each value the place where it goes in its sorted row."""
    side, shared = plan.statics
    out, (table, values) = outputs[0], inputs[:2]
    table, values = comparable(table), comparable(values)
    if len(inputs) > 2:
        table = np.take_along_axis(table, inputs[2], -1)
    if shared:
        out[...] = found_places(table, values, side)
        return
    lead = table.shape[:-1]
    for place in np.ndindex(lead):
        out[place] = found_places(table[place], values[place], side)


def found_places(row: np.ndarray, values: np.ndarray, side: Any) -> Any:
    """NumPy's places; where there is nan, those of a bisection to which nan is no bound."""
    if row.dtype.kind != "f" or not (np.isnan(row).any() or np.isnan(values).any()):
        return np.searchsorted(row, values, side)
    low = np.zeros(values.shape, np.int64)
    high = np.full(values.shape, len(row), np.int64)
    for _ in range(len(row).bit_length()):
        middle, open_ = (low + high) // 2, low < high
        found = row[np.minimum(middle, len(row) - 1)]
        ahead = ~(found > values) if side == "right" else ~(found >= values)
        low = np.where(open_ & ahead, middle + 1, low)
        high = np.where(open_ & ~ahead, middle, high)
    return low

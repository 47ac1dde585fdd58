"""Batches out of samples, whatever is nested in them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any

import numpy as np

import slipstream as ss

# Kinds of NumPy arrays that no tensor holds: bytes, text, objects.
NOT_NUMBERS = "SUO"
REFUSED = ("default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; "
           "found {}")


def default_convert(data: Any) -> Any:
    """``data`` with the NumPy arrays and numbers in it made tensors; all else stays."""
    if isinstance(data, np.ndarray | np.generic):
        return data if data.dtype.kind in NOT_NUMBERS else ss.as_tensor(data)
    if isinstance(data, Mapping):
        return _like_mapping(data, {key: default_convert(data[key]) for key in data})
    if isinstance(data, tuple):
        parts = [default_convert(each) for each in data]
        return type(data)(*parts) if hasattr(data, "_fields") else parts
    if isinstance(data, Sequence) and not isinstance(data, str | bytes):
        return _like_sequence(data, [default_convert(each) for each in data])
    return data


def default_collate(batch: Any) -> Any:
    """One batch out of a list of samples: tensors stacked along a new first dimension.

    Numbers become tensors (floats float64), strings stay a list, mappings and sequences are
    collated entry by entry.  Raises TypeError for other types, RuntimeError for samples of
    different lengths or shapes.
    """
    return collate(batch, collate_fn_map=default_collate_fn_map)


def collate(batch: Any, *, collate_fn_map: dict[Any, Callable[..., Any]] | None = None) -> Any:
    """``default_collate`` with a table of functions by type, called with ``collate_fn_map``."""
    first = batch[0]
    table = collate_fn_map or {}
    function = table.get(type(first))
    if function is None:
        function = next((table[kind] for kind in table if isinstance(first, kind)), None)
    if function is not None:
        return function(batch, collate_fn_map=collate_fn_map)
    if isinstance(first, Mapping):
        return _like_mapping(first, {
            key: collate([each[key] for each in batch], collate_fn_map=collate_fn_map)
            for key in first})
    if isinstance(first, Sequence):
        return _columns(batch, collate_fn_map)
    raise TypeError(REFUSED.format(type(first)))


def _columns(batch: Any, table: Any) -> Any:
    """Collate sequences: the first entries of all samples, the second ones, ..."""
    first = batch[0]
    named = isinstance(first, tuple) and hasattr(first, "_fields")
    if not named and any(len(each) != len(first) for each in batch):
        raise RuntimeError("each element in list of batch should be of equal size")
    parts = [collate(each, collate_fn_map=table) for each in zip(*batch, strict=False)]
    if named:
        return type(first)(*parts)
    return parts if isinstance(first, tuple) else _like_sequence(first, parts)


def _like_mapping(example: Any, entries: dict[Any, Any]) -> Any:
    """A mapping of the example's type, with its other fields, or else a dict."""
    try:
        if not isinstance(example, MutableMapping):
            return type(example)(entries)
        made = copy.copy(example)
        made.update(entries)
    except TypeError:
        return entries
    return made


def _like_sequence(example: Any, entries: list[Any]) -> Any:
    try:
        if not isinstance(example, MutableSequence):
            return type(example)(entries)
        made = copy.copy(example)
        for place, each in enumerate(entries):
            made[place] = each
    except TypeError:
        return entries
    return made


def collate_tensor_fn(batch: Any, *, collate_fn_map: Any = None) -> Any:
    """Stack tensors of one shape."""
    return ss.stack(list(batch))


def collate_numpy_array_fn(batch: Any, *, collate_fn_map: Any = None) -> Any:
    """Stack arrays of numbers.  TypeError for other arrays."""
    if batch[0].dtype.kind in NOT_NUMBERS:
        raise TypeError(REFUSED.format(batch[0].dtype))
    return ss.stack([ss.as_tensor(each) for each in batch])


def collate_numpy_scalar_fn(batch: Any, *, collate_fn_map: Any = None) -> Any:
    """A tensor of NumPy's numbers, of their dtype."""
    return ss.as_tensor(np.asarray(batch))


def collate_float_fn(batch: Any, *, collate_fn_map: Any = None) -> Any:
    """A float64 tensor."""
    return ss.tensor(batch, dtype=ss.float64)


def collate_int_fn(batch: Any, *, collate_fn_map: Any = None) -> Any:
    """An int64 or bool tensor."""
    return ss.tensor(batch)


def collate_str_fn(batch: Any, *, collate_fn_map: Any = None) -> Any:
    """Text stays as it is."""
    return batch


default_collate_fn_map: dict[Any, Callable[..., Any]] = {
    ss.Tensor: collate_tensor_fn,
    np.ndarray: collate_numpy_array_fn,
    (np.bool_, np.number, np.object_): collate_numpy_scalar_fn,
    float: collate_float_fn,
    int: collate_int_fn,
    str: collate_str_fn,
    bytes: collate_str_fn,
}

"""Python's numbers, and lists of them, as arrays of the dtype that a new tensor has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from slipstream.core.dispatch.numbers import check_fits
from slipstream.core.dispatch.promotion import defaults, dtype_of_number
from slipstream.core.vocab import dtypes
from slipstream.core.vocab.dtypes import BY_NUMPY, DType
from slipstream.core.vocab.records import TensorBase

LARGEST = 2**63 - 1
# Python's own numbers; NumPy's float64 is a float too, but has a dtype of its own.
NUMBERS = frozenset((bool, int, float, complex))
# From here on doubles leave out whole numbers.
GAPS = 2.0**53


def array_of_data(data: Any, dtype: DType | None) -> np.ndarray:
    """Python values as an array of the dtype that the tensor will have."""
    if isinstance(data, (np.ndarray, np.generic)):
        array = np.asarray(data)
        if array.dtype == object:
            raise TypeError("can't convert np.ndarray of type numpy.object_.")
        return array if dtype is None else _cast_array(array, dtype)
    typed: list[Any] = []
    values = _plain(data, typed)
    try:
        if dtype is None:
            dtype = _promoted(data) if typed else _dtype_of(values)
        # Numbers out of range become infinite without a word, as everywhere.
        with np.errstate(all="ignore"):
            return _filled(values, dtype)
    except (ValueError, TypeError, OverflowError) as failure:
        raise _data_error(failure, dtype) from None


def _filled(values: Any, dtype: DType) -> np.ndarray:
    if dtype.category == 1:
        return _filled_with_integers(values, dtype)
    if dtype.category == 2 and np.array(values).dtype.kind == "c":
        raise TypeError("value cannot be converted from complex to float")
    return np.array(values, dtype=np.float64 if dtype.category == 2 else dtype.numpy).astype(
        dtype.numpy)


def _filled_with_integers(values: Any, dtype: DType) -> np.ndarray:
    """The values as integers, fractions cut off; an unsigned dtype wraps its negative ones."""
    wide = np.array(values)
    if not wide.size:
        return np.zeros(wide.shape, dtype.numpy)
    if wide.dtype == object or (wide.dtype.kind == "u" and (wide > LARGEST).any()):
        raise OverflowError("Overflow when unpacking long long")
    if wide.dtype.kind == "f" and not (np.abs(wide) < GAPS).all():
        # NumPy made doubles of integers that stand beside fractions: each is taken by itself.
        whole = np.frompyfunc(lambda value: _whole(value, dtype), 1, 1)
        return np.asarray(whole(np.array(values, dtype=object))).astype(np.int64).astype(
            dtype.numpy)
    if wide.dtype.kind in "fc":
        wide = np.trunc(wide.real)
    for extreme in (wide.min(), wide.max()):
        check_fits(dtype, extreme.item())
    return wide.astype(np.int64).astype(dtype.numpy)


def _whole(value: Any, dtype: DType) -> int:
    check_fits(dtype, value)
    return int(value)


def _data_error(failure: Exception, dtype: DType | None) -> Exception:
    text = str(failure)
    if "inhomogeneous" in text or "sequence" in text:
        return ValueError(f"expected sequence of equal length at every depth: {text}")
    if isinstance(failure, OverflowError):
        return ValueError(text)
    kind = "" if dtype is None else f"{dtype.name} "
    return TypeError(f"tensor(): cannot make a {kind}tensor of this data: {text}")


def _plain(data: Any, typed: list[Any]) -> Any:
    """Nested lists of numbers; ``typed`` gets what has a dtype of its own."""
    if type(data) in NUMBERS:
        return data
    if isinstance(data, (TensorBase, np.ndarray)):
        typed.append(data)
        return data.tolist()  # type: ignore[union-attr]  # the tensor's class is the API's
    if isinstance(data, np.generic):
        typed.append(data)
        return data
    if isinstance(data, (list, tuple, range)):
        return [_plain(each, typed) for each in data]
    if isinstance(data, (bool, int, float, complex)):
        return data
    if data is None or isinstance(data, (dict, set, frozenset)):
        # What PyTorch says of them; NumPy would make arrays of objects.
        raise RuntimeError(f"Could not infer dtype of {type(data).__name__}: tensor() takes "
                           "numbers, lists and arrays of them")
    if hasattr(data, "__cuda_array_interface__"):
        raise TypeError(f"tensor(): {type(data).__name__} is another library's memory of a card, "
                        "which is taken by DLPack alone\n  mend: from_dlpack(data)")
    if hasattr(data, "__array__") or hasattr(data, "__iter__"):
        return np.asarray(data).tolist()
    raise TypeError(f"tensor(): data of type {type(data).__name__} is no number, list or array")


def _promoted(data: Any) -> DType:
    """The dtype to which all are promoted, as if each were a tensor with dims."""
    result: DType | None = None
    for dtype in _own_dtypes(data):
        result = dtype if result is None else dtypes.promote(result, dtype)
    return result or defaults.dtype


def _own_dtypes(data: Any) -> Iterator[DType]:
    if isinstance(data, TensorBase):
        yield data.spec.dtype
    elif isinstance(data, (np.ndarray, np.generic)):
        found = BY_NUMPY.get(data.dtype)
        if found is None:
            raise TypeError(f"can't convert np.ndarray of type {data.dtype}.")
        yield found
    elif isinstance(data, (list, tuple, range)) and len(data):
        for each in data:
            yield from _own_dtypes(each)
    elif isinstance(data, (bool, int, float, complex)):
        yield dtype_of_number(data)
    else:
        yield _dtype_of(_plain(data, []))


def _dtype_of(values: Any) -> DType:
    if _is_empty(values):
        return defaults.dtype
    kind = np.array(values).dtype.kind
    if kind == "b":
        return dtypes.bool_
    if kind in "iu":
        return dtypes.int64
    if kind == "O":
        return dtypes.int64
    if kind == "f" and _are_integers(values):
        # NumPy makes floats of integers that no integer dtype of its own holds together.
        return dtypes.int64
    return defaults.dtype.to_complex() if kind == "c" else defaults.dtype


def _are_integers(values: Any) -> bool:
    if isinstance(values, list):
        return all(_are_integers(each) for each in values)
    return isinstance(values, (int, np.integer))


def _is_empty(values: Any) -> bool:
    while isinstance(values, list):
        if not values:
            return True
        values = values[0]
    return False


def _cast_array(array: np.ndarray, dtype: DType) -> np.ndarray:
    with np.errstate(all="ignore"):
        return array.astype(dtype.numpy)

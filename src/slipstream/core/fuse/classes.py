# cython: annotation_typing=False
"""Compute classes: how they combine, and which literals and dtypes belong to them.

A class is the arithmetic that a value is computed in; ``vocab.programs`` lists them.  Bools and
integers come before floats, floats before complex numbers; a combination moves up just far enough.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from slipstream.core.vocab import dtypes
from slipstream.core.vocab.dtypes import DType

Number = bool | int | float | complex

NUMPY: dict[str, np.dtype[Any]] = {
    "b1": np.dtype(np.bool_), "i64": np.dtype(np.int64), "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64), "c64": np.dtype(np.complex64), "c128": np.dtype(np.complex128),
}
C_TYPES = {
    "b1": "bool", "i64": "int64_t", "f32": "float", "f64": "double",
    "c64": "slip_c64", "c128": "slip_c128",
}
REAL_PARTS = {"c64": "f32", "c128": "f64"}
_CATEGORY = {"b1": 0, "i64": 1, "f32": 2, "f64": 2, "c64": 3, "c128": 3}
_DOUBLE = ("f64", "c128")
_NATURAL = {
    "b1": dtypes.bool_, "i64": dtypes.int64, "f32": dtypes.float32, "f64": dtypes.float64,
    "c64": dtypes.complex64, "c128": dtypes.complex128,
}


def natural_dtype(cls: str) -> DType:
    """The dtype that stores values of class ``cls`` without loss."""
    return _NATURAL[cls]


def category(cls: str) -> int:
    """Rank of the class's kind in promotion: bool 0, integer 1, float 2, complex 3."""
    return _CATEGORY[cls]


def promote(a: str, b: str) -> str:
    """The smallest class that holds the values of both, as PyTorch promotes tensors."""
    if _CATEGORY[a] < _CATEGORY[b]:
        a, b = b, a
    if _CATEGORY[a] < 2:
        return a
    wide = a in _DOUBLE or b in _DOUBLE
    if _CATEGORY[a] == 3:
        return "c128" if wide else "c64"
    return "f64" if wide else "f32"


def promote_weak(strong: str, weak: str) -> str:
    """The class of a value of class ``strong`` combined with a Python number of class ``weak``.

    The number gives way: only its kind counts, so a float beside an integer value gives f32.
    """
    if _CATEGORY[weak] <= _CATEGORY[strong]:
        return strong
    if _CATEGORY[weak] == 3:
        return "c128" if strong in _DOUBLE else "c64"
    return "f32" if _CATEGORY[weak] == 2 else "i64"


def class_of_number(value: Number) -> str:
    """The class in which Python itself computes with ``value``."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool):
        return "b1"
    if isinstance(value, int):
        return "i64"
    return "f64" if isinstance(value, float) else "c128"


def to_class(value: Number, cls: str) -> Any:
    """``value`` as a NumPy scalar of class ``cls``, with C's casts: integers wrap, nan is true.

    Raises OverflowError for an integer of more than 64 bits.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if cls == "b1":
        return np.bool_(value != 0)
    if cls in REAL_PARTS:
        return NUMPY[cls].type(value)
    if isinstance(value, complex):
        value = value.real
    if cls != "i64":
        return NUMPY[cls].type(value)
    if isinstance(value, float) and not abs(value) < 2.0**63:
        return np.int64(-(2**63))
    if not -(2**63) <= value < 2**64:
        raise OverflowError(f"int too big to convert: {value}")
    return np.int64((int(value) + 2**63) % 2**64 - 2**63)

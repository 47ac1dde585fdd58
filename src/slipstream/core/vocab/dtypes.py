"""Element types, and the lattice that promotes them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

CATEGORIES = ("bool", "int", "float", "complex")


class DType:
    """An element type, named as PyTorch names it.

    Fields: ``name``; ``itemsize`` in bytes; ``numpy``, the NumPy dtype of the same layout;
    ``kind`` (``bool``, ``int``, ``float`` or ``complex``); ``compute``, the class its arithmetic
    is done in; ``code``, its place in the list of dtypes; ``category``, the
    rank of its kind in promotion: bool 0, int 1, float 2, complex 3.
    """

    __slots__ = ("category", "code", "compute", "is_complex", "is_floating_point", "is_signed",
                 "itemsize", "kind", "name", "numpy")

    def __init__(self, name: str, kind: str, compute: str, scalar: type | str) -> None:
        self.name = name
        self.kind = kind
        self.category = CATEGORIES.index(kind)
        self.compute = compute
        self.numpy = np.dtype(scalar)
        self.itemsize = self.numpy.itemsize
        self.code = len(ALL)
        self.is_floating_point = kind == "float"
        self.is_complex = kind == "complex"
        self.is_signed = name not in ("bool", "uint8")
        ALL.append(self)
        BY_NAME[name] = self
        BY_NUMPY[self.numpy] = self

    def __repr__(self) -> str:
        return f"slipstream.{self.name}"

    def __reduce__(self) -> str:
        return "bool_" if self.name == "bool" else self.name

    def to_real(self) -> DType:
        """The float dtype of a complex dtype's parts; any other dtype itself."""
        return {"complex64": float32, "complex128": float64}.get(self.name, self)

    def to_complex(self) -> DType:
        """The complex dtype whose parts hold this float dtype."""
        return complex128 if self.name in ("float64", "complex128") else complex64


ALL: list[DType] = []
BY_NAME: dict[str, DType] = {}
BY_NUMPY: dict[np.dtype, DType] = {}

bool_ = DType("bool", "bool", "b1", "bool")
uint8 = DType("uint8", "int", "i64", "uint8")
int8 = DType("int8", "int", "i64", "int8")
int16 = DType("int16", "int", "i64", "int16")
int32 = DType("int32", "int", "i64", "int32")
int64 = DType("int64", "int", "i64", "int64")
float16 = DType("float16", "float", "f32", "float16")
bfloat16 = DType("bfloat16", "float", "f32", ml_dtypes.bfloat16)
float32 = DType("float32", "float", "f32", "float32")
float64 = DType("float64", "float", "f64", "float64")
complex64 = DType("complex64", "complex", "c64", "complex64")
complex128 = DType("complex128", "complex", "c128", "complex128")

# Other names that PyTorch has for the same dtypes.
ALIASES = {
    "half": float16, "float": float32, "double": float64, "short": int16, "int": int32,
    "long": int64, "cfloat": complex64, "cdouble": complex128,
}

# What the Python types of numbers stand for where a dtype is asked for.
PYTHON_TYPES: dict[Any, DType] = {bool: bool_, int: int64, float: float64, complex: complex128}

_INTS = (int8, int16, int32, int64)
_FLOATS = (float16, float32, float64)


def promote(a: DType, b: DType) -> DType:
    """The smallest dtype that holds both, by PyTorch's lattice for tensors of equal standing."""
    if a is b:
        return a
    if a.category != b.category:
        low, high = (a, b) if a.category < b.category else (b, a)
        if high.is_complex and low.name == "float64":
            return complex128
        return high
    if a.kind == "int":
        return _promote_ints(a, b)
    if a.kind == "float":
        return _promote_floats(a, b)
    return complex128


def _promote_ints(a: DType, b: DType) -> DType:
    if uint8 in (a, b):
        other = b if a is uint8 else a
        return int16 if other is int8 else other
    return _INTS[max(_INTS.index(a), _INTS.index(b))]


def _promote_floats(a: DType, b: DType) -> DType:
    if bfloat16 in (a, b):
        other = b if a is bfloat16 else a
        return float32 if other is float16 else other
    return _FLOATS[max(_FLOATS.index(a), _FLOATS.index(b))]


def spelled(dtype: Any) -> Any:
    """The dtype that a Python type of numbers stands for; other values as they are."""
    return PYTHON_TYPES.get(dtype, dtype) if isinstance(dtype, type) else dtype


def can_cast(source: DType, target: DType) -> bool:
    """Whether a result of dtype ``source`` may be written to a tensor of dtype ``target``."""
    return source.category <= target.category

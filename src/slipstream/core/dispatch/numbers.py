"""Python numbers that an op stores as they are: each has to fit the dtype that takes it."""

# The .pxd declares the C functions.
# mypy: disable-error-code="name-defined"

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cython
import ml_dtypes

from slipstream.core.vocab.dtypes import ALL, DType
from slipstream.core.vocab.records import Plan, TensorBase

# Whole numbers up to here are doubles, too.
EXACT = 1 << 53


def _range_of(dtype: DType) -> tuple[Any, Any] | None:
    """The least and the greatest number; None where every Python number has a place.

    As in PyTorch, an unsigned dtype takes negative numbers too, counted from its end downwards.
    """
    if dtype.kind == "int":
        info = ml_dtypes.iinfo(dtype.numpy)
        return (int(info.min) if dtype.is_signed else -int(info.max)), int(info.max)
    if dtype.kind == "float" and dtype.itemsize < 8:
        greatest = float(ml_dtypes.finfo(dtype.numpy).max)
        return -greatest, greatest
    return None


RANGES: dict[DType, tuple[Any, Any] | None] = {dtype: _range_of(dtype) for dtype in ALL}


def check_fits(dtype: DType, value: Any) -> None:
    """Raise RuntimeError for a number outside the dtype's range, also for an integer dtype's inf
    and nan; those of a float dtype are its own."""
    limits = RANGES[dtype]
    if limits is None or isinstance(value, complex) or limits[0] <= value <= limits[1]:
        return
    if dtype.kind == "float" and (value != value or value in (float("inf"), -float("inf"))):
        return
    raise RuntimeError(f"value cannot be converted to type {dtype.name} without overflow: {value}")


class StoredNumbers:
    """A plan's ``prepare``: its run-time numbers, once those that are stored are seen to fit.

    ``low`` and ``high``: what lies between them fits, whatever its type.
    """

    numbers: tuple[int, ...]
    stored: tuple[int, ...]
    dtype: DType
    least: Any
    greatest: Any
    low: float
    high: float

    def __init__(self, numbers: tuple[int, ...], stored: tuple[int, ...], dtype: DType) -> None:
        self.numbers = numbers
        self.stored = stored
        self.dtype = dtype
        self.least, self.greatest = RANGES[dtype]  # type: ignore[misc]  # not None: see guard
        narrow = dtype.kind == "int"
        self.low = float(max(self.least, -EXACT) if narrow else self.least)
        self.high = float(min(self.greatest, EXACT) if narrow else self.greatest)

    def __call__(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """The numbers of a call."""
        return self.of(values)

    def of(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """The numbers of a call."""
        place: cython.Py_ssize_t
        for stored in self.stored:
            place = stored
            if not self.fits(values[place]):
                check_fits(self.dtype, values[place])
        if len(self.numbers) == 1:
            place = self.numbers[0]
            return (values[place],)
        return tuple([values[place] for place in self.numbers])

    def fits(self, value: Any) -> bool:
        """Whether a number lies in the dtype's range."""
        number: cython.double
        if cython.compiled and type(value) is float:
            number = value
            if self.low <= number <= self.high:
                return True
        elif cython.compiled and type(value) is int:
            over: cython.int = 0
            whole: cython.longlong = PyLong_AsLongLongAndOverflow(  # noqa: F821
                value, cython.address(over))
            if not over and -EXACT <= whole <= EXACT:
                number = cython.cast(cython.double, whole)
                if self.low <= number <= self.high:
                    return True
        return bool(self.least <= value <= self.greatest)


def guard(plan: Plan, names: tuple[str, ...], values: Sequence[Any], dtype: DType) -> None:
    """Have the numbers that an entry's ``stores`` names looked at in every call of a plan."""
    op: Any = plan.op
    places = [op.names.index(name) for name in names]
    stored = tuple([place for place in places
                    if place in plan.numbers and not isinstance(values[place],
                                                                (complex, TensorBase))])
    if stored and plan.prepare is None and RANGES[dtype] is not None:
        plan.prepare = StoredNumbers(plan.numbers, stored, dtype)

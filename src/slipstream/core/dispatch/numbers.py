"""Python numbers that an op stores as they are: each has to fit the dtype that takes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes

from slipstream.core.vocab.dtypes import ALL, DType
from slipstream.core.vocab.records import Plan, TensorBase


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
    """A plan's ``prepare``: its run-time numbers, once those that are stored are seen to fit."""

    def __init__(self, numbers: tuple[int, ...], stored: tuple[int, ...], dtype: DType) -> None:
        self.numbers = numbers
        self.stored = stored
        self.dtype = dtype
        self.least, self.greatest = RANGES[dtype]  # type: ignore[misc]  # not None: see guard

    def __call__(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """The numbers of a call."""
        for place in self.stored:
            if not self.least <= values[place] <= self.greatest:
                check_fits(self.dtype, values[place])
        return tuple([values[place] for place in self.numbers])


def guard(plan: Plan, names: tuple[str, ...], values: Sequence[Any], dtype: DType) -> None:
    """Have the numbers that an entry's ``stores`` names looked at in every call of a plan."""
    op: Any = plan.op
    places = [op.names.index(name) for name in names]
    stored = tuple([place for place in places
                    if place in plan.numbers and not isinstance(values[place],
                                                                (complex, TensorBase))])
    if stored and plan.prepare is None and RANGES[dtype] is not None:
        plan.prepare = StoredNumbers(plan.numbers, stored, dtype)

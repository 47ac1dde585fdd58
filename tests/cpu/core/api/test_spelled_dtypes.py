"""Python's types of numbers in the place of dtypes, as PyTorch takes them."""

from __future__ import annotations

from typing import Any

import pytest

import slipstream as ss

TYPES = {bool: ss.bool, int: ss.int64, float: ss.float64, complex: ss.complex128}


@pytest.mark.parametrize("given", TYPES)
@pytest.mark.parametrize("make", [
    lambda given: ss.zeros(2, dtype=given), lambda given: ss.full((2,), 1, dtype=given),
    lambda given: ss.ones_like(ss.ones(2), dtype=given),
    lambda given: ss.ones(2).new_zeros(2, dtype=given), lambda given: ss.eye(2, dtype=given),
    lambda given: ss.ones(2).to(given), lambda given: ss.ones(2).to(dtype=given),
    lambda given: ss.ones(2).sum(dtype=given), lambda given: ss.tensor([1], dtype=given),
])
def test_a_type_stands_for_a_dtype(make: Any, given: type) -> None:
    assert make(given).dtype is TYPES[given]


def test_a_type_stands_for_a_dtype_elsewhere() -> None:
    assert ss.promote_types(int, float) is ss.float64
    assert ss.finfo(float).bits == 64
    assert ss.iinfo(int).bits == 64
    assert ss.can_cast(int, float)
    assert ss.nn.Linear(2, 2).to(float).weight.dtype is ss.float64
    assert ss.nn.Linear(2, 2, dtype=float).weight.dtype is ss.float64


@pytest.mark.parametrize("wrong", [str, object, 3.0, [int]])
def test_other_values_are_refused(wrong: Any) -> None:
    for make in (lambda: ss.zeros(2, dtype=wrong), lambda: ss.ones(2).to(dtype=wrong)):
        with pytest.raises(TypeError, match="dtype"):
            make()
    with pytest.raises(TypeError):
        ss.ones(2).to(wrong)

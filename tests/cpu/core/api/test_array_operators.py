"""Operators between tensors and NumPy arrays: tensors, with NumPy's dtypes, in either order."""

from __future__ import annotations

import operator

import numpy as np
import pytest

import slipstream as ss

ARITHMETIC = [operator.add, operator.sub, operator.mul, operator.truediv, operator.pow,
              operator.floordiv, operator.mod]
COMPARISONS = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]
WHOLE = [operator.and_, operator.or_, operator.xor]
A, B = np.array([[5.0, 2.0], [3.0, 7.0]]), np.array([[2.0, 2.0], [1.5, 3.0]])
NAMES = {"ids": lambda each: getattr(each, "__name__", str(each))}


def same(got, wanted):
    assert isinstance(got, ss.Tensor)
    assert got.numpy().dtype == wanted.dtype
    assert np.array_equal(got.numpy(), wanted)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int8], **NAMES)
@pytest.mark.parametrize("op", [*ARITHMETIC, *COMPARISONS, operator.matmul], **NAMES)
def test_either_order(op, dtype):
    mine, array = A.astype(dtype), B.astype(np.float64)
    same(op(ss.from_numpy(mine), array), op(mine, array))
    same(op(array, ss.from_numpy(mine)), op(array, mine))


@pytest.mark.parametrize("op", WHOLE, **NAMES)
def test_bits_in_either_order(op):
    mine, array = np.array([5, 2]), np.array([3, 6], np.int32)
    same(op(ss.from_numpy(mine), array), op(mine, array))
    same(op(array, ss.from_numpy(mine)), op(array, mine))


def test_arrays_without_dims_and_of_other_shapes():
    same(ss.ones(2) + np.array(2.0), np.ones(2, np.float32) + np.array(2.0))
    same(np.array(2.0) + ss.ones(2), np.array(2.0) + np.ones(2, np.float32))
    same(np.ones((3, 1)) * ss.ones(2), np.ones((3, 2)))


@pytest.mark.parametrize("op", [operator.add, operator.mul, operator.lt, operator.pow], **NAMES)
def test_numpy_numbers_are_numbers(op):
    for number in (np.float64(2), np.float32(2), np.int64(2)):
        for got in (op(ss.ones(2), number), op(number, ss.ones(2))):
            assert got.dtype is (ss.bool if op is operator.lt else ss.float32)


def test_functions_of_numpy_give_tensors():
    same(np.add(A, ss.from_numpy(B)), A + B)
    same(np.sin(ss.ones(2)), np.sin(np.ones(2, np.float32)))


def test_in_place_makes_a_new_tensor():
    before = after = ss.ones(2)
    after += np.ones(2)
    assert before.tolist() == [1.0, 1.0]
    same(after, np.full(2, 2.0))


def test_what_numpy_cannot_compute_is_refused():
    leaf = ss.ones(2, requires_grad=True)
    for op in (operator.add, operator.lt):
        for sides in ((leaf, np.ones(2)), (np.ones(2), leaf)):
            with pytest.raises(RuntimeError, match="requires grad"):
                op(*sides)
    elsewhere = ss.ones(2, device="delay")
    for sides in ((elsewhere, np.ones(2)), (np.ones(2), elsewhere)):
        with pytest.raises(TypeError, match=r"Tensor\.cpu"):
            operator.sub(*sides)
    with pytest.raises(ValueError, match="broadcast"):
        np.ones(3) + ss.ones(2)
    with pytest.raises(TypeError):
        np.array(["a"]) + ss.ones(1)


def test_strangers_are_still_refused():
    for op in (operator.add, operator.lt, operator.matmul):
        for stranger in ("a", None, object()):
            with pytest.raises(TypeError):
                op(ss.ones(2), stranger)
            with pytest.raises(TypeError):
                op(stranger, ss.ones(2))
    assert (ss.ones(2) == "a") is False
    assert (ss.ones(2) != None) is True  # noqa: E711

"""Slopes and signs at the places where arithmetic has none of its own: nan, zeros, ties."""

from __future__ import annotations

import math
import operator
from typing import Any

import pytest

import slipstream as ss

NAN = math.nan


def slopes(function, *operands):
    """The gradients of the results' sum."""
    leaves = [ss.tensor(each, requires_grad=True) for each in operands]
    return [each.tolist() for each in ss.autograd.grad(function(*leaves).sum(), leaves)]


def test_the_gradient_reaches_a_nan():
    # As in PyTorch: a nan in the activations is not hidden behind a slope of 0.
    assert slopes(ss.relu, [NAN, 1.0, -1.0, 0.0]) == [[1, 1, 0, 0]]


@pytest.mark.parametrize("function", [ss.maximum, ss.minimum])
def test_beside_a_nan_nobody_loses(function):
    first, second = slopes(function, [NAN, 1.0, 2.0, 5.0], [1.0, NAN, 2.0, 7.0])
    assert first[:3] == second[:3] == [1, 1, 0.5]
    assert sorted([first[3], second[3]]) == [0, 1]


def test_the_origin_has_no_steepest_direction():
    first, second = slopes(ss.atan2, [0.0, 1.0, 0.0], [0.0, 0.0, 2.0])
    assert first == [0, 0, 0.5]
    assert second == [0, -1, 0]


def test_the_second_slope_of_atan2_at_the_origin_is_a_number():
    x = ss.tensor([0.0, 1.0], dtype=ss.float64, requires_grad=True)
    y = ss.tensor([0.0, 2.0], dtype=ss.float64, requires_grad=True)
    first, = ss.autograd.grad(ss.atan2(x, y).sum(), x, create_graph=True)
    second = ss.autograd.grad(first.sum(), [x, y])
    assert [each.tolist() for each in second] == [[0, pytest.approx(-0.16)],
                                                  [0, pytest.approx(-0.12)]]


@pytest.mark.parametrize("dtype", [ss.float32, ss.float64, ss.float16, ss.bfloat16])
@pytest.mark.parametrize("size", [1, 40])
@pytest.mark.parametrize("function", [ss.tanh, ss.sin, ss.erf, ss.tan, ss.asin, ss.atan, ss.expm1,
                                      ss.log1p, ss.sinh, ss.sqrt, ss.ceil, ss.trunc, ss.round])
def test_the_sign_of_zero_is_kept(function, size, dtype):
    result = function(ss.full((size,), -0.0, dtype=dtype)).double().tolist()
    assert [math.copysign(1, each) for each in result] == [-1] * size
    result = function(ss.full((size,), 0.0, dtype=dtype)).double().tolist()
    assert [math.copysign(1, each) for each in result] == [1] * size


@pytest.mark.parametrize("op", [ss.add, ss.sub])
@pytest.mark.parametrize("alpha", [1, 2.5, 2j])
@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("create_graph", [False, True])
def test_the_gradient_of_what_is_added_alpha_times(op: Any, alpha: Any, both: bool,
                                                   create_graph: bool) -> None:
    first = ss.ones(2, dtype=ss.complex64, requires_grad=both)
    second = ss.ones(2, dtype=ss.complex64, requires_grad=True)
    total = op(first, second, alpha=alpha).real.sum()
    (found,) = ss.autograd.grad(total, second, create_graph=create_graph)
    # The gradient of what is real is conjugate.
    wanted = complex(alpha).conjugate() * (1 if op is ss.add else -1)
    assert found.tolist() == [wanted] * 2


@pytest.mark.parametrize("dtype", [ss.float16, ss.bfloat16])
def test_comparisons_find_what_was_stored(dtype: Any) -> None:
    # NumPy's own: an array of 16 bits and a Python number meet in 16 bits.
    numbers = [0.1, 0.3, 257, 2049, -1 / 3, 6e-8, 65000.0, True, 1e6, -math.inf, math.nan, 0]
    stored = ss.tensor([each if abs(each) < 65504 else 0.0 for each in numbers], dtype=dtype)
    array = stored.to(ss.float64).numpy()
    for number in numbers:
        held = ss.tensor([number], dtype=ss.float32).to(dtype).to(ss.float64).item()
        for name in ("eq", "ne", "lt", "le", "gt", "ge"):
            wanted = getattr(operator, name)(array, held).tolist()
            for other in (number, ss.tensor(number), ss.tensor(number, dtype=ss.float64),
                          ss.full((1,), number) if type(number) is int else number):
                assert getattr(stored, name)(other).tolist() == wanted, (name, number, other)
                assert getattr(operator, name)(stored, other).tolist() == wanted
        many = ss.full((4000,), held, dtype=ss.float32).to(dtype)
        assert (many == number).all().item() == (number == number)
    # What is wider stays so.
    assert not stored[:1].eq(ss.tensor([0.1])).item()
    assert not stored[0].eq(ss.tensor([0.1])).item()
    assert (stored[0] == 0.1).item()

"""Scans and products whose gradients meet zeros."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import slipstream as ss

ZEROS = ([5.0, 0.0, 2.0, 7.0], [0.0, 0.0, 4.0], [0.0], [3.0, 5.0, 0.0, 0.0], [1.0, 2.0, 3.0])


def slopes(row: list[float], function: Any) -> list[float]:
    x = ss.tensor(row, dtype=ss.float64, requires_grad=True)
    function(x).backward()
    return x.grad.tolist()


@pytest.mark.parametrize("row", ZEROS)
def test_the_slope_of_a_product_is_that_of_the_others(row: list[float]) -> None:
    wanted = [float(np.prod(row[:place] + row[place + 1:])) for place in range(len(row))]
    assert slopes(row, lambda x: x.prod()) == wanted
    assert slopes(row, lambda x: x.prod(0)) == wanted


@pytest.mark.parametrize("row", ZEROS)
def test_the_slope_of_running_products(row: list[float]) -> None:
    size = len(row)
    wanted = [sum(float(np.prod([row[j] for j in range(k + 1) if j != i])) for k in range(i, size))
              for i in range(size)]
    assert slopes(row, lambda x: x.cumprod(0).sum()) == wanted


@pytest.mark.parametrize("row", ZEROS)
def test_second_derivatives_at_zeros(row: list[float]) -> None:
    x = ss.tensor(row, dtype=ss.float64, requires_grad=True)
    for function in (lambda x: x.prod(), lambda x: x.cumprod(0)):
        assert ss.autograd.gradgradcheck(function, (x,))


def test_long_recurrences() -> None:
    random = np.random.RandomState(0)
    g, a = random.randn(3, 100), random.uniform(-1, 1, (3, 100))
    x = ss.tensor(a, requires_grad=True)
    x.cumprod(1).backward(ss.tensor(g))
    wanted = np.zeros_like(g)
    for i in range(100):
        before = np.prod(a[:, :i], 1)
        total, product = np.zeros(3), np.ones(3)
        for k in range(i, 100):
            product = product * (a[:, k] if k > i else 1)
            total += g[:, k] * product
        wanted[:, i] = before * total
    np.testing.assert_allclose(x.grad.numpy(), wanted, rtol=1e-9, atol=1e-12)


def test_dtypes_and_forms() -> None:
    bytes_ = ss.tensor([200, 100], dtype=ss.uint8)
    assert bytes_.cumsum(0).tolist() == [200, 300]
    assert bytes_.cumsum(0).dtype == ss.int64
    small = ss.tensor([100, 100], dtype=ss.int8)
    assert small.cumsum_(0).tolist() == [100, -56]
    with pytest.raises(RuntimeError, match="Bool"):
        ss.tensor([True]).cumsum_(0)
    assert ss.tensor([1, 2]).cumsum(0, dtype=ss.float64).dtype == ss.float64
    out = ss.empty(3)
    ss.cumsum(ss.ones(3), 0, out=out)
    assert out.tolist() == [1, 2, 3]


def test_running_extrema() -> None:
    values, indices = ss.tensor([2.0, 7.0, 7.0, 1.0, float("nan"), 9.0]).cummax(0)
    assert values.tolist()[:4] == [2, 7, 7, 7]
    assert indices.tolist() == [0, 1, 2, 2, 4, 4]
    assert bool(values[4:].isnan().all())


def test_a_long_sum_keeps_its_digits() -> None:
    x = ss.full((1 << 17,), 0.1)
    exact = np.cumsum(x.numpy().astype(np.float64))
    np.testing.assert_allclose(x.cumsum(0).numpy(), exact, rtol=1e-7)

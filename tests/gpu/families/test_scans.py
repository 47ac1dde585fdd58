"""Scans: a thread a line, a block a line, tiles of a line; every layout and dtype."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import slipstream as ss
from gpu.families.sides import COMPLEX, FLOATS, INTEGERS, check, numbers, tensor
from slipstream.core.catalog.table import ops

# Shapes and dims: lines by threads, one line of one tile and of several, many lines with a block
# each, an axis that is not the last, and nothing.
SHAPES = (((), 0), ((1,), 0), ((50,), 0), ((100,), -1), ((5000,), 0), ((3, 2100), 1),
          ((300, 70), 1), ((70, 300), 0), ((3, 90, 4), 1), ((5, 0), 1), ((0, 5), 1))
# Sums by tiles are taken in another order than the CPU's.
ULPS = 32.0


def scans(x: Any, dim: int) -> list[Any]:
    """The scans of a tensor; products of numbers near one."""
    found = [x.cumsum(dim)]
    if x.dtype in FLOATS:
        found += [(x * 0.01 + 1.0).cumprod(dim), x.logcumsumexp(dim)]
    return found


@pytest.mark.parametrize(("shape", "dim"), SHAPES)
def test_shapes(shape: tuple[int, ...], dim: int) -> None:
    check(lambda device: scans(tensor(numbers(1, shape), device), dim), ULPS)
    check(lambda device: tensor(numbers(2, shape, ss.int64), device).cumsum(dim))
    for values in (numbers(3, shape), numbers(3, shape, ss.int32)):
        check(lambda device, x=values: tensor(x, device).cummax(dim))
        check(lambda device, x=values: tensor(x, device).cummin(dim))


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS, *COMPLEX, ss.bool], ids=str)
@pytest.mark.parametrize("length", [20, 400])
def test_dtypes(dtype: Any, length: int) -> None:
    values = numbers(4, (3, length), dtype)
    check(lambda device: tensor(values, device).cumsum(1), ULPS)
    check(lambda device: (tensor(values, device) * 0 + 1).cumprod(1), ULPS)
    if dtype not in COMPLEX and dtype is not ss.bool:
        check(lambda device: tensor(values, device).cummax(1))
    if dtype in INTEGERS:
        check(lambda device: tensor(values, device).cumsum(1, dtype=ss.float64), ULPS)
        check(lambda device: tensor(values, device).cumsum_(1))


@pytest.mark.parametrize("shape", [(4, 30), (4, 600), (1, 5000)])
def test_layouts(shape: tuple[int, int]) -> None:
    values = numbers(5, (shape[0], 2 * shape[1]))
    for view in (lambda x: x[:, ::2], lambda x: x.t(), lambda x: x[:, 1:], lambda x: x.flip(1)):
        for dim in (0, 1):
            check(lambda device, v=view, d=dim: v(tensor(values, device)).cumsum(d), ULPS)
            check(lambda device, v=view, d=dim: v(tensor(values, device)).cummin(d))
    out = ss.zeros(shape[0], 4 * shape[1], device="cuda")[:, ::2]
    found = ss.cumsum(tensor(values, "cuda"), 1, out=out)
    assert found is out
    np.testing.assert_allclose(out.cpu().numpy(), values.cumsum(1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("length", [9, 300, 4500])
def test_nan_and_infinity(length: int) -> None:
    values = numbers(6, (2, length))
    values[0, length // 2] = np.nan
    values[1, length // 3] = np.inf
    values[1, length // 3 + 1] = -np.inf
    check(lambda device: scans(tensor(values, device), 1), ULPS)
    for name in ("cummax", "cummin"):
        check(lambda device, n=name: getattr(tensor(values, device), n)(1))


@pytest.mark.parametrize("length", [30, 500, 3000])
@pytest.mark.parametrize("dtype", [ss.float32, ss.float64, ss.complex128], ids=str)
def test_recurrences(length: int, dtype: Any) -> None:
    terms, factors = numbers(7, (2, length), dtype), numbers(8, (2, length), dtype) * 0.3
    factors = factors.astype(dtype.numpy)
    wanted = np.zeros((2, length), np.complex128)
    total = np.zeros(2, np.complex128)
    for place in range(length - 1, -1, -1):
        total = terms[:, place] + factors[:, place] * total
        wanted[:, place] = total
    found = ops.linear_recurrence.call((tensor(terms, "cuda"), tensor(factors, "cuda"), 1), None)
    np.testing.assert_allclose(found.cpu().numpy(), wanted if dtype.is_complex else wanted.real,
                               rtol=1e-5, atol=1e-5)


def test_gradients() -> None:
    values = numbers(9, (2, 400)) * 0.01 + 1.0

    def slopes(device: str) -> list[Any]:
        found = []
        for name in ("cumsum", "cumprod", "logcumsumexp"):
            x = tensor(values, device).requires_grad_()
            getattr(x, name)(1).sum().backward()
            found.append(x.grad)
        x = tensor(values, device).requires_grad_()
        x.cummax(1).values.sum().backward()
        return [*found, x.grad]

    check(slopes, 64.0)


def test_the_same_bits_again() -> None:
    x = tensor(numbers(10, (6000,)), "cuda")
    first = x.cumsum(0).cpu()
    assert all(ss.equal(x.cumsum(0).cpu(), first) for _ in range(3))

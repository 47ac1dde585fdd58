"""Masks as indices, over several tiles of positions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import slipstream as ss
from gpu.families.sides import DTYPES, check, numbers, shifted, tensor

SHAPES = ((), (0, 3), (7,), (5, 6), (4096,), (3, 1365), (2, 3, 1700), (9000,))


@pytest.mark.parametrize("shape", SHAPES)
def test_shapes(shape: tuple[int, ...]) -> None:
    x = numbers(1, shape)

    def call(device: str) -> Any:
        value = tensor(x, device)
        mask = value > 1.0
        out = ss.zeros_like(value)
        out[mask] = value[mask] * 2.0 if value.ndim else 3.0
        return (mask.nonzero(), *mask.nonzero(as_tuple=True), ss.masked_select(value, mask),
                value.masked_scatter(mask, value.reshape(-1)), out)

    check(call)


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(dtype: Any) -> None:
    x, mask = numbers(2, (6, 5), dtype), numbers(3, (6, 5)) > 0

    def call(device: str) -> Any:
        value, where = tensor(x, device), tensor(mask, device)
        return value[where], value.nonzero(), value.masked_scatter(where, value)

    check(call)


def test_layouts_and_gradients() -> None:
    x, mask = numbers(4, (6, 7)), numbers(5, (6, 7)) > 0

    def call(device: str) -> Any:
        value = shifted(x, device).requires_grad_(True)
        where = shifted(mask, device)
        out = value.t()[where.t()]
        out.backward(tensor(numbers(6, int(mask.sum())), device))
        return (out, value.grad, where.t().nonzero(), value.detach().flip(0)[where.flip(1)],
                value.detach()[:, ::2][where[:, ::2]])

    check(call)


def test_all_and_none() -> None:
    def call(device: str) -> Any:
        x = tensor(numbers(7, (70, 70)), device)
        return x[x < 9.0], x[x > 9.0], (x < 9.0).nonzero(), (x > 9.0).nonzero()

    check(call)


def test_rows_by_a_mask() -> None:
    x, mask = numbers(8, (5, 4)), np.array([True, False, True, True, False])

    def call(device: str) -> Any:
        value, where = tensor(x, device), tensor(mask, device)
        read = value[where]
        value[where, 1] = 5.0
        return read, value

    check(call)

"""Pooling: the largest pixels, their places, and the gradient at these places."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import slipstream as ss
from gpu.families.sides import FLOATS, INTEGERS, check, numbers, shifted, tensor

CASES: list[tuple[Any, Any, dict[str, Any]]] = [
    ((2, 3, 6, 5), 2, {}), ((3, 7, 7), 3, {"stride": 2, "padding": 1}),
    ((1, 2, 8, 7), (3, 2), {"stride": (2, 1), "dilation": (1, 2), "ceil_mode": True}),
    ((2, 2, 12, 14), 3, {"stride": 1, "padding": 1}), ((0, 2, 4, 4), 2, {}),
]


@pytest.mark.parametrize("case", CASES)
def test_values_places_and_gradients(case: Any) -> None:
    shape, kernel, window = case

    def call(device: str) -> Any:
        x = tensor(numbers(1, shape), device).requires_grad_(True)
        out, places = ss.nn.functional.max_pool2d(x, kernel, return_indices=True, **window)
        out.backward(tensor(numbers(2, out.shape), device))
        return out, places, x.grad

    # The CPU adds pixels in double.
    check(call, 4.0)


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS])
def test_dtypes(dtype: Any) -> None:
    x = numbers(3, (2, 7, 6), dtype)
    check(lambda device: ss.nn.functional.max_pool2d(
        tensor(x, device), 3, 2, 1, return_indices=True))


def test_nan_wins_and_the_first_of_equals() -> None:
    x = np.round(numbers(4, (2, 8, 8)))
    x[0, 3, 3] = x[1, 0, 7] = np.nan
    x[1, 4:6, 4:6] = -np.inf
    check(lambda device: ss.nn.functional.max_pool2d(
        tensor(x, device), 2, return_indices=True))


def test_layouts() -> None:
    x = numbers(5, (2, 3, 8, 8))

    def call(device: str) -> Any:
        pool = ss.nn.functional.max_pool2d
        last = tensor(x, device).contiguous(memory_format=ss.channels_last).requires_grad_(True)
        out = pool(last, 3, 2)
        out.backward(ss.ones_like(out))
        turned = tensor(x, device).flip(2).transpose(2, 3).requires_grad_(True)
        other = pool(turned, 2)
        other.sum().backward()
        return out, last.grad, other, turned.grad, pool(shifted(x, device), 2)

    check(call, 4.0)


def test_many_windows_that_share_pixels() -> None:
    # Lines of more windows than look at each other, and more comparisons than ranking is for.
    x = np.round(numbers(6, (3, 70, 71)))

    def call(device: str) -> Any:
        leaf = tensor(x, device).requires_grad_(True)
        out = ss.nn.functional.max_pool2d(leaf, 3, 1)
        out.backward(tensor(numbers(7, out.shape), device))
        return leaf.grad

    check(call, 4.0)

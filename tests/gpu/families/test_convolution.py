"""Convolutions and both gradients: groups, strides, padding, dilation, layouts, dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import slipstream as ss
from gpu.families.sides import FLOATS, check, numbers, shifted, tensor

ULPS = 64.0
# Images, weight, and the window.
CASES: list[tuple[Any, Any, dict[str, Any]]] = [
    ((2, 3, 6, 5), (4, 3, 3, 2), {}),
    ((2, 4, 7, 7), (6, 2, 3, 3), {"stride": 2, "padding": (1, 2), "groups": 2}),
    ((3, 5, 6), (2, 3, 2, 3), {"padding": "same", "dilation": (1, 2)}),
    ((1, 6, 9, 8), (6, 1, 3, 3), {"groups": 6, "padding": 1}),
    ((2, 2, 9, 10), (3, 2, 3, 2), {"stride": (2, 3), "dilation": (2, 1), "padding": (3, 0)}),
    ((20, 4, 8, 8), (30, 4, 3, 3), {"padding": 1}),
    ((2, 70, 4, 4), (70, 70, 1, 1), {}),
    ((0, 3, 6, 5), (4, 3, 3, 2), {}),
]


def case(number: int, dtype: Any = ss.float32) -> Any:
    """Images, weight, bias and window of a case."""
    images, weight, window = CASES[number]
    return (numbers(1, images, dtype), numbers(2, weight, dtype), numbers(3, weight[0], dtype),
            window)


@pytest.mark.parametrize("number", range(len(CASES)))
def test_forward_and_gradients(number: int) -> None:
    *arrays, window = case(number)

    def call(device: str) -> Any:
        leaves = [tensor(array, device).requires_grad_(True) for array in arrays]
        out = ss.nn.functional.conv2d(*leaves, **window)
        out.backward(tensor(numbers(4, out.shape), device))
        return out, *[leaf.grad for leaf in leaves]

    check(call, ULPS)


@pytest.mark.parametrize("dtype", [ss.int64, *FLOATS, ss.complex64])
def test_dtypes(dtype: Any) -> None:
    images, weight, bias, window = case(1, dtype)
    # Narrow floats: the CPU adds the bias to what it has not rounded, in parts of the sum.
    check(lambda device: ss.nn.functional.conv2d(
        tensor(images, device), tensor(weight, device), tensor(bias, device), **window), ULPS)


def test_layouts() -> None:
    images, weight, bias, _window = case(0)

    def call(device: str) -> Any:
        x, w, b = tensor(images, device), tensor(weight, device), tensor(bias, device)
        conv = ss.nn.functional.conv2d
        last = x.contiguous(memory_format=ss.channels_last).requires_grad_(True)
        out = conv(last, w, b)
        out.backward(ss.ones_like(out))
        return (out, last.grad, conv(x.flip(2), w.flip(3), b.flip(0)),
                conv(shifted(images, device), shifted(weight, device), shifted(bias, device)),
                conv(x[..., ::2], w[:, :, ::2]))

    check(call, ULPS)


def test_second_gradients() -> None:
    images, weight, _, window = case(1, ss.float64)

    def call(device: str) -> Any:
        x = tensor(images, device).requires_grad_(True)
        w = tensor(weight, device).requires_grad_(True)
        out = ss.nn.functional.conv2d(x, w, **window)
        first = ss.autograd.grad((out * out).sum(), (x, w), create_graph=True)
        total = sum((each * each).sum() for each in first)
        return ss.autograd.grad(total, (x, w))

    check(call, 1024.0)


def test_the_gradient_of_the_weight_is_always_the_same() -> None:
    # The sum over all windows is cut in parts.
    images, grad = numbers(5, (30, 3, 12, 12)), numbers(6, (30, 4, 10, 10))

    def once(make: Any) -> np.ndarray:
        w = ss.zeros(4, 3, 3, 3, device="cuda", requires_grad=True)
        ss.nn.functional.conv2d(make(images, "cuda"), w).backward(make(grad, "cuda"))
        found: np.ndarray = w.grad.cpu().numpy()
        return found

    np.testing.assert_array_equal(once(tensor), once(shifted))

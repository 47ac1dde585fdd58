"""Gradients where operands or numbers are complex, by finite differences of both parts.

The gradient of a real loss L by z = x + iy is dL/dx + i dL/dy, as in PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import slipstream as ss

STEP = 1e-6
A, B = 2 - 1j, 0.3 + 0.7j
RANDOM = np.random.RandomState(11)


def some(*shape: int) -> np.ndarray:
    return RANDOM.randn(*shape) + 1j * RANDOM.randn(*shape)


def real(*shape: int) -> np.ndarray:
    return RANDOM.rand(*shape) + 0.5


def loss(function: Callable[..., Any], arrays: list[np.ndarray], seed: np.ndarray) -> float:
    with ss.no_grad():
        found = function(*[ss.tensor(array) for array in arrays]).numpy()
    return float(np.real(np.sum(found * np.conj(seed))))


def numeric(function: Callable[..., Any], arrays: list[np.ndarray], seed: np.ndarray,
            place: int) -> np.ndarray:
    slope = np.zeros_like(arrays[place])
    for at in np.ndindex(slope.shape):
        for direction in (1, 1j) if np.iscomplexobj(slope) else (1,):
            ends = []
            for step in (STEP, -STEP):
                moved = [array.copy() for array in arrays]
                moved[place][at] += direction * step
                ends.append(loss(function, moved, seed))
            slope[at] += direction * (ends[0] - ends[1]) / (2 * STEP)
    return slope


X, Y, Z, R = some(3), some(3), some(3), real(3)
CASES: dict[str, tuple[Callable[..., Any], list[np.ndarray]]] = {
    "add": (lambda x, y: ss.add(x, y, alpha=A), [X, Y]),
    "sub": (lambda x, y: ss.sub(x, y, alpha=A), [R, Y]),
    "mul": (lambda x: A * x, [X]),
    "mul of a real": (lambda x, y: x * y * A, [R, Y]),
    "div": (lambda x, y: x / y, [X, Y]),
    "div by a number": (lambda x: x / A, [X]),
    "div of a number": (lambda x: A / x, [R]),
    "pow": (lambda x, y: x ** y, [X, Y]),
    "pow to a number": (lambda x: x ** A, [X]),
    "pow of a number": (lambda x: A ** x, [X]),
    "pow of a real": (lambda x, y: x ** y, [R, Y]),
    "lerp": (lambda x, y, z: ss.lerp(x, y, z), [X, Y, Z]),
    "lerp by a number": (lambda x, y: ss.lerp(x, y, A), [X, Y]),
    "lerp by a small number": (lambda x, y: ss.lerp(x, y, 0.1 + 0.1j), [X, Y]),
    "addcmul": (lambda x, y, z: ss.addcmul(x, y, z, value=A), [X, Y, Z]),
    "addcdiv": (lambda x, y, z: ss.addcdiv(x, y, z, value=A), [X, R, Z]),
    "addmm": (lambda x, y, z: ss.addmm(x, y, z, beta=B, alpha=A), [
        some(2, 2), some(2, 3), some(3, 2)]),
    "addmv": (lambda x, y, z: ss.addmv(x, y, z, beta=B, alpha=A), [some(2), some(2, 3), X]),
    "addr": (lambda x, y, z: ss.addr(x, y, z, beta=B, alpha=A), [some(3, 3), X, Y]),
    "addbmm": (lambda x, y, z: ss.addbmm(x, y, z, beta=B, alpha=A), [
        some(2, 2), some(2, 2, 1), some(2, 1, 2)]),
    "baddbmm": (lambda x, y, z: ss.baddbmm(x, y, z, beta=B, alpha=A), [
        some(2, 2, 2), some(2, 2, 1), some(2, 1, 2)]),
    "index_add": (lambda x, y: x.index_add(0, ss.tensor([0, 2]), y, alpha=A), [X, some(2)]),
    "prod": (lambda x: x.prod(), [X]),
    "prod of a zero": (lambda x: x.prod(), [np.array([0, 1 + 2j, 3 - 1j])]),
    "cumsum": (lambda x: x.cumsum(0), [X]),
    "cumprod": (lambda x: x.cumprod(0), [X]),
    "cumprod of a zero": (lambda x: x.cumprod(0), [np.array([1j, 0, 1 + 2j])]),
}


@pytest.mark.parametrize("name", CASES)
def test_slopes(name: str) -> None:
    function, arrays = CASES[name]
    tensors = [ss.tensor(array).requires_grad_(True) for array in arrays]
    result = function(*tensors)
    seed = np.random.RandomState(7).randn(*result.shape, 2) @ np.array([1, 1j])
    result.backward(ss.tensor(np.asarray(seed)))
    for place, tensor in enumerate(tensors):
        grad = tensor.grad
        assert grad is not None
        assert grad.dtype is tensor.dtype
        np.testing.assert_allclose(grad.numpy(), numeric(function, arrays, seed, place),
                                   rtol=1e-5, atol=1e-7)

"""Gradients by finite differences, of first and second order, in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import slipstream as ss

STEP = 1e-5


def value_of(function: Callable[..., Any], arrays: list[np.ndarray], seed: np.ndarray) -> float:
    """The inner product of ``function``'s result with ``seed``."""
    with ss.no_grad():
        result = function(*[ss.tensor(array) for array in arrays])
    return float((result.numpy() * seed).sum())


def numeric(function: Callable[[list[np.ndarray]], float],
            arrays: list[np.ndarray]) -> list[np.ndarray]:
    """Central differences of a scalar function by every element."""
    found = []
    for array in arrays:
        slope = np.zeros_like(array)
        for place in np.ndindex(array.shape):
            middle = array[place]
            array[place] = middle + STEP
            high = function(arrays)
            array[place] = middle - STEP
            low = function(arrays)
            array[place] = middle
            slope[place] = (high - low) / (2 * STEP)
        found.append(slope)
    return found


def leaves(arrays: list[np.ndarray]) -> list[Any]:
    """Tensors that want gradients."""
    return [ss.tensor(array).requires_grad_(True) for array in arrays]


def slopes(function: Callable[..., Any], arrays: list[np.ndarray], seed: np.ndarray) -> list[Any]:
    """The gradients that backward computes."""
    tensors = leaves(arrays)
    (function(*tensors) * ss.tensor(seed)).sum().backward()
    return [tensor.grad for tensor in tensors]


def penalty(function: Callable[..., Any], arrays: list[np.ndarray], seed: np.ndarray) -> Any:
    """The sum of squared gradients with its history, and the leaves it depends on."""
    tensors = leaves(arrays)
    result = function(*tensors)
    (result * result * ss.tensor(seed)).sum().backward(create_graph=True)
    grads = [tensor.grad for tensor in tensors]
    for tensor in tensors:
        tensor.grad = None
    total = grads[0].square().sum()
    for grad in grads[1:]:
        total = total + grad.square().sum()
    return total, tensors


def check_slopes(function: Callable[..., Any], *arrays: np.ndarray, second: bool = True) -> None:
    """Compare gradients, and gradients of gradients, with finite differences."""
    given = [np.array(array, np.float64) for array in arrays]
    with ss.no_grad():
        shape = tuple(function(*[ss.tensor(array) for array in given]).shape)
    seed = np.random.RandomState(0).uniform(0.5, 1.5, shape)
    wanted = numeric(lambda moved: value_of(function, moved, seed), given)
    for own, slope in zip(slopes(function, given, seed), wanted, strict=True):
        np.testing.assert_allclose(own.numpy(), slope, rtol=1e-6, atol=1e-7)
    if not second:
        return
    wanted = numeric(lambda moved: penalty(function, moved, seed)[0].item(), given)
    total, tensors = penalty(function, given, seed)
    total.backward()
    for tensor, slope in zip(tensors, wanted, strict=True):
        np.testing.assert_allclose(tensor.grad.numpy(), slope, rtol=1e-5, atol=1e-5)

"""Jacobians, Hessians and products with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import slipstream as ss
from slipstream.autograd import functional


def cubes(x: Any) -> Any:
    return (x ** 3).sum()


def test_jacobian_of_one_and_of_several() -> None:
    x = ss.tensor([1.0, 2.0], dtype=ss.float64)
    found = functional.jacobian(lambda x: x.unsqueeze(1) * x, x)
    assert found.shape == (2, 2, 2)
    assert found.tolist() == [[[2, 0], [2, 1]], [[2, 1], [0, 4]]]
    both = functional.jacobian(lambda a, b: (a * b, b.sum()), (x, x))
    assert [[each.tolist() for each in row] for row in both] == [
        [[[1, 0], [0, 2]], [[1, 0], [0, 2]]], [[0, 0], [1, 1]]]


def test_hessian_and_its_products() -> None:
    x = ss.tensor([1.0, 2.0], dtype=ss.float64)
    v = ss.tensor([3.0, 5.0], dtype=ss.float64)
    whole = functional.hessian(cubes, x)
    assert whole.tolist() == [[6, 0], [0, 12]]
    value, product = functional.vhp(cubes, x, v)
    assert value.item() == 9
    assert product.tolist() == (whole @ v).tolist()
    assert functional.hvp(cubes, x, v)[1].tolist() == [18, 60]


def test_products_with_the_jacobian() -> None:
    matrix = ss.tensor(np.arange(6.0).reshape(2, 3))
    x = ss.ones(3, dtype=ss.float64)
    _, back = functional.vjp(lambda x: matrix @ x, x, ss.tensor([1.0, 2.0], dtype=ss.float64))
    _, ahead = functional.jvp(lambda x: matrix @ x, x, x * 2)
    assert back.tolist() == [6, 9, 12]
    assert ahead.tolist() == [6, 24]


def test_create_graph_and_strictness() -> None:
    x = ss.ones(2, requires_grad=True)
    functional.jacobian(lambda x: x ** 3, x, create_graph=True).sum().backward()
    assert x.grad.tolist() == [6, 6]
    with pytest.raises(RuntimeError, match="independent"):
        functional.jacobian(lambda x: ss.ones(2, requires_grad=True) * 2, x, strict=True)
    with pytest.raises(RuntimeError, match="single element"):
        functional.hessian(lambda x: x * 2, x)
    with pytest.raises(TypeError):
        functional.jacobian(lambda x: x, [1.0])
    with pytest.raises(RuntimeError, match="sizes"):
        functional.vjp(lambda x: x, x, ss.ones(3))

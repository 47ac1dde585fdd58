"""Gradients where a plain formula would be nan, or would count twice."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

import slipstream as ss
from slipstream.nn import functional

FLAT: dict[str, Callable[[ss.Tensor], ss.Tensor]] = {
    "floor": lambda x: x.floor(), "ceil": lambda x: x.ceil() - 1, "trunc": lambda x: x.trunc(),
    "round": lambda x: x.round(), "sign": lambda x: x.sign() - 1, "power": lambda x: x ** 0 - 1,
    "quotient": lambda x: x.div(1, rounding_mode="floor"),
    "divisor": lambda x: (x * 0 + 0.5).div(x + 1, rounding_mode="trunc"),
    "zero to a power": lambda x: 0.0 ** x,
}


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("name", FLAT)
def test_what_is_flat_has_the_slope_zero_under_any_gradient(name: str, graph: bool) -> None:
    x = ss.tensor([0.3, 0.4], requires_grad=True)
    # The slope of log is infinite at 0.
    FLAT[name](x).log().sum().backward(create_graph=graph)
    assert x.grad.tolist() == [0.0, 0.0]


def test_the_count_of_elements_has_no_slope() -> None:
    x = ss.tensor([math.inf, math.nan, 2.0], requires_grad=True)
    x.norm(0).backward()
    assert x.grad.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("graph", [False, True])
def test_bounds_of_clamp_get_gradients_beside_infinite_numbers(graph: bool) -> None:
    def slopes(values: list[float], low: list[float], high: list[float]) -> list[list[float]]:
        bounds = [ss.tensor(each, requires_grad=True) for each in (low, high)]
        ss.tensor(values).clamp(*bounds).sum().backward(create_graph=graph)
        return [bound.grad.tolist() for bound in bounds]

    assert slopes([-math.inf, 1.0], [0.0, 0.0], [2.0, 2.0]) == [[1.0, 0.0], [0.0, 0.0]]
    assert slopes([-math.inf, math.inf], [3.0, 3.0], [2.0, 2.0]) == [[0.0, 0.0], [1.0, 1.0]]


def test_a_bound_of_clamp_beside_a_number_or_none() -> None:
    x = ss.tensor([-math.inf, 1.0, math.inf])
    low = ss.tensor([0.0, 3.0, 0.0], requires_grad=True)
    x.clamp(low, 2.0).sum().backward()
    x.clamp(min=low).sum().backward()
    assert low.grad.tolist() == [2.0, 1.0, 0.0]
    high = ss.tensor([-1.0, 1.5, 2.0], requires_grad=True)
    x.clamp(0.0, high).sum().backward()
    x.clamp(max=high).sum().backward()
    assert high.grad.tolist() == [1.0, 0.0, 2.0]


def second(function: Callable[[ss.Tensor], ss.Tensor]) -> float:
    """The second derivative at 0."""
    x = ss.zeros(1, dtype=ss.float64, requires_grad=True)
    (slope,) = ss.autograd.grad(function(x).sum(), x, create_graph=True)
    return float(ss.autograd.grad(slope.sum(), x)[0].item())


def test_second_derivatives_at_zero() -> None:
    # x tanh(softplus(x)): twice the slope of tanh(softplus(x)).
    t = math.tanh(math.log(2.0))
    assert second(functional.mish) == pytest.approx(1 - t * t)
    half = ss.full((1,), 0.5, dtype=ss.float64)
    assert second(lambda x: functional.binary_cross_entropy_with_logits(
        x, half, reduction="sum")) == pytest.approx(0.25)

    def crossed(target: ss.Tensor) -> float:
        x = ss.zeros(1, dtype=ss.float64, requires_grad=True)
        loss = functional.binary_cross_entropy_with_logits(
            x, target, reduction="sum", pos_weight=ss.full((1,), 3.0, dtype=ss.float64))
        (slope,) = ss.autograd.grad(loss, target, create_graph=True)
        return float(ss.autograd.grad(slope.sum(), x)[0].item())

    # d/dx of -x + 2 log(1 + e^-x).
    assert crossed(half.clone().requires_grad_()) == pytest.approx(-2.0)


@pytest.mark.parametrize("UPLO", ["L", "U"])
def test_eigh_has_the_gradient_of_the_triangle_that_it_reads(UPLO: str) -> None:
    whole = np.array([[2.0, 0.5, 0.3], [0.5, 3.0, -0.4], [0.3, -0.4, 5.0]])
    found = []
    for each in (whole, np.tril(whole) if UPLO == "L" else np.triu(whole)):
        x = ss.tensor(each, requires_grad=True)
        vectors = ss.linalg.eigh(x, UPLO=UPLO)[1]
        ((vectors[:, 0] ** 2) * ss.arange(3, dtype=ss.float64)).sum().backward()
        found.append(x.grad.numpy())
    np.testing.assert_allclose(found[1], found[0], atol=1e-12)

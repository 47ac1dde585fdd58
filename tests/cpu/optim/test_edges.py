"""Optimizers at their edges: states of older versions, L-BFGS's closures, flags that do not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import slipstream as ss
from slipstream import optim


def test_lbfgs_goes_on_after_a_step_without_descent() -> None:
    point = ss.nn.Parameter(ss.tensor([1e-3], dtype=ss.float64))
    optimizer = optim.LBFGS([point], lr=0.1, tolerance_change=1e-3)
    steep = [1.0]

    def closure() -> Any:
        optimizer.zero_grad()
        value = (point * point).sum() * steep[0]
        value.backward()
        return value

    # The slope is below the tolerance at once: the first step ends before it moves.
    optimizer.step(closure)
    assert point.item() == 1e-3
    assert set(optimizer.state[point]) >= {"d", "t", "prev_flat_grad"}
    steep[0] = 1e3
    optimizer.step(closure)
    assert point.item() != 1e-3


def test_lbfgs_takes_a_closure_that_returns_a_number() -> None:
    found = []
    for as_number in (False, True):
        point = ss.nn.Parameter(ss.tensor([-1.2, 1.0], dtype=ss.float64))
        optimizer = optim.LBFGS([point], line_search_fn="strong_wolfe")

        def closure(point: Any = point, optimizer: Any = optimizer, plain: bool = as_number) -> Any:
            optimizer.zero_grad()
            value = (1 - point[0]) ** 2 + 10 * (point[1] - point[0] ** 2) ** 2
            value.backward()
            return value.item() if plain else value

        first = optimizer.step(closure)
        assert isinstance(first, float) == as_number
        found.append(point.tolist())
    assert found[0] == found[1]


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_lbfgs_takes_complex_parameters_as_pairs(search: str | None) -> None:
    ends = []
    for is_complex in (True, False):
        start = ss.tensor([[1.0, 2.0], [-0.5, 0.3]], dtype=ss.float64)
        point = ss.nn.Parameter(ss.view_as_complex(start) if is_complex else start)
        other = ss.nn.Parameter(ss.ones(2, dtype=ss.float64))
        unused = ss.nn.Parameter(ss.view_as_complex(start.clone()) if is_complex else start.clone())
        optimizer = optim.LBFGS([point, other, unused], lr=0.1, max_iter=5, line_search_fn=search)

        def closure(point: Any = point, other: Any = other, optimizer: Any = optimizer) -> Any:
            optimizer.zero_grad()
            pairs = ss.view_as_real(point) if point.is_complex() else point
            value = ((pairs - 0.7) ** 4).sum() + (other * pairs[:, 0]).pow(2).sum()
            value.backward()
            return value

        optimizer.step(closure)
        optimizer.step(closure)
        end = ss.view_as_real(point.detach()) if is_complex else point.detach()
        ends.append((end.tolist(), other.tolist()))
    assert ends[0] == ends[1]


@pytest.mark.parametrize(("name", "plain"), [
    ("NAdam", ("step", "mu_product")), ("ASGD", ("step", "eta", "mu")), ("Adafactor", ("step",)),
    ("RMSprop", ("step",)),
])
def test_older_states_go_on(name: str, plain: tuple[str, ...]) -> None:
    def stepped(optimizer: Any, parameter: Any, count: int) -> None:
        for _ in range(count):
            parameter.grad = ss.arange(4.0) - 1.5
            optimizer.step()

    whole, half = [ss.nn.Parameter(ss.ones(4)) for _ in range(2)]
    reference, first = [getattr(optim, name)([each]) for each in (whole, half)]
    stepped(reference, whole, 5)
    stepped(first, half, 2)
    saved = first.state_dict()
    for values in saved["state"].values():
        for key in plain:
            values[key] = values[key].item()
    for key in ("foreach", "maximize", "differentiable", "capturable", "centered", "momentum",
                "decoupled_weight_decay"):
        saved["param_groups"][0].pop(key, None)
    later = getattr(optim, name)([half])
    later.load_state_dict(saved)
    assert all(isinstance(later.state[half][key], ss.Tensor) for key in plain)
    stepped(later, half, 3)
    np.testing.assert_allclose(half.detach().numpy(), whole.detach().numpy(), rtol=1e-6)


@pytest.mark.parametrize("name", ["Adam", "AdamW", "Adamax", "NAdam", "RAdam", "ASGD", "RMSprop",
                                  "Adadelta", "Rprop"])
def test_capturable_steps_are_those_of_a_card(name: str) -> None:
    parameter = ss.nn.Parameter(ss.ones(2))
    optimizer = getattr(optim, name)([parameter], capturable=True)
    parameter.grad = ss.ones(2)
    with pytest.raises(AssertionError, match="If capturable=True, params and state_steps must be"):
        optimizer.step()
    assert not optimizer.state.get(parameter)

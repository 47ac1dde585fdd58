"""Steps that autograd records: gradients flow through them to what the gradient came from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import slipstream as ss
from slipstream import optim

STEPS = 3
CASES = [
    ("SGD", {"lr": 0.1}), ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    ("Adam", {"lr": 0.1, "amsgrad": True}), ("AdamW", {"lr": 0.1}), ("RMSprop", {"momentum": 0.5}),
    ("RMSprop", {"centered": True}), ("Adagrad", {"lr": 0.1}), ("Adadelta", {"eps": 1e-2}),
    ("Adamax", {"lr": 0.1}), ("NAdam", {"lr": 0.1, "weight_decay": 0.1}), ("RAdam", {"lr": 0.1}),
    ("ASGD", {"lr": 0.1, "t0": 0}),
]


def trained(start: Any, factor: Any, name: str, options: dict[str, Any]) -> Any:
    """The parameter after some steps along factor * parameter^2, as a function of both."""
    parameter = start.clone()
    optimizer = getattr(optim, name)([parameter], differentiable=True, **options)
    for _ in range(STEPS):
        # Of a copy: what a gradient saved must not be written.
        at = parameter.clone()
        parameter.grad = factor * at * at
        optimizer.step()
    return parameter


@pytest.mark.parametrize(("name", "options"), CASES, ids=str)
def test_gradients_flow_through_steps(name: str, options: dict[str, Any]) -> None:
    start = ss.tensor([1.0, 0.6, 1.4], dtype=ss.float64, requires_grad=True)
    factor = ss.tensor([0.7, 1.2, -0.4], dtype=ss.float64, requires_grad=True)
    found = ss.autograd.grad(trained(start, factor, name, options).sum(), (start, factor))
    for place, gradient in enumerate(found):
        for element in range(3):
            ends = []
            for shift in (1e-6, -1e-6):
                moved = [each.detach().clone() for each in (start, factor)]
                moved[place][element] += shift
                ends.append(trained(*moved, name, options).sum().item())
            slope = (ends[0] - ends[1]) / 2e-6
            assert gradient[element].item() == pytest.approx(slope, rel=1e-4, abs=1e-7), element


def test_rprop_passes_on_what_the_parameter_was() -> None:
    start = ss.tensor([1.0, 0.5], dtype=ss.float64, requires_grad=True)
    factor = ss.tensor([0.5, 2.0], dtype=ss.float64, requires_grad=True)
    # The sign alone decides the step, and is as good as constant.
    found = ss.autograd.grad(trained(start, factor, "Rprop", {}).sum(), (start, factor))
    assert [each.tolist() for each in found] == [[1, 1], [0, 0]]


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta",
                                  "Adamax", "NAdam", "RAdam"])
def test_gradients_flow_to_a_rate(name: str) -> None:
    def end(rate: Any) -> Any:
        parameter = ss.tensor([1.0, 0.5], dtype=ss.float64)
        optimizer = getattr(optim, name)([parameter], lr=rate, differentiable=True,
                                         weight_decay=0.1)
        for _ in range(STEPS):
            parameter.grad = parameter.clone() ** 2
            optimizer.step()
        return parameter.sum()

    rate = ss.tensor(0.1, dtype=ss.float64, requires_grad=True)
    (slope,) = ss.autograd.grad(end(rate), (rate,))
    wanted = (end(0.1 + 1e-6).item() - end(0.1 - 1e-6).item()) / 2e-6
    assert slope.item() == pytest.approx(wanted, rel=1e-4)


def test_what_gets_no_gradient_is_refused() -> None:
    rate = ss.tensor(0.1, requires_grad=True)
    for name in ("ASGD", "Rprop"):
        parameter = ss.ones(2)
        optimizer = getattr(optim, name)([parameter], lr=rate, differentiable=True)
        parameter.grad = ss.ones(2)
        with pytest.raises(NotImplementedError, match="no gradient on to lr"):
            optimizer.step()
    parameter, beta = ss.ones(2), ss.tensor(0.9, requires_grad=True)
    optimizer = optim.Adam([parameter], betas=(beta, ss.tensor(0.99)), differentiable=True)
    parameter.grad = ss.ones(2)
    with pytest.raises(NotImplementedError, match="no gradient on to betas"):
        optimizer.step()


def test_a_leaf_is_not_stepped_into_a_graph() -> None:
    parameter = ss.ones(2, requires_grad=True)
    optimizer = optim.SGD([parameter], lr=0.1, differentiable=True)
    parameter.grad = ss.ones(2)
    with pytest.raises(RuntimeError, match="leaf"):
        optimizer.step()


def test_complex_parameters_pass_gradients_on() -> None:
    start = ss.tensor([1 + 2j, 0.5 - 1j], dtype=ss.complex128, requires_grad=True)
    parameter = start.clone()
    optimizer = optim.SGD([parameter], lr=0.1, momentum=0.9, differentiable=True)
    for _ in range(2):
        parameter.grad = 2 * parameter
        optimizer.step()
    # Twice: b = 2 p; p = 0.8 p; then b = 0.9 b + 1.6 p.
    factor = 0.8 - 0.1 * (0.9 * 2 + 2 * 0.8)
    np.testing.assert_allclose(parameter.detach().numpy(), factor * start.detach().numpy())
    (found,) = ss.autograd.grad(ss.view_as_real(parameter).sum(), (start,))
    np.testing.assert_allclose(found.numpy(), np.full(2, factor * (1 + 1j)))

"""Optimizers beside SGD and Adam, and schedulers, against plain loops in float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import slipstream as ss
from slipstream import optim
from slipstream.optim import lr_scheduler
from slipstream.optim.wolfe import Point
from slipstream.optim.wolfe import search as find

STEPS = 6


def gradients() -> list[np.ndarray]:
    return [np.random.RandomState(step).randn(5) for step in range(STEPS)]


def path(name: str, **options: Any) -> np.ndarray:
    """Where an optimizer leads a vector of ones."""
    parameter = ss.nn.Parameter(ss.ones(5, dtype=ss.float64))
    optimizer = getattr(optim, name)([parameter], **options)
    for gradient in gradients():
        parameter.grad = ss.tensor(gradient)
        optimizer.step()
    return parameter.detach().numpy()


def test_rmsprop() -> None:
    p, square, mean, buffer = np.ones(5), np.zeros(5), np.zeros(5), np.zeros(5)
    for g in gradients():
        square = 0.9 * square + 0.1 * g * g
        mean = 0.9 * mean + 0.1 * g
        buffer = 0.5 * buffer + g / (np.sqrt(square - mean * mean) + 1e-8)
        p = p - 0.01 * buffer
    found = path("RMSprop", lr=0.01, alpha=0.9, momentum=0.5, centered=True)
    np.testing.assert_allclose(found, p, rtol=1e-9)


def test_adagrad() -> None:
    p, total = np.ones(5), np.full(5, 0.1)
    for step, g in enumerate(gradients()):
        g = g + 0.2 * p
        total = total + g * g
        p = p - 0.05 / (1 + step * 0.1) * g / (np.sqrt(total) + 1e-10)
    found = path("Adagrad", lr=0.05, lr_decay=0.1, weight_decay=0.2,
                 initial_accumulator_value=0.1)
    np.testing.assert_allclose(found, p, rtol=1e-9)


def test_adadelta_and_adamax() -> None:
    p, square, moved = np.ones(5), np.zeros(5), np.zeros(5)
    for g in gradients():
        square = 0.8 * square + 0.2 * g * g
        delta = np.sqrt(moved + 1e-6) / np.sqrt(square + 1e-6) * g
        moved = 0.8 * moved + 0.2 * delta * delta
        p = p - 0.5 * delta
    np.testing.assert_allclose(path("Adadelta", lr=0.5, rho=0.8), p, rtol=1e-9)
    p, first, largest = np.ones(5), np.zeros(5), np.zeros(5)
    for step, g in enumerate(gradients(), 1):
        first = 0.9 * first + 0.1 * g
        largest = np.maximum(0.999 * largest, np.abs(g) + 1e-8)
        p = p - 0.02 / (1 - 0.9 ** step) * first / largest
    np.testing.assert_allclose(path("Adamax", lr=0.02), p, rtol=1e-9)


def test_rprop() -> None:
    p, before, size = np.ones(5), np.zeros(5), np.full(5, 0.02)
    for g in gradients():
        agreement = g * before
        size = np.clip(size * np.where(agreement > 0, 1.2, np.where(agreement < 0, 0.5, 1)),
                       1e-6, 50)
        g = np.where(agreement < 0, 0, g)
        p = p - np.sign(g) * size
        before = g
    np.testing.assert_allclose(path("Rprop", lr=0.02), p, rtol=1e-9)


def test_states_resume() -> None:
    for name in ("RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "ASGD", "Rprop",
                 "Adafactor"):
        straight, halves = [ss.nn.Parameter(ss.ones(5)) for _ in range(2)]
        whole, first = [getattr(optim, name)([each]) for each in (straight, halves)]
        for step, gradient in enumerate(gradients()):
            if step == 3:
                state = first.state_dict()
                first = getattr(optim, name)([halves])
                first.load_state_dict(state)
            for optimizer, parameter in ((whole, straight), (first, halves)):
                parameter.grad = ss.tensor(gradient, dtype=ss.float32)
                optimizer.step()
        assert ss.equal(straight, halves), name


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_lbfgs_finds_the_minimum(search: str | None) -> None:
    point = ss.nn.Parameter(ss.tensor([-1.2, 1.0], dtype=ss.float64))
    rate = 1 if search else 0.002
    optimizer = optim.LBFGS([point], lr=rate, max_iter=60, line_search_fn=search)

    def closure() -> Any:
        optimizer.zero_grad()
        value = (1 - point[0]) ** 2 + 10 * (point[1] - point[0] ** 2) ** 2
        value.backward()
        return value

    first = optimizer.step(closure).item()
    last = closure().item()
    assert last < first
    if search:
        optimizer.step(closure)
        assert point.tolist() == pytest.approx([1, 1], abs=1e-5)
    with pytest.raises(ValueError, match="parameter groups"):
        optim.LBFGS([{"params": [point]}, {"params": [ss.nn.Parameter(ss.ones(1))]}])


def test_lbfgs_keeps_to_its_evaluations() -> None:
    point = ss.nn.Parameter(ss.tensor([-1.2, 1.0], dtype=ss.float64))
    optimizer = optim.LBFGS([point], max_eval=6, line_search_fn="strong_wolfe")
    calls = []

    def closure() -> Any:
        optimizer.zero_grad()
        # As steep everywhere: the search would go on.
        value = -point.sum()
        value.backward()
        calls.append(value.item())
        return value

    optimizer.step(closure)
    # The first place of a search is looked at in any case.
    assert len(calls) == 7
    assert optimizer.state[point]["func_evals"] == len(calls)


def test_the_search_looks_back_from_its_third_place_on() -> None:
    values = iter([0.99, 0.995, 0.90])

    def at(place: Any) -> Point:
        return Point(place, next(values), None, ss.tensor(-0.95))

    found, count = find(at, Point(0, 1.0, None, ss.tensor(-1.0)), 1e-3, ss.tensor(1.0), 2)
    # The second place is higher than the first and yet not the end of a bracket.
    assert count == 3
    assert found.value == 0.90


def test_adam_reads_a_rate_as_a_number_where_fused() -> None:
    rate = float(np.float32(0.02))
    moved = []
    for each in (rate, ss.tensor(rate)):
        parameter = ss.nn.Parameter(ss.ones(3, dtype=ss.float64))
        parameter.grad = ss.tensor([1.0, -2.0, 3.0], dtype=ss.float64)
        optim.AdamW([parameter], lr=each, fused=True).step()
        moved.append(parameter.tolist())
    assert moved[0] == moved[1]


def test_muon_takes_matrices_only() -> None:
    with pytest.raises(ValueError, match="2D"):
        optim.Muon([ss.nn.Parameter(ss.ones(3))])
    parameter = ss.nn.Parameter(ss.eye(4))
    optimizer = optim.Muon([parameter], lr=0.1, weight_decay=0)
    parameter.grad = ss.rand(4, 4)
    optimizer.step()
    moved = (ss.eye(4) - parameter.detach()) / 0.1
    # Its singular values lie near one.
    assert 0.4 < (moved @ moved.T).diagonal().mean().item() < 1.6


def rates(make: Any, epochs: int = 12, lr: float = 0.1) -> list[float]:
    optimizer = optim.SGD([ss.nn.Parameter(ss.ones(1))], lr=lr, momentum=0.9)
    scheduler = make(optimizer)
    found = [scheduler.get_last_lr()[0]]
    for _ in range(epochs):
        optimizer.step()
        scheduler.step()
        found.append(scheduler.get_last_lr()[0])
    return found


CLOSED = {
    "StepLR": ({"step_size": 4, "gamma": 0.5}, lambda e: 0.5 ** (e // 4)),
    "MultiStepLR": ({"milestones": [3, 8, 8]}, lambda e: 0.1 ** ((e >= 3) + 2 * (e >= 8))),
    "ConstantLR": ({"factor": 0.25, "total_iters": 6}, lambda e: 0.25 if e < 6 else 1.0),
    "LinearLR": ({"start_factor": 0.2, "total_iters": 5}, lambda e: 0.2 + 0.8 * min(e, 5) / 5),
    "ExponentialLR": ({"gamma": 0.9}, lambda e: 0.9 ** e),
    "PolynomialLR": ({"total_iters": 10, "power": 2.0}, lambda e: (1 - min(e, 10) / 10) ** 2),
    "CosineAnnealingLR": ({"T_max": 5}, lambda e: (1 + math.cos(math.pi * e / 5)) / 2),
    "LambdaLR": ({"lr_lambda": lambda e: 1 / (1 + e)}, lambda e: 1 / (1 + e)),
}


@pytest.mark.parametrize("name", sorted(CLOSED))
def test_schedulers_by_their_closed_forms(name: str) -> None:
    options, factor = CLOSED[name]
    found = rates(lambda optimizer: getattr(lr_scheduler, name)(optimizer, **options))
    assert found == pytest.approx([0.1 * factor(epoch) for epoch in range(13)], abs=1e-12)


def test_cycles() -> None:
    found = rates(lambda optimizer: lr_scheduler.CyclicLR(optimizer, 0.1, 0.5, 2))
    assert found == pytest.approx([0.1, 0.3, 0.5, 0.3] * 3 + [0.1])
    once = rates(lambda optimizer: lr_scheduler.OneCycleLR(
        optimizer, 1.0, total_steps=13, anneal_strategy="linear"))
    assert once[0] == pytest.approx(1 / 25)
    assert max(once) == pytest.approx(1, abs=0.05)
    assert once[-1] == pytest.approx(1 / 25e4)
    warm = rates(lambda optimizer: lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 3, 2))
    assert [place for place, rate in enumerate(warm) if rate == pytest.approx(0.1)] == [0, 3, 9]


def test_one_after_another_and_all_at_once() -> None:
    def sequence(optimizer: Any) -> Any:
        first = lr_scheduler.LinearLR(optimizer, 0.5, total_iters=4)
        return lr_scheduler.SequentialLR(
            optimizer, [first, lr_scheduler.ExponentialLR(optimizer, 0.5)], [4])

    assert rates(sequence, 6) == pytest.approx([0.05, 0.0625, 0.075, 0.0875, 0.1, 0.05, 0.025])
    chained = rates(lambda optimizer: lr_scheduler.ChainedScheduler(
        [lr_scheduler.ConstantLR(optimizer, 0.5, 2),
         lr_scheduler.ExponentialLR(optimizer, 0.9)]), 3)
    assert chained == pytest.approx([0.05, 0.045, 0.081, 0.0729])


def test_a_plateau_lowers_the_rate() -> None:
    optimizer = optim.SGD([ss.nn.Parameter(ss.ones(1))], lr=1.0)
    scheduler = lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=1, cooldown=1)
    seen = []
    for value in (3.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0):
        scheduler.step(value)
        seen.append(scheduler.get_last_lr()[0])
    assert seen == [1, 1, 1, 0.5, 0.5, 0.5, 0.25]
    for wrong in ({"factor": 1.0}, {"mode": "best"}, {"min_lr": [0, 0]}):
        with pytest.raises(ValueError):
            lr_scheduler.ReduceLROnPlateau(optimizer, **wrong)


def test_a_scaler_leaves_out_what_is_not_finite() -> None:
    parameter = ss.nn.Parameter(ss.ones(2))
    optimizer = optim.SGD([parameter], lr=0.5)
    scaler = ss.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
    for factor, left, scale in ((1.0, 0.5, 8.0), (math.inf, 0.5, 4.0), (1.0, 0.0, 4.0),
                                (1.0, -0.5, 8.0)):
        optimizer.zero_grad()
        scaler.scale((parameter * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        assert parameter.tolist() == [left, left]
        assert scaler.get_scale() == scale
    other = ss.amp.GradScaler("cpu")
    other.load_state_dict(scaler.state_dict())
    assert other.state_dict() == scaler.state_dict()
    with pytest.raises(AssertionError):
        scaler.update()


def test_a_scaler_is_told_what_to_scale_first() -> None:
    scaler = ss.amp.GradScaler("cpu")
    with pytest.raises(AssertionError, match="_scale is None"):
        scaler.update(4.0)
    with pytest.raises(AssertionError, match="_scale is None"):
        scaler.unscale_(optim.SGD([ss.nn.Parameter(ss.ones(1))]))
    assert scaler.scale([ss.ones(2), ss.ones(1)])[1].tolist() == [2.0 ** 16]
    assert scaler.state_dict()["_growth_tracker"] == 0
    off = ss.amp.GradScaler("cpu", enabled=False)
    assert off.scale(3) == 3
    assert off.get_scale() == 1.0


def test_momentum_that_a_schedule_turns_on() -> None:
    parameter = ss.nn.Parameter(ss.ones(3))
    optimizer = ss.optim.SGD([parameter], lr=0.1)
    value, buffer = 1.0, None
    for momentum in (0.0, 0.9, 0.8, 0.0, 0.5):
        optimizer.param_groups[0]["momentum"] = momentum
        parameter.grad = ss.full((3,), 2.0)
        optimizer.step()
        if momentum:
            buffer = 2.0 if buffer is None else momentum * buffer + 2.0
        value -= 0.1 * (buffer if momentum and buffer is not None else 2.0)
        assert parameter.tolist() == pytest.approx([value] * 3)


def test_warm_restarts_begin_a_sequence_with_the_first_rate() -> None:
    optimizer = ss.optim.SGD([ss.nn.Parameter(ss.ones(1))], lr=1.0)
    restarts = lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 10)
    both = lr_scheduler.SequentialLR(
        optimizer, [restarts, lr_scheduler.ExponentialLR(optimizer, 0.9)], [20])
    for step in range(12):
        wanted = (1 + math.cos(math.pi * (step % 10) / 10)) / 2
        assert both.get_last_lr() == [pytest.approx(wanted)]
        optimizer.step()
        both.step()

"""Schedules that resume, that are made of others, and rates that are tensors."""

from __future__ import annotations

import math
from typing import Any

import pytest

import slipstream as ss
from slipstream import optim
from slipstream.optim import lr_scheduler

MAKERS: dict[str, Any] = {
    "ExponentialLR": lambda o, **k: lr_scheduler.ExponentialLR(o, 0.5, **k),
    "LinearLR": lambda o, **k: lr_scheduler.LinearLR(o, 0.2, total_iters=8, **k),
    "PolynomialLR": lambda o, **k: lr_scheduler.PolynomialLR(o, 8, 2.0, **k),
    "CosineAnnealingLR": lambda o, **k: lr_scheduler.CosineAnnealingLR(o, 8, 0.01, **k),
    "MultiplicativeLR": lambda o, **k: lr_scheduler.MultiplicativeLR(o, lambda e: 1 / e, **k),
    "LambdaLR": lambda o, **k: lr_scheduler.LambdaLR(o, lambda e: 1 / (1 + e), **k),
    "StepLR": lambda o, **k: lr_scheduler.StepLR(o, 4, **k),
    "CyclicLR": lambda o, **k: lr_scheduler.CyclicLR(o, 1.0, 2.0, 3, **k),
}


def made(lr: Any = 1.0, **options: Any) -> Any:
    """An optimizer of one parameter."""
    return optim.SGD([ss.nn.Parameter(ss.ones(1))], lr=lr, momentum=0.9, **options)


def rates(optimizer: Any, scheduler: Any, epochs: int) -> list[float]:
    """The rates from here on."""
    found = [float(optimizer.param_groups[0]["lr"])]
    for _ in range(epochs):
        optimizer.step()
        scheduler.step()
        found.append(float(optimizer.param_groups[0]["lr"]))
    return found


@pytest.mark.parametrize("name", sorted(MAKERS))
def test_a_resumed_schedule_does_not_step_ahead(name: str) -> None:
    optimizer = made()
    whole = rates(optimizer, MAKERS[name](optimizer), 8)
    first = made()
    scheduler = MAKERS[name](first)
    rates(first, scheduler, 3)
    later = made()
    later.load_state_dict(first.state_dict())
    # As in PyTorch: ``last_epoch`` is the one before the epoch whose rate the groups have.
    again = MAKERS[name](later, last_epoch=scheduler.last_epoch - 1)
    assert again.last_epoch == 3
    assert rates(later, again, 5) == pytest.approx(whole[3:])


def test_a_resumed_cycle_keeps_its_base() -> None:
    optimizer = made()
    optimizer.param_groups[0].update(initial_lr=0.1, lr=0.7)
    scheduler = lr_scheduler.CyclicLR(optimizer, 0.1, 0.5, 4, cycle_momentum=False, last_epoch=1)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.3)
    assert rates(optimizer, scheduler, 3) == pytest.approx([0.3, 0.4, 0.5, 0.4])


def test_a_cycle_keeps_its_base_in_a_sequence() -> None:
    optimizer = made()
    warm = lr_scheduler.ConstantLR(optimizer, 0.5, 2)
    cycle = lr_scheduler.CyclicLR(optimizer, 0.1, 0.5, 2)
    assert optimizer.param_groups[0]["max_momentum"] == 0.9
    both = lr_scheduler.SequentialLR(optimizer, [cycle, warm], [3])
    # The first rate is the one that the groups began with, the following go by the cycle's base.
    assert rates(optimizer, both, 3) == pytest.approx([0.1, 0.3, 0.5, 0.5])


def test_a_milestone_asks_a_factor_for_epoch_0() -> None:
    optimizer = made()
    warm = lr_scheduler.ConstantLR(optimizer, 0.5, 9)
    falls = lr_scheduler.MultiplicativeLR(optimizer, lambda epoch: 0.1 if epoch == 0 else 0.5)
    both = lr_scheduler.SequentialLR(optimizer, [warm, falls], [2])
    # There is no closed form: the rate at the milestone is the last one times the factor.
    assert rates(optimizer, both, 3) == pytest.approx([0.5, 0.5, 0.05, 0.025])


def test_all_at_once_and_then_one() -> None:
    optimizer = made(0.05)
    chained = lr_scheduler.ChainedScheduler([
        lr_scheduler.LinearLR(optimizer, 0.1, total_iters=5),
        lr_scheduler.ConstantLR(optimizer, 0.1, 5)])
    both = lr_scheduler.SequentialLR(
        optimizer, [chained, lr_scheduler.ConstantLR(optimizer, 0.5, 5)], [5])
    assert rates(optimizer, both, 9) == pytest.approx(
        [0.0005, 0.0014, 0.0023, 0.0032, 0.0041] + [0.025] * 5)


def test_one_and_then_all_at_once() -> None:
    optimizer = made()
    first = lr_scheduler.ConstantLR(optimizer, 0.5, 9)
    chained = lr_scheduler.ChainedScheduler([
        lr_scheduler.ExponentialLR(optimizer, 0.5), lr_scheduler.ConstantLR(optimizer, 0.1, 2)])
    both = lr_scheduler.SequentialLR(optimizer, [first, chained], [2])
    assert rates(optimizer, both, 5) == pytest.approx([0.5, 0.5, 0.1, 0.05, 0.25, 0.125])
    assert both.get_last_lr() == [pytest.approx(0.125)]


def test_a_sequence_that_begins_another() -> None:
    optimizer = made()
    inner = lr_scheduler.SequentialLR(
        optimizer, [lr_scheduler.LinearLR(optimizer, 0.2, total_iters=4),
                    lr_scheduler.ConstantLR(optimizer, 0.25, 9)], [3])
    outer = lr_scheduler.SequentialLR(
        optimizer, [inner, lr_scheduler.ExponentialLR(optimizer, 0.5)], [5])
    # PyTorch's inner sequence counts the outer one's first step: its milestone comes a step early.
    assert rates(optimizer, outer, 6) == pytest.approx([0.2, 0.4, 0.25, 0.25, 0.25, 1.0, 0.5])


def test_a_sequence_that_ends_another() -> None:
    optimizer = made()
    inner = lr_scheduler.SequentialLR(
        optimizer, [lr_scheduler.ExponentialLR(optimizer, 0.5),
                    lr_scheduler.ConstantLR(optimizer, 0.25, 9)], [2])
    outer = lr_scheduler.SequentialLR(
        optimizer, [lr_scheduler.ConstantLR(optimizer, 0.1, 9), inner], [2])
    assert rates(optimizer, outer, 5) == pytest.approx([0.1, 0.1, 1.0, 0.5, 0.25, 0.25])


@pytest.mark.parametrize("kind", ["SequentialLR", "ChainedScheduler"])
def test_what_others_cannot_hold(kind: str) -> None:
    optimizer = made()
    constant = lr_scheduler.ConstantLR(optimizer)
    rest = ([1],) if kind == "SequentialLR" else ()

    def combined(second: Any) -> Any:
        parts = [constant, second]
        cls = getattr(lr_scheduler, kind)
        return cls(optimizer, parts, *rest) if rest else cls(parts)

    with pytest.raises(ValueError, match=f"{kind} does not support `ReduceLROnPlateau`"):
        combined(lr_scheduler.ReduceLROnPlateau(optimizer))
    with pytest.raises(ValueError, match="same optimizer"):
        combined(lr_scheduler.ConstantLR(made()))
    with pytest.raises(TypeError, match="at index 1 should have `optimizer`"):
        combined(0.5)


def test_a_plateau_knows_of_new_groups() -> None:
    optimizer = made()
    one = lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, min_lr=0.3, factor=0.5)
    many = lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, min_lr=[0.1])
    optimizer.add_param_group({"params": [ss.nn.Parameter(ss.ones(1))], "lr": 0.5})
    for value in (1.0, 2.0):
        one.step(value)
    assert [group["lr"] for group in optimizer.param_groups] == [0.5, 0.3]
    many.step(1.0)
    with pytest.raises(RuntimeError, match="number of param groups"):
        many.step(2.0)


def test_a_cycle_writes_into_a_rate_that_is_a_tensor() -> None:
    rate = ss.tensor(1.0)
    optimizer = made(rate)
    scheduler = lr_scheduler.CyclicLR(optimizer, 0.1, 0.5, 2)
    assert rates(optimizer, scheduler, 3) == pytest.approx([0.1, 0.3, 0.5, 0.3])
    assert optimizer.param_groups[0]["lr"] is rate
    base = ss.tensor(0.1)
    optimizer = made()
    scheduler = lr_scheduler.CyclicLR(optimizer, base, ss.tensor(0.5), 2)
    assert rates(optimizer, scheduler, 4) == pytest.approx([0.1, 0.3, 0.5, 0.3, 0.1])
    assert base.item() == pytest.approx(0.1)


def test_a_sequence_writes_into_a_rate_that_is_a_tensor() -> None:
    rate = ss.tensor(2.0)
    optimizer = made(rate)
    both = lr_scheduler.SequentialLR(
        optimizer, [lr_scheduler.LinearLR(optimizer, 0.1, 0.8, total_iters=4),
                    lr_scheduler.LinearLR(optimizer, 0.8, 0.1, total_iters=4)], [4])
    assert rates(optimizer, both, 7) == pytest.approx(
        [0.2, 0.55, 0.9, 1.25, 1.6, 1.25, 0.9, 0.55])
    assert optimizer.param_groups[0]["lr"] is rate


def test_a_cosine_after_a_milestone() -> None:
    optimizer = made()
    both = lr_scheduler.SequentialLR(
        optimizer, [lr_scheduler.LinearLR(optimizer, 0.5, total_iters=2),
                    lr_scheduler.CosineAnnealingLR(optimizer, 4)], [2])
    wanted = [(1 + math.cos(math.pi * epoch / 4)) / 2 for epoch in range(5)]
    assert rates(optimizer, both, 6) == pytest.approx([0.5, 0.75, *wanted])

"""What the dispatch budget hears of kernels that end in another stretch than they began in."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import slipstream as ss
from slipstream.core.api.budget import (
    PATIENCE,
    TICK,
    Look,
    Measured,
    _Sampler,
    fill,
    measure_budget,
)
from slipstream.core.vocab.modes import modes

LONG = int(TICK * 1e9)


class Card:
    """A device that is simulated, as far as the budget looks at it."""

    def __init__(self, ordinal: int, launches: int) -> None:
        self.device, self.ordinal = f"cuda:{ordinal}", ordinal
        self.counts = SimpleNamespace(launches=launches)
        self.driver = SimpleNamespace(
            name="simulated", properties=lambda ordinal: SimpleNamespace(name="some card"))


def kernel(start: int, end: int) -> Any:
    """A launch as listeners are told of it."""
    return SimpleNamespace(kind="launch", start=start, end=end)


def test_a_kernel_counts_in_the_stretch_in_which_it_began() -> None:
    sampler = _Sampler()
    sampler.hear(kernel(10, 30))
    assert (sampler.listened, sampler.kernels) == (1, 20)
    assert not sampler.heard_out.is_set()
    sampler.until = 100
    # Under way when the stretch ended: it is heard to its end, and nothing has to be waited for.
    sampler.hear(kernel(90, 150))
    assert (sampler.listened, sampler.kernels, sampler.longest) == (2, 80, 60)
    assert sampler.heard_out.is_set()
    # What began later belongs to no stretch that listens.
    sampler.hear(kernel(160, 900))
    assert (sampler.listened, sampler.kernels, sampler.longest) == (2, 80, 60)


def test_a_stretch_without_an_op_may_be_the_middle_of_a_long_kernel() -> None:
    sampler = _Sampler()
    first, later, latest = (Look(now, 5, 0, 0, 0) for now in (0, LONG, 10 * LONG))
    assert not sampler.long
    assert not sampler.goes_on(first, later)
    sampler.longest = 3 * LONG
    assert sampler.long
    assert sampler.goes_on(first, later)
    # No kernel takes that long: the program did something else.
    assert not sampler.goes_on(first, latest)


def test_nobody_listens_any_more_when_it_is_over() -> None:
    x = ss.ones(300, 300)
    with measure_budget() as found:
        for _ in range(200):
            x = (x @ x) * 1e-3
    assert modes.listeners is None
    assert found.ops > 0


@pytest.mark.parametrize(("cards", "waits"), [([], PATIENCE), (["a card"], 0)])
def test_nobody_waits_for_kernels_of_the_cpu_once_a_card_is_used(monkeypatch, cards, waits) -> None:
    # Ops of other threads end no stretch: the card's windows would go by unmeasured.
    sampler, waited = _Sampler(), []
    monkeypatch.setattr(sampler, "cards", lambda: cards)
    monkeypatch.setattr(sampler.heard_out, "wait", waited.append)
    sampler.listen()
    assert waited == waits * [TICK]


def test_a_card_was_used_though_no_window_of_it_was_measured() -> None:
    # As where each of several threads has a moment's work for it.
    sampler = _Sampler()
    first, second = Card(0, 7), Card(1, 9)
    timer = SimpleNamespace(replayed=[0, 0.0], single=[0, 0.0])
    sampler.timers = {first: timer, second: timer}
    # The other was used before, and left alone from then on.
    sampler.began = {first: 7, second: 2}
    found = Measured()
    fill(found, sampler, [])
    assert found.device_name == "cuda:1, some card"
    assert found.simulated
    sampler.began = {first: 7, second: 9}
    found = Measured()
    fill(found, sampler, [])
    assert found.device_name == "cpu"

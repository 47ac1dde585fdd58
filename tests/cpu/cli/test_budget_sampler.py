"""What the dispatch budget hears of kernels that end in another stretch than they began in."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import slipstream as ss
from slipstream.core.api.budget import TICK, Look, _Sampler, measure_budget
from slipstream.core.vocab.modes import modes

LONG = int(TICK * 1e9)


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

"""What a mend gains, reckoned from units and counts: the three slow examples as an H200 ran them.

The units are that machine's, in ns; the gains were measured there without a profile.
"""

from __future__ import annotations

import pytest

from slipstream.core.api.recording import Event
from slipstream.core.api.units import Units
from slipstream.profiler.budgets import Work

H200 = Units(replayed=1030, alone=5700, wait=40_000, copy=8_000, byte=0.1, line=500,
             lone_extra=1600, graph_extra=9_000, node_extra=300)


def events(kind: str, count: int, length: int, value: int) -> list[Event]:
    return [Event(kind, "", "", 0, "", 0, length, 0, value) for _ in range(count)]


@pytest.mark.parametrize(("now", "after", "steps", "gained"), [
    # 40 launches alone; then replayed.
    (Work(40, 40, [], [], 0.0, 37_000), Work(40, 0, [], [], 0.0, 37_000), (230.3, 41.2), 5.58),
    # 64 launches in graphs of four, between 16 waits of 22 µs each.
    (Work(64, 0, events("wait", 16, 22_000, 4), [], 0.0, 77_600),
     Work(64, 0, [], [], 0.0, 77_600), (786.9, 73.3), 10.73),
    # 18 launches and one MiB.
    (Work(18, 0, [], events("host copy", 1, 100_000, 1 << 20), 0.0, 26_400),
     Work(18, 0, [], [], 0.0, 26_400), (135.6, 25.4), 5.33)])
def test_the_examples_on_an_h200(now: Work, after: Work, steps: tuple[float, float],
                                 gained: float) -> None:
    reckoned = [work.budget(H200, 1).step for work in (now, after)]
    assert reckoned == pytest.approx(steps, rel=0.15)
    assert reckoned[0] / reckoned[1] == pytest.approx(gained, rel=0.2)


def test_a_long_wait_counts_as_long_as_it_was() -> None:
    short, long = (Work(1, 0, events("wait", 1, length, 4), [], 0.0, 0.0)
                   for length in (10, 5_000_000))
    assert short.budget(H200, 1).step == pytest.approx(41.03)
    assert long.budget(H200, 1).step == pytest.approx(5001.03)


def test_no_step_is_shorter_than_the_cards_work() -> None:
    assert Work(10, 0, [], [], 5_000.0, 2e6).budget(H200, 2).step == pytest.approx(1000.0)
    assert Work(10, 0, [], [], 5_000.0, 2e3).budget(H200, 2).step == pytest.approx(7.65)

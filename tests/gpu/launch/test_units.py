"""What small things cost, as measured for a verdict's gain."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

import slipstream as ss
from gpu.conftest import REAL
from gpu.launch.planted import Step, host_works
from slipstream import profiler
from slipstream.core.api.profiling import Session
from slipstream.core.api.recording import Recording
from slipstream.core.api.units import Meter, known, shown_of, units_of
from slipstream.core.launch.waiting import watching
from slipstream.core.native.processors import running_on
from slipstream.core.native.simulated import clock
from slipstream.core.vocab.modes import modes
from slipstream.core.vocab.ring import exports
from slipstream.profiler.budgets import work_of
from slipstream.profiler.diagnosis import diagnose, working

STEPS = 20


@pytest.fixture(autouse=True)
def fresh(request: pytest.FixtureRequest) -> None:
    known.clear()
    if not REAL:
        request.getfixturevalue("restart")(race=False)


def test_units_are_measured_once_and_change_nothing_of_the_users() -> None:
    ss.rand(1 << 20, device="cuda")
    ss.cuda.synchronize()
    held = ss.cuda.memory_allocated()
    states = ss.get_rng_state().tolist(), ss.cuda.get_rng_state().tolist()
    peak = ss.cuda.max_memory_allocated()
    streams = len(ss.cuda.current_stream().backend.queues)
    tables = set(exports), set(watching.waits), set(watching.copies)
    ss.cuda.set_sync_debug_mode("error")
    try:
        found = units_of(0)
    finally:
        ss.cuda.set_sync_debug_mode("default")
    assert found is not None
    assert found.replayed > 0
    assert REAL or found.replayed < found.alone
    assert found.wait > 0
    assert units_of(0) is found
    assert modes.ring is None
    assert (set(exports), set(watching.waits), set(watching.copies)) == tables
    assert len(ss.cuda.current_stream().backend.queues) == streams
    # A copy of 1 MiB and its source were there beside the 4 MiB.
    assert ss.cuda.max_memory_allocated() <= peak + (3 << 20)
    assert ss.cuda.memory_allocated() == held
    assert (ss.get_rng_state().tolist(), ss.cuda.get_rng_state().tolist()) == states


@pytest.mark.skipif(REAL, reason="a card's units are its machine's")
def test_the_simulated_drivers_units() -> None:
    ss.ones(1, device="cuda")
    found: Any = units_of(0)
    # A line, the road to the launch, and of a launch alone the driver's call.
    host = 1e3 * (clock.PYTHON_TIME + clock.DISPATCH_TIME)
    assert host <= found.replayed < 1.1 * host
    assert 1.5 * host < found.alone < 2 * host
    assert found.byte == pytest.approx(1e3 / clock.MOVED, rel=0.1)
    # A profile costs nothing in virtual time.
    shown: Any = shown_of(0, False)
    assert shown.pace == pytest.approx(host, rel=0.05)
    assert 1e3 * clock.PYTHON_TIME <= shown.gap < 3e3 * clock.PYTHON_TIME
    assert 0 < shown.waited < shown.waiting
    assert shown_of(0, False) is shown
    by_events: Any = shown_of(0, True)
    # Events around a small graph show more than its kernels.
    assert by_events.graph_extra > shown.graph_extra
    assert by_events.waited > shown.waited


def small_ops() -> Step:
    x = ss.ones(64, device="cuda")

    def step() -> None:
        for _ in range(24):
            x.add_(1.0)

    return step


def handed_out() -> Step:
    x, mask = ss.ones(64, device="cuda"), ss.ones(64, device="cuda")
    mask.data_ptr()

    def step() -> None:
        y = x
        for _ in range(5):
            y = y * mask
        for _ in range(20):
            x.add_(1.0)

    return step


def waits() -> Step:
    x = ss.ones(64, device="cuda")

    def step() -> None:
        for _ in range(3):
            (x * 2.0 + 1.0).sum().item()

    return step


def long_waits() -> Step:
    x = ss.ones(1 << 20, device="cuda")

    def step() -> None:
        x.exp().sum().item()

    return step


def copies() -> Step:
    table = ss.ones(1 << 16)
    x = ss.ones(1 << 8, device="cuda")

    def step() -> None:
        for _ in range(12):
            x.add_(1.0)
        table.to("cuda")

    return step


def work_of_its_own() -> Step:
    x = ss.ones(64, device="cuda")

    def step() -> None:
        host_works(300e-6)
        for _ in range(12):
            x.add_(1.0)

    return step


def cards_work() -> Step:
    x = ss.ones(1 << 20, device="cuda")

    def step() -> None:
        for _ in range(3):
            x.add_(1.0)

    return step


@pytest.mark.skipif(REAL, reason="on a card nobody can look and not look at once")
@pytest.mark.parametrize("by_events", [False, True])
@pytest.mark.parametrize("make", [small_ops, handed_out, waits, long_waits, copies,
                                  work_of_its_own, cards_work])
def test_a_step_is_reckoned_as_it_is(make: Callable[[], Step], by_events: bool) -> None:
    step = make()
    for _ in range(4):
        # Windows are the same from profile to profile, and replayed by then.
        profiled(step, False)
    # The driver tells of work in no virtual time; events take some.
    recording, taken = profiled(step, False)
    if by_events:
        recording, _ = profiled(step, True)
    units, shown = units_of(0), shown_of(0, by_events)
    assert units is not None
    assert shown is not None
    card = working(recording, diagnose(recording))
    reckoned = work_of(recording, units, shown, card).budget(units, STEPS).step
    assert reckoned == pytest.approx(taken, rel=0.2)


def profiled(step: Step, by_events: bool) -> tuple[Recording, float]:
    """What is seen of some steps, and µs of one."""
    ss.cuda.synchronize()
    session = Session(by_events=by_events)
    session.start()
    at = session.begun
    for number in range(STEPS):
        step()
        at = session.step(number, at)
    ss.cuda.synchronize()
    taken = (session.ring.now() - session.begun) / STEPS / 1e3
    return session.stop(), taken


def test_nothing_is_measured_while_a_profile_is_on() -> None:
    ss.ones(1, device="cuda")
    with profiler.profile():
        assert units_of(0) is None
        assert shown_of(0, False) is None
    assert units_of(0) is not None
    with profiler.profile():
        assert shown_of(0, False) is None
    assert shown_of(0, False) is not None


def test_prices_hold_for_a_while() -> None:
    ss.ones(1, device="cuda")
    first, shown = units_of(0), shown_of(0, False)
    # As on a card, whose machine has neighbours.
    known[0].until = 0.0
    second = units_of(0)
    assert second is not None
    assert second is not first
    # What a profile shows is of the same moment.
    again = shown_of(0, False)
    assert again is not shown
    assert shown_of(0, False) is again
    known[0].until = 0.0
    with profiler.profile():
        assert units_of(0) is second
        assert shown_of(0, False) is again


@pytest.mark.skipif(running_on() is None, reason="nobody tells where a thread runs")
def test_prices_are_those_of_the_processor_that_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    everywhere = os.sched_getaffinity(0)
    for name in ("units", "shown"):
        measure = getattr(Meter, name)

        def look(self: Meter, *arguments: Any, measure: Any = measure) -> Any:
            seen.append((running_on(), os.sched_getaffinity(0)))
            return measure(self, *arguments)

        monkeypatch.setattr(Meter, name, look)
    ss.ones(1, device="cuda")
    assert shown_of(0, False) is not None
    assert len(seen) == 2
    assert all(allowed == {processor} for processor, allowed in seen)
    assert os.sched_getaffinity(0) == everywhere


@pytest.mark.skipif(REAL, reason="virtual time needs the session that is left")
def test_a_failure_leaves_no_profile_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Meter) -> int:
        raise RuntimeError("the card is lost")

    ss.ones(1, device="cuda")
    monkeypatch.setattr(Meter, "waiting", fail)
    assert units_of(0) is None
    assert shown_of(0, False) is None
    assert modes.ring is None


def test_no_card_no_units() -> None:
    assert units_of(77) is None
    assert shown_of(77, False) is None

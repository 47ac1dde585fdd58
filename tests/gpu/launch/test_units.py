"""What small things cost, as measured for a verdict's gain."""

from __future__ import annotations

from typing import Any

import pytest

import slipstream as ss
from gpu.conftest import REAL
from slipstream import profiler
from slipstream.core.api.units import Meter, known, units_of
from slipstream.core.launch.waiting import watching
from slipstream.core.native.simulated import clock
from slipstream.core.vocab.modes import modes
from slipstream.core.vocab.ring import exports


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
    assert found.line == pytest.approx(1e3 * clock.PYTHON_TIME)
    assert found.byte == pytest.approx(1e3 / clock.MOVED, rel=0.1)


def test_nothing_is_measured_while_a_profile_is_on() -> None:
    ss.ones(1, device="cuda")
    with profiler.profile():
        assert units_of(0) is None
    assert units_of(0) is not None


@pytest.mark.skipif(REAL, reason="virtual time needs the session that is left")
def test_a_failure_leaves_no_profile_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Meter) -> int:
        raise RuntimeError("the card is lost")

    ss.ones(1, device="cuda")
    monkeypatch.setattr(Meter, "waiting", fail)
    assert units_of(0) is None
    assert modes.ring is None


def test_no_card_no_units() -> None:
    assert units_of(77) is None

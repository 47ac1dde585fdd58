"""The slow programs of the examples: the line that is named is the one with the mend behind it,
and the mend gains what the verdict says.

On the simulated driver times are virtual; on a card they decide nothing here."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from gpu.conftest import REAL
from slipstream import profiler
from slipstream.core.api.units import known
from slipstream.core.native.simulated import calls, clock, graphing, streams
from slipstream.core.vocab.ring import exports

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "slow"
BOUNDS = {"handed_out": "launch", "waiting": "wait", "copying": "copy"}
INSTEAD = re.compile(r"^( *)\S.*  # instead: (.*)$", re.MULTILINE)
# What a host that is so many times as slow takes longer for, and what it does so much less of.
SLOWER = ((calls, "CALL_TIME"), (calls, "SUBMIT_TIME"), (graphing, "SUBMIT_TIME"),
          (streams, "SUBMIT_TIME"), (streams, "POLL_TIME"), (clock, "PYTHON_TIME"),
          (clock, "DISPATCH_TIME"))
# Of ops of the profile, those before which a neighbour has the processor, and for how many µs.
HELD_UP, HELD_US = (77, 141, 206, 283, 350), 300.0
# Windows come to repeat themselves by then.
WARM, STEPS = 48, 20


@pytest.fixture(autouse=True)
def fresh(request: pytest.FixtureRequest) -> None:
    exports.clear()
    known.clear()
    if not REAL:
        request.getfixturevalue("restart")(race=False)


def profiled(source: str, path: Path) -> Any:
    """The summary of some steps of a program, and the verdict."""
    scope: dict[str, Any] = {"__name__": path.stem}
    exec(compile(source, str(path), "exec", dont_inherit=True), scope)
    step = scope["make"]()
    for _ in range(WARM):
        step()
    with profiler.profile() as seen:
        for _ in range(STEPS):
            step()
            seen.step()
    return profiler.summary(seen.recorded())


@pytest.mark.skipif(REAL, reason="a card's times are measured: make gpu ARGS=profiles")
@pytest.mark.parametrize("name", BOUNDS)
def test_the_mend_gains_what_the_verdict_says(name: str, capsys: Any) -> None:
    path = FOLDER / f"{name}.py"
    source = path.read_text(encoding="utf-8")
    (found,) = INSTEAD.finditer(source)
    line = 1 + source[:found.start()].count("\n")
    slow = profiled(source, path)
    assert slow["bound"] == BOUNDS[name], slow
    assert f"{name}.py:{line}" in slow["verdict"]
    (said,) = re.findall(r"about ([\d.]+) times as fast", slow["verdict"])
    quick = profiled(INSTEAD.sub(r"\1\2", source), path)
    gained = slow["span"] / quick["span"]
    with capsys.disabled():
        print(f"\n{name}: said {said} times, {slow['gain']:.2f}; gained {gained:.2f}")
    assert gained > 1.15
    assert 0.7 <= gained / float(said) <= 1.3


def both(name: str) -> tuple[Any, Any]:
    """The summaries of a program before and after its mend."""
    path = FOLDER / f"{name}.py"
    source = path.read_text(encoding="utf-8")
    return profiled(source, path), profiled(INSTEAD.sub(r"\1\2", source), path)


@pytest.mark.skipif(REAL, reason="a card's host is as fast as it is")
@pytest.mark.parametrize(("name", "slower"), [
    ("copying", 0.5), ("copying", 3.0), ("waiting", 0.5), ("waiting", 3.0),
    # A host that is twice as fast is no slower than the card, and nothing is promised.
    ("handed_out", 1.5), ("handed_out", 3.0)])
def test_promises_hold_on_slow_and_on_quick_hosts(name: str, slower: float,
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    for module, constant in SLOWER:
        monkeypatch.setattr(module, constant, slower * getattr(module, constant))
    monkeypatch.setattr(clock, "MOVED", clock.MOVED / slower)
    slow, quick = both(name)
    assert slow["bound"] == BOUNDS[name]
    gained = slow["span"] / quick["span"]
    assert gained > 1.5
    assert 0.8 <= slow["gain"] / gained <= 1.25


@pytest.mark.skipif(REAL, reason="on a card neighbours come as they like")
@pytest.mark.parametrize("name", BOUNDS)
def test_a_promise_does_not_take_a_neighbours_time_for_the_programs(
        name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = FOLDER / f"{name}.py"
    source = path.read_text(encoding="utf-8")
    alone = profiled(source, path)
    called: list[int] = []
    call = clock.HostClock.call

    def held_up(self: clock.HostClock) -> None:
        called.append(1)
        if len(called) in HELD_UP:
            self.schedule.now += HELD_US
        call(self)

    exports.clear()
    monkeypatch.setattr(clock.HostClock, "call", held_up)
    beside = profiled(source, path)
    assert len(called) > max(HELD_UP)
    assert beside["span"] > alone["span"] + 1000 * HELD_US * (len(HELD_UP) - 1)
    assert beside["gain"] == pytest.approx(alone["gain"], rel=0.15)

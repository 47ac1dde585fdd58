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
from slipstream.core.vocab.ring import exports

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "slow"
BOUNDS = {"handed_out": "launch", "waiting": "wait", "copying": "copy"}
INSTEAD = re.compile(r"^( *)\S.*  # instead: (.*)$", re.MULTILINE)
# Windows come to repeat themselves by then.
WARM, STEPS = 48, 20


@pytest.fixture(autouse=True)
def fresh(request: pytest.FixtureRequest) -> None:
    exports.clear()
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

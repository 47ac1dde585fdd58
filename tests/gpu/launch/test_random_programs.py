"""Random programs give the same bits with the memo on and off and under any legal schedule.

Here a part of them runs; ``make test`` runs them all: ``--programs 1000 --schedules 20``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import slipstream as ss
from gpu.launch.programs import DEVICES, Maker, Runner, Step
from slipstream.core.native.simulated import SimulatedFault

# Programs are run in so many parts, each over a driver of its own.
PARTS = 8
PROGRAMS, SCHEDULES = 320, 6
SEEDS = 20
# Of each part's programs the first so many run with neighbours joined too: a chain is a kernel.
JOINED = 8
NEVER, ALWAYS = 0, 2


class Bench:
    """A simulated driver, on which programs are run under schedules."""

    def __init__(self, restart: Any, library: bool) -> None:
        self.driver = restart(library=library)
        self.cuda, self.cpu = Runner("cuda"), Runner("cpu")
        self.backends = [self.cuda.streams[device][0].backend for device in range(DEVICES)]

    def run(self, steps: list[Step], schedule: int, memo: bool, join: bool = False) -> list[bytes]:
        """What a program gives under a schedule."""
        self.driver.schedule.draw.seed(schedule)
        self.driver.schedule.times.seed(schedule)
        for backend in self.backends:
            backend.set_memo(memo)
            backend.chains.mode = ALWAYS if join else NEVER
        return self.cuda.run(steps)


def test_random_programs_give_the_same_bits(request: Any, restart: Any, part: int) -> None:
    programs = request.config.getoption("--programs", None) or PROGRAMS
    schedules = request.config.getoption("--schedules", None) or SCHEDULES
    bench = Bench(restart, library=part % 2 == 1)
    for seed in range(part, programs, PARTS):
        steps = Maker(seed).make()
        wanted = bench.run(steps, 0, memo=False)
        for schedule in range(schedules):
            join = schedule % 2 == 1 and seed < JOINED * PARTS
            assert bench.run(steps, schedule, memo=True, join=join) == wanted, f"program {seed}"
        assert bench.run(steps, schedules, memo=False) == wanted, f"program {seed}"
        near(wanted, bench.cpu.run(steps), seed)
    assert ss.cuda.launch_stats()["replayed"] > 0
    assert sum(backend.chains.joined for backend in bench.backends) > 0


def near(found: list[bytes], wanted: list[bytes], seed: int) -> None:
    """The CPU's results are nearly the same."""
    for mine, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(np.frombuffer(mine, np.float32),
                                   np.frombuffer(other, np.float32), rtol=1e-3, atol=1e-3,
                                   err_msg=f"program {seed}")


def pytest_generate_tests(metafunc: Any) -> None:
    if "part" in metafunc.fixturenames:
        metafunc.parametrize("part", range(PARTS))


def test_programs_are_made_of_what_they_should_be() -> None:
    kinds = set()
    for seed in range(100):
        steps = Maker(seed).make()
        kinds |= {step.kind for step in steps}
        assert 20 <= sum(step.kind not in ("wait stream", "event", "synchronize", "arrive")
                         for step in steps) <= 64 + 4
    assert {"add", "turned", "add_", "half_", "put_", "uniform", "free", "event", "wait stream",
            "pointer", "numpy", "move", "arrive"} <= kinds


# -- a wait that is missing --

Lines = list[str]


def here(back: int) -> str:
    """A line of the calling function, some lines before the call."""
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return f"{__file__}:{frame.f_back.f_lineno - back}"


def read_while_written(side: Any, x: Any, wait: bool, lines: Lines) -> Any:
    """One stream writes what another reads."""
    x.mul_(2.0)
    lines.append(here(1))
    if wait:
        side.wait_stream(ss.cuda.default_stream())
    with ss.cuda.stream(side):
        y = x * 3.0
        lines.append(here(1))
    return y


def written_while_read(side: Any, x: Any, wait: bool, lines: Lines) -> Any:
    """One stream reads what another then writes."""
    y = x * 2.0
    lines.append(here(1))
    if wait:
        side.wait_stream(ss.cuda.default_stream())
    with ss.cuda.stream(side):
        x.zero_()
        lines.append(here(1))
    return y


def disjoint(side: Any, x: Any, wait: bool, lines: Lines) -> Any:
    """Two streams write two halves of one storage."""
    x[:32].mul_(2.0)
    with ss.cuda.stream(side):
        x[32:].add_(1.0)
    return x


Program = Callable[[Any, Any, bool, Lines], Any]


def runs(restart: Any, program: Program, wait: bool, race: bool) -> tuple[set[Any], Lines]:
    """The results over the seeds, an error where one was reported, and the lines that count."""
    found: set[Any] = set()
    lines: Lines = []
    for seed in range(SEEDS):
        restart(seed=seed, race=race)
        lines = []
        side = ss.cuda.Stream()
        x = ss.ones(64, device="cuda")
        ss.cuda.synchronize()
        result = program(side, x, wait, lines)
        try:
            ss.cuda.synchronize()
            found.add(tuple(result.tolist()))
        except SimulatedFault as fault:
            found.add(fault)
    return found, lines


@pytest.mark.parametrize("program", [read_while_written, written_while_read])
def test_a_missing_wait_shows(restart: Any, program: Program) -> None:
    found, _ = runs(restart, program, wait=False, race=False)
    assert len(found) >= 2


@pytest.mark.parametrize("program", [read_while_written, written_while_read])
def test_a_missing_wait_is_reported_with_both_lines(restart: Any, program: Program) -> None:
    found, lines = runs(restart, program, wait=False, race=True)
    assert len(found) == SEEDS
    for fault in found:
        assert isinstance(fault, SimulatedFault)
        assert fault.kind == "RACE"
        assert all(line in str(fault) for line in lines)


@pytest.mark.parametrize("program", [read_while_written, written_while_read])
def test_its_twin_that_waits_gives_one_result(restart: Any, program: Program) -> None:
    found, _ = runs(restart, program, wait=True, race=True)
    assert len(found) == 1
    assert isinstance(found.pop(), tuple)


def test_disjoint_halves_of_a_storage_are_no_race(restart: Any) -> None:
    found, _ = runs(restart, disjoint, wait=False, race=True)
    assert found == {(2.0,) * 64}

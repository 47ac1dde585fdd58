"""What profiles of a card cost, and whether they are right: planted programs, promised gains.

A row of a promise has the step's times before and after the mend, with nobody watching; its value
is what the verdict promised by what was gained.
"""

from __future__ import annotations

import importlib.util
import json
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import slipstream as ss
from gpu.models import Step, mlp_step
from gpu.profile_worker import ROUNDS, small_ops
from gpu.timing import Row
from slipstream import profiler
from slipstream.core.api.profiling import Session
from slipstream.core.launch.cuda.activities import Activities, Sums, resampled

ROOT = Path(__file__).resolve().parents[2]
WORKER = Path(__file__).resolve().parent / "profile_worker.py"
INSTEAD = re.compile(r"^( *)\S.*  # instead: (.*)$", re.MULTILINE)
WARM, STEPS = 60, 40
# Stretches of some µs in which steps are timed, and tries to find how many steps these are.
STRETCHES, STRETCH, TRIES = 61, 2e3, 5
# Promises of a program, of which the median counts: a machine has its moments.
PROMISES = 5
COST_BAR = 0.5
# Profiles whose kernel times are summed, steps of each, and how far the sums may be apart.
# A lap of timed steps comes every 15 to 20 steps, and what differs from one lap to the next (some
# percent, a few laps much longer) is in the mean by one through the root of their number: 120 steps
# have six laps, and the mean of these is as far off as the bar; a thousand steps have 50 and more.
SUMS, SUM_STEPS, SUM_BAR = 5, 1000, 0.02
# A promise may be 30 % off either way.
LEAST_SHARE, MOST_SHARE = 0.7, 1.3


def profiles() -> list[Row]:
    """The rows of this part."""
    return [*costs(), *sums(), planted_programs(), *promises()]


def costs() -> list[Row]:
    """Host time that a profile adds to an op.

    The card comes first, and what its ops take before there was any profile: CUPTI makes graphs'
    launches dearer as soon as it is attached, and for good.  How much of it that is has a row.
    """
    rows = []
    for device in ("cuda", "cpu"):
        x = ss.ones(64, device=device)
        for _ in range(5):
            small_ops(x)
        before = min(watched(x, False) for _ in range(ROUNDS))
        best = {False: 1e9, True: 1e9}
        for _ in range(ROUNDS):
            for on in (False, True):
                best[on] = min(best[on], watched(x, on))
        least = min(before, best[False])
        rows.append(Row(f"profile on, {device}: added to an op's host time",
                        best[True], least, best[True] - least, COST_BAR, "µs"))
        if x.is_cuda:
            rows.append(Row("profile off, cuda, once CUPTI was attached: the same", best[False],
                            before, best[False] - before, None, "µs"))
        rows += peer_cost(device)
    return rows


def peer_cost(device: str) -> list[Row]:
    """The same of PyTorch's profiler, in a process of its own; nothing where there is none."""
    done = subprocess.run([sys.executable, str(WORKER), device], capture_output=True, text=True,
                          timeout=60)
    if done.returncode:
        print(f"PyTorch's profiler: {done.stderr.strip().splitlines()[-1:]}")
        return []
    found = json.loads(done.stdout.strip().splitlines()[-1])
    return [Row(f"PyTorch's profile on, {device}: added to an op's host time", found["on"],
                found["off"], found["on"] - found["off"], None, "µs")]


def watched(x: Any, on: bool) -> float:
    """The same with a profile on or off."""
    if x.is_cuda:
        ss.cuda.synchronize()
    session = Session() if on else None
    if session is not None:
        session.start()
        # What a session costs once is not what an op costs: its first launches are told apart.
        small_ops(x)
        if x.is_cuda:
            ss.cuda.synchronize()
    spent = small_ops(x)
    if session is not None:
        session.stop()
    return spent


def sums() -> list[Row]:
    """Kernel times of a training step as a profile samples them, by those of all records of CUPTI.

    Both are of the very same launches: CUPTI tells of all, and the profile's own rule says which of
    them it would not have asked for, at the price of a lap that a profile before found.  Two runs
    differ by what the card's clocks do in between.
    """
    step = mlp_step(ss)
    for _ in range(WARM):
        step()
    price = price_of_lap(step)
    found = [kernels_of(step, price) for _ in range(SUMS)]
    shares = sorted(each.sampled / each.told for each in found)
    averaged = sum(each.averaged for each in found) / sum(each.kernels for each in found)
    rows = []
    what = f"kernel times, {100 * averaged:.0f} % of them the mean, by CUPTI's of the same launches"
    for name, share, bar in (("most", shares[-1], 1 + SUM_BAR), ("least", shares[0], SUM_BAR - 1)):
        sampled, told = next((each.sampled, each.told) for each in found
                             if each.sampled / each.told == share)
        rows.append(Row(f"{what}, at {name}", sampled / SUM_STEPS / 1e3, told / SUM_STEPS / 1e3,
                        share, bar, "µs"))
    return rows


def price_of_lap(step: Step) -> int:
    """ns that a lap of timed sends costs the host, as a profile of the step finds."""
    return noted(step, Session()).sampler.price


def kernels_of(step: Step, price: int) -> Sums:
    """Both sums of some steps."""
    return resampled(noted(step, Session(every_kernel=True)).notes, price)


def noted(step: Step, session: Session) -> Activities:
    """What CUPTI told of some steps."""
    ss.cuda.synchronize()
    session.start()
    activities: Activities | None = session.ring.timer.activities
    if activities is None:
        raise RuntimeError(f"CUPTI tells of nothing: {session.ring.timer.verdict.missing}")
    for _ in range(SUM_STEPS):
        step()
    session.stop()
    return activities


def planted_programs() -> Row:
    """How many of the programs of the tests are said to be bound by what they are."""
    planted = tests_module("gpu/launch/planted.py")
    right = 0
    for make, bound in planted.PLANTED:
        step = make()
        for _ in range(3):
            step()
        session = Session()
        session.start()
        for _ in range(6):
            step()
        named = profiler.summary(session.stop())["bound"]
        right += named == bound
        if named != bound:
            print(f"planted {make.__name__}: {bound}-bound, and named {named}-bound")
    count = len(planted.PLANTED)
    return Row("planted programs whose bound is named", right, None, right, -count, "")


def tests_module(name: str) -> Any:
    """A module of the tests, whose packages have the names of ours."""
    spec = importlib.util.spec_from_file_location("planted", ROOT / "tests" / name)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(f"tests/{name}: profiles are measured in a checkout")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def promises() -> list[Row]:
    """What the verdict on each slow example promises by what its mend gains."""
    rows = []
    for path in sorted((ROOT / "examples" / "slow").glob("*.py")):
        source = path.read_text(encoding="utf-8")
        slow, quick = program(source, path), program(INSTEAD.sub(r"\1\2", source), path)
        found = [promise(slow, quick) for _ in range(PROMISES)]
        before, after, share = (statistics.median(each) for each in zip(*found, strict=True))
        what = f"examples/slow/{path.name}: promised by gained"
        rows.append(Row(f"{what}, at most", before, after, share, MOST_SHARE, "µs"))
        rows.append(Row(f"{what}, at least", before, after, share, -LEAST_SHARE, "µs"))
    return rows


def promise(slow: Step, quick: Step) -> tuple[float, float, float]:
    """A step's times before and after the mend, and what is promised by what is gained."""
    before, after = alone(slow, quick)
    with profiler.profile() as seen:
        for _ in range(STEPS):
            slow()
            seen.step()
    gain: float = profiler.summary(seen.recorded())["gain"]
    return before, after, gain * after / before


def program(source: str, path: Path) -> Step:
    """The step of an example, in its steady state."""
    scope: dict[str, Any] = {"__name__": path.stem}
    exec(compile(source, str(path), "exec", dont_inherit=True), scope)
    step: Step = scope["make"]()
    for _ in range(WARM):
        step()
    ss.cuda.synchronize()
    return step


def alone(slow: Step, quick: Step) -> tuple[float, float]:
    """Microseconds of a step of each while nobody watches: the least of many short stretches.

    They take turns, and a stretch of one is as long as one of the other: what a neighbour takes of
    the processor would be in each long stretch, and in few of the short ones.
    """
    counts = [max(round(STRETCH / min(stretch(step, 4) for _ in range(TRIES))), 2)
              for step in (slow, quick)]
    found = [(stretch(slow, counts[0]), stretch(quick, counts[1])) for _ in range(STRETCHES)]
    before, after = map(min, zip(*found, strict=True))
    return before, after


def stretch(step: Step, count: int) -> float:
    """Microseconds of a step of so many."""
    start = time.perf_counter()
    for _ in range(count):
        step()
    ss.cuda.synchronize()
    return (time.perf_counter() - start) / count * 1e6

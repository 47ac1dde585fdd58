"""Measures ours beside the peer, PyTorch 2.13.0 on the CPU, and prints each figure with its bar.

Each subject is a process of its own; rounds alternate between them, so that a busy moment of the
machine meets all alike.  A round's time is the fastest of a few repeats; a figure is the median
over rounds, a ratio the median of the rounds' ratios.  First calls can be timed once a process:
theirs is the median over calls of each call's fastest process.  Results go to
benchmarks/results/<date>-<machine>.json and, with --readme, into the README.
Usage: python benchmarks/run.py [--rounds N] [--seconds S] [--only WORD] [--strict] [--readme]
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from core_ops import FIRST_CALLS, HEADLINES, REPEATS, ROWS
from rich.console import Console
from rich.progress import track

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import peer  # noqa: E402

WORKER = ROOT / "benchmarks" / "core_ops.py"
RESULTS = ROOT / "benchmarks" / "results"
MARKS = ("<!-- bench begins -->", "<!-- bench ends -->")
OURS, UNCOMPILED, PEER = "ours", "uncompiled", "peer"
# Each headline: what it says, and the most that ours may take, in units of the peer's time.
BARS = {
    "add": ("`a + b`, one element, no_grad", 0.30),
    "mul_number": ("`a * 2.0`, 8 elements", 0.5),
    "add_grad": ("`a + b` with gradient, 8 elements", 0.5),
    "view": ("`view`, 8 elements", 0.5),
    "relu": ("`relu`, 8 elements", 0.5),
    "sum": ("`sum`, 8 elements", 0.5),
    "mlp_step": ("MLP 8 x 256, batch 64: forward, backward, AdamW step (peer: its defaults)", 1.3),
    "add_large": ("`a + b`, 10 million float32, new outputs", 0.35),
}
SETTLE_SECONDS = 0.005
PROCESSES = 3
IMPORTS = 9
UNCOMPILED_BAR = 2.0
MEDIAN_BAR, WORST_BAR = 0.6, 1.5
FIRST_BARS = {
    "new_shape": ("first `a + b` on a new shape, recipe known", 8_000),
    "new_dtypes": ("new recipe: first call of add, sub, mul on a new pair of dtypes", 80_000),
    "new_rank": ("new recipe: first call on a new rank, dtypes met before", 80_000),
}
IMPORT_BAR = 80e6
IMPORT_CODE = (
    "import numpy, time; t = time.perf_counter_ns(); import {}; print(time.perf_counter_ns() - t)"
)


PROGRESS = Console(stderr=True)


class Figure(NamedTuple):
    """One line of the table; times in nanoseconds, the bar in units of what is compared."""

    what: str
    ours: float | None
    peer: float | None
    value: float | None
    bar: float
    note: str = ""


class Subject:
    """A worker process that times rows under one module."""

    def __init__(self, python: Path | str, module: str, environment: dict[str, str],
                 worker: Path = WORKER) -> None:
        command = [str(python), str(worker), "--module", module]
        self.command, self.environment = command, os.environ | environment
        self.numbers: dict[str, int] = {}
        self.errors: dict[str, str] = {}
        self.start()

    def start(self) -> None:
        """Start the process; one that cannot import its module answers errors."""
        self.process = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, env=self.environment,
        )
        self.alive = bool(self.process.stdout and self.process.stdout.readline())

    def stop(self) -> None:
        """End the process."""
        self.process.communicate()

    def ask(self, **request: Any) -> dict[str, Any]:
        """Send one request and return the answer."""
        if not self.alive:
            return {"error": "did not start"}
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        self.alive = bool(line)
        return json.loads(line) if line else {"error": "the process died"}

    def calibrate(self, row: str, seconds: float) -> None:
        """Choose how many calls make a repeat of a round of ``seconds``, after warming up."""
        seconds /= REPEATS
        self.numbers[row] = 1
        for number in (1, 3, 10, 100, 1000):
            answer = self.ask(row=row, number=number)
            if "error" in answer:
                self.errors[row] = answer["error"]
                return
            self.numbers[row] = max(1, round(seconds * 1e9 / max(answer["ns"], 1.0)))
            if number > 1 and answer["ns"] * number > seconds * 1e9:
                return

    def time(self, row: str) -> float | None:
        """Return one round's nanoseconds a call, None where the row fails."""
        if row in self.errors:
            return None
        answer = self.ask(row=row, number=self.numbers[row])
        if "error" in answer:
            self.errors[row] = answer["error"]
        return answer.get("ns")


def start_subjects(peer_python: Path) -> dict[str, Subject]:
    """Start one process each for ours, ours uncompiled, and the peer."""
    return {
        OURS: Subject(sys.executable, "slipstream", {}),
        UNCOMPILED: Subject(sys.executable, "slipstream", {"SLIPSTREAM_CORE": "uncompiled"}),
        PEER: Subject(peer_python, "torch", {"OMP_PROC_BIND": "true"}),
    }


def measure(subjects: dict[str, Subject], options: argparse.Namespace,
            known: Iterable[str] = ROWS) -> dict[str, dict]:
    """Return the rounds of every row asked for, subject by subject.

    A round visits all rows, so that a slow minute of the machine meets a few rounds of each row.
    """
    rows = [row for row in known if re.search(options.only, row)]
    rounds: dict[str, dict[str, list]] = {}
    for row in track(rows, "warming up", console=PROGRESS, transient=True):
        chosen = [name for name in subjects if name != UNCOMPILED or row == "add"]
        rounds[row] = {name: [] for name in chosen}
        for name in chosen:
            subjects[name].calibrate(row, options.seconds)
    turns = list(product(range(options.rounds), rows))
    for _, row in track(turns, "measuring", console=PROGRESS, transient=True):
        for name, times in rounds[row].items():
            # The other subject's threads may still spin for a moment after its round.
            time.sleep(SETTLE_SECONDS)
            times.append(subjects[name].time(row))
    return rounds


def median(values: list | None) -> float | None:
    """Return the median, None where a value is missing."""
    return None if not values or None in values else statistics.median(values)


def ratio(rounds: dict[str, list], name: str = OURS) -> float | None:
    """Return the median of the rounds' ratios to the peer."""
    pairs = zip(rounds[name], rounds[PEER], strict=True)
    return median([None if None in pair else pair[0] / pair[1] for pair in pairs])


def headline_figures(rounds: dict[str, dict[str, list]]) -> list[Figure]:
    """Return the figures of the single rows."""
    figures = []
    for row in [name for name in HEADLINES if name in rounds]:
        what, bar = BARS[row]
        mine = rounds[row]
        peers = median(mine[PEER])
        figures.append(Figure(what, median(mine[OURS]), peers, ratio(mine), bar))
        if UNCOMPILED in mine:
            slow = median(mine[UNCOMPILED]), peers, ratio(mine, UNCOMPILED)
            figures.append(Figure(f"{what}, core uncompiled", *slow, UNCOMPILED_BAR))
    return figures


def op_figures(rounds: dict[str, dict[str, list]]) -> list[Figure]:
    """Return median and worst over all ops at 8 elements."""
    ratios = {row: ratio(r) for row, r in rounds.items() if row.startswith("op ")}
    if not ratios:
        return []
    known = {row: value for row, value in ratios.items() if value is not None}
    note = f"{len(known)} of {len(ratios)} rows run"
    if not known:
        return [Figure("all ops at 8 elements, median", None, None, None, MEDIAN_BAR, note)]
    worst = max(known, key=known.__getitem__)
    mine, peers = (median(rounds[worst][name]) for name in (OURS, PEER))
    middle = statistics.median(known.values())
    return [
        Figure("all ops at 8 elements, median", None, None, middle, MEDIAN_BAR, note),
        Figure("all ops at 8 elements, worst", mine, peers, known[worst], WORST_BAR, worst[3:]),
    ]


def first_samples(subject: Subject, name: str) -> list[float] | None:
    """Return each first call's nanoseconds, the fastest of a few fresh processes."""
    runs = []
    for _ in range(PROCESSES):
        subject.stop()
        subject.start()
        runs.append(subject.ask(first=name).get("samples"))
    return None if None in runs else [min(calls) for calls in zip(*runs, strict=True)]


def first_figures(subjects: dict[str, Subject]) -> list[Figure]:
    """Return what first calls cost (ours has the bar; the peer's stands beside it)."""
    figures = []
    for name in track(FIRST_CALLS, "first calls", console=PROGRESS, transient=True):
        times = {s: median(first_samples(subjects[s], name)) for s in (OURS, PEER)}
        what, bar = FIRST_BARS[name]
        figures.append(Figure(what, times[OURS], times[PEER], times[OURS], bar, "ours only"))
    return figures


def import_figure(peer_python: Path) -> Figure:
    """Return what importing ours adds to importing NumPy, the fastest of a few processes."""
    times: dict[str, list[float]] = {"slipstream": [], "torch": []}
    kept = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    for _ in track(range(IMPORTS), "imports", console=PROGRESS, transient=True):
        for module, python in (("slipstream", sys.executable), ("torch", str(peer_python))):
            command = [python, "-c", IMPORT_CODE.format(module)]
            done = subprocess.run(command, capture_output=True, text=True, env=kept)
            times[module] += [] if done.returncode else [float(done.stdout)]
    mine, peers = (min(times[module], default=None) for module in ("slipstream", "torch"))
    return Figure("import, beyond `import numpy`", mine, peers, mine, IMPORT_BAR, "ours only")


def verdict(figure: Figure) -> str:
    """Return how a figure stands to its bar."""
    if figure.value is None:
        return "not there"
    return "ok" if figure.value <= figure.bar else "missed"


def as_time(nanoseconds: float | None) -> str:
    """Return a time with the unit that suits it."""
    if nanoseconds is None:
        return "-"
    for size, unit in ((1e6, "ms"), (1e3, "µs")):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.3g} {unit}"
    return f"{nanoseconds:.0f} ns"


def table(figures: list[Figure]) -> list[str]:
    """Return the figures as a markdown table."""
    lines = ["| | ours | PyTorch | ratio | bar | |", "|---|---|---|---|---|---|"]
    for figure in figures:
        absolute = figure.note == "ours only"
        bar = as_time(figure.bar) if absolute else f"{figure.bar}"
        value = "-" if absolute or figure.value is None else f"{figure.value:.2f}"
        what = figure.what if absolute or not figure.note else f"{figure.what} ({figure.note})"
        cells = (what, as_time(figure.ours), as_time(figure.peer), value, f"≤ {bar}")
        lines.append(f"| {' | '.join(cells)} | {verdict(figure)} |")
    return lines


def machine() -> str:
    """Return a short description of the machine."""
    text = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    model = re.search(r"model name\s*:\s*(.+)", text)
    return f"{model[1].strip() if model else platform.processor()}, {os.cpu_count()} cores"


def title() -> str:
    """Return when and where this was measured, and how busy the machine was with other work."""
    load = f"load average {os.getloadavg()[1]:.1f} over five minutes (2 to 3: the bench itself)"
    return f"Measured {datetime.date.today()} on {machine()}, {load}; PyTorch 2.13.0 (CPU)."


def write_readme(lines: list[str], marks: tuple[str, str] = MARKS) -> None:
    """Put the table between the marks in the README."""
    path = ROOT / "README.md"
    before, rest = path.read_text().split(marks[0])
    after = rest.split(marks[1])[1]
    path.write_text("\n".join([before + marks[0], "", *lines, "", marks[1] + after]))


def write_json(figures: list[Figure], rounds: dict[str, dict[str, list]]) -> Path:
    """Write figures and rounds, and return where."""
    RESULTS.mkdir(exist_ok=True)
    today = datetime.date.today().isoformat()
    path = RESULTS / f"{today}-{re.sub(r'[^a-z0-9]+', '-', machine().lower()).strip('-')}.json"
    facts = {"date": today, "machine": machine(), "python": platform.python_version()}
    rows = [figure._asdict() for figure in figures]
    path.write_text(json.dumps({**facts, "figures": rows, "rounds": rounds}, indent=1) + "\n")
    return path


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.01, help="length of a round")
    parser.add_argument("--only", default="", help="rows whose name this regular expression finds")
    parser.add_argument("--strict", action="store_true", help="fail where a bar is not met")
    parser.add_argument("--peer", type=Path, help="a Python that has PyTorch (default: own venv)")
    parser.add_argument("--readme", action="store_true", help="put the table into the README")
    return parser.parse_args()


def print_rows(rounds: dict[str, dict[str, list]], subjects: dict[str, Subject]) -> None:
    """Print every row's times, the slowest beside the peer first, or why it has none."""
    ratios = {row: ratio(mine) for row, mine in rounds.items()}
    for row in sorted(rounds, key=lambda row: -(ratios[row] or float("inf"))):
        mine, value = rounds[row], ratios[row]
        times = f"{as_time(median(mine[OURS])):>10} {as_time(median(mine[PEER])):>10}"
        why = subjects[OURS].errors.get(row) or subjects[PEER].errors.get(row, "")
        print(f"{row:<20} {times} {'-' if value is None else f'{value:.2f}':>6} {why}")


def print_misses(figures: list[Figure]) -> None:
    """Name the figures that do not meet their bar."""
    missed = [figure.what for figure in figures if verdict(figure) != "ok"]
    print("".join(f"misses its bar: {what}\n" for what in missed), end="")
    print(f"{len(figures) - len(missed)} of {len(figures)} figures meet their bar")


def main() -> int:
    """Measure, print, keep."""
    options = parse_arguments()
    peer_python = options.peer or peer.prepare()
    subjects = start_subjects(peer_python)
    rounds = measure(subjects, options)
    print_rows(rounds, subjects)
    figures = headline_figures(rounds) + op_figures(rounds)
    if not options.only:
        figures += [*first_figures(subjects), import_figure(peer_python)]
    for subject in subjects.values():
        subject.stop()
    lines = [title(), "", *table(figures)]
    print("\n".join(lines))
    print_misses(figures)
    if not options.only:
        print(f"kept in {write_json(figures, rounds).relative_to(ROOT)}")
        if options.readme:
            write_readme(lines)
    return int(options.strict and any(verdict(figure) != "ok" for figure in figures))


if __name__ == "__main__":
    sys.exit(main())

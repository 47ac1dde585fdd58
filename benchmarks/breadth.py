"""Times ours beside PyTorch over the breadth of ops, at a million to ten million elements.

Each in a process of its own, in turns, as `run` does it.  With --readme the table goes into the
README.
Usage: python benchmarks/breadth.py [--rounds N] [--seconds S] [--only WORD] [--strict] [--readme]
"""

from __future__ import annotations

import statistics
import sys

import run
from breadth_rows import ROWS
from run import OURS, PEER, Figure, Subject, as_time, median, ratio

WORKER = run.ROOT / "benchmarks" / "breadth_rows.py"
MARKS = ("<!-- breadth begins -->", "<!-- breadth ends -->")
MEDIAN_BAR = 1.5


def figures_of(rounds: dict[str, dict[str, list]]) -> list[Figure]:
    """Return a figure for each row, and the median of their ratios, which alone has a bar."""
    figures = [Figure(row, median(mine[OURS]), median(mine[PEER]), ratio(mine), MEDIAN_BAR)
               for row, mine in rounds.items()]
    known = [figure.value for figure in figures if figure.value is not None]
    middle = statistics.median(known) if len(known) == len(figures) else None
    return [*figures, Figure("the median of these", None, None, middle, MEDIAN_BAR)]


def table(figures: list[Figure]) -> list[str]:
    """Return the figures as a markdown table."""
    lines = ["| | ours | PyTorch | ratio |", "|---|---|---|---|"]
    for figure in figures:
        value = "not there" if figure.value is None else f"{figure.value:.2f}"
        if figure is figures[-1]:
            value += f" (bar: ≤ {MEDIAN_BAR}, {run.verdict(figure)})"
        lines.append(f"| {figure.what} | {as_time(figure.ours)} | {as_time(figure.peer)} "
                     f"| {value} |")
    return lines


def main() -> int:
    """Measure, print, keep."""
    options = run.parse_arguments()
    peer_python = options.peer or run.peer.prepare()
    subjects = {OURS: Subject(sys.executable, "slipstream", {}, WORKER),
                PEER: Subject(peer_python, "torch", {"OMP_PROC_BIND": "true"}, WORKER)}
    rounds = run.measure(subjects, options, ROWS)
    run.print_rows(rounds, subjects)
    for subject in subjects.values():
        subject.stop()
    figures = figures_of(rounds)
    lines = [run.title(), "", *table(figures)]
    print("\n".join(lines))
    if options.readme and not options.only:
        run.write_readme(lines, MARKS)
    return int(options.strict and run.verdict(figures[-1]) != "ok")


if __name__ == "__main__":
    sys.exit(main())

"""The host's time by line: its ops, and what walking the tape back takes beside them."""

from __future__ import annotations

import slipstream as ss
from slipstream.core.api.recording import Event, LineTotals, Recording
from slipstream.profiler import profile
from slipstream.profiler.html import line_table
from slipstream.profiler.page import MOST_LINES, host_by_line, page, walks


def event(kind: str, name: str, line: int, start: int, end: int, thread: int = 1) -> Event:
    """What happened at a line of a script."""
    return Event(kind, name, "train.py", line, "step", start, end, thread)


def recorded(events: list[Event], lines: list[LineTotals]) -> Recording:
    """A recording of these."""
    return Recording(events, lines, {"dispatch": 1}, {}, 0, 100_000, 4, len(events), 0, 0, False)


def test_a_walk_counts_for_its_line_without_its_ops() -> None:
    events = [
        event("span", "backward", 7, 10_000, 60_000),
        event("op", "matmul", 7, 20_000, 25_000), event("view", "transpose", 7, 25_000, 26_000),
        # Another walk within this one, as a checkpoint makes it, and an op of its.
        event("span", "backward", 3, 30_000, 50_000), event("op", "mul", 3, 35_000, 39_000),
        # What another thread does meanwhile takes nothing away.
        event("op", "add", 9, 10_000, 60_000, thread=2),
        event("span", "backward", 9, 70_000, 73_000, thread=2),
        event("span", "cross_entropy", 6, 0, 9_000),
    ]
    found = walks(recorded(events, []))
    assert found["train.py", 7] == 50_000 - 5_000 - 1_000 - 4_000
    assert found["train.py", 3] == 0
    assert found["train.py", 9] == 3_000
    assert ("train.py", 6) not in found


def test_the_line_that_calls_backward_comes_first_where_its_walk_takes_longest() -> None:
    events = [event("span", "backward", 7, 0, 9_000), event("op", "mul", 7, 0, 1_000),
              event("op", "linear", 5, 9_000, 12_000)]
    lines = [LineTotals("train.py", 5, "step", {"op": (1, 3_000, 0)}),
             LineTotals("train.py", 7, "step", {"op": (1, 1_000, 0)})]
    recording = recorded(events, lines)
    assert [(line.line, count, spent) for line, count, spent in host_by_line(recording)] == [
        (7, 1, 9_000), (5, 1, 3_000)]
    rows = page(recording).partition("\nlines ")[2].splitlines()[1:3]
    assert [row.split() for row in rows] == [
        ["train.py:7", "1", "9.0", "µs"], ["train.py:5", "1", "3.0", "µs"]]
    assert [row[0] for row in line_table(recording)] == ["train.py:7", "train.py:5"]


def test_lines_that_are_left_out_are_counted() -> None:
    lines = [LineTotals("train.py", line, "step", {"op": (1, 1_000 * (20 - line), 0)})
             for line in range(1, MOST_LINES + 3)]
    events = [event("op", "mul", 1, 0, 9_000)]

    def part(count: int) -> str:
        # Above it stands what the process as a whole has seen.
        return page(recorded(events, lines[:count])).rpartition("\nlines ")[2]

    assert f"train.py:{MOST_LINES} " in part(MOST_LINES + 2)
    assert f"train.py:{MOST_LINES + 1} " not in part(MOST_LINES + 2)
    assert "  and 2 more lines\n" in part(MOST_LINES + 2)
    assert f"train.py:{MOST_LINES} " in part(MOST_LINES)
    assert "more lines" not in part(MOST_LINES)


def test_a_program_that_walks_its_tape() -> None:
    w = ss.ones(3, 3, requires_grad=True)
    with profile() as seen:
        (w * 2.0).sum().backward()
        ss.ones(3, 3).sum()
    found = walks(seen.recorded())
    first = test_a_program_that_walks_its_tape.__code__.co_firstlineno
    assert list(found) == [(__file__, first + 3)]
    assert found[__file__, first + 3] > 0

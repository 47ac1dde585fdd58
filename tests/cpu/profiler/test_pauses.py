"""Pauses: what a program does between its ops is its own, wherever it lies."""

from __future__ import annotations

from dataclasses import replace

from slipstream.core.api.recording import Event, PlanFacts, Recording
from slipstream.profiler.budgets import budget_of, host_cost
from slipstream.profiler.diagnosis import diagnose
from slipstream.profiler.page import page
from slipstream.profiler.pauses import Pause, paused, pauses_of, python_text

OP, PITCH, COUNT = 600, 1_000, 100
LONG = 5_000_000


def op(start: int, line: int = 7, thread: int = 1) -> Event:
    return Event("op", "mul", "main.py", line, "main", start, start + OP, thread, 0, "mul", 1)


def recorded(starts: list[Event], end: int, device: str = "cpu") -> Recording:
    plans = {1: PlanFacts("mul", ((4,),), 32, 16, device, 1)}
    events = sorted(starts, key=lambda each: each.start)
    layers = {"Python": end - OP * len(events), "dispatch": OP * len(events)}
    return Recording(events, [], layers, plans, 1, end, len(events), len(events), 0, 0, False,
                     [("MainThread", len(events), layers)])


def loop(begin: int = 0, line: int = 7) -> list[Event]:
    return [op(begin + PITCH * place, line) for place in range(COUNT)]


def test_no_pauses_in_a_loop_of_ops() -> None:
    seen = recorded(loop(), PITCH * COUNT)
    assert pauses_of(seen) == []
    assert host_cost(seen) == PITCH * COUNT
    assert "fewer, larger ops" in python_text(seen)


def test_a_pause_behind_the_last_op_is_the_programs() -> None:
    end = PITCH * COUNT + LONG
    seen = recorded(loop(), end)
    (pause,) = pauses_of(seen)
    assert pause == Pause(PITCH * (COUNT - 1) + OP, end, "main.py:7", "")
    assert host_cost(seen) == PITCH * (COUNT - 1) + OP
    assert "behind the last op, main.py:7" in python_text(seen)


def test_pauses_of_one_place_are_added() -> None:
    # Twenty pauses between runs of one line, beside ten times as many ops without one.
    events = [each for step in range(20) for each in loop(step * LONG)]
    seen = recorded(events, 20 * LONG)
    found = pauses_of(seen)
    assert [(each.before, each.after) for each in found] == 19 * [("main.py:7", "main.py:7")] + [
        ("main.py:7", "")]
    assert "between two runs of main.py:7: 19 times " in python_text(seen)
    # Two lines, and another thread that calls in the meantime.
    other = loop(LONG // 2, 9)
    seen = recorded([*loop(), *loop(LONG, 8), *(replace(each, thread=2) for each in other)],
                    LONG + PITCH * COUNT)
    assert "before main.py:8, behind main.py:7" in python_text(seen)


def test_what_the_ring_dropped_is_no_pause() -> None:
    seen = recorded(loop(LONG), LONG + PITCH * COUNT)
    assert paused(seen) == LONG - 1
    assert "before the first op" in python_text(seen)
    assert pauses_of(replace(seen, dropped=10)) == []


def test_a_cards_ops_are_as_dear_as_without_the_pauses() -> None:
    kernels = [Event("kernel", "mul", "main.py", 7, "main", PITCH * place, PITCH * place + 300, 1,
                     device=0) for place in range(COUNT)]
    send = Event("send", "replayed", "main.py", 7, "main", 0, 10, 1, COUNT, replayed=True)
    events = [*loop(), *kernels, send]
    seen = replace(recorded(loop(), PITCH * COUNT, "cuda:0"), events=events)
    tail = replace(recorded(loop(), PITCH * COUNT + LONG, "cuda:0"), events=events)
    plain, longer = budget_of(seen), budget_of(tail)
    assert plain is not None
    assert longer is not None
    assert abs(longer.host - plain.host) < 0.01
    assert diagnose(tail).verdict == diagnose(seen).verdict
    assert "launch-bound" in diagnose(tail).verdict
    assert "own work behind the last op, main.py:7" in page(tail)
    assert "behind the last op" not in page(seen)


def test_the_thread_that_called_most_may_end_before_the_program_does() -> None:
    # As one that makes batches does, where the loop that takes them goes on.
    late = [op(LONG + PITCH * place, 9, thread=2) for place in range(COUNT - 1)]
    kernel = Event("kernel", "mul", "main.py", 9, "main", LONG, LONG + 300, 2, device=0)
    send = Event("send", "replayed", "main.py", 9, "main", LONG, LONG + 10, 2, 1, replayed=True)
    seen = recorded([*loop(), *late], LONG + PITCH * COUNT, "cuda:0")
    seen = replace(seen, events=[*seen.events, kernel, send])
    assert "behind the last op" not in page(seen)
    assert "behind the last op" in page(replace(seen, events=[*loop(), kernel, send]))


def test_a_budget_is_of_the_thread_that_called_most() -> None:
    # The others run beside it: together they would take longer than the program did.
    end = 2 * PITCH * COUNT
    kernel = Event("kernel", "mul", "main.py", 7, "main", 0, end // 4, 1, device=0)
    send = Event("send", "replayed", "main.py", 7, "main", 0, 10, 1, 1, replayed=True)
    seen = recorded([*loop(), *(op(PITCH * place, 9, 2) for place in range(COUNT // 2))], end,
                    "cuda:0")
    own = {"Python": end - OP * COUNT, "dispatch": OP * COUNT}
    found = budget_of(replace(seen, events=[*seen.events, kernel, send], layers=own, threads=[
        ("MainThread", COUNT, own), ("Thread-1", COUNT // 2, {"dispatch": OP * COUNT // 2})]))
    assert found is not None
    assert found.ops == COUNT
    assert found.device == end / 4 / 1000 / COUNT
    assert found.step <= end / 1000


def test_no_op_has_no_share_of_the_hosts_time() -> None:
    seen = replace(recorded([], LONG), calls=0, threads=[], layers={"waits": LONG})
    assert "0 calls of ops\n" in page(seen) + "\n"

"""The program's own work: stretches of the host in which it called nothing of ours.

They are no part of what an op costs, however few ops there are beside them, and lie where the
program sleeps, reads, or computes by other means: between two lines that call ops, before the first
or behind the last.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from slipstream.core.api.pacing import CALLS, calls_of_host
from slipstream.core.api.recording import Recording
from slipstream.profiler.words import micro, percent, quoted, short

# Python between two ops that takes so many ns is no module's, and no optimizer's.
PAUSE_NS = 200_000


@dataclass(frozen=True)
class Pause:
    """From ``start`` to ``end`` nothing was recorded.

    ``before`` and ``after``: the lines on both sides, empty before the first and behind the last.
    """

    start: int
    end: int
    before: str
    after: str

    @property
    def length(self) -> int:
        """Its ns."""
        return self.end - self.start

    @property
    def place(self) -> str:
        """Where it is, as text."""
        if not self.before:
            return f"before the first op, {quoted(self.after)}"
        if not self.after:
            return f"behind the last op, {quoted(self.before)}"
        if self.before == self.after:
            return f"between two runs of {quoted(self.after)}"
        return f"before {quoted(self.after)}, behind {short(self.before)}"


def pauses_of(recording: Recording) -> list[Pause]:
    """The pauses of the thread that called most."""
    found: list[Pause] = []
    # The ring may have dropped what came first.
    at, before = (0, "") if recording.dropped else (recording.start, "")
    for event in calls_of_host(recording):
        if at and event.start - at >= PAUSE_NS:
            found.append(Pause(at, event.start, before, event.where or before))
        if event.end >= at:
            at, before = event.end, event.where or before
    if before and recording.end - at >= PAUSE_NS:
        found.append(Pause(at, recording.end, before, ""))
    return found


def paused(recording: Recording) -> int:
    """ns of them all, which count as Python's."""
    spent = sum(pause.length for pause in pauses_of(recording))
    return min(spent, recording.layers.get("Python", 0))


def longest(pauses: list[Pause]) -> list[Pause]:
    """Those between the same two lines that take longest together."""
    places: dict[tuple[str, str], list[Pause]] = defaultdict(list)
    for pause in pauses:
        places[pause.before, pause.after].append(pause)
    return max(places.values(), key=lambda found: sum(pause.length for pause in found), default=[])


def python_text(recording: Recording) -> str:
    """Whose Python takes the time: that of long pauses, or what surrounds every op."""
    python = max(recording.layers["Python"], 1)
    pauses = pauses_of(recording)
    most = longest(pauses)
    spent = sum(pause.length for pause in most)
    share = percent(min(spent / python, 1.0))
    if most and not most[0].before and 2 * spent >= python:
        return (f"{share} of that before the first op, as imports and reading are: profile more "
                "steps")
    if most and 2 * paused(recording) >= python:
        each = f"{len(most):,} times {micro(spent / len(most))}" if len(most) > 1 else micro(spent)
        return ("the time is the program's own work between ops, "
                f"{share} of it {most[0].place}: {each} in which no op was called")
    return ("the time is Python between ops, the program's own and that of its modules and "
            "optimizers: fewer, larger ops would help")


def tail_text(recording: Recording) -> str:
    """What is said where most of the time lies behind the last op; empty elsewhere."""
    last = next((pause for pause in pauses_of(recording) if not pause.after), None)
    # Threads that load data call most, and end before the loop does that they load for.
    if last is not None and any(event.start > last.start for event in recording.of(*CALLS)):
        return ""
    if last is None or 2 * last.length < recording.end - recording.start:
        return ""
    return (f"({micro(last.length)} of {micro(recording.end - recording.start)} are the program's "
            f"own work {last.place}: in none of what is said of the card)")

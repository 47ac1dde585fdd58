"""How fast the host of a recording goes: from op to op, and between its records."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict

from slipstream.core.api.recording import Event, Recording

# The op that copies between devices.
COPY_OP = "copy_across"
# What the host does; all but these two come between ops that follow one another at once.
CALLS = ("op", "view")
HOST = (*CALLS, "wait", "send", "data", "plan", "host copy")


def on_card(recording: Recording, event: Event) -> bool:
    """Whether an op is a card's and no copy between devices."""
    plan = recording.plans.get(event.plan)
    return plan is not None and plan.device != "cpu" and event.op != COPY_OP


def host_events(recording: Recording) -> list[Event]:
    """What the thread did that called most, in the order of its start.

    What the host computes itself is left out, as is what it does between two records.
    """
    return of_one_thread([event for event in recording.of(*HOST)
                          if event.kind != "op" or event.op == COPY_OP
                          or on_card(recording, event)])


def calls_of_host(recording: Recording) -> list[Event]:
    """The same with what the host computes itself."""
    return of_one_thread(recording.of(*HOST))


def of_one_thread(found: list[Event]) -> list[Event]:
    """The events of the thread that called most."""
    threads = Counter(event.thread for event in found if event.kind in CALLS)
    if not threads:
        return found
    # The watchdog sends from a thread of its own.
    thread = threads.most_common(1)[0][0]
    return [event for event in found if event.thread == thread]


def gaps_of_host(recording: Recording) -> list[tuple[int, int]]:
    """From when to when nothing was recorded of the host."""
    return [(start, end) for start, end, _ in placed_gaps(recording)]


def placed_gaps(recording: Recording) -> list[tuple[int, int, tuple[str, str]]]:
    """The same with the lines before and behind."""
    found: list[tuple[int, int, tuple[str, str]]] = []
    end, where = None, ""
    for event in host_events(recording):
        if end is not None and event.start > end:
            found.append((end, event.start, (where, event.where)))
        if end is None or event.end >= end:
            end, where = event.end, event.where
    return found


def pace_of(recording: Recording) -> float:
    """ns from the end of an op to the end of the next one, where nothing else comes between.

    Of each line's the one that a quarter is no longer than: what comes now and then does not count.
    """
    lines: dict[tuple[str, str], list[int]] = defaultdict(list)
    events = host_events(recording)
    end = 0
    for before, event, after in zip(events, events[1:], [*events[2:], None], strict=False):
        end = max(end, before.end)
        # What lies within the op begins before it ends.
        whole = after is None or after.start >= event.end
        if before.kind in CALLS and event.kind == "op" and whole and end == before.end:
            lines[event.where, event.name].append(event.end - end)
    count = sum(map(len, lines.values()))
    total = sum(len(times) * sorted(times)[len(times) // 4] for times in lines.values())
    return float(total) / count if count else 0.0


def spent_usually(work: list[Event], replayed: bool | None = None) -> float:
    """ns of a card's work, where each piece takes the median of those of its kind.

    ``replayed``: only of what was, or was not.  Events around launches show what a host that was
    held up left between them.
    """
    kinds: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for event in work:
        if replayed is None or event.replayed == replayed:
            kind = event.kind, event.name, event.where, event.plan, event.value, event.replayed
            kinds[kind].append(event.end - event.start)
    return float(sum(len(times) * statistics.median(times) for times in kinds.values()))


def worked_before(recording: Recording) -> list[int]:
    """ns of the card's work before each wait, since the one before; by the waits' ends."""
    work = recording.of("kernel", "copy", "fill")
    found, place = [], 0
    for wait, _ in recording.waiting():
        spent = 0
        while place < len(work) and work[place].start < wait.end:
            spent += work[place].end - work[place].start
            place += 1
        found.append(spent)
    return found

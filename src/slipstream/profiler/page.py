"""The page of text at the end of a profile."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from slipstream.core.api.profiling import card_of
from slipstream.core.api.recording import LineTotals, Recording
from slipstream.core.api.waits import also_seen
from slipstream.profiler.budgets import budget_of, host_cost, steps_of
from slipstream.profiler.diagnosis import Diagnosis, diagnose, merged, without
from slipstream.profiler.limits import Limits, limits_of
from slipstream.profiler.pauses import paused, tail_text
from slipstream.profiler.words import micro, percent, short, size

# What the simulated driver's times are, and what they leave out.
VIRTUAL = (
    "(times are the simulated driver's virtual time, no card's and not this machine's: a call of",
    "an op takes the host 3 µs of it; what the program does between calls, as Python, NumPy,",
    "loading data or sleeping, takes none: whether it is bound by that, only a card's run tells)",
)
MOST_KERNELS = 8
MOST_LINES = 6
MOST_FOREIGN = 4


class KernelRow:
    """What is known of one kernel: calls, ns, its line; bytes and operations of all its calls.

    ``counted``: whether bytes are known, as they are where an op is one launch; ``virtual``:
    whether its times are the simulated driver's, who looks at threads and not at what they do.
    """

    def __init__(self, name: str, virtual: bool = False) -> None:
        self.name = name
        self.virtual = virtual
        self.op = ""
        self.count = 0
        self.spent = 0
        self.nbytes = 0
        self.operations = 0
        self.dtype = ""
        self.counted = True
        self.estimated = False
        self.replayed = 0
        self.lines: dict[str, int] = {}

    @property
    def where(self) -> str:
        """The line that launches it most."""
        return max(self.lines, key=lambda line: self.lines[line], default="")

    def limit_share(self, limits: Limits | None) -> float | None:
        """The share of the card's nearer limit that it reaches; None where that is not known.

        Virtual time may be shorter than any card's, and is then measured by no limit.
        """
        if not self.counted or limits is None or not self.spent:
            return None
        share = limits.share(self.nbytes, self.operations, self.dtype, self.spent)
        return None if self.virtual and share > 1 else share


def kernel_rows(recording: Recording) -> list[KernelRow]:
    """Kernels by name, the longest first."""
    rows: dict[tuple[str, str], KernelRow] = {}
    for event in recording.of("kernel"):
        row = rows.setdefault((event.name, event.op), KernelRow(event.name, recording.virtual))
        facts = recording.plans.get(event.plan)
        row.op = event.op
        row.count += 1
        row.spent += event.end - event.start
        row.estimated = row.estimated or event.estimated
        row.replayed += event.replayed
        row.lines[event.where] = row.lines.get(event.where, 0) + 1
        if facts is None or not facts.launches:
            row.counted = False
        else:
            row.nbytes += facts.nbytes
            row.operations += facts.operations
            row.dtype = facts.dtype
    return sorted(rows.values(), key=lambda row: -row.spent)


def card_limits() -> Limits | None:
    """The limits of the card that is used; None where they are not known."""
    card = card_of()
    return None if card is None else limits_of(card.name)


def page(recording: Recording, found: Diagnosis | None = None) -> str:
    """The page: the verdict first, then what it rests on."""
    found = found or diagnose(recording)
    parts = [verdict_part, layers_part, card_part, budget_part, waits_part, copies_part,
             seen_part, kernels_part, foreign_part, lines_part, left_out]
    return "\n".join(line for part in parts for line in part(recording, found))


def verdict_part(recording: Recording, found: Diagnosis) -> Iterator[str]:
    """The sentence; what it is worth where the program failed."""
    if recording.failed:
        yield from recording.failed.splitlines()
    yield found.verdict
    tail = tail_text(recording)
    if tail and found.bound != "host":
        yield tail
    if recording.virtual:
        yield from VIRTUAL


def layers_part(recording: Recording, found: Diagnosis) -> Iterator[str]:
    """Where the host's time went."""
    layers = recording.layers
    total = max(sum(layers.values()), 1)
    steps, own = steps_of(recording), paused(recording)
    yield ""
    whose = f", of thread {recording.threads[0][0]}" if len(recording.threads) > 1 else ""
    much = (f"a step, {steps:,} steps" if steps > 1 else
            "in one step" if recording.of("step") else "in all, no steps are marked")
    yield f"host time   {micro(total / steps)} {much}{whose}"
    for name, spent in layers.items():
        if spent:
            yield f"  {name:<14}{micro(spent / steps):>14}  {percent(spent / total):>5}"
        if name == "Python" and own:
            yield (f"    {micro(own / steps)} of it the program's own pauses, of 200 µs and more "
                   "without an op")
    calls = recording.threads[0][1] if recording.threads else recording.calls
    each = host_cost(recording) / 1000 / max(calls, 1)
    rest = ", without the pauses" if own else ""
    # Replays of a captured graph alone call none.
    cost = f", {each:.1f} µs of host time each{rest}" if calls else ""
    yield f"  {calls:,} calls of ops{cost}"
    for name, count, _ in recording.threads[1:]:
        yield f"  {count:,} calls of thread {name}"


def card_part(recording: Recording, found: Diagnosis) -> Iterator[str]:
    """How busy the card was, and the launches."""
    if not found.launches and not recording.of("copy"):
        return
    yield ""
    yield f"card        busy {percent(found.busy / found.span)} of {micro(found.span)}"
    names = {"GPU": "kernels", "copy": "copies", "launch": "idle: launching",
             "wait": "idle: after waits", "data": "idle: data", "plan": "idle: making plans"}
    for part, name in names.items():
        if found.parts.get(part):
            yield (f"  {name:<18}{micro(found.parts[part]):>14}  "
                   f"{percent(found.share(part)):>5}")
    yield f"  {found.launches:,} launches, {found.replayed:,} of them replayed in graphs"
    for reason, count in sorted(found.alone.items(), key=lambda item: -item[1]):
        yield f"    {count:,} alone: {reason}"


def budget_part(recording: Recording, found: Diagnosis) -> Iterator[str]:
    """Host and card of an op, and what replay would make of it: `slipstream budget`'s words."""
    budget = budget_of(recording)
    if budget is None or found.bound == "host" or recording.broken:
        return
    yield ""
    yield (f"budget      {budget.host:.1f} µs of the host and {budget.device:.1f} µs of the card "
           "an op, without waits, copies, data and plans")
    yield f"  {budget.words()}"
    whole = "a step" if recording.of("step") else "in all"
    for name, step, gain in budget.outcomes():
        yield f"  {name:<18}{step:>14,.1f} µs {whole}, {gain}"


def waits_part(recording: Recording, found: Diagnosis) -> Iterator[str]:
    """Waits by line."""
    if not found.waits:
        return
    yield ""
    yield "waits"
    for where, name, count, spent in found.waits[:MOST_LINES]:
        yield f"  {short(where):<28} {name:<14} {count:>6,} × {micro(spent / count):>14}"
    if len(found.waits) > MOST_LINES:
        yield f"  and {len(found.waits) - MOST_LINES} more lines"


def copies_part(recording: Recording, found: Diagnosis) -> Iterator[str]:
    """Copies by direction."""
    moved: dict[str, list[int]] = {}
    for event in recording.of("copy"):
        entry = moved.setdefault(event.name, [0, 0, 0])
        entry[0] += 1
        entry[1] += event.value
        entry[2] += event.end - event.start
    if not moved:
        return
    yield ""
    yield "copies"
    for name, (count, nbytes, spent) in moved.items():
        yield f"  {name:<18}{count:>6,}  {size(nbytes):>12}  {micro(spent):>14}"


def seen_part(recording: Recording, found: Diagnosis) -> Iterator[str]:
    """Tiny copies and float64 by accident, of the process so far."""
    seen = also_seen()
    if not seen:
        return
    yield ""
    yield "also seen"
    for text in seen[:MOST_LINES]:
        where, colon, rest = text.partition(": ")
        yield f"  {short(where)}{colon}{rest}"
    if len(seen) > MOST_LINES:
        yield f"  and {len(seen) - MOST_LINES} more lines"


def kernels_part(recording: Recording, found: Diagnosis) -> Iterator[str]:
    """The kernels that take longest, with their share of the limit."""
    rows = kernel_rows(recording)
    if not rows:
        return
    limits = card_limits()
    total = sum(row.spent for row in rows)
    limit = f", limit {limits.bandwidth:,.0f} GB/s" if limits else ""
    about = f", by {recording.timed_by}" if recording.timed_by not in ("", "driver") else ""
    if any(row.estimated for row in rows):
        about += " (~: a graph's time shared by bytes)"
    yield ""
    yield f"kernels     {micro(total)}{limit}{about}"
    if recording.averages:
        yield f"  {recording.averages}"
    for row in rows[:MOST_KERNELS]:
        share = row.limit_share(limits)
        limit = "" if share is None else f"  {percent(share)} of the limit"
        mark = "~" if row.estimated else " "
        yield (f"  {percent(row.spent / total):>5} {mark}{micro(row.spent):>13} {row.count:>6,} × "
               f"{(row.op or row.name)[:28]:<28} {short(row.where)}{limit}")
    if len(rows) > MOST_KERNELS:
        yield f"  and {len(rows) - MOST_KERNELS} more kernels"


def foreign_part(recording: Recording, found: Diagnosis) -> Iterator[str]:
    """Kernels that other libraries launched in this process."""
    if not recording.foreign:
        return
    total = sum(spent for _, _, spent in recording.foreign)
    yield ""
    yield f"not ours    {micro(total)} in kernels that other libraries of this process launched"
    for name, count, spent in recording.foreign[:MOST_FOREIGN]:
        yield f"  {micro(spent):>21} {count:>6,} × {name[:60]}"
    if len(recording.foreign) > MOST_FOREIGN:
        yield f"  and {len(recording.foreign) - MOST_FOREIGN} more kernels"


def walks(recording: Recording) -> dict[tuple[str, int], int]:
    """ns by line that walking the tape back took, beside the ops that the walk called."""
    found: dict[tuple[str, int], int] = {}
    spans = [event for event in recording.of("span") if event.name == "backward"]
    for thread in {event.thread for event in spans}:
        called = merged((event.start, event.end) for event in recording.of("op", "view")
                        if event.thread == thread)
        until = 0
        # One walk may hold others: what is theirs counts once, for the line of the outer one.
        for event in sorted((each for each in spans if each.thread == thread),
                            key=lambda each: each.start):
            own = without([(max(event.start, until), max(event.end, until))], called)
            line = event.file, event.line
            found[line] = found.get(line, 0) + sum(end - start for start, end in own)
            until = max(until, event.end)
    return found


def host_by_line(recording: Recording) -> list[tuple[LineTotals, int, int]]:
    """(line, calls of ops, views among them, ns of the host in them and in the tape's walks)."""
    walked = walks(recording)
    rows = [(line, line.called[0], line.called[1] + walked.get((line.file, line.line), 0))
            for line in recording.lines]
    return sorted(rows, key=lambda row: -row[2])


def lines_part(recording: Recording, found: Diagnosis) -> Iterator[str]:
    """The lines whose ops, and walks of the tape, take the host's time."""
    rows = [row for row in host_by_line(recording) if row[1]]
    if not rows:
        return
    yield ""
    launches = any(line.of("kernel")[0] for line, _, _ in rows[:MOST_LINES])
    yield f"lines       ops, host time{', launches' if launches else ''}"
    for line, count, spent in rows[:MOST_LINES]:
        where = f"{short(line.file)}:{line.line}" if line.file else "inside slipstream"
        last = f" {line.of('kernel')[0]:>8,}" if launches else ""
        yield f"  {where:<28} {count:>8,} {micro(spent):>14}{last}"
    if len(rows) > MOST_LINES:
        yield f"  and {len(rows) - MOST_LINES} more lines"


def left_out(recording: Recording, found: Diagnosis) -> Iterator[str]:
    """What is not in the figures."""
    yield ""
    text = f"{recording.written:,} records"
    if recording.dropped:
        text += (f"; the ring dropped the oldest {recording.dropped:,}: totals by line hold them, "
                 "the verdict and the lists of kernels and waits do not")
    if recording.untimed:
        text += f"; the device time of {recording.untimed:,} launches could not be measured"
    yield text
    if recording.untold and recording.of("kernel"):
        how = "all " if recording.timed_by != "events" else ""
        yield f"times of the card are not {how}by CUPTI: {recording.untold}"


def summary(recording: Recording) -> dict[str, Any]:
    """What the page says, as numbers: for tests and programs."""
    found = diagnose(recording)
    return {"bound": found.bound, "verdict": found.verdict, "launches": found.launches,
            "replayed": found.replayed, "busy": found.busy / found.span,
            "parts": dict(found.parts), "alone": dict(found.alone),
            "layers": dict(recording.layers), "calls": recording.calls,
            "dropped": recording.dropped, "averaged": recording.averaged, "gain": found.gain,
            "span": found.span}

"""Where a profile's time went, and what the program is bound by.

The time from the first to the last event is cut where the card's state changes.  While kernels run
it is the kernels' time; while only copies between host and card run, the copies'; the rest is idle,
and each idle gap belongs to what the host did in it: moving bytes between pageable memory and what
the card copies from or to, loading data, coming back from a wait, or launching.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from slipstream.core.api.pacing import COPY_OP, spent_usually
from slipstream.core.api.recording import Recording
from slipstream.core.api.units import shown_of, units_of
from slipstream.core.api.waits import mend_of_wait, only_reads
from slipstream.profiler.budgets import (
    MENDABLE,
    QUIET_NS,
    QUIET_TIMES,
    Work,
    budget_of,
    host_cost,
    steps_of,
    work_of,
)
from slipstream.profiler.mends import (
    ENDED_BY_WAITS,
    dearest_copies,
    dearest_copy,
    waits_by_line,
    why_alone,
)
from slipstream.profiler.pauses import python_text
from slipstream.profiler.words import percent, quoted, short, size

BOUNDS = ("launch", "GPU", "wait", "copy", "data")
Interval = tuple[int, int]
# A gap belongs to a wait that ended at most so many ns before it began.
SLACK_NS = 2_000
# Kernels of a replayed graph follow one another within so many ns.
GRAPH_GAP = 5_000
# Reasons to launch alone that are worth a word where they concern a launch in so many; others where
# they concern half.
FEW = 20
BLAMED = ("exported storage", "handed-out stream", "memo off", "not capturable")
# Shapes repeat where a plan launches so often.  Where a larger share of the launches is of plans
# that launch once or twice, none is promised to be replayed.
OFTEN, SELDOM = 8, 0.2
# So many waits, at least, are too many.
LEAST_WAITS = 3
# Kernels that take no more than so many times the idle time of launches are not what a program is
# bound by, where the host is so many times slower than the card.
IDLE_TIMES, SLOWER = 2, 1.25
# A smaller gain is not worth a word.
LEAST_GAIN = 1.15


@dataclass
class Diagnosis:
    """Shares of the time and what follows.

    ``bound``: launch, GPU, wait, copy, data, or host where no card worked; ``parts``: ns of each;
    ``span``: ns from the first to the last event; ``busy``: ns in which the card did anything;
    ``verdict``: one sentence with the mend; ``alone``: launches that were not replayed, by reason;
    ``gain``: how many times as fast the program would be after the mend, as far as can be reckoned.
    """

    bound: str
    parts: dict[str, int]
    span: int
    busy: int
    launches: int
    replayed: int
    verdict: str = ""
    waits: list[tuple[str, str, int, int]] = field(default_factory=list)
    alone: dict[str, int] = field(default_factory=dict)
    gain: float = 1.0

    def share(self, part: str) -> float:
        """A part's share of the time."""
        return self.parts.get(part, 0) / max(self.span, 1)


def merged(intervals: Iterable[Interval]) -> list[Interval]:
    """Intervals in order, those that touch joined."""
    found: list[Interval] = []
    for start, end in sorted(intervals):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        elif end > start:
            found.append((start, end))
    return found


def length(intervals: Iterable[Interval]) -> int:
    """The sum of lengths."""
    return sum(end - start for start, end in intervals)


def overlap(interval: Interval, others: list[Interval]) -> int:
    """How much of an interval lies in others, which are merged."""
    start, end = interval
    place = max(bisect.bisect_right(others, (start, start)) - 1, 0)
    total = 0
    while place < len(others) and others[place][0] < end:
        total += max(min(end, others[place][1]) - max(start, others[place][0]), 0)
        place += 1
    return total


def gaps_of(busy: list[Interval], start: int, end: int) -> list[Interval]:
    """What lies between intervals, from start to end."""
    edges = [start, *(edge for interval in busy for edge in interval), end]
    return [(edges[place], edges[place + 1]) for place in range(0, len(edges), 2)
            if edges[place + 1] > edges[place]]


def without(intervals: list[Interval], others: list[Interval]) -> list[Interval]:
    """What of merged intervals lies in none of the others, which are merged."""
    found: list[Interval] = []
    for start, end in intervals:
        place = max(bisect.bisect_right(others, (start, start)) - 1, 0)
        at = start
        while place < len(others) and others[place][0] < end:
            if others[place][0] > at:
                found.append((at, others[place][0]))
            at = max(at, min(others[place][1], end))
            place += 1
        if at < end:
            found.append((at, end))
    return found


def bounds_of(recording: Recording) -> Interval:
    """When the steps began and ended, or else the first and the last event."""
    steps = recording.of("step") or recording.events
    if not steps:
        return recording.start, max(recording.end, recording.start + 1)
    start = max(min(event.start for event in steps), recording.start)
    # The card may still work on the last step.
    end = max(event.end for event in recording.events)
    return start, max(end, start + 1)


def quiet_stretches(recording: Recording, start: int, end: int) -> list[Interval]:
    """Stretches in which the host neither called an op nor waited: the program's own work."""
    host = merged((event.start, event.end) for event in recording.events
                  if event.kind in ("op", "view", "wait", "send", "data", "plan", "host copy")
                  and event.end > start)
    gaps = gaps_of([each for each in host if each[0] >= start], start, end)
    if not gaps:
        return []
    typical = sorted(high - low for low, high in gaps)[len(gaps) // 2]
    least = max(QUIET_NS, QUIET_TIMES * typical)
    last_op = max((event.end for event in recording.of("op", "view", "wait", "data")), default=end)
    return [gap for gap in gaps if gap[1] - gap[0] >= least and gap[0] < last_op]


def split_idle(recording: Recording, idle: list[Interval], start: int, end: int) -> dict[str, int]:
    """ns of idle time by what the host did in it."""
    loading = merged([*((event.start, event.end) for event in recording.of("data")),
                      *quiet_stretches(recording, start, end)])
    plans = merged((event.start, event.end) for event in recording.of("plan"))
    copies = without(copy_calls(recording), plans)
    causes = {"plan": plans, "copy": copies,
              "data": without(loading, merged([*plans, *copies]))}
    waits = sorted(event.end for event in recording.of("wait"))
    # What it takes to launch a graph that CUPTI looks at is nothing that the program does.
    looked_at = merged((event.start, event.end) for event in recording.of("send")
                       if event.replayed and by_cupti(recording))
    parts = {"launch": 0, "wait": 0, "data": 0, "plan": 0, "copy": 0}
    for gap in idle:
        left = gap[1] - gap[0] - overlap(gap, looked_at)
        for part, intervals in causes.items():
            spent = overlap(gap, intervals)
            parts[part] += spent
            left -= spent
        place = bisect.bisect_left(waits, gap[0] - SLACK_NS)
        after = place < len(waits) and waits[place] <= gap[1]
        parts["wait" if after else "launch"] += left
    return parts


def host_copies(recording: Recording) -> list[Interval]:
    """When the host itself moved bytes of pageable memory."""
    return merged((event.start, event.end) for event in recording.of("host copy"))


def copy_calls(recording: Recording) -> list[Interval]:
    """When the host was in calls that move bytes to the card, beside launches that they send.

    Calls that wait for the card are waits, all but the moving.
    """
    moving = host_copies(recording)
    aside = merged((event.start, event.end) for event in recording.of("send", "wait"))
    waiting = merged((event.start, event.end) for event in recording.of("wait") if event.value)
    calls = ((event.start, event.end) for event in recording.of("op") if event.op == COPY_OP)
    whole = [call for call in calls if overlap(call, moving) and not overlap(call, waiting)]
    return merged([*moving, *without(merged(whole), aside)])


def by_cupti(recording: Recording) -> bool:
    """Whether CUPTI told the times: it makes graphs dearer, for the host and the card."""
    return recording.timed_by.startswith("CUPTI")


def within_graphs(recording: Recording, start: int) -> list[Interval]:
    """What lies between kernels of a replayed graph, where CUPTI times them one by one.

    The host has no part in these gaps, and CUPTI lengthens them: by them no program is
    launch-bound.
    """
    if not by_cupti(recording):
        return []
    last: dict[tuple[int, int], int] = {}
    found = []
    for event in recording.of("kernel"):
        place = (event.device, event.stream)
        before = last.get(place, event.start) if event.replayed else event.start
        if start <= before < event.start <= before + GRAPH_GAP:
            found.append((before, event.start))
        if event.replayed:
            last[place] = max(event.end, before)
        else:
            last.pop(place, None)
    return found


def diagnose(recording: Recording) -> Diagnosis:
    """What a recording's program is bound by."""
    start, end = bounds_of(recording)
    work = [event for event in recording.of("kernel", "copy", "fill") if event.end > start]
    kernels = merged([*((max(event.start, start), event.end) for event in work
                        if event.kind != "copy"), *within_graphs(recording, start)])
    everything = merged([*kernels, *((max(event.start, start), event.end) for event in work)])
    parts = {"GPU": length(kernels)}
    idle = gaps_of(everything, start, end)
    parts.update(split_idle(recording, idle, start, end))
    parts["copy"] += length(everything) - length(kernels)
    sends = recording.of("send")
    launches = sum(event.value for event in sends)
    replayed = sum(event.value for event in sends if event.replayed)
    bound = bound_of(recording, parts) if work else "host"
    found = Diagnosis(bound, parts, end - start, length(everything), launches, replayed)
    found.waits = waits_by_line(recording)
    for event in sends:
        if not event.replayed:
            found.alone[event.name] = found.alone.get(event.name, 0) + event.value
    found.verdict = part_text(recording) + sentence(recording, found)
    return found


def bound_of(recording: Recording, parts: dict[str, int]) -> str:
    """The largest part; launching, where less work for the card would gain nothing.

    That is where kernels take most and the card, which idles for launches at least half as long,
    is the quicker one by the budget.
    """
    largest, second, *_ = sorted(BOUNDS, key=lambda part: -parts[part])
    if largest != "GPU" or second != "launch" or IDLE_TIMES * parts["launch"] < parts["GPU"]:
        return largest
    budget = budget_of(recording)
    slower = budget is not None and budget.verdict == "CPU-bound" and budget.factor >= SLOWER
    return "launch" if slower else "GPU"


def part_text(recording: Recording) -> str:
    """What a verdict begins with where most of what happened is not in it."""
    if 2 * recording.dropped <= recording.written:
        return ""
    kept = recording.written - recording.dropped
    return (f"of the last {kept:,} of {recording.written:,} records alone (the ring dropped the "
            "others; records=, or --records, keeps more): ")


# -- sentences -----------------------------------------------------------------------------------
def sentence(recording: Recording, found: Diagnosis) -> str:
    """The verdict with the mend, and what it would gain where that can be reckoned."""
    if recording.broken:
        return broken_sentence(recording, found)
    text = {"launch": launch_sentence, "GPU": gpu_sentence, "wait": wait_sentence,
            "copy": copy_sentence, "data": data_sentence, "host": host_sentence,
            }[found.bound](recording, found)
    reckoned = promised(recording, found)
    if reckoned is None or reckoned[0] <= LEAST_GAIN * reckoned[1]:
        return text
    found.gain = reckoned[0] / reckoned[1]
    most = "at most about" if leaves_work(found) else "about"
    what = "a step" if recording.of("step") else "all of it"
    return (f"{text}; then it would be {most} {found.gain:.1f} times as fast ({what} "
            f"{reckoned[1]:,.0f} µs instead of {reckoned[0]:,.0f})")


def leaves_work(found: Diagnosis) -> bool:
    """Whether how much is left of copies and loading, or comes for a wait, is the program's affair.
    """
    if found.bound in ("copy", "data"):
        return True
    if found.bound == "launch" and main_reason(found) == "copy":
        return True
    ends = found.bound == "wait" or main_reason(found) in ENDED_BY_WAITS
    return ends and bool(found.waits) and not only_reads(found.waits[0][1])


def broken_sentence(recording: Recording, found: Diagnosis) -> str:
    """What took the time until an error ended the program: no mend follows from part of a run."""
    if not recording.calls:
        return "no op was called until then"
    how = {"launch": "the card idled while the host launched", "GPU": "kernels ran",
           "wait": "the card idled after waits", "copy": "bytes were copied",
           "data": "the card idled while the program made data"}
    mostly = (f"in {percent(found.share(found.bound))} of the time {how[found.bound]}"
              if found.bound in how else "no card worked")
    return f"until then {mostly}; what to mend is told of a run that comes to its end"


def promised(recording: Recording, found: Diagnosis) -> tuple[float, float] | None:
    """µs of a step, nobody looking, now and after the mend; None where that cannot be reckoned."""
    if found.bound not in ("launch", "wait", "copy", "data") or (
            found.bound == "launch" and not main_reason(found)):
        return None
    cards = Counter(event.device for event in recording.of("kernel", "copy", "fill"))
    card = cards.most_common(1)[0][0]
    units, shown = units_of(card), shown_of(card, recording.timed_by == "events")
    if units is None or shown is None:
        return None
    steps = steps_of(recording)
    work = work_of(recording, units, shown, working(recording, found))
    # A wait that fetches nothing is cheaper than the `item()` that it counts as: a program without
    # the profile takes no longer than it took with it.
    now = min(work.budget(units, steps).step, found.span / 1000 / steps)
    mend(work, recording, found)
    return now, work.budget(units, steps).step


def working(recording: Recording, found: Diagnosis) -> float:
    """ns for which the card works: gaps within its graphs are CUPTI's doing.

    Its copies go with the mend, or the host takes longer for what it waits for or moves.  Pieces of
    a kind take what they usually take.
    """
    kinds = ("kernel",) if found.bound in ("copy", "wait") else ("kernel", "copy", "fill")
    start, _ = bounds_of(recording)
    work = [event for event in recording.of(*kinds) if event.end > start]
    whole = length(merged((max(event.start, start), event.end) for event in work))
    spent = sum(event.end - event.start for event in work)
    return whole * spent_usually(work) / max(spent, 1)


def mend(work: Work, recording: Recording, found: Diagnosis) -> None:
    """Take off what the mend takes away: at the named lines, their waits or copies, and what goes
    alone because of it; the loading; or what goes alone."""
    if found.bound == "data":
        start, end = bounds_of(recording)
        loading = merged([*((event.start, event.end) for event in recording.of("data")),
                          *quiet_stretches(recording, start, end)])
        work.own = max(work.own - length(loading), 0.0)
        return
    where = mended_lines(recording, found)
    before = len(work.waits) + len(work.moves)
    work.waits = [each for each in work.waits if each[0] not in where]
    work.moves = [each for each in work.moves if each[0] not in where]
    left = len(work.waits) + len(work.moves)
    if seldom(recording) > SELDOM:
        # Sizes that never come again: nobody knows what of it will be replayed.
        return
    share = 1.0 if found.bound == "launch" else 1 - left / max(before, 1)
    mendable = sum(count for reason, count in found.alone.items() if reason in MENDABLE)
    work.alone -= round(share * mendable)


def blamed(found: Diagnosis) -> dict[str, int]:
    """Launches that go alone for a reason that is worth a word, by reason."""
    alone = {reason: count for reason, count in found.alone.items()
             if (reason in BLAMED and FEW * count >= found.launches)
             or (reason != "first sight" and 2 * count > found.launches)}
    if sum(count for *_, count, _ in found.waits) < LEAST_WAITS:
        # A program that reads its result once does not wait too often: it is over.
        alone = {reason: count for reason, count in alone.items() if reason not in ENDED_BY_WAITS}
    return alone


def main_reason(found: Diagnosis) -> str:
    """Why most launches go alone that need not; empty where nothing is to be said of it."""
    alone = blamed(found)
    return max(alone, key=lambda each: alone[each], default="")


def mended_lines(recording: Recording, found: Diagnosis) -> list[str]:
    """The lines whose waits or copies the mend takes away."""
    if found.bound == "wait":
        return waiting_lines(found)
    if found.bound == "copy":
        return [where for _, where, *_ in dearest_copies(recording)]
    reason = main_reason(found)
    if reason in ENDED_BY_WAITS and found.waits:
        return [max(found.waits, key=lambda row: row[2])[0]]
    return [dearest_copy(recording)[1]] if reason == "copy" and recording.of("copy") else []


def launch_sentence(recording: Recording, found: Diagnosis) -> str:
    """The card waits for launches."""
    text = (f"launch-bound: {found.launches:,} launches, "
            f"{host_cost(recording) / 1000 / max(found.launches, 1):.1f} µs of host time each")
    alone = blamed(found)
    if not alone:
        single = found.launches - found.replayed
        first = found.alone.get("first sight", 0)
        if found.replayed < found.launches / 2 and 2 * first >= single:
            mend = ("though their shapes repeat: a longer run replays them, profile more steps"
                    if repeats(recording) else
                    "the mend is shapes that repeat, so that windows are replayed")
            joint = ", " if repeats(recording) else ": "
            return f"{text}; {first:,} were seen for the first time{joint}{mend}"
        # First sights will be replayed; what else goes alone does so for no one reason.
        how = "all that repeats is replayed"
        if FEW * (single - first) >= found.launches:
            how = f"{single - first:,} go alone for other reasons than being new"
        return (f"{text}; {how}: the mend is fewer or larger ops, or one graph of the step "
                "(cuda.make_graphed_callables)")
    reason, count = max(alone.items(), key=lambda item: item[1])
    verb = "is" if count == 1 else "are"
    return f"{text}; {count:,} {verb} not replayed because {why_alone(recording, reason)}"


def seldom(recording: Recording) -> float:
    """The share of launches whose op and shapes came once or twice."""
    plans = Counter(event.plan for event in recording.of("kernel"))
    return sum(count for count in plans.values() if count <= 2) / max(plans.total(), 1)


def repeats(recording: Recording) -> bool:
    """Whether most launches are of ops and shapes that came before, several times."""
    kernels = recording.of("kernel")
    plans = {event.plan for event in kernels}
    return len(kernels) >= OFTEN * len(plans)


def gpu_sentence(recording: Recording, found: Diagnosis) -> str:
    """The card works all the time."""
    spent: Counter[tuple[str, str]] = Counter()
    for event in recording.of("kernel"):
        spent[event.op or event.name, event.where] += event.end - event.start
    (name, where), most = spent.most_common(1)[0]
    share = most / max(sum(spent.values()), 1)
    return (f"GPU-bound: the card is busy {percent(found.busy / found.span)} of the time, "
            f"{percent(share)} of it with {name} at {quoted(where)}: the mend is less work there, "
            "a narrower dtype or another formula")


def wait_sentence(recording: Recording, found: Diagnosis) -> str:
    """The card runs dry because the host waits for it."""
    where, kind, count, spent = found.waits[0] if found.waits else ("", "", 0, 0)
    places = [each for each in waiting_lines(found) if each != where]
    others = f" and as often at {' and '.join(map(short, places))}" if places else ""
    return (f"wait-bound: the card idles {percent(found.share('wait'))} of the time after the "
            f"host waited for it, {count:,} times at {quoted(where)} ({spent / 1000:,.0f} µs)"
            f"{others}: {mend_of_wait(kind)}")


def waiting_lines(found: Diagnosis) -> list[str]:
    """The line that waits longest, and the next two where they wait as often."""
    often = found.waits[0][2] if found.waits else 0
    return list(dict.fromkeys(where for where, _, count, _ in found.waits[:3]
                              if 10 * count >= 9 * often))


def copy_sentence(recording: Recording, found: Diagnosis) -> str:
    """Copies between host and card take the time."""
    (name, where, count, nbytes), *rest = dearest_copies(recording)
    others = f" and as much at {' and '.join(short(row[1]) for row in rest)}" if rest else ""
    moving = length(host_copies(recording)) / found.span
    how = (f", in {percent(moving)} the host moves pageable bytes"
           if 3 * moving > found.share("copy") else "")
    return (f"copy-bound: {percent(found.share('copy'))} of the time goes to copies{how}; most of "
            f"it {count:,} × {name} of {size(nbytes / count)} at {quoted(where)}{others}: keep the "
            "data on the card, or copy from pinned memory with non_blocking=True while kernels "
            "run")


def data_sentence(recording: Recording, found: Diagnosis) -> str:
    """The card waits for the program's own work."""
    text = f"data-bound: the card idles {percent(found.share('data'))} of the time while"
    if recording.of("data"):
        return f"{text} {loading(recording)}"
    start, end = bounds_of(recording)
    where = after_quiet(recording, quiet_stretches(recording, start, end) or [(start, end)])
    return (f"{text} the program does work of its own before {quoted(where)}: make the data in "
            "another thread or process, ahead of its use")


def loading(recording: Recording) -> str:
    """What a DataLoader does, where, and what would help."""
    loads = recording.of("data")
    spent = sum(event.end - event.start for event in loads)
    lines = Counter(event.where for event in loads)
    # A round's end is a record too, of no batch (see `Round.__next__`).
    batches = [event.value - 1 for event in loads if event.value] or [0]
    workers = max(batches)
    mend = ("give the DataLoader workers (num_workers=), or make batches beforehand" if not workers
            else f"its {workers} workers do not keep up: give it more (processes, where samples "
                 "are made in Python: multiprocessing_context=), or make batches beforehand")
    return (f"the DataLoader makes batches, {len(batches):,} times "
            f"{spent / 1000 / len(batches):,.0f} µs, "
            f"at {short(lines.most_common(1)[0][0])}: {mend}")


def after_quiet(recording: Recording, stretches: list[Interval]) -> str:
    """The line whose op ends the longest stretch in which none was called."""
    stretch = max(stretches, key=lambda gap: gap[1] - gap[0])
    later = next((event for event in recording.of("op", "view")
                  if event.start >= stretch[1] - SLACK_NS), None)
    return later.where if later else ""


def host_sentence(recording: Recording, found: Diagnosis) -> str:
    """No card was used."""
    layers = recording.layers
    name = max(layers, key=lambda each: layers[each])
    share = layers[name] / max(sum(layers.values()), 1)
    if recording.calls == 0:
        return "no op was called"
    if recording.virtual:
        return ("no card worked, and virtual time does not hold the CPU's work: profile this "
                "without SLIPSTREAM_DRIVER=sim")
    if name == "data":
        return f"host-bound: {percent(share)} of the time {loading(recording)}"
    mend = {"host kernels": kernels_text, "Python": python_text,
            "making plans": lambda _: "the time is first calls, which make plans and compile "
                                      "kernels once: profile more steps",
            }.get(name, lambda _: f"the time is Slipstream's own {name}: fewer, larger ops would "
                                  "help")
    return f"host-bound: {percent(share)} of the time is {name}; {mend(recording)}"


def kernels_text(recording: Recording) -> str:
    """The line whose kernels on the CPU take most."""
    lines = sorted(recording.lines, key=lambda line: -line.of("op")[1])
    whole = max(sum(line.of("op")[1] for line in lines), 1)
    most = ""
    if lines and lines[0].file:
        share = percent(lines[0].of("op")[1] / whole)
        most = f", {share} of it at {quoted(f'{lines[0].file}:{lines[0].line}')}"
    return f"the work is in the kernels{most}: larger steps gain nothing, a card would"

"""The dispatch budget of a recording: the model that `slipstream budget` has too, as measured here.

What a launch saves that is replayed and not sent alone is measured where the recording has both;
`slipstream budget`, which listens to no launch, takes what it is on an H100 machine.  A step as it
is without the profile, before and after a mend, is reckoned by the same model from counts and
units (`Work`).
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import pairwise

from slipstream.core.api.budget import Budget
from slipstream.core.api.pacing import on_card, pace_of, placed_gaps, worked_before
from slipstream.core.api.recording import Recording
from slipstream.core.api.units import Shown, Units
from slipstream.profiler.pauses import PAUSE_NS, paused

# Layers of the host that are not launching.
NOT_LAUNCHING = ("waits", "copies", "data", "making plans", "host kernels")
# Reasons to launch alone that go away with the mend, and what a launch in a graph takes of the host
# as a part of one by itself.
MENDABLE = ("exported storage", "wait", "too short", "copy")
# Those that would be gone if all windows were replayed: the new ones are, once they come again.
REPLAYABLE = (*MENDABLE, "first sight")
GRAPHED = 0.2
# µs: less is not measured.
LEAST = 0.01
# Ops that take more than so many times what the ones with a price take are dearer; a neighbour on
# the same core makes all of them take up to twice as long.
DEARER = 2.5
# Of so many waits of a line the median counts.
MANY = 8
# What the host does between two of its records is the program's own work, such as reading a file,
# where it is longer than so many ns, so many times the median, and so many times what is usual
# around waits and copies.
QUIET_NS, QUIET_TIMES, USUAL = 20_000, 16, 4
# Where it comes neither in half of the gaps at a place nor regularly, it is a pause, and comes once
# in so many, or is so many ns long: what a neighbour takes of the processor is less.
SELDOM, STOLEN_NS = 8, 50_000_000


def steps_of(recording: Recording) -> int:
    """How many steps were profiled; 1 where none was marked."""
    return max(len(recording.of("step")), 1)


def host_cost(recording: Recording) -> int:
    """ns of the host that its ops took: no waits, copies, loading and plans, and no pauses."""
    layers = recording.layers
    spent = sum(layers.values()) - sum(layers.get(name, 0) for name in NOT_LAUNCHING)
    return spent - paused(recording)


def alone_cost(recording: Recording) -> float:
    """ns of the host that launches took more because they went alone, and need not.

    What a replayed one takes is measured where there are any; else it is a small part of it.
    """
    spent = {True: 0, False: 0}
    count = {True: 0, False: 0}
    for event in recording.of("send"):
        if event.replayed or event.name in REPLAYABLE:
            spent[event.replayed] += event.end - event.start
            count[event.replayed] += event.value
    if not count[False]:
        return 0.0
    each = spent[True] / count[True] if count[True] else GRAPHED * spent[False] / count[False]
    return max(spent[False] - each * count[False], 0.0)


def budget_of(recording: Recording) -> Budget | None:
    """Host and card of an op, in µs, without waits, copies, loading and plans.

    None where no kernel ran on a card.
    """
    kernels = sum(event.end - event.start for event in recording.of("kernel"))
    if not kernels or not recording.calls:
        return None
    # The layers are those of the thread that called most: the others run beside it.
    calls = max(recording.threads[0][1] if recording.threads else recording.calls, 1)
    host_us = max(host_cost(recording) / 1000 / calls, LEAST)
    saved = alone_cost(recording) / 1000 / recording.calls
    # The Python of each op stays.
    return Budget(calls / steps_of(recording), host_us, max(kernels / 1000 / calls, LEAST),
                  min(saved, host_us - LEAST))


@dataclass
class Work:
    """What a recording's program did of each thing that `Units` has a price for.

    ``ops`` on the card, each taking ``dearer`` ns more than the one with a price; ``alone``:
    launches that went by themselves; ``waits``: (line, ns for which the card works longer than
    before a small one); ``moves`` of pageable memory: (line, bytes); ``own``: ns of the program's
    own work, loading included; ``card``: ns of the card's work.  What a mend takes away is taken
    off here.
    """

    ops: int
    alone: int
    waits: list[tuple[str, float]]
    moves: list[tuple[str, int]]
    own: float
    card: float
    dearer: float = 0.0

    def budget(self, units: Units, steps: int) -> Budget:
        """A step with nobody looking: host and card side by side."""
        host = self.own + self.ops * (units.replayed + self.dearer)
        host += self.alone * (units.alone - units.replayed)
        host += sum(units.wait + longer for _, longer in self.waits)
        host += sum(units.copy + nbytes * units.byte for _, nbytes in self.moves)
        ops = max(self.ops, 1)
        return Budget(ops / steps, max(host / 1000 / ops, LEAST),
                      max(self.card / 1000 / ops, LEAST))


def work_of(recording: Recording, units: Units, shown: Shown, card: float) -> Work:
    """What was done; ``card``: ns for which it was seen to be busy."""
    sends = recording.of("send")
    alone = sum(event.value for event in sends if not event.replayed)
    # Around small launches a profile shows more than the card's own time.
    busy = card - alone * shown.lone_extra - sum(
        shown.graph_extra + shown.node_extra * event.value for event in sends if event.replayed)
    # Bytes that a wait reads are moved within it.
    reading = {event.where for event in recording.of("wait") if event.value}
    moves = [(event.where, event.value) for event in recording.of("host copy")
             if event.where not in reading]
    return Work(sum(on_card(recording, event) for event in recording.of("op")), alone,
                waits_of(recording, shown), moves, own_time(recording, shown), max(busy, 0.0),
                dearness(recording, shown))


def waits_of(recording: Recording, shown: Shown) -> list[tuple[str, float]]:
    """(line, ns beyond a small one) of each wait.

    A wait is long where both say so: the host was longer in it, and the card had more to do.  Of
    many waits of a line the median counts: some seem to be long by chance.
    """
    found = [(wait.where, min(waiting - shown.waiting, spent - shown.waited))
             for (wait, waiting), spent in zip(recording.waiting(), worked_before(recording),
                                               strict=True)]
    lines: dict[str, list[float]] = defaultdict(list)
    for where, longer in found:
        lines[where].append(longer)
    usual = {where: statistics.median(longer) for where, longer in lines.items()
             if len(longer) >= MANY}
    return [(where, max(usual.get(where, longer), 0.0)) for where, longer in found]


def dearness(recording: Recording, shown: Shown) -> float:
    """ns for which an op takes the host longer than the one with a price.

    The profile's own part is in both.  Whole stacks take longer than can be told apart.
    """
    if any(event.stack for event in recording.of("op")):
        return 0.0
    pace = pace_of(recording)
    return pace - shown.pace if pace > DEARER * shown.pace else 0.0


def own_time(recording: Recording, shown: Shown) -> float:
    """ns of the program's own work: loading, and what lies between records and is unusually long.

    What the host computes with ops of its own lies between, too.  What is long now and then only,
    at a place that is passed often, is not the program's: the processor went to someone else.
    """
    placed = placed_gaps(recording)
    gaps = sorted(high - low for low, high, _ in placed)
    typical = gaps[len(gaps) // 2] if gaps else 0
    least = max(QUIET_NS, QUIET_TIMES * typical, USUAL * shown.gap)
    places: dict[tuple[str, str], list[int]] = defaultdict(list)
    for low, high, place in placed:
        places[place].append(high - low)
    loading = sum(event.end - event.start for event in recording.of("data"))
    steps = steps_of(recording)
    return float(loading + sum(own_part(gaps, typical, least, steps)
                               for gaps in places.values()))


def own_part(gaps: list[int], typical: float, least: float, steps: int) -> float:
    """ns of the program's own work in the gaps at a place."""
    long = [number for number, gap in enumerate(gaps) if gap >= least]
    in_steps = 1 < steps <= len(long) + 1
    if 2 * len(long) < len(gaps) and not in_steps:
        # A loop's work comes once in so many gaps, and always in as many.
        apart = Counter(after - before for before, after in pairwise(long))
        most = max(apart.values(), default=0)
        if most < 2 or 2 * most < len(long):
            pauses = [number for number in long if gaps[number] >= PAUSE_NS]
            often = SELDOM * len(pauses) >= len(gaps)
            long = pauses if often else [each for each in pauses if gaps[each] >= STOLEN_NS]
    return float(sum(gaps[number] - typical for number in long))

"""The dispatch budget of a recording: the model that `slipstream budget` has too, as measured here.

What a launch saves that is replayed and not sent alone is measured where the recording has both;
`slipstream budget`, which listens to no launch, takes what it is on an H100 machine.  A step as it
is without the profile, before and after a mend, is reckoned by the same model from counts and
units (`Work`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from slipstream.core.api.budget import Budget
from slipstream.core.api.recording import Event, Recording
from slipstream.core.api.units import Units

# Layers of the host that are not launching.
NOT_LAUNCHING = ("waits", "copies", "data", "making plans", "host kernels")
# Reasons to launch alone that go away with the mend, and what a launch in a graph takes of the host
# as a part of one by itself.
MENDABLE = ("exported storage", "wait", "too short", "copy")
GRAPHED = 0.2
# µs: less is not measured.
LEAST = 0.01
# The op that copies between devices, and how many times the usual Python between two ops is work
# of the program's own.
COPY_OP = "copy_across"
LONG = 3


def steps_of(recording: Recording) -> int:
    """How many steps were profiled; 1 where none was marked."""
    return max(len(recording.of("step")), 1)


def alone_cost(recording: Recording, reasons: tuple[str, ...] | None = MENDABLE) -> float:
    """ns of the host that launches took more because they went alone, for these reasons (or all).

    What a replayed one takes is measured where there are any; else it is a small part of it.
    """
    spent = {True: 0, False: 0}
    count = {True: 0, False: 0}
    for event in recording.of("send"):
        if event.replayed or reasons is None or event.name in reasons:
            spent[event.replayed] += event.end - event.start
            count[event.replayed] += event.value
    if not count[False]:
        return 0.0
    each = spent[True] / count[True] if count[True] else GRAPHED * spent[False] / count[False]
    return max(spent[False] - each * count[False], 0.0)


def budget_of(recording: Recording, reasons: tuple[str, ...] | None = MENDABLE) -> Budget | None:
    """Host and card of an op, in µs, without waits, copies, loading and plans.

    ``reasons``: the launches that would be replayed went alone for one of these (None: for any).
    None where no kernel ran on a card.
    """
    kernels = sum(event.end - event.start for event in recording.of("kernel"))
    if not kernels or not recording.calls:
        return None
    layers = recording.layers
    calls = recording.threads[0][1] if recording.threads else recording.calls
    host = sum(layers.values()) - sum(layers.get(name, 0) for name in NOT_LAUNCHING)
    host_us = max(host / 1000 / max(calls, 1), LEAST)
    saved = alone_cost(recording, reasons) / 1000 / recording.calls
    # The Python of each op stays.
    return Budget(recording.calls / steps_of(recording), host_us,
                  max(kernels / 1000 / recording.calls, LEAST), min(saved, host_us - LEAST))


@dataclass
class Work:
    """What a recording's program did of each thing that `Units` has a price for.

    ``ops`` on the card; ``alone``: launches that went by themselves; ``waits`` and ``moves`` of
    pageable memory; ``own``: ns of the host beside all these, loading included; ``card``: ns of
    the card's work.  What a mend takes away is taken off here.
    """

    ops: int
    alone: int
    waits: list[Event]
    moves: list[Event]
    own: float
    card: float

    def budget(self, units: Units, steps: int) -> Budget:
        """A step with nobody looking: host and card side by side."""
        host = self.own + self.ops * units.replayed + self.alone * (units.alone - units.replayed)
        # The host waits for small things too; for the card's long work as long as was seen.
        host += sum(max(event.end - event.start, units.wait) for event in self.waits)
        host += sum(units.copy + event.value * units.byte for event in self.moves)
        ops = max(self.ops, 1)
        return Budget(ops / steps, max(host / 1000 / ops, LEAST),
                      max(self.card / 1000 / ops, LEAST))


def work_of(recording: Recording, units: Units, card: int) -> Work:
    """What was done; ``card``: ns for which it was seen to be busy."""
    sends = recording.of("send")
    alone = sum(event.value for event in sends if not event.replayed)
    busy = float(card)
    if recording.timed_by == "events":
        # Around small windows events show more than the kernels.
        busy -= alone * units.lone_extra + sum(
            units.graph_extra + units.node_extra * event.value for event in sends if event.replayed)
    # Bytes that a wait reads are moved within it.
    waits = recording.of("wait")
    reading = {event.where for event in waits if event.value}
    moves = [event for event in recording.of("host copy") if event.where not in reading]
    return Work(sum(on_card(recording, event) for event in recording.of("op")), alone, waits, moves,
                own_time(recording, units), max(busy, 0.0))


def on_card(recording: Recording, event: Event) -> bool:
    """Whether an op is a card's and no copy between devices."""
    plan = recording.plans.get(event.plan)
    return plan is not None and plan.device != "cpu" and event.op != COPY_OP


def own_time(recording: Recording, units: Units) -> float:
    """ns of the host between ops, beyond the line that calls one; waits and copies are priced."""
    host = [event for event in recording.of("op", "wait", "host copy", "send", "plan")
            if event.kind != "op" or on_card(recording, event)]
    threads = Counter(event.thread for event in host if event.kind == "op")
    thread = threads.most_common(1)[0][0] if threads else 0
    total, last = 0.0, None
    for event in host:
        if event.thread != thread:
            continue
        if last is not None:
            gap = event.start - last.end
            around = {event.kind, last.kind}
            price = max(units.wait if "wait" in around else 0.0,
                        units.copy if "host copy" in around else 0.0, units.line)
            total += gap - price if gap > max(price, LONG * units.line) else 0.0
        if last is None or event.end > last.end:
            last = event
    return total

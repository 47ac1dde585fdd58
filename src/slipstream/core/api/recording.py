"""What a profile saw, decoded: events, totals by line and by layer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from slipstream.core.vocab.modes import decode_site
from slipstream.core.vocab.operands import operations_of, specs_of
from slipstream.core.vocab.records import Plan
from slipstream.core.vocab.ring import (
    AVERAGED,
    COPY,
    ESTIMATED,
    FILL,
    KERNEL,
    KIND_NAMES,
    LAYERS,
    OP,
    REPLAYED,
    SEND,
    VIEW,
    WAIT,
    Record,
    Ring,
)

ON_DEVICE = (KERNEL, COPY, FILL)
Line = tuple[str, int]


@dataclass(slots=True)
class Event:
    """Something that happened.

    ``kind``: op, view, span, kernel, copy, fill, wait, data, send, step or memory; ``start`` and
    ``end`` in ns of the profile's clock; ``op``: the op that launched a kernel; ``value``: bytes
    (copy, fill, memory, wait) or launches (send); ``device``: -1 for the host; ``reason``: why
    launches went alone, and ``exported``: the line that handed out their memory; ``estimated``: a
    kernel's share of a window's time, ``averaged``: the mean of its measured times; ``stack``: the
    user's frames as (file, line, function), innermost first.
    """

    kind: str
    name: str
    file: str
    line: int
    function: str
    start: int
    end: int
    thread: int
    value: int = 0
    op: str = ""
    plan: int = 0
    device: int = -1
    stream: int = 0
    replayed: bool = False
    estimated: bool = False
    averaged: bool = False
    exported: Line | None = None
    stack: tuple[tuple[str, int, str], ...] = ()

    @property
    def where(self) -> str:
        """The line as ``file:line``; empty where there is none."""
        return f"{self.file}:{self.line}" if self.file else ""


@dataclass(slots=True)
class LineTotals:
    """What one line of the user's did: for each kind (count, ns, value), the dropped ones too."""

    file: str
    line: int
    function: str
    kinds: dict[str, tuple[int, int, int]] = field(default_factory=dict)

    def of(self, kind: str) -> tuple[int, int, int]:
        """(count, ns, value) of a kind."""
        return self.kinds.get(kind, (0, 0, 0))

    @property
    def called(self) -> tuple[int, int]:
        """(count, ns) of calls: of ops, and of views, which launch nothing but take time too."""
        op, view = self.of("op"), self.of("view")
        return op[0] + view[0], op[1] + view[1]


@dataclass
class PlanFacts:
    """What an op's call was like: shapes of its operands, bytes, where it ran.

    ``launches``: 1 where it is one launch, else 0; ``operations``: of arithmetic, 0 where they are
    not known; ``dtype``: the result's.
    """

    op: str
    shapes: tuple[tuple[int, ...], ...]
    nbytes: int
    out_bytes: int
    device: str
    launches: int
    operations: int = 0
    dtype: str = ""


@dataclass
class Recording:
    """A profile: ``events`` in the order of their start; ``layers`` in ns of the host's time.

    ``layers`` are those of the thread that called most ops; ``threads`` has (name, calls, layers)
    of each, that one first; ``calls`` are all threads'.
    ``written`` records, of which the ring had to drop ``dropped``; ``untimed`` launches whose
    device time could not be measured; ``virtual``: times are the simulated driver's.
    ``timed_by``: what told the times of the card (CUPTI and its version, events, driver, or empty
    where nobody asked), ``untold``: why some or all are by events; ``foreign``: (name, how many,
    ns) of kernels that this process launched beside Slipstream, where CUPTI tells of them;
    ``averaged``: how many kernels take the mean of those that CUPTI timed one by one.
    ``failed``: what is said first where the program did not come to its end; ``broken``: whether an
    error ended it, so that no mend follows from what was seen.
    """

    events: list[Event]
    lines: list[LineTotals]
    layers: dict[str, int]
    plans: dict[int, PlanFacts]
    start: int
    end: int
    calls: int
    written: int
    dropped: int
    untimed: int
    virtual: bool
    threads: list[tuple[str, int, dict[str, int]]] = field(default_factory=list)
    timed_by: str = ""
    untold: str = ""
    foreign: tuple[tuple[str, int, int], ...] = ()
    averaged: int = 0
    failed: str = ""
    broken: bool = False

    @property
    def averages(self) -> str:
        """What is to be said of kernels that were not timed one by one; empty where all were."""
        if not self.averaged:
            return ""
        return (f"{self.averaged:,} of {self.totals('kernel')[0]:,} kernels take the mean of their "
                "times where they were measured one by one; other libraries' are seen there alone")

    def of(self, *kinds: str) -> list[Event]:
        """The events of some kinds."""
        return [event for event in self.events if event.kind in kinds]

    def waiting(self) -> list[tuple[Event, int]]:
        """Each wait, and ns in it beside the launches that went out there; in their order."""
        sends = self.of("send")
        found, place = [], 0
        for wait in sorted(self.of("wait"), key=lambda event: event.end):
            spent = wait.end - wait.start
            while place < len(sends) and sends[place].start < wait.end:
                if sends[place].start >= wait.start:
                    spent -= sends[place].end - sends[place].start
                place += 1
            found.append((wait, max(spent, 0)))
        return found

    def totals(self, kind: str) -> tuple[int, int, int]:
        """(count, ns, value) of a kind over all lines, the dropped records too."""
        found = [line.of(kind) for line in self.lines]
        return sum(each[0] for each in found), sum(each[1] for each in found), sum(
            each[2] for each in found)


class Decoder:
    """Turns a ring into a recording."""

    def __init__(self, ring: Ring, stacks: Any = None) -> None:
        self.ring = ring
        self.stacks = stacks
        self.places = [self.place_of(*site) for site in ring.sites]
        self.plans: dict[int, PlanFacts] = {}

    def place_of(self, code: Any, instruction: int) -> tuple[str, int, str]:
        """The file, line and function of a site."""
        file, line = decode_site(code, instruction)
        return file, line, "" if code is None else code.co_name

    def name(self, number: int) -> str:
        """The name of a record: a string's own, or its plan's op."""
        found = self.ring.names[number]
        if not isinstance(found, Plan):
            return str(found)
        if number not in self.plans:
            self.plans[number] = facts_of(found)
        return found.op.name

    def event(self, record: Record) -> Event:
        """A record decoded."""
        file, line, function = self.places[record.site]
        found = Event(KIND_NAMES[record.kind], self.name(record.name), file, line, function,
                      record.start, record.end, record.thread, record.value)
        if record.kind in (OP, VIEW):
            found.op, found.plan = found.name, record.name
        elif record.kind in ON_DEVICE:
            self.place_on_device(found, record)
        elif record.kind == SEND:
            found.replayed = found.name == "replayed"
            reason, _, site = found.name.partition("\n")
            found.name = reason
            found.exported = self.places[int(site)][:2] if site else None
        if record.stack and self.stacks is not None:
            found.stack = self.stacks.decoded(record.stack)
        return found

    def place_on_device(self, event: Event, record: Record) -> None:
        """Say where a kernel, copy or fill ran, and whose it is."""
        event.device, event.stream = record.where & 255, (record.where >> 8) & 0xFFFF
        event.replayed = record.kind == KERNEL and bool(record.where & REPLAYED)
        event.estimated = bool(record.where & ESTIMATED)
        event.averaged = bool(record.where & AVERAGED)
        event.stack = ()
        if record.kind == KERNEL:
            event.plan, event.value = record.value, 0
            event.op = self.name(record.value) if record.value else ""

    def lines(self) -> list[LineTotals]:
        """Totals by line; several places of one line are one."""
        found: dict[Line, LineTotals] = {}
        for site, (file, line, function) in enumerate(self.places):
            for kind, name in enumerate(KIND_NAMES):
                count, spent, value = self.ring.totals(self.ring.by_site, site, kind)
                if not count:
                    continue
                mine = found.setdefault((file, line), LineTotals(file, line, function))
                before = mine.of(name)
                mine.kinds[name] = (before[0] + count, before[1] + spent, before[2] + value)
        return list(found.values())


def facts_of(plan: Plan) -> PlanFacts:
    """What is known of a plan's operands."""
    ins, outs = specs_of(plan)
    out_bytes = sum(spec.nbytes for spec in outs) if plan.kernel is not None else 0
    device = str(outs[0].device) if outs else ""
    # Only where an op is one launch are its bytes those of a kernel.
    single = 1 if hasattr(plan.binding, "function") else 0
    return PlanFacts(plan.op.name, tuple(tuple(spec.shape) for spec in ins),
                     sum(spec.nbytes for spec in ins) + out_bytes, out_bytes, device, single,
                     operations_of(plan), outs[0].dtype.name if outs else "")


def decode(ring: Ring, start: int, end: int, stacks: Any = None) -> Recording:
    """A ring as a recording."""
    decoder = Decoder(ring, stacks)
    events = [decoder.event(record) for record in ring.records()]
    # What was submitted before the profile began is not its own.
    events = [event for event in events if event.end > start or event.start >= start]
    events.sort(key=lambda event: (event.start, -event.end))
    threads = [(name, calls, {layer: cells.get(place) for place, layer in enumerate(LAYERS)})
               for name, cells, calls in ring.counted()]
    return Recording(events, decoder.lines(), threads[0][2], decoder.plans, start, end,
                     sum(calls for _, calls, _ in threads), ring.written, ring.dropped,
                     ring.timer.lost, ring.virtual is not None, threads, *ring.timer.verdict)


WAITS = KIND_NAMES[WAIT]

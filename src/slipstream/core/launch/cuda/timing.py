# cython: annotation_typing=False
"""Device times for a profile: each kernel and copy becomes a record with its op and line.

On the simulated driver every piece of work tells its virtual time.  On a card, events before and
after each window give the window's time; its kernels share it by the bytes that their ops read
and write or the operations they carry out, and say so (`ESTIMATED`).  Where CUPTI is found, its
times take their place when the profile ends (`activities`).
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from typing import Any, NamedTuple

from slipstream.core.launch.cuda.activities import Activities, Noted, Verdict
from slipstream.core.launch.door import door
from slipstream.core.native.cupti import CuptiError
from slipstream.core.native.driver import TO_DEVICE, TO_HOST, DriverError
from slipstream.core.native.hot import HotCalls
from slipstream.core.vocab.modes import modes
from slipstream.core.vocab.operands import bytes_of, operations_of, specs_of
from slipstream.core.vocab.records import Plan
from slipstream.core.vocab.ring import (
    COPY,
    COPYING,
    DRIVER,
    ESTIMATED,
    FILL,
    KERNEL,
    LOW,
    REPLAYED,
    SEND,
    Cells,
    exported_at,
    packed,
)

# A kernel's time is reckoned as this, and its bytes or its operations at so many a nanosecond: what
# CUPTI says of our kernels on an H200.  Fewer bytes than NEAR lie in the second-level cache.
KERNEL_NS, BYTES_A_NS, NEAR_BYTES_A_NS, NEAR = 1200, 2900, 8000, 32 << 20
OPERATIONS_A_NS, HALF_OPERATIONS_A_NS = 52_000, 600_000
# Windows whose parts are kept.
MOST_KNOWN = 4096
# A stream was empty where an event happened no later than so many ns after it was recorded.
EMPTY = 10_000
# Events that are made before a program goes on.
READY = 80
# Tries to find when an event happened, and looks whether it did before the host sleeps.
TRIES, LOOKS = 4, 64
# Timed spans whose events are not done yet; with more, the host looks at the oldest.
MOST_PENDING = 2048
# Spans of which the last is looked at first: a look is a driver's call.
AHEAD = 16
# Nanoseconds after which spans are measured from a newer event: the driver tells 32-bit floats.
REBASE = 200_000_000
LIBRARY = "library call"
# Bits of a record's ``where`` that say on which device and stream.
STREAM = (1 << 24) - 1
COPY_NAMES = {TO_DEVICE: "copy to device", TO_HOST: "copy to host"}


class Work(NamedTuple):
    """Launches that go out: what a window holds of them, and why they go alone.

    ``traces``: op and line of each in one word of 8 bytes, 0 for what was recorded before the
    profile, which is not ``whole`` then; none for a captured graph.  ``words``: where their memory
    was handed out, the argument words of the last.
    """

    launches: list[Any]
    sites: list[Any]
    traces: bytes
    reason: str
    words: tuple[int, ...]
    whole: bool = True


class Parts(NamedTuple):
    """The records that a span becomes; the ns that they are reckoned to.

    ``rows``: see `ring.packed`; ``cells``: the same packed; ``kept``: a list whose address is the
    key; ``symbols``: the kernels' names to the driver, where CUPTI tells of them; ``copied``: bytes
    of a copy, or -1.
    """

    rows: list[tuple[int, int, int, int, float, float]]
    cells: Cells
    cost: float
    site: int
    kept: Any
    symbols: tuple[str, ...] = ()
    copied: int = -1


class Span(NamedTuple):
    """Work between two events, which the host recorded ``host`` ns apart, from ``begun`` on.

    Without an event ``first`` it begins then, or where the work before it on its stream ended.
    """

    first: int
    last: int
    parts: Parts
    where: int
    begun: int
    host: int
    noted: Noted | None = None

    def busy(self, start: int, end: int) -> float:
        """How much of the span from start to end its kernels took.

        Where the stream was empty, the span begins before the first launch arrives, and launches
        that arrive one by one leave gaps, which events cannot tell from kernels: there kernels
        take what they are reckoned to, within what the host's time leaves room for.
        """
        span = float(end - start)
        if self.where & REPLAYED or start - self.begun > EMPTY:
            return span
        most = max(span - self.host / len(self.parts.rows), 0.0)
        least = max(span - self.host, 0.0)
        return most if 2 * least > self.host else min(max(self.parts.cost, least), most)


class Begun(NamedTuple):
    """A send that is under way: the layer before it, when it began, the event before the work.

    ``parts``: what it becomes; ``untold``: CUPTI does not tell of it.
    """

    layer: int
    start: int
    event: int
    parts: Any = None
    untold: bool = False


class Clock:
    """Turns the events of one device into host time: ``base`` happened at ``at`` ns.

    That is between its recording and the look that found it done, which are closest in one of a
    few tries.
    """

    def __init__(self, calls: HotCalls, driver: Any, stream: int, now: Any) -> None:
        self.calls = calls
        found = []
        for _ in range(TRIES):
            event = driver.create_event(timing=True)
            before = now()
            calls.record_event(event, stream)
            # A host that sleeps until it is woken knows less of when that was.
            if not any(calls.query_event(event) for _ in range(LOOKS)):
                driver.wait_event(event)
            spent = now() - before
            found.append((spent, before + spent // 2, event))
        _, self.at, self.base = min(found)
        for _, _, event in found:
            if event != self.base:
                driver.destroy_event(event)

    def of(self, event: int) -> int:
        """When an event that is done happened."""
        return self.at + int(self.calls.elapsed(self.base, event) * 1e6)


class Timer:
    """Writes device records into a ring; ``modes.ring.timer`` while a profile is on.

    ``wanted``: whether devices are timed; ``told``: no events are needed, as the driver tells of
    each piece of work, or nobody wants to know; ``lost``: launches that could not be timed;
    ``verdict``: what told the times in the end.
    """

    def __init__(self, ring: Any, by_events: bool = False, wanted: bool = True,
                 every_kernel: bool = False) -> None:
        self.ring = ring
        self.every_kernel = every_kernel
        self.wanted = wanted
        self.by_events = by_events
        self.driver: Any = None
        self.calls: Any = None
        self.told = False
        self.clocks: dict[int, Clock] = {}
        # Events that may be used again, by device.
        self.free: dict[int, list[int]] = {}
        self.pending: deque[Span] = deque()
        # When the last span of a device's stream ended whose time is known.
        self.ended: dict[int, int] = {}
        self.lock = threading.Lock()
        self.lost = 0
        # What a kernel at a line belongs to, by (line, kernel's name).
        self.origin: dict[tuple[int, str], int] = {}
        # What the kernels of an op are reckoned to take, by its number.
        self.costs: dict[int, float] = {}
        self.streams: dict[int, int] = {}
        self.known: dict[Any, Parts] = {}
        # The plan of a launch that was captured before the profile began; None where none is known.
        self.plan_of: Any = None
        # Called after each send: what a profile of memory notes.
        self.sample: Any = None
        self.activities: Activities | None = None
        self.verdict = Verdict()
        self.symbols: dict[int, str] = {}

    # -- sends --

    def begin(self, queue: Any, work: Work | None = None) -> Begun:
        """A queue is about to send launches, or to make a library call."""
        if self.driver is None:
            self.attach(queue.driver)
        layer = self.ring.switch(DRIVER)
        where = self.where_of(queue)
        parts, untold = None, False
        if work is not None:
            parts = self.parts_of(work, where | (0 if work.reason else REPLAYED))
        if self.activities is not None:
            untold = self.activities.begin(parts)
        # Where CUPTI tells most, one event a send is enough.
        event = 0 if self.told or self.activities else self.mark(queue.stream, where)
        return Begun(layer, self.ring.now(), event, parts, untold)

    def attach(self, driver: Any) -> None:
        """The first use of a driver in this profile."""
        self.driver = driver
        self.calls = calls_of(driver)
        self.told = not self.wanted or (not self.by_events and driver.tell_work(self.ran))
        if self.told:
            self.verdict = Verdict("driver" if self.wanted else "")
        elif self.by_events:
            self.verdict = Verdict()
        else:
            try:
                self.activities = Activities(self.ring, self.every_kernel)
            except CuptiError as failure:
                self.verdict = Verdict(missing=str(failure))
        if not self.told:
            # After an error of a kernel there are none.
            with contextlib.suppress(DriverError):
                prepare(self)

    def where_of(self, queue: Any) -> int:
        """The device and stream of a queue as they stand in a record."""
        where: int = queue.owner.ordinal | queue.number << 8
        self.streams[queue.stream] = where
        return where

    def place_of(self, stream: int) -> int:
        """The device and stream of a driver's handle."""
        if stream not in self.streams:
            for backend in door.windowed:
                each: Any = backend
                for queue in each.queues:
                    self.where_of(queue)
        return self.streams.get(stream, 0)

    def sent(self, queue: Any, work: Work, begun: Begun) -> None:
        """It sent these launches."""
        ring, end = self.ring, self.ring.now()
        where = self.streams[queue.stream] | (0 if work.reason else REPLAYED)
        parts = begun.parts
        ring.write(SEND | where << 8, ring.name_of(self.text_of(work)), parts.site, begun.start,
                   end, len(parts.rows))
        self.over(queue.stream, parts, begun, where)
        if self.sample is not None:
            self.sample()
        ring.switch(begun.layer)

    def parts_of(self, work: Work, where: int) -> Parts:
        """What launches become; known again where the same ones of the same lines go out."""
        if not work.whole:
            return self.make_parts(work, where)
        key = (work.traces or id(work.launches), where)
        found = self.known.get(key)
        if found is None:
            if len(self.known) >= MOST_KNOWN:
                self.known.clear()
            found = self.known[key] = self.make_parts(work, where)
        return found

    def make_parts(self, work: Work, where: int) -> Parts:
        """What launches become."""
        ring, items = self.ring, []
        traces = memoryview(work.traces).cast("Q")
        for place, launch in enumerate(work.launches):
            trace = traces[place] if work.traces else 0
            site = trace >> 32 or ring.site_of(*work.sites[2 * place:2 * place + 2])
            if (site, launch.name) not in self.origin:
                self.origin[site, launch.name] = trace & LOW or self.owner_of(launch)
            op = self.origin[site, launch.name]
            cost = self.costs.get(op)
            if cost is None:
                plan = ring.names[op]
                cost = cost_of(plan) if isinstance(plan, Plan) else float(KERNEL_NS)
                self.costs[op] = cost
            items.append((KERNEL, ring.name_of(launch.name), site, op, cost))
        found = shared(items, where, work.launches)
        if self.activities is not None:
            symbols = tuple(self.symbol_of(launch) for launch in work.launches)
            found = found._replace(symbols=symbols)
        return found

    def owner_of(self, launch: Any) -> int:
        """The number of the plan that a launch is of, or 0."""
        plan = self.plan_of(launch) if self.plan_of is not None else None
        return 0 if plan is None else self.ring.name_of(plan)

    def symbol_of(self, launch: Any) -> str:
        """A kernel's name to the driver."""
        found = self.symbols.get(launch.function)
        if found is None:
            with contextlib.suppress(DriverError):
                found = self.driver.function_name(launch.function)
            found = self.symbols[launch.function] = found or launch.name
        return found

    def text_of(self, work: Work) -> str:
        """Why launches went alone, with the line where their memory was handed out."""
        if work.reason != "exported storage":
            return work.reason or "replayed"
        site = exported_at(work.words)
        return work.reason if site is None else f"{work.reason}\n{self.ring.site_of(*site)}"

    def called(self, queue: Any, name: str, begun: Begun) -> None:
        """A library call went out alone."""
        state = modes.current()
        site = self.ring.site_of(state.code, state.instruction)
        number = self.ring.name_of(name)
        self.origin.setdefault((site, LIBRARY), self.ring.launching)
        where = self.streams[queue.stream]
        self.ring.write(SEND | where << 8, self.ring.name_of("not capturable"), site, begun.start,
                        self.ring.now(), 1)
        parts = shared([(KERNEL, number, site, self.ring.launching, 1.0)], where)
        self.over(queue.stream, parts, begun, where)
        self.ring.switch(begun.layer)

    def copy(self, driver: Any, *arguments: Any) -> None:
        """Make a copy: `Driver.copy`'s arguments."""
        if self.driver is None:
            self.attach(driver)
        _, _, nbytes, kind, stream = arguments
        layer, where = self.ring.switch(COPYING), self.place_of(stream)
        event = 0 if self.told or self.activities else self.mark(stream, where)
        begun = Begun(layer, self.ring.now(), event)
        driver.copy(*arguments)
        state = modes.current()
        site = self.ring.site_of(state.code, state.instruction)
        name = self.ring.name_of(COPY_NAMES.get(kind, "copy"))
        # A copy of pageable memory keeps the host: its time is not that of a launch.
        parts = shared([(COPY, name, site, nbytes, 1.0)], where | REPLAYED)._replace(
            copied=nbytes)
        self.timed(stream, parts, begun, where | REPLAYED)
        self.ring.switch(layer)

    # -- the simulated driver --

    def ran(self, action: Any, site: Any, *facts: Any) -> None:
        """A piece of work ran: on a stream, from begin to end (ns), in a graph or not."""
        stream, begin, end, replayed = facts
        ring = self.ring
        number = ring.site_of(*site) if site else 0
        where = self.place_of(stream.handle) | (REPLAYED if replayed else 0)
        if action.kind == "copy":
            name = COPY_NAMES.get(action.direction, "copy")
            ring.write(COPY | where << 8, ring.name_of(name), number, begin, end, action.nbytes)
        elif action.kind == "fill":
            ring.write(FILL | where << 8, ring.name_of("fill"), number, begin, end,
                       action.width * action.count)
        else:
            name = action.function.name if action.kind == "kernel" else LIBRARY
            ring.write(KERNEL | where << 8, ring.name_of(name), number, begin, end,
                       self.origin.get((number, name), 0))

    # -- events --

    def mark(self, stream: int, where: int) -> int:
        """Record an event in a stream; 0 where the driver has none to give."""
        ordinal = where & 255
        try:
            if ordinal not in self.clocks:
                self.clocks[ordinal] = Clock(self.calls, self.driver, stream,
                                             self.ring.now)
            free = self.free.setdefault(ordinal, [])
            event = free.pop() if free else self.driver.create_event(timing=True)
            self.calls.record_event(event, stream)
        except DriverError:
            return 0
        return int(event)

    def over(self, stream: int, parts: Parts, begun: Begun, where: int) -> None:
        """A send is over."""
        if self.activities is not None:
            self.activities.sampler.end(self.ring.now())
        self.timed(stream, parts, begun, where)

    def timed(self, stream: int, parts: Parts, begun: Begun, where: int) -> None:
        """Note work whose time the event behind it will tell."""
        if self.told or not parts.rows:
            return
        host = self.ring.now() - begun.start
        last = self.mark(stream, where)
        noted = None
        if self.activities is not None:
            noted = self.activities.note(Noted(parts.rows, parts.symbols, bool(where & REPLAYED),
                                               parts.copied, begun.untold))
            noted.begun, noted.cost = begun.start, parts.cost
        if not last or not (begun.event or self.activities):
            self.lost += len(parts.rows)
            return
        self.pending.append(Span(begun.event, last, parts, where, begun.start, host, noted))
        if len(self.pending) > 16 and (len(self.pending) > MOST_PENDING
                                       or len(self.pending) % 16 == 0):
            self.resolve()

    def resolve(self) -> None:
        """Write the records of spans that are done, the oldest first."""
        # The watchdog's thread may be at it.
        if self.lock.acquire(blocking=False):
            try:
                self.write_done()
            finally:
                self.lock.release()

    def write_done(self) -> None:
        """The same; the lock is held."""
        done = 0
        while self.pending and (done or (done := done_of(self.pending, self.calls))):
            done -= 1
            span = self.pending.popleft()
            free, clock = self.free[span.where & 255], self.clocks[span.where & 255]
            try:
                start, end = moments(span, clock, self.ended)
            except DriverError:
                self.lost += len(span.parts.rows)
                continue
            share = span.busy(start, end) / max(end - start, 1)
            first = self.ring.write_parts(span.parts.cells, start, end - start, share)
            if span.noted is not None:
                span.noted.first = first
                span.noted.span = start, end, start - span.begun > EMPTY
            if span.first:
                free.append(span.first)
            if end - clock.at > REBASE:
                free.append(clock.base)
                clock.base, clock.at = span.last, end
            else:
                free.append(span.last)

    # -- ends --

    def stop(self) -> None:
        """No more: all work is done."""
        if self.driver is None:
            return
        if self.told:
            self.driver.tell_work(None)
            return
        # After an error of a kernel the driver has no times to tell.
        with contextlib.suppress(DriverError):
            self.resolve()
        self.lost += sum(len(span.parts.rows) for span in self.pending)
        if self.activities is not None:
            self.verdict = self.activities.finish()
            self.activities = None
        give_back(self)


def done_of(pending: deque[Span], calls: Any) -> int:
    """How many of the oldest spans are known to be done, by few looks: a stream keeps its order."""
    count = min(len(pending), AHEAD)
    while count > 1:
        last = pending[count - 1]
        if all((pending[place].where ^ last.where) & STREAM == 0 for place in range(count - 1)):
            if calls.query_event(last.last):
                return count
        count //= 2
    return int(calls.query_event(pending[0].last))


def moments(span: Span, clock: Clock, ended: dict[int, int]) -> tuple[int, int]:
    """When a span that is done began and ended; ``ended``: when the last of each stream did."""
    stream, end = span.where & STREAM, clock.of(span.last)
    start = clock.of(span.first) if span.first else min(
        max(ended.get(stream, 0), span.begun), end)
    ended[stream] = end
    return start, end


def give_back(timer: Timer) -> None:
    """Destroy all events of a profile that is over."""
    left = [clock.base for clock in timer.clocks.values()]
    left += [event for events in timer.free.values() for event in events]
    left += [event for span in timer.pending for event in (span.first, span.last) if event]
    timer.pending.clear()
    for event in left:
        with contextlib.suppress(DriverError):
            timer.driver.destroy_event(event)


def prepare(timer: Timer) -> None:
    """Make a clock and events for each card in use, before the program goes on."""
    for backend in door.windowed:
        each: Any = backend
        if each.driver is not timer.driver or not each.queues or each.queues[0].capture:
            continue
        each.enter()
        where = timer.where_of(each.queues[0])
        event = timer.mark(each.queues[0].stream, where)
        if event:
            timer.free[where & 255] += [event, *(
                timer.driver.create_event(timing=True) for _ in range(READY))]


def calls_of(driver: Any) -> HotCalls:
    """The driver's calls of the hot path: a backend's, which counts them."""
    for backend in door.windowed:
        each: Any = backend
        if each.driver is driver:
            found: HotCalls = each.hot
            return found
    return HotCalls(driver)


def cost_of(plan: Plan) -> float:
    """ns that a plan's kernel is reckoned to take: what its bytes or its operations need."""
    _, outs = specs_of(plan)
    half = bool(outs) and outs[0].itemsize == 2
    nbytes = bytes_of(plan)
    moving = nbytes / (NEAR_BYTES_A_NS if nbytes < NEAR else BYTES_A_NS)
    rate = HALF_OPERATIONS_A_NS if half else OPERATIONS_A_NS
    return KERNEL_NS + max(moving, operations_of(plan) / rate)


def shared(items: list[Any], where: int, kept: Any = None) -> Parts:
    """Work of (kind, name, site, value, cost) as parts of one span, by their costs."""
    total = sum(item[4] for item in items)
    flag = ESTIMATED if len(items) > 1 else 0
    rows, at = [], 0.0
    for kind, name, site, value, cost in items:
        rows.append((kind | (where | flag) << 8, name, site, value, at / total,
                     (at + cost) / total))
        at += cost
    return Parts(rows, packed(rows), total, items[-1][2] if items else 0, kept)

# cython: annotation_typing=False
"""Device times for a profile: each kernel and copy becomes a record with its op and line.

On the simulated driver every piece of work tells its virtual time.  On a card, events before and
after each window give the window's time; its kernels share it by the bytes that their ops read
and write or the operations they carry out, and say so (`ESTIMATED`).  Where CUPTI is found, its
times take their place when the profile ends (`activities`).
"""

from __future__ import annotations

import contextlib
from collections import defaultdict, deque
from typing import Any

from slipstream.core.launch.cuda.activities import Activities, Verdict
from slipstream.core.launch.cuda.sends import Begun, Parts, Sends, Work, shared
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
    FILL,
    KERNEL,
    LOW,
    REPLAYED,
    SEND,
)

# A kernel's time is reckoned as this, and its bytes or its operations at so many a nanosecond: what
# CUPTI says of our kernels on an H200.  Fewer bytes than NEAR lie in the second-level cache.
KERNEL_NS, BYTES_A_NS, NEAR_BYTES_A_NS, NEAR = 1200, 2900, 8000, 32 << 20
OPERATIONS_A_NS, HALF_OPERATIONS_A_NS = 52_000, 600_000
# Events that are made before a program goes on.
READY = 80
# Tries to find when an event happened, and looks whether it did before the host sleeps.
TRIES, LOOKS = 4, 64
LIBRARY = "library call"
COPY_NAMES = {TO_DEVICE: "copy to device", TO_HOST: "copy to host"}


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


class Timer(Sends):
    """Writes device records into a ring; ``modes.ring.timer`` while a profile is on.

    ``wanted``: whether devices are timed; ``verdict``: what told the times in the end.
    """

    def __init__(self, ring: Any, by_events: bool = False, wanted: bool = True,
                 every_kernel: bool = False) -> None:
        super().__init__(ring)
        self.every_kernel = every_kernel
        self.wanted = wanted
        self.by_events = by_events
        # What a kernel belongs to where nothing better is known, by (line, its name).
        self.origin: dict[tuple[int, str], int] = {}
        # The plans of launches that went out and that the driver has not told of yet, by (stream,
        # line, kernel's name): a line may launch a kernel for several plans, in their order.
        self.due: dict[tuple[int, int, int], deque[int]] = defaultdict(deque)
        # The number of each plan whose launches were captured before the profile began.
        self.owners: dict[Any, int] = {}
        # What the kernels of an op are reckoned to take, by its number.
        self.costs: dict[int, float] = {}
        # The plan of a launch that was captured before the profile began; None where none is known.
        self.plan_of: Any = None
        self.verdict = Verdict()
        self.symbols: dict[int, str] = {}

    # -- sends --

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

    def place_of(self, stream: int) -> int:
        """The device and stream of a driver's handle."""
        if stream not in self.streams:
            for backend in door.windowed:
                each: Any = backend
                for queue in each.queues:
                    self.where_of(queue)
        return self.streams.get(stream, 0)

    def make_parts(self, work: Work, where: int) -> Parts:
        """What launches become."""
        ring, items = self.ring, []
        for place, launch in enumerate(work.launches):
            trace = work.trace(place)
            site = trace >> 32 or ring.site_of(*work.sites[2 * place:2 * place + 2])
            op = trace & LOW or self.owner_of(launch)
            op = op or self.origin.get((site, launch.name), 0)
            self.origin.setdefault((site, launch.name), op)
            cost = self.costs.get(op)
            if cost is None:
                plan = ring.names[op]
                cost = cost_of(plan) if isinstance(plan, Plan) else float(KERNEL_NS)
                self.costs[op] = cost
            items.append((KERNEL, ring.name_of(launch.name), site, op, cost))
        found = shared(items, where, work.launches)
        if self.activities is not None:
            found.symbols = tuple(self.symbol_of(launch) for launch in work.launches)
        return found

    def owner_of(self, launch: Any) -> int:
        """The number of the plan that a launch is of, or 0."""
        found = self.owners.get(launch)
        if found is None:
            plan = self.plan_of(launch) if self.plan_of is not None else None
            found = self.owners[launch] = 0 if plan is None else self.ring.name_of(plan)
        return found

    def expect(self, stream: int, parts: Parts) -> None:
        """Launches go out of which the driver will tell: note whose they are."""
        if self.wanted:
            for _, name, site, op, *_ in parts.rows:
                self.due[stream, site, name].append(op)

    def symbol_of(self, launch: Any) -> str:
        """A kernel's name to the driver."""
        found = self.symbols.get(launch.function)
        if found is None:
            with contextlib.suppress(DriverError):
                found = self.driver.function_name(launch.function)
            found = self.symbols[launch.function] = found or launch.name
        return found

    def called(self, queue: Any, name: str, begun: Begun) -> None:
        """A library call went out alone."""
        state = modes.current()
        site = self.ring.site_of(state.code, state.instruction)
        number = self.ring.name_of(name)
        self.origin.setdefault((site, LIBRARY), self.ring.launching)
        if self.told and self.wanted:
            self.due[queue.stream, site, self.ring.name_of(LIBRARY)].append(self.ring.launching)
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
        begun = Begun()
        begun.event = 0 if self.told or self.activities else self.mark(stream, where)
        if self.activities is not None:
            self.activities.library.time_copies()
        begun.start = self.ring.now()
        driver.copy(*arguments)
        state = modes.current()
        site = self.ring.site_of(state.code, state.instruction)
        name = self.ring.name_of(COPY_NAMES.get(kind, "copy"))
        # A copy of pageable memory keeps the host: its time is not that of a launch.
        parts = shared([(COPY, name, site, nbytes, 1.0)], where | REPLAYED)
        parts.copied = nbytes
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
            key = ring.name_of(name)
            due = self.due.get((stream.handle, number, key))
            op = due.popleft() if due else self.origin.get((number, name), 0)
            ring.write(KERNEL | where << 8, key, number, begin, end, op)

    def new_clock(self, stream: int) -> Clock:
        """What turns events of a device into host time."""
        return Clock(self.calls, self.driver, stream, self.ring.now)

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

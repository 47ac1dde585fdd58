# cython: nonecheck=False
"""What a profile notes of each send: a window as one graph, launches one by one, library calls.

It is done between the ops of the program that is looked at, so it takes as little of the host's
time as it can; what can wait until the profile ends is done there (`timing`, `activities`).
"""

# The .pxd declares what is compiled.
# mypy: disable-error-code="attr-defined"

from __future__ import annotations

import threading
from collections import deque
from typing import Any

import cython

from slipstream.core.launch.cuda.launches import Launch
from slipstream.core.launch.cuda.memo import Window, sites_of
from slipstream.core.launch.cuda.sampling import Sampler
from slipstream.core.launch.cuda.words import MASK, Words
from slipstream.core.native.driver import DriverError
from slipstream.core.native.hot import HotCalls
from slipstream.core.vocab.cells import Cells
from slipstream.core.vocab.ring import (
    DRIVER,
    ESTIMATED,
    REPLAYED,
    SEND,
    Ring,
    exported_at,
    packed,
)

__all__ = ["Begun", "Cells", "HotCalls", "Launch", "Noted", "Notes", "Parts", "Ring", "Sampler",
           "Sends", "Span", "Window", "Words", "Work", "done_of", "moments", "shared", "work_of"]

# Windows whose parts are kept.
MOST_KNOWN = 4096
# A stream was empty where an event happened no later than so many ns after it was recorded.
EMPTY = 10_000
# Timed spans whose events are not done yet; with more, the host looks at the oldest.
MOST_PENDING = 2048
# Spans of which the last is looked at first: a look is a driver's call.
AHEAD = 16
# Nanoseconds after which spans are measured from a newer event: the driver tells 32-bit floats.
REBASE = 200_000_000
# Launches that are noted; later ones are timed by events.
MOST_NOTED = 1 << 20
# Bits of a record's ``where`` that say on which device and stream.
STREAM = (1 << 24) - 1
# The same for C code, which would look a module's own up as objects (see the .pxd).
_driver, _send, _replayed, _stream = DRIVER, SEND, REPLAYED, STREAM
_prime = 1099511628211
_empty, _most_pending, _ahead, _rebase = EMPTY, MOST_PENDING, AHEAD, REBASE


class Work:
    """Launches that go out: what a window holds of them, and why they go alone.

    ``reason``: empty for a graph; ``traces``: op and line of each in a word, that of the first at
    ``offset``; None for a captured graph.  The first ``hollow`` ones were recorded before the
    profile and have none.  ``words``: where their memory was handed out, the argument words of the
    last.
    """

    launches: list[Any]
    sites: list[Any]
    reason: str
    words: tuple[int, ...]
    traces: Any
    offset: int
    hollow: int

    def __init__(self, launches: list[Any], sites: list[Any], reason: str = "") -> None:
        self.launches = launches
        self.sites = sites
        self.reason = reason
        self.words = ()
        self.traces = None
        self.offset = 0
        self.hollow = 0

    def trace(self, place: cython.Py_ssize_t) -> int:
        """Op and line of a launch in one word; 0 where it has none."""
        if self.traces is None or place < self.hollow:
            return 0
        return self.traces.get(self.offset + place)


class Parts:
    """The records that a span becomes; the ns that they are reckoned to.

    ``rows``: see `ring.packed`; ``cells``: the same packed; ``content``: a number that no other
    rows have; ``launches`` and ``traces`` are those that they were made of; ``symbols``: the
    kernels' names to the driver, where CUPTI tells of them; ``copied``: bytes of a copy, or -1.
    """

    rows: list[tuple[int, int, int, int, float, float]]
    cells: Cells
    cost: float
    site: int
    content: int
    launches: Any
    traces: Words | None
    symbols: tuple[str, ...]
    copied: int

    def __init__(self, rows: list[Any], cost: float, site: int, launches: Any = None) -> None:
        self.rows = rows
        self.cells = packed(rows)
        self.cost = cost
        self.site = site
        self.content = id(rows)
        self.launches = launches
        self.traces = None
        self.symbols = ()
        self.copied = -1

    def are_of(self, work: Work) -> bool:
        """Whether these launches, known by the same number, become these records."""
        if work.traces is None or self.traces is None:
            return work.traces is self.traces and work.launches is self.launches
        count: cython.Py_ssize_t = len(work.launches)
        return (count == self.traces.length
                and work.traces.same(work.offset, self.traces, 0, count)
                and alike(work.launches, self.launches))


class Begun:
    """A send that is under way: the layer before it, when it began, the event before the work.

    ``parts``: what it becomes; ``untold``: CUPTI does not tell of it.
    """

    layer: int
    start: int
    event: int
    parts: Any
    untold: bool

    def __init__(self) -> None:
        self.layer = self.start = self.event = 0
        self.parts = None
        self.untold = False


class Noted:
    """Work that went out: ``first`` is the number of its first record, -1 where it has none yet.

    ``rows``: the records that it becomes; ``symbols``: the kernels' names, none for copies and
    library calls; ``graph``: whether one call launched them all; ``copied``: bytes of a copy, or
    -1; ``untold``: CUPTI does not tell of it; ``begun``: when the host began to send it, by the
    ring's clock, and ``cost``: the ns that it was reckoned to take; ``span``: when the events
    around it happened, and whether work before it was under way until then; ``times``: when each
    began and ended, by the ring's clock where it is untold, else by CUPTI's: None until the profile
    ends.
    """

    first: int
    rows: Any
    symbols: tuple[str, ...]
    graph: bool
    copied: int
    untold: bool
    begun: int
    cost: float
    span: tuple[int, int, bool] | None
    times: Any

    def __init__(self, rows: Any, symbols: tuple[str, ...], graph: bool, copied: int,
                 untold: bool = False) -> None:
        self.first = -1
        self.rows = rows
        self.symbols = symbols
        self.graph = graph
        self.copied = copied
        self.untold = untold
        self.begun = 0
        self.cost = 0.0
        self.span = None
        self.times = [None] * len(rows)


class Span:
    """Work between two events, which the host recorded ``host`` ns apart, from ``begun`` on.

    Without an event ``first`` it begins then, or where the work before it on its stream ended.
    """

    first: int
    last: int
    parts: Parts
    where: int
    begun: int
    host: int
    noted: Noted | None

    def __init__(self, first: int, last: int, parts: Any, where: int, begun: int,
                 host: int) -> None:
        self.first = first
        self.last = last
        self.parts = parts
        self.where = where
        self.begun = begun
        self.host = host
        self.noted = None

    def busy(self, start: cython.longlong, end: cython.longlong) -> float:
        """How much of the span from start to end its kernels took.

        Where the stream was empty, the span begins before the first launch arrives, and launches
        that arrive one by one leave gaps, which events cannot tell from kernels: there kernels
        take what they are reckoned to, within what the host's time leaves room for.
        """
        span: cython.double = end - start
        if self.where & _replayed or start - self.begun > _empty:
            return span
        host: cython.double = self.host
        most: cython.double = max(span - host / len(self.parts.rows), 0.0)
        least: cython.double = max(span - host, 0.0)
        return most if 2 * least > host else min(max(self.parts.cost, least), most)


class Notes:
    """What is to be matched with the records of CUPTI when the profile ends.

    ``beyond``: launches that came when ``left`` was none.
    """

    library: Any
    sampler: Sampler
    notes: list[Noted]
    left: int
    beyond: int

    def __init__(self, library: Any, sampler: Sampler) -> None:
        self.library = library
        self.sampler = sampler
        self.notes = []
        self.left = MOST_NOTED
        self.beyond = 0

    def begin(self, parts: Parts | None, now: cython.longlong) -> bool:
        """A send of launches, or of a library call (None), begins; whether it is not told of."""
        if parts is None or not parts.rows:
            return self.sampler.begin(0, 1, 0.0, now)
        return self.sampler.begin(parts.content, len(parts.rows), parts.cost, now)

    def note(self, parts: Parts, begun: Begun, graph: bool) -> Noted:
        """Work goes out."""
        noted: Noted = Noted.__new__(Noted)
        noted.first = -1
        noted.rows = parts.rows
        noted.symbols = parts.symbols
        noted.graph = graph
        noted.copied = parts.copied
        noted.untold = begun.untold
        noted.begun = begun.start
        noted.cost = parts.cost
        noted.span = noted.times = None
        count: cython.Py_ssize_t = len(parts.rows)
        if self.left <= 0:
            self.beyond += count
            return noted
        self.notes.append(noted)
        self.left -= count
        if self.left <= 0:
            self.library.stop()
            self.sampler.every = True
        return noted


class Sends:
    """Writes device records into a ring, from the events around each send.

    ``told``: no events are needed, as the driver tells of each piece of work, or nobody wants to
    know; ``lost``: launches that could not be timed; ``activities``: what CUPTI is to tell of.
    """

    ring: Ring
    driver: Any
    calls: Any
    told: bool
    activities: Any
    clocks: dict[int, Any]
    free: dict[int, list[int]]
    pending: deque[Span]
    ended: dict[int, int]
    lock: Any
    lost: int
    streams: dict[int, int]
    known: dict[int, Parts]
    sample: Any

    def __init__(self, ring: Ring) -> None:
        self.ring = ring
        self.driver = self.calls = self.activities = None
        self.told = False
        self.clocks = {}
        # Events that may be used again, by device.
        self.free = {}
        self.pending = deque()
        # When the last span of a device's stream ended whose time is known.
        self.ended = {}
        self.lock = threading.Lock()
        self.lost = 0
        self.streams = {}
        # By a number made of ops, lines and stream; which of those that share it, see `are_of`.
        self.known = {}
        # Called after each send: what a profile of memory notes.
        self.sample = None

    def attach(self, driver: Any) -> None:
        """The first use of a driver in this profile."""

    def make_parts(self, work: Work, where: int) -> Parts:
        """What launches become."""
        raise NotImplementedError

    def expect(self, stream: int, parts: Parts) -> None:
        """Launches go out of which the driver will tell."""

    def new_clock(self, stream: int) -> Any:
        """What turns events of a device into host time."""
        raise NotImplementedError

    def begin(self, queue: Any, work: Work | None = None) -> Begun:
        """A queue is about to send launches, or to make a library call."""
        if self.driver is None:
            self.attach(queue.driver)
        ring: Ring = self.ring
        begun: Begun = Begun.__new__(Begun)
        begun.layer = ring.switch(_driver)
        where: cython.longlong = self.where_of(queue)
        begun.parts = None
        if work is not None:
            begun.parts = self.parts_of(work, where if work.reason else where | _replayed)
            if self.told:
                self.expect(queue.stream, begun.parts)
        begun.untold = False
        if self.activities is not None:
            begun.untold = self.activities.begin(begun.parts, ring.now())
        # Where CUPTI tells most, one event a send is enough.
        begun.event = 0
        if not self.told and self.activities is None:
            begun.event = self.mark(queue.stream, where)
        begun.start = ring.now()
        return begun

    def where_of(self, queue: Any) -> int:
        """The device and stream of a queue as they stand in a record."""
        where: int = queue.owner.ordinal | queue.number << 8
        self.streams[queue.stream] = where
        return where

    def sent(self, queue: Any, work: Work, begun: Begun) -> None:
        """It sent these launches."""
        ring: Ring = self.ring
        end: cython.longlong = ring.now()
        stream = queue.stream
        where: cython.longlong = self.streams[stream]
        parts: Parts = begun.parts
        if not work.reason:
            where |= _replayed
        ring.write(_send | where << 8, ring.name_of(self.text_of(work)), parts.site, begun.start,
                   end, len(parts.rows))
        self.over(stream, parts, begun, where)
        if self.sample is not None:
            self.sample()
        ring.switch(begun.layer)

    def text_of(self, work: Work) -> str:
        """Why launches went alone, with the line where their memory was handed out."""
        if work.reason != "exported storage":
            return work.reason or "replayed"
        site = exported_at(work.words)
        if site is None:
            return work.reason
        code, instruction = site
        return f"{work.reason}\n{self.ring.site_of(code, instruction)}"

    def parts_of(self, work: Work, where: cython.longlong) -> Parts:
        """What launches become; known again where the same ones of the same lines go out."""
        if work.hollow:
            return self.make_parts(work, where)
        traces: Words | None = work.traces
        key: cython.ulonglong
        if traces is not None:
            key = digest_of(work.launches, traces.digest_of(work.offset, len(work.launches)))
        else:
            key = id(work.launches)
        # In C it wraps by itself.
        key = key + where * _prime if cython.compiled else key + (where << 64)
        found: Parts | None = self.known.get(key)
        if found is None or not found.are_of(work):
            if len(self.known) >= MOST_KNOWN:
                self.known.clear()
            found = self.known[key] = self.make_parts(work, where)
            if traces is not None:
                found.traces = kept_of(work)
        return found

    # -- events --

    def mark(self, stream: cython.size_t, where: cython.longlong) -> int:
        """Record an event in a stream; 0 where the driver has none to give."""
        ordinal: cython.int = where & 255
        try:
            if ordinal not in self.clocks:
                self.clocks[ordinal] = self.new_clock(stream)
                self.free.setdefault(ordinal, [])
            free: list = self.free[ordinal]
            event: cython.size_t = free.pop() if free else self.driver.create_event(timing=True)
            self.calls.record_event(event, stream)
        except DriverError:
            return 0
        return event

    def over(self, stream: cython.size_t, parts: Parts, begun: Begun,
             where: cython.longlong) -> None:
        """A send is over."""
        if self.activities is not None:
            self.activities.sampler.end(self.ring.now())
        self.timed(stream, parts, begun, where)

    def timed(self, stream: cython.size_t, parts: Parts, begun: Begun,
              where: cython.longlong) -> None:
        """Note work whose time the event behind it will tell."""
        if self.told or not parts.rows:
            return
        span: Span = Span.__new__(Span)
        span.host = self.ring.now() - begun.start
        span.last = self.mark(stream, where)
        span.noted = None
        if self.activities is not None:
            span.noted = self.activities.note(parts, begun, where & _replayed != 0)
        if not span.last or not (begun.event or self.activities is not None):
            self.lost += len(parts.rows)
            return
        span.first = begun.event
        span.parts = parts
        span.where = where
        span.begun = begun.start
        self.pending.append(span)
        count: cython.Py_ssize_t = len(self.pending)
        if count > _ahead and (count > _most_pending or count % _ahead == 0):
            self.resolve()

    def resolve(self) -> None:
        """Write the records of spans that are done, the oldest first."""
        # The watchdog's thread may be at it.
        if self.lock.acquire(False):
            try:
                self.write_done()
            finally:
                self.lock.release()

    def write_done(self) -> None:
        """The same; the lock is held."""
        done: cython.Py_ssize_t = 0
        while self.pending:
            if not done:
                done = done_of(self.pending, self.calls)
                if not done:
                    return
            done -= 1
            self.write_span(self.pending.popleft())

    def write_span(self, span: Span) -> None:
        """Write the records of work that is done."""
        ordinal: cython.int = span.where & 255
        free: list = self.free[ordinal]
        clock: Any = self.clocks[ordinal]
        try:
            start, end = moments(span, clock, self.ended)
        except DriverError:
            self.lost += len(span.parts.rows)
            return
        low: cython.longlong = start
        high: cython.longlong = end
        share: cython.double = span.busy(low, high) / max(high - low, 1)
        first: cython.Py_ssize_t = self.ring.write_parts(span.parts.cells, low, high - low, share)
        if span.noted is not None:
            span.noted.first = first
            span.noted.span = (start, end, low - span.begun > _empty)
        if span.first:
            free.append(span.first)
        if high - clock.at > _rebase:
            free.append(clock.base)
            clock.base, clock.at = span.last, end
        else:
            free.append(span.last)


def done_of(pending: Any, calls: Any) -> int:
    """How many of the oldest spans are known to be done, by few looks: a stream keeps its order."""
    count: cython.Py_ssize_t = min(len(pending), _ahead)
    span: Span
    while count > 1:
        last: Span = pending[count - 1]
        place: cython.Py_ssize_t = 0
        while place < count - 1:
            span = pending[place]
            if (span.where ^ last.where) & _stream:
                break
            place += 1
        if place == count - 1 and calls.query_event(last.last):
            return count
        count //= 2
    span = pending[0]
    return 1 if calls.query_event(span.last) else 0


def moments(span: Span, clock: Any, ended: Any) -> Any:
    """When a span that is done began and ended; ``ended``: when the last of each stream did."""
    stream = span.where & STREAM
    end: int = clock.of(span.last)
    start: int = clock.of(span.first) if span.first else min(
        max(ended.get(stream, 0), span.begun), end)
    ended[stream] = end
    return start, end


def shared(items: list[Any], where: int, launches: Any = None) -> Parts:
    """Work of (kind, name, site, value, cost) as parts of one span, by their costs."""
    total = sum([item[4] for item in items])
    flag = ESTIMATED if len(items) > 1 else 0
    rows, at = [], 0.0
    for kind, name, site, value, cost in items:
        rows.append((kind | (where | flag) << 8, name, site, value, at / total,
                     (at + cost) / total))
        at += cost
    return Parts(rows, total, items[-1][2] if items else 0, launches)


def digest_of(launches: list[Any], key: cython.ulonglong) -> int:
    """A number for the kernels of launches and what ``key`` stands for.

    Traces do not tell whether neighbours were joined: a joined launch has that of one of them.
    """
    launch: Launch
    for launch in launches:
        # In C it wraps by itself.
        key = key * _prime + launch.mark if cython.compiled else (
            key * _prime + launch.mark) & MASK
    return key


def alike(launches: list[Any], others: list[Any]) -> cython.bint:
    """Whether launches are of the same kernels; there are as many."""
    launch: Launch
    other: Launch
    place: cython.Py_ssize_t
    for place in range(len(launches)):
        launch = launches[place]
        other = others[place]
        if launch.mark != other.mark:
            return False
    return True


def kept_of(work: Work) -> Words:
    """The traces of launches in memory of their own: a window's are used again."""
    kept = Words()
    traces: Words = work.traces
    place: cython.Py_ssize_t
    for place in range(len(work.launches)):
        kept.append(traces.get(work.offset + place))
    return kept


def work_of(window: Window, first: cython.Py_ssize_t, count: cython.Py_ssize_t,
            reason: str) -> Work:
    """What a profile notes of launches that go out; ``reason``: why alone, empty for a graph."""
    launches: list = window.launches
    traces: Words | None = window.traces
    # A profile may have begun in the middle of the window: these have no traces.
    missing: cython.Py_ssize_t = len(launches) - (0 if traces is None else traces.length)
    work: Work = Work.__new__(Work)
    work.launches = launches
    work.sites = sites_of(window)
    work.reason = reason
    work.words = ()
    work.traces = traces
    work.offset = first - missing
    work.hollow = min(max(missing - first, 0), count)
    if reason == "exported storage":
        last: cython.Py_ssize_t = window.ends.get(first + count - 1)
        start: cython.Py_ssize_t = (window.ends.get(first + count - 2)
                                    if first + count > 1 else 0)
        work.words = window.words.take(start, last - start)
    if count < len(launches):
        work.launches = launches[first:first + count]
        work.sites = work.sites[2 * first:2 * (first + count)]
    return work

"""What small things cost a program on this machine: an op, a wait, a copy of pageable memory.

A profile makes each of them dearer, and not all alike.  What a program takes without one is
reckoned from how often it does each, and from what each takes when nobody looks: that is measured
here, in a thread of its own, whose modes are those of a new one.  It is on the default stream: a
card that has one more takes longer for every op; and on the processor of the thread that asks, at
the time when it asks: on a shared machine one may be twice as fast as another, now or later.

The same laps in a profile tell what of a recording is the profile's own doing.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from slipstream.core.api.interop import from_numpy
from slipstream.core.api.pacing import gaps_of_host, pace_of, spent_usually, worked_before
from slipstream.core.api.profiling import Session, settle
from slipstream.core.api.recording import Recording
from slipstream.core.launch.door import backends
from slipstream.core.launch.waiting import DEFAULT, asking, watching
from slipstream.core.native.processors import running_on, stay_on
from slipstream.core.vocab.devices import Device
from slipstream.core.vocab.modes import modes
from slipstream.core.vocab.ring import exports

# Ops of a lap that are replayed, and of one that are not; ops between two waits, and two copies.
CHAIN, LONE, BEFORE_WAIT, BEFORE_COPY = 64, 16, 4, 16
# Laps until windows repeat themselves, and arguments that take turns have their graphs.
WARM = 8
# Laps of a short stretch and of a long one, whose difference has neither a beginning nor an end;
# rounds of all of them: what a machine does beside comes and goes, and the quickest count.  Where
# it is busy, no stretch of several ms is left alone.
FEW, MORE, ROUNDS = 4, 16, 25
VIRTUAL_FEW, VIRTUAL_MORE, VIRTUAL_ROUNDS = 2, 8, 3
# Seconds for which prices hold; virtual ones hold for ever.
HOLDS = 2.0
# Bytes of a small copy and of a large one.
SMALL, LARGE = 1 << 12, 1 << 20
Lap = Callable[[], int]


@dataclass(frozen=True)
class Units:
    """ns when nobody looks.

    ``replayed``: an op on a few elements, from its line to its part of a graph's launch;
    ``alone``: the same where its launch goes out by itself; ``wait``: what an ``item()`` takes more
    than the ops before it, with the smaller graphs that it makes of them; ``copy`` and ``byte``: a
    copy from pageable memory to the card, and each byte of it.
    """

    replayed: float
    alone: float
    wait: float
    copy: float
    byte: float


@dataclass(frozen=True)
class Shown:
    """ns that a profile shows of the same things.

    Of the host: ``pace``: an op that is replayed, see `pace_of`; ``gap``: the longest between two
    of its records that is usual; ``waiting``: in a wait, beside launches that go out there.
    Of the card: ``waited``: its work before a wait; beyond its own time ``lone_extra`` around a
    launch alone, ``graph_extra`` around a graph, ``node_extra`` around each launch in it.
    """

    pace: float
    gap: float
    waiting: float
    waited: float
    lone_extra: float
    graph_extra: float
    node_extra: float


@dataclass
class Known:
    """What was measured of a card: None where that failed.

    ``shown`` by events, and not, each beside the units of its time; ``until``: when all is to be
    measured again.
    """

    backend: Any
    units: Units | None = None
    until: float = 0.0
    shown: dict[bool, tuple[Units, Shown | None]] = field(default_factory=dict)


class Meter:
    """Measures a card; ``virtual``: its driver's clock, which runs while a session is on.

    ``last``: the session that is on, or was.
    """

    def __init__(self, backend: Any) -> None:
        self.backend = backend
        self.virtual = backend.driver.host_clock()
        self.few, self.more, self.rounds = (
            (FEW, MORE, ROUNDS) if self.virtual is None
            else (VIRTUAL_FEW, VIRTUAL_MORE, VIRTUAL_ROUNDS))
        self.last: Session | None = None
        self.x = from_numpy(np.ones(1, np.float32)).to(backend.device)
        self.given = from_numpy(np.ones(1, np.float32)).to(backend.device)
        self.given.data_ptr()
        self.sources = {size: from_numpy(np.ones(size // 4, np.float32)) for size in (SMALL, LARGE)}

    # -- laps; each returns how many ops it called --

    def chain(self) -> int:
        """Ops that are replayed."""
        y = self.x
        for _ in range(CHAIN):
            y = y * 0.5
        return CHAIN

    def lone(self) -> int:
        """Ops that go alone: other code may write what they read."""
        y = self.x
        for _ in range(LONE):
            y = y * self.given
        return LONE

    def mixed(self, count: int) -> Any:
        """So many ops, each a launch of its own: neighbours of one kind may be joined."""
        y = self.x
        for _ in range(count // 2):
            y = (y * 0.5).sum()
        return y

    def waiting(self) -> int:
        """Ops and a wait."""
        self.mixed(BEFORE_WAIT).item()
        return BEFORE_WAIT

    def copying(self, size: int = SMALL) -> int:
        """Ops and a copy."""
        self.mixed(BEFORE_COPY)
        self.sources[size].to(self.backend.device)
        return BEFORE_COPY

    # -- nobody looks --

    def now(self) -> float:
        """Nanoseconds."""
        return float(time.perf_counter_ns() if self.virtual is None else self.virtual.now())

    def stretch(self, lap: Lap, times: int) -> float:
        """ns of so many laps, until the card is done."""
        begun = self.now()
        for _ in range(times):
            lap()
        self.backend.finish_all()
        return self.now() - begun

    def steady(self, *laps: Lap) -> list[float]:
        """ns of each lap among others of its kind.

        Rounds of all of them are close together.  What a machine does beside makes a stretch longer
        and none shorter: the least of few laps and of many count, one taken from the other.
        """
        few: list[list[float]] = [[] for _ in laps]
        more: list[list[float]] = [[] for _ in laps]
        for _ in range(self.rounds):
            for place, lap in enumerate(laps):
                # Caches are another lap's.
                self.stretch(lap, self.few)
                few[place].append(self.stretch(lap, self.few))
                more[place].append(self.stretch(lap, self.more))
        return [max(min(longer) - min(shorter), 0.0) / (self.more - self.few)
                for shorter, longer in zip(few, more, strict=True)]

    def units(self) -> Units:
        """Measure them all."""
        session = None if self.virtual is None else self.session(by_events=False)
        laps = (self.chain, self.lone, self.waiting, self.copying, partial(self.copying, LARGE))
        for lap in laps:
            for _ in range(WARM):
                lap()
        chain, lone, wait, small, large = self.steady(*laps)
        if session is not None:
            session.stop()
        replayed = chain / CHAIN
        byte = max(large - small, 0.0) / (LARGE - SMALL)
        return Units(replayed, max(lone / LONE, replayed), max(wait - BEFORE_WAIT * replayed, 0.0),
                     max(small - BEFORE_COPY * replayed - byte * SMALL, 0.0), byte)

    # -- a profile looks --

    def session(self, by_events: bool) -> Session:
        """A profile of this thread's own."""
        found = Session(1 << 13, by_events=by_events)
        found.start()
        self.last = found
        return found

    def recording(self, lap: Callable[[], int], by_events: bool) -> Recording:
        """What a profile shows of some laps."""
        for _ in range(WARM):
            lap()
        session = self.session(by_events)
        for _ in range(self.more):
            lap()
        return session.stop()

    def shown(self, units: Units, by_events: bool) -> Shown:
        """Measure what a profile shows, by events or not."""
        chain, lone, waiting, copying = (self.recording(each, by_events) for each in (
            self.chain, self.lone, self.waiting, self.copying))
        graph, few = (spent_usually(each.of("kernel"), True) / self.more
                      for each in (chain, waiting))
        long, short = (launches(each, True) / self.more for each in (chain, waiting))
        # A graph of n launches takes so much and n times so much.
        each = (graph - few) / (long - short) if long > short else few / max(short, 1.0)
        alone = spent_usually(lone.of("kernel"), False) / max(launches(lone, False), 1)
        waits = [float(ns) for _, ns in waiting.waiting()][:self.more]
        return Shown(pace_of(chain), max(map(usual_gap, (waiting, copying))),
                     statistics.median(waits or [0.0]),
                     statistics.median(worked_before(waiting) or [0]),
                     max(alone - units.replayed, 0.0), max(few - each * short, 0.0),
                     max(each - units.replayed, 0.0))


def launches(recording: Recording, replayed: bool) -> int:
    """How many kernels ran, in graphs or alone."""
    return sum(event.replayed == replayed for event in recording.of("kernel"))


def usual_gap(recording: Recording) -> float:
    """The longest ns of the host between records but for one in twenty."""
    gaps = sorted(high - low for low, high in gaps_of_host(recording))
    return float(gaps[len(gaps) * 19 // 20]) if gaps else 0.0


# The last backend of each card, and what is known of it.
known: dict[int, Known] = {}


def units_of(index: int) -> Units | None:
    """The units of a card; None where they cannot be measured, as while a profile is on.

    Takes some tenths of a second where they were not measured just before; `cuda.launch_stats`
    counts its launches.
    """
    backend: Any = backends.get(Device("cuda", index))
    found = known.get(index)
    if found is None or found.backend is not backend:
        if not measurable(backend):
            return None
        found = known[index] = Known(backend)
    elif time.monotonic() < found.until or not measurable(backend):
        return found.units
    found.units = measured(backend, Meter.units, running_on())
    virtual = backend.driver.host_clock() is not None
    found.until = float("inf") if virtual else time.monotonic() + HOLDS
    return found.units


def shown_of(index: int, by_events: bool) -> Shown | None:
    """What a profile of a card shows of them, by events or not; None as above.

    Measured where the units were: what is taken off a profile is of the same moment.
    """
    units = units_of(index)
    if units is None:
        return None
    found = known[index]
    at, shown = found.shown.get(by_events, (None, None))
    if at is units:
        return shown
    if not measurable(found.backend):
        return None
    shown = measured(found.backend, Meter.shown, running_on(), units, by_events)
    found.shown[by_events] = units, shown
    return shown


def measurable(backend: Any) -> bool:
    """Whether there is a card, and nobody looks or captures."""
    return backend is not None and modes.ring is None and not modes.listeners and not any(
        queue.capture is not None for queue in tuple(backend.queues))


def measured(backend: Any, what: Callable[..., Any], processor: int | None, *arguments: Any) -> Any:
    """What a meter finds in a thread of its own, on a processor; None where it fails."""
    found: list[Any] = []
    # What the user's own work raises is not for the other thread to meet.
    settle()

    def measure() -> None:
        stay_on(processor)
        meet(found, backend, what, *arguments)

    measuring = threading.Thread(target=measure, name="slipstream units")
    measuring.start()
    measuring.join()
    return found[0] if found else None


def meet(found: list[Any], backend: Any, what: Callable[..., Any], *arguments: Any) -> None:
    """Put what a meter finds into a list, and leave the tables of waits as they were."""
    tables: tuple[dict[Any, Any], ...] = (exports, watching.waits, watching.copies)
    before = [set(table) for table in tables]
    asking.mode = DEFAULT
    with suppress(RuntimeError, OSError):
        meter = Meter(backend)
        try:
            found.append(what(meter, *arguments))
        except BaseException:
            if meter.last is not None:
                meter.last.abandon()
            raise
    for table, kept in zip(tables, before, strict=True):
        for key in set(table) - kept:
            del table[key]

"""What small things cost a program on this machine: an op, a wait, a copy of pageable memory.

A profile makes each of them dearer, and not all alike.  What a program takes without one is
reckoned from how often it does each, and from what each takes when nobody looks: that is measured
here, once a process and card, in a thread of its own, whose modes are those of a new one.  It is on
the default stream: a card that has one more takes longer for every op.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from slipstream.core.api.interop import from_numpy
from slipstream.core.api.profiling import Session, settle
from slipstream.core.launch.door import backends
from slipstream.core.launch.waiting import DEFAULT, asking, watching
from slipstream.core.vocab.devices import Device
from slipstream.core.vocab.modes import modes
from slipstream.core.vocab.ring import exports

# Ops of a lap that are replayed, and of one that are not; ops between two waits, and two copies.
CHAIN, LONE, BEFORE_WAIT, BEFORE_COPY = 64, 16, 3, 16
# Laps until windows repeat themselves; laps of a short stretch and of a long one, whose difference
# has neither a beginning nor an end; how many of each, of which the shortest counts.
WARM, FEW, MORE, STRETCHES = 5, 2, 6, 3
# Bytes of a small copy and of a large one.
SMALL, LARGE = 1 << 12, 1 << 20


@dataclass(frozen=True)
class Units:
    """ns; the first five when nobody looks.

    ``replayed``: an op on a few elements, from its line to its part of a graph's launch;
    ``alone``: the same where its launch goes out by itself; ``wait``: what an ``item()`` takes more
    than the ops before it, with the smaller graphs that it makes of them; ``copy`` and ``byte``: a
    copy from pageable memory to the card, and each byte of it.

    While a profile is on: ``line``: the Python between two ops; ``lone_extra``, ``graph_extra`` and
    ``node_extra``: what events show beyond a card's own time around a launch alone, a graph, and
    each launch in it.
    """

    replayed: float
    alone: float
    wait: float
    copy: float
    byte: float
    line: float
    lone_extra: float
    graph_extra: float
    node_extra: float


class Meter:
    """Measures a card; ``virtual``: its driver's clock, which runs while a session is on.

    ``last``: the session that is on, or was.
    """

    def __init__(self, backend: Any) -> None:
        self.backend = backend
        self.virtual = backend.driver.host_clock()
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
        for _ in range(LONE):
            self.given * 0.5
        return LONE

    def waiting(self) -> int:
        """Ops and a wait."""
        y = self.x
        for _ in range(BEFORE_WAIT):
            y = y * 0.5
        y.item()
        return BEFORE_WAIT

    def copying(self, size: int) -> int:
        """Ops and a copy."""
        y = self.x
        for _ in range(BEFORE_COPY):
            y = y * 0.5
        self.sources[size].to(self.backend.device)
        return BEFORE_COPY

    # -- stretches --

    def now(self) -> float:
        """Nanoseconds."""
        return float(time.perf_counter_ns() if self.virtual is None else self.virtual.now())

    def stretch(self, lap: Callable[..., int], arguments: tuple[Any, ...], times: int) -> float:
        """The least ns of so many laps, until the card is done."""
        least = float("inf")
        for _ in range(STRETCHES):
            begun = self.now()
            for _ in range(times):
                lap(*arguments)
            self.backend.finish_all()
            least = min(least, self.now() - begun)
        return least

    def steady(self, lap: Callable[..., int], *arguments: Any) -> float:
        """ns of a lap among others."""
        for _ in range(WARM):
            lap(*arguments)
        few = self.stretch(lap, arguments, FEW)
        return max(self.stretch(lap, arguments, MORE) - few, 0.0) / (MORE - FEW)

    def units(self) -> Units:
        """Measure them all."""
        session = None if self.virtual is None else self.session(by_events=False)
        replayed = self.steady(self.chain) / CHAIN
        alone = self.steady(self.lone) / LONE
        wait = self.steady(self.waiting) - BEFORE_WAIT * replayed
        small, large = (self.steady(self.copying, size) for size in (SMALL, LARGE))
        if session is not None:
            session.stop()
        byte = max(large - small, 0.0) / (LARGE - SMALL)
        copy = max(small - BEFORE_COPY * replayed - byte * SMALL, 0.0)
        return Units(replayed, alone, max(wait, 0.0), copy, byte, *self.seen(replayed))

    def session(self, by_events: bool = True) -> Session:
        """A profile of this thread's own."""
        found = Session(1 << 13, by_events=by_events)
        found.start()
        self.last = found
        return found

    def seen(self, replayed: float) -> tuple[float, float, float, float]:
        """What a profile by events shows, where an op takes ``replayed`` ns without one."""
        line, *long = self.window(self.chain, True)
        _, *short = self.window(self.waiting, True)
        _, _, lone = self.window(self.lone, False)
        # A graph of n launches takes so much and n times so much.
        each = (long[1] - short[1]) / max(long[0] - short[0], 1.0)
        graph = max(short[1] - each * short[0], 0.0)
        return line, max(lone - replayed, 0.0), graph, max(each - replayed, 0.0)

    def window(self, lap: Callable[[], int], replayed: bool) -> tuple[float, float, float]:
        """In a profile by events: ns of Python of an op; launches and ns of the card of a window.

        ``replayed``: of those that were, or of those that were not.
        """
        session = self.session()
        calls = sum(lap() for _ in range(MORE))
        recording = session.stop()
        sends = [event.value for event in recording.of("send") if event.replayed == replayed]
        card = sum(event.end - event.start for event in recording.of("kernel")
                   if event.replayed == replayed)
        windows = max(len(sends), 1)
        return recording.layers["Python"] / calls, sum(sends) / windows, card / windows


# The last backend of each card, and its units.
known: dict[int, tuple[Any, Units | None]] = {}


def units_of(index: int) -> Units | None:
    """The units of a card; None where they cannot be measured, as while a profile is on.

    Takes some milliseconds at its first call for a card; `cuda.launch_stats` counts its launches.
    """
    backend: Any = backends.get(Device("cuda", index))
    if backend is None:
        return None
    if known.get(index, (None, None))[0] is not backend:
        if modes.ring is not None or modes.listeners or any(
                queue.capture is not None for queue in tuple(backend.queues)):
            return None
        # What the user's own work raises is not for the other thread to meet.
        settle()
        measuring = threading.Thread(target=measure, args=(index, backend), name="slipstream units")
        measuring.start()
        measuring.join()
    return known[index][1]


def measure(index: int, backend: Any) -> None:
    """Fill in the units of a card; in a thread of their own."""
    known[index] = (backend, None)
    tables: tuple[dict[Any, Any], ...] = (exports, watching.waits, watching.copies)
    before = [set(table) for table in tables]
    asking.mode = DEFAULT
    with suppress(RuntimeError, OSError):
        meter = Meter(backend)
        try:
            known[index] = (backend, meter.units())
        except BaseException:
            if meter.last is not None:
                meter.last.abandon()
            raise
    for table, kept in zip(tables, before, strict=True):
        for key in set(table) - kept:
            del table[key]

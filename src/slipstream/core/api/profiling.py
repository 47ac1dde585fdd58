"""A profile's beginning and end, and the spans that the user and the data loader name."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, ClassVar

from slipstream.core.api.fusions import launches_of
from slipstream.core.api.recording import Recording, decode
from slipstream.core.catalog.table import table
from slipstream.core.launch.cuda.timing import Timer
from slipstream.core.launch.door import backends, door
from slipstream.core.native.drivers import drivers
from slipstream.core.vocab.devices import Device
from slipstream.core.vocab.modes import ROOT, modes
from slipstream.core.vocab.ring import DATA, LOADING, MEMORY, SPAN, STEP, WAITING, Ring
from slipstream.core.vocab.settings import settings

RECORDS = 1 << 18
# 3.5 GiB of them.
MOST_RECORDS = 1 << 26
# Frames of a stack that are kept.
DEEPEST = 64


class Stacks:
    """Distinct stacks of the user's frames, by number; 0 is none."""

    def __init__(self) -> None:
        self.known: dict[tuple[int, ...], int] = {}
        self.frames: list[list[tuple[Any, int]]] = [[]]

    def __call__(self) -> int:
        """The number of the running stack."""
        frames: list[tuple[Any, int]] = []
        key: list[int] = []
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and len(frames) < DEEPEST:
            code = frame.f_code
            if not code.co_filename.startswith((ROOT, "<frozen ")):
                frames.append((code, frame.f_lineno or 0))
                # Code objects are told apart by address: hashing one walks all of it.
                key += (id(code), frame.f_lineno or 0)
            frame = frame.f_back
        number = self.known.setdefault(tuple(key), len(self.frames))
        if number == len(self.frames):
            self.frames.append(frames)
        return number

    def decoded(self, number: int) -> tuple[tuple[str, int, str], ...]:
        """A stack as (file, line, function), innermost first."""
        return tuple((code.co_filename, line, code.co_name) for code, line in self.frames[number])


def ring_of(records: int, virtual: Any) -> Ring:
    """A ring of so many records.  Raises ValueError where it cannot be had."""
    if not 0 < records <= MOST_RECORDS:
        raise ValueError(f"profile(): records must be from 1 to {MOST_RECORDS:,}, not {records:,}")
    try:
        return Ring(records, virtual)
    except MemoryError:
        raise ValueError(f"profile(): there is no memory for {records:,} records of 56 bytes; "
                         "take fewer: what is overwritten is still counted") from None


def owner_of(launch: Any) -> Any:
    """The plan that a launch is of, among those that are kept; None where it is not."""
    return next((plan for op in table.values() for plan in op.plans.values()
                 if any(each is launch for each in launches_of(plan))), None)


class Session:
    """One stretch of profiling of this process, seen from the thread that starts it.

    ``records``: how many the ring holds; ``cuda``: whether devices are timed; ``stacks``: whether
    whole stacks are kept, not lines alone (dearer); ``memory``: whether allocated bytes are noted
    at steps and sends; ``by_events``: time devices by events where CUPTI, or the
    simulated driver, would tell more; ``every_kernel``: let CUPTI time each kernel, where
    otherwise most take the mean of some: that costs the host about 0.7 µs each.
    ``gives_way``: called where another session begins while this one is on, which is then over
    without a recording; None: the other cannot begin.
    """

    # The session that is on and gives way, if there is one.
    yielding: ClassVar[Session | None] = None

    def __init__(self, records: int = RECORDS, *, cuda: bool = True, stacks: bool = False,
                 memory: bool = False, by_events: bool = False,
                 every_kernel: bool = False) -> None:
        self.stacks = Stacks() if stacks else None
        self.memory = memory
        self.cuda = cuda
        virtual = drivers.current().host_clock() if cuda and _simulated() else None
        self.ring = ring_of(records, virtual)
        self.ring.timer = Timer(self.ring, by_events, cuda, every_kernel)
        self.ring.timer.plan_of = owner_of
        self.ring.timer.sample = self.sample if memory else None
        self.ring.stacks = self.stacks
        self.begun = 0
        self.gives_way: Callable[[], None] | None = None
        self.failure: Exception | None = None

    def start(self) -> None:
        """Begin.  RuntimeError where a profile is on already."""
        other = Session.yielding
        if other is not None and other.gives_way is not None and modes.ring is other.ring:
            # What was launched is that one's to time, until it is done.
            settle()
            other.abandon()
            other.gives_way()
        if modes.ring is not None:
            raise RuntimeError("a profile is already on: stop() it first")
        settle()
        ring = self.ring
        if self.cuda and drivers.found is not None and door.windowed:
            # What that takes is no time of the program's.
            ring.timer.attach(drivers.found)
        modes.ring = ring
        ring.last = self.begun = ring.now()
        if self.gives_way is not None:
            Session.yielding = self
        self.sample()

    def stop(self) -> Recording:
        """Wait for the devices, and return what was seen.

        Where that wait raises, as it does after an error of a kernel, ``failure`` keeps the error.
        """
        ring = self.ring
        self.sample()
        ring.switch(WAITING)
        try:
            finish()
        except Exception as failure:
            self.failure = failure
        finally:
            ring.switch(ring.outside)
            # What the profile still has to do is no time of the program's.
            end = ring.last
            self.abandon()
        return decode(ring, self.begun, end, self.stacks)

    def abandon(self) -> None:
        """End without a recording."""
        if modes.ring is self.ring:
            modes.ring = None
        if Session.yielding is self:
            Session.yielding = None
        self.ring.timer.stop()

    def step(self, number: int, start: int) -> int:
        """Note that a step which began at ``start`` has ended; its end."""
        now = self.ring.now()
        name = self.ring.name_of(f"ProfilerStep#{number}")
        self.ring.write(STEP, name, 0, start, now, number)
        self.sample()
        return now

    def sample(self) -> None:
        """Note how many bytes each card has allocated."""
        if not self.memory:
            return
        ring, now = self.ring, self.ring.now()
        for device, backend in tuple(backends.items()):
            if device.type == "cuda":
                ring.write(MEMORY | (device.index or 0) << 8, ring.name_of(str(device)), 0, now,
                           now, allocated_bytes(backend))


def _simulated() -> bool:
    """Whether the simulated driver is what stands, or would stand, under CUDA devices."""
    if drivers.found is not None:
        return drivers.found.name == "simulated"
    return settings.driver == "sim" and drivers.available()


def settle() -> None:
    """Let what was recorded before go out and be done, while windows keep their places."""
    for backend in door.windowed:
        each: Any = backend
        each.drain_all()
        each.streams.wait(tuple([queue for queue in each.queues if queue.capture is None]))


def finish() -> None:
    """Let everything that was submitted be done."""
    for backend in door.windowed:
        each: Any = backend
        each.finish_all()


def allocated_bytes(backend: Any) -> int:
    """Bytes of a card that tensors hold."""
    return int(getattr(backend.memory, "live_bytes", 0))


class span:  # noqa: N801
    """A scope that is one record of a profile; nothing where none is on.

    ``data``: the time counts for loading data; ``value``: a number that the record holds.
    """

    def __init__(self, name: str, data: bool = False) -> None:
        self.name = name
        self.data = data
        self.value = 0
        self.ring: Ring | None = None
        self.start = 0
        self.outside = 0
        self.site = 0

    def __enter__(self) -> span:
        ring = self.ring = modes.ring
        if ring is None:
            return self
        self.site = modes.note_scope(modes.current(), ring)
        self.outside = ring.surround(LOADING if self.data else ring.outside)
        self.start = ring.now()
        return self

    def __exit__(self, *failure: object) -> None:
        ring = self.ring
        if ring is None or modes.ring is not ring:
            return
        ring.surround(self.outside)
        ring.write(DATA if self.data else SPAN, ring.name_of(self.name), self.site, self.start,
                   ring.now(), self.value)


def profiling() -> bool:
    """Whether a profile is on."""
    return modes.ring is not None


def card_of(index: int = 0) -> Any:
    """What a card offers; None where it was never used."""
    backend: Any = backends.get(Device("cuda", index))
    return None if backend is None else backend.driver.properties(index)

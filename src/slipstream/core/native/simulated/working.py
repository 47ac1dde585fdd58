"""The desk on which pieces of work are done: kernels, copies, fills, calls."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from slipstream.core.native.driver import MOMENT_BITS, TO_DEVICE, TO_HOST
from slipstream.core.native.simulated.engine import READ, WRITE, Engine
from slipstream.core.native.simulated.faults import SimulatedFault, fault_of
from slipstream.core.vocab.settings import SimulatedCard

# Works whose lines are kept for the reports of races.
JOURNAL = 1 << 20
ANY_DEVICE = -1


def first_moment(moment: int) -> int:
    """The first of the moments that one stands for: joined launches were recorded over some."""
    return (moment & (1 << MOMENT_BITS) - 1) - (moment >> MOMENT_BITS)


@dataclass(slots=True)
class Ticket:
    """What goes with a piece of work: who asked for it, and what is ordered before it."""

    site: Any
    moment: int
    device: int
    slot: int = 0
    clock: array[int] = field(default_factory=lambda: array("I"))


@dataclass(slots=True)
class KernelAction:
    """A launch of a kernel."""

    function: Any
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    parameters: bytes
    sizes: bytes

    kind = "kernel"

    def label(self) -> str:
        """The work's name in reports."""
        return f"kernel {self.function.name}"

    def time(self) -> float:
        """Microseconds that it takes."""
        grid, block = self.grid, self.block
        threads = grid[0] * grid[1] * grid[2] * block[0] * block[1] * block[2]
        return 2.0 + threads * 2e-5

    def do(self, desk: Desk) -> None:
        """Run the kernel."""
        if not desk.options.zero_cost:
            function = self.function
            desk.engine.run(desk.world, function.kernel_address, self.sizes, self.shared,
                            self.parameters, desk.seed(), function.image_address)


@dataclass(slots=True)
class CopyAction:
    """A copy; ``data`` are the bytes of a pageable source, taken at the call."""

    target: int
    source: int
    nbytes: int
    direction: str
    data: bytes | None = None
    pageable: bool = False

    kind = "copy"

    def label(self) -> str:
        """The work's name in reports."""
        return f"copy of {self.nbytes} bytes"

    def time(self) -> float:
        """Microseconds that it takes."""
        return 1.0 + self.nbytes / (25e3 if self.direction in (TO_DEVICE, TO_HOST) else 1.5e6)

    def do(self, desk: Desk) -> None:
        """Copy, if both sides may be touched."""
        source = self.source if self.data is None else self.data
        pageable = self.direction == TO_HOST and self.pageable
        good = self.data is not None or desk.touch(self.source, self.nbytes, READ)
        if (pageable or desk.touch(self.target, self.nbytes, WRITE)) and good:
            ctypes.memmove(self.target, source, self.nbytes)


@dataclass(slots=True)
class FillAction:
    """A fill with values of 1, 2 or 4 bytes."""

    target: int
    value: int
    width: int
    count: int

    kind = "fill"

    def label(self) -> str:
        """The work's name in reports."""
        return f"fill of {self.width * self.count} bytes"

    def time(self) -> float:
        """Microseconds that it takes."""
        return 1.0 + self.width * self.count / 2e6

    def do(self, desk: Desk) -> None:
        """Fill, if the bytes may be touched."""
        nbytes = self.width * self.count
        if not desk.touch(self.target, nbytes, WRITE):
            return
        unit = (self.value & ((1 << 8 * self.width) - 1)).to_bytes(self.width, "little")
        if unit.count(unit[0]) == self.width:
            ctypes.memset(self.target, unit[0], nbytes)
        else:
            ctypes.memmove(self.target, unit * self.count, nbytes)


@dataclass(slots=True)
class CallAction:
    """A Python function that stands for a library's call, with the ranges it reads and writes."""

    call: Callable[[], Any]
    reads: tuple[tuple[int, int], ...] = ()
    writes: tuple[tuple[int, int], ...] = ()

    kind = "call"

    def label(self) -> str:
        """The work's name in reports."""
        return f"library call {getattr(self.call, '__name__', type(self.call).__name__)}"

    def time(self) -> float:
        """Microseconds that it takes."""
        return 4.0

    def do(self, desk: Desk) -> None:
        """Call, if all ranges may be touched."""
        good = [desk.touch(*each, READ) for each in self.reads]
        good += [desk.touch(*each, WRITE) for each in self.writes]
        if all(good):
            self.call()


@dataclass(slots=True)
class EmptyAction:
    """Nothing, at its place in an order."""

    kind = "empty"

    def label(self) -> str:
        """The work's name in reports."""
        return "empty node"

    def time(self) -> float:
        """Microseconds that it takes."""
        return 0.0

    def do(self, desk: Desk) -> None:
        """Do nothing."""


Action = KernelAction | CopyAction | FillAction | CallAction | EmptyAction


class Desk:
    """Does pieces of work and collects their faults.

    ``journal`` has (name, site) of each work that the engine numbered; ``blocks`` the sites that
    handed out and took back each block, by its identity.
    """

    def __init__(self, engine: Engine, world: int, schedule: Any, options: SimulatedCard) -> None:
        self.engine = engine
        self.world = world
        self.options = options
        self.draw = schedule.draw
        self.faults: list[SimulatedFault] = []
        self.journal: list[tuple[str, Any] | None] = [None]
        self.blocks: dict[int, list[Any]] = {}
        self.failure: BaseException | None = None
        self.listener: Any = None
        schedule.desk = self

    def seed(self) -> int:
        """A seed for the order of one launch's blocks and threads."""
        return self.draw.getrandbits(32)

    def touch(self, address: int, nbytes: int, access: int) -> bool:
        """Whether the running work may touch a range; notes that it does."""
        return bool(self.engine.access(self.world, address, nbytes, access))

    def do(self, action: Action, ticket: Ticket) -> None:
        """Do one piece of work."""
        device = ticket.device if action.kind == "kernel" else ANY_DEVICE
        self.begin((action.label(), ticket.site), ticket, device)
        try:
            action.do(self)
        except Exception as failure:
            # A stand-in's own error is raised at the wait; later work still runs.
            self.failure = self.failure or failure
        self.collect((action.label(), ticket.site))

    def tell(self, action: Action, site: Any, stream: Any, *facts: Any) -> None:
        """Tell who listens of work that ran: ``facts`` are begin and end in µs, and replayed."""
        begin, end, replayed = facts
        if self.listener is not None and action.kind != "empty":
            self.listener(action, site, stream, int(begin * 1000), int(end * 1000), replayed)

    def fill_poison(self, address: int, nbytes: int) -> None:
        """Fill fresh memory with what no program should count on."""
        ctypes.memset(address, 0xFF, nbytes)

    def begin(self, label: tuple[str, Any], ticket: Ticket, device: int) -> None:
        """Tell the engine whose accesses come next."""
        clock = ticket.clock.tobytes()
        number = self.engine.begin(
            self.world, ticket.moment, device, ticket.slot, clock, len(ticket.clock))
        self.clock = clock  # the engine keeps its address while the work runs
        if number:
            self.journal.append(label)
            if len(self.journal) % JOURNAL == 0:
                self.journal[: -JOURNAL // 2] = [None] * (len(self.journal) - JOURNAL // 2)

    def collect(self, label: tuple[str, Any]) -> None:
        """Take the faults that the engine has noted."""
        count, records = self.engine.faults()
        if not count:
            return
        for record in records:
            other = self.journal[record.other] if record.kind == 6 else None
            fault = fault_of(record, label, other or ("earlier work", None), self.blocks)
            self.faults.append(fault)

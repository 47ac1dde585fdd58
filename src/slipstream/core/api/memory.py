"""Who holds memory now, on every device, and what a program held while it ran."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

from slipstream.core.api.tables import as_table, size
from slipstream.core.dispatch.modes import listening
from slipstream.core.engine.backward import checks
from slipstream.core.launch.devices import host_allocator
from slipstream.core.launch.door import backends
from slipstream.core.memory.history import Stack, recorder
from slipstream.core.memory.statistics import largest_hole
from slipstream.core.memory.timeline import Timeline
from slipstream.core.native.driver import DriverError
from slipstream.core.native.drivers import drivers
from slipstream.core.vocab.devices import Device
from slipstream.core.vocab.modes import decode_site
from slipstream.core.vocab.sites import expression_of

# How many lines a printed report names.
LINES = 20


@dataclass
class HolderRow:
    """What one expression at one line holds: ``nbytes`` in ``blocks``.

    ``expression``: the call as it is written; ``op``: the op, where it was recorded; ``stack``:
    the lines that led there, the innermost first.
    """

    file: str
    line: int
    expression: str
    nbytes: int
    blocks: int
    op: str = ""
    stack: list[str] = field(default_factory=list)

    @property
    def place(self) -> str:
        """File and line as a text."""
        return f"{self.file}:{self.line}" if self.file else "no line is known"


@dataclass
class DeviceMemory:
    """One device's memory in bytes.

    ``live``: in use; ``peak``: the most there was since `reset_peak_memory_stats`; ``reserved``:
    what the allocator has of the device; ``cached``: reserved and not in use; ``largest_hole``:
    the largest free block of it; ``free`` and ``total`` of the card (None elsewhere); ``pinned``:
    host memory in use for copies to it, and ``pinned_cached``; ``holders``, largest first.
    """

    device: str
    live: int
    peak: int
    reserved: int
    cached: int
    largest_hole: int
    free: int | None
    total: int | None
    pinned: int
    pinned_cached: int
    holders: list[HolderRow]


@dataclass
class MemoryReport:
    """The memory of devices at one moment; prints as text."""

    devices: list[DeviceMemory]

    def to_dict(self) -> dict[str, Any]:
        """The report as dicts, lists, numbers and strings."""
        return asdict(self)

    def __str__(self) -> str:
        return "\n\n".join(_device_text(each) for each in self.devices)

    __repr__ = __str__

    def print(self) -> None:
        """Print the text."""
        print(self)


def memory_report(device: Any = None) -> MemoryReport:
    """Who holds memory now, by the line and the expression that asked for it.

    Of ``device``, or of the CPU and every card in use.  On cards each block's line is always
    known; on the CPU it would cost every small op, so its lines are known to `slipstream memory`
    alone.  Raises RuntimeError for a device without memory of its own, or that is not there.
    """
    if device is not None:
        wanted = Device(device)
        _check_there(wanted)
        return MemoryReport([_of_device(wanted)])
    found = sorted((each for each in tuple(backends) if each.type in ("cpu", "cuda")),
                   key=lambda each: (each.type, each.index or 0))
    return MemoryReport([_of_device(each) for each in found])


def _check_there(device: Device) -> None:
    """Raise RuntimeError for a device that has no memory of its own, or is not there."""
    if device.type not in ("cpu", "cuda"):
        raise RuntimeError(f"memory_report(): {device} has no memory of its own; give cpu or cuda")
    if device.type == "cpu" or device in backends:
        return
    cards = drivers.current().device_count() if drivers.available() else 0
    if (device.index or 0) >= cards:
        raise RuntimeError(f"memory_report(): there is no {device}: this machine has {cards} "
                           f"card{'' if cards == 1 else 's'}")


def _of_device(device: Device) -> DeviceMemory:
    backend: Any = backends.get(device)
    if backend is None:
        # A card that nobody used yet: looking makes no context.
        return DeviceMemory(str(device), 0, 0, 0, 0, 0, None, None, 0, 0, [])
    allocator = backend.memory
    hole = largest_hole(allocator)
    reserved = allocator.pieces.held()
    free, total = _card(allocator)
    pins = getattr(backend, "pinned", None)
    pinned = 0 if pins is None else pins.settled().live_bytes
    more = 0 if pins is None else pins.pieces.held() - pinned
    return DeviceMemory(str(device), allocator.live_bytes, allocator.peak_bytes, reserved,
                        reserved - allocator.live_bytes, hole, free, total, pinned, more,
                        _holders(allocator))


def _card(allocator: Any) -> tuple[int | None, int | None]:
    try:
        free, total = allocator.memory.info()
    except (DriverError, AttributeError):
        return None, None
    return int(free), int(total)


def _holders(allocator: Any) -> list[HolderRow]:
    """Who holds a card's blocks; of others nobody keeps it."""
    if not hasattr(allocator, "ledger"):
        return []
    sums: dict[Any, list[int]] = {}
    for address, block, _ in allocator.live_blocks():
        code, instruction, nbytes = allocator.ledger.site(address)
        stack = recorder.stack(allocator, address) or ((code, instruction),)
        total = sums.setdefault((stack, ""), [0, 0])
        total[0] += nbytes or block
        total[1] += 1
    return rows_of(sums)


def rows_of(sums: dict[Any, list[int]]) -> list[HolderRow]:
    """Sums of bytes and blocks by (stack, op) as rows, the largest first.

    Of several stacks that end at one expression the one that holds most is shown.
    """
    rows: dict[tuple[Any, ...], HolderRow] = {}
    for (stack, op), (nbytes, blocks) in sorted(sums.items(), key=lambda pair: -pair[1][0]):
        code, instruction = stack[0] if stack else (None, 0)
        place = (*decode_site(code, instruction), expression_of(code, instruction))
        row = rows.get((*place, op))
        if row is None:
            row = rows[(*place, op)] = HolderRow(*place, 0, 0, op, _lines(stack))
        row.nbytes += nbytes
        row.blocks += blocks
    return sorted(rows.values(), key=lambda row: (-row.nbytes, row.file, row.line))


def _lines(stack: Stack) -> list[str]:
    return ["{}:{}".format(*decode_site(*frame)) for frame in stack
            if frame[0] is not None and not frame[0].co_filename.startswith("<frozen")]


def _device_text(memory: DeviceMemory) -> str:
    lines = [f"{memory.device}: {size(memory.live)} in use (peak {size(memory.peak)}), "
             f"{size(memory.reserved)} reserved: {size(memory.cached)} cached, "
             f"{hole_text(memory.largest_hole)}"]
    if memory.total is not None and memory.free is not None:
        lines.append(f"  the card has {size(memory.free)} free of {size(memory.total)}")
    if memory.pinned or memory.pinned_cached:
        lines.append(f"  pinned host memory: {size(memory.pinned)} in use, "
                     f"{size(memory.pinned_cached)} cached")
    if memory.holders:
        # Rows tell what was asked for; blocks in use are a little larger.
        asked = sum(row.nbytes for row in memory.holders)
        lines.append(holders_table("in use, by the line that asked for it", memory.holders, asked))
    return "\n".join(lines)


def hole_text(nbytes: int) -> str:
    """The largest hole, and what that is."""
    return (f"largest hole {size(nbytes)} (the largest free block as it stands; for more, fresh "
            "memory is cut or asked for)")


def holders_table(title: str, holders: list[HolderRow], whole: int) -> str:
    """The largest holders as a table, each with its share of ``whole`` bytes."""
    # The op is known where `record_memory` looked on as the block was asked for.
    told = any(row.op for row in holders[:LINES])
    rows = [[size(row.nbytes), f"{100 * row.nbytes / max(whole, 1):.0f} %", str(row.blocks),
             *([row.op] if told else []), row.place, row.expression] for row in holders[:LINES]]
    columns = ["bytes", "share", "blocks", *(["op"] if told else []), "line", ""]
    text = as_table(title, columns, rows)
    if len(holders) > LINES:
        rest = sum(row.nbytes for row in holders[LINES:])
        text += f"\n  and {size(rest)} by {len(holders) - LINES} others"
    return text


class _Ops(threading.local):
    """Knows which op the thread that asks for memory carries out, from the trace events."""

    name = ""

    def __call__(self, event: Any) -> None:
        if event.kind == "plan":
            self.name = event.name
        elif event.kind == "call":
            self.name = ""

    def current(self) -> str:
        """The op."""
        return self.name


def walks() -> int:
    """How many walks backward began; -1 while one is under way."""
    return -1 if checks.walks else int(checks.begun)


class MemoryRecording:
    """What was recorded by `record_memory`: a `Timeline` for each device, by its name."""

    def __init__(self) -> None:
        self.ops = _Ops()
        self.timelines: dict[str, Timeline] = {}

    def attach(self, name: str, allocator: Any) -> None:
        """Watch one more allocator."""
        made = Timeline(allocator, name, self.ops.current, walks)
        self.timelines[name] = made
        made.attach()

    def attach_card(self, allocator: Any) -> None:
        """Watch a card's allocator, from its first use on."""
        name = f"cuda:{allocator.ordinal}"
        known = self.timelines.get(name)
        if known is None or known.allocator is not allocator:
            self.attach(name, allocator)


@contextmanager
def record_memory() -> Iterator[MemoryRecording]:
    """Record what every device holds while the scope runs: the CPU, and cards used in it.

    Each request costs a few microseconds more, and each op takes the door's slow way.
    """
    recording = MemoryRecording()
    recording.attach("cpu", host_allocator)
    for device, backend in tuple(backends.items()):
        if device.type == "cuda":
            recording.attach_card(backend.memory)
    begin: Callable[[Any], None] = recording.attach_card
    recorder.beginning.append(begin)
    try:
        with listening(recording.ops):
            yield recording
    finally:
        recorder.beginning.remove(begin)
        for timeline in recording.timelines.values():
            timeline.detach()

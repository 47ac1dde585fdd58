"""What an allocator did, event by event, and the map of its memory as PyTorch's viewer reads it.

Without recording, a map still names the line that asked for each block: the ledger knows it.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable
from types import CodeType
from typing import Any

from slipstream.core.native.driver import DriverError
from slipstream.core.vocab.modes import ROOT, decode_site

# A stack as it is kept: (code object, instruction offset), the innermost frame first.
Stack = tuple[tuple[CodeType, int], ...]


def stack_now() -> Stack:
    """The frames of the running thread outside Slipstream, the innermost first."""
    frame, found = sys._getframe(1), []
    current: Any = frame
    while current is not None:
        code = current.f_code
        if not code.co_filename.startswith(ROOT):
            found.append((code, current.f_lasti))
        current = current.f_back
    return tuple(found)


def decoded(stack: Stack) -> list[dict[str, Any]]:
    """A stack as the viewer reads it."""
    frames = []
    for code, instruction in stack:
        filename, line = decode_site(code, instruction)
        frames.append({"filename": filename, "line": line, "name": code.co_name})
    return frames


class History:
    """The events of one allocator, while it is recorded; the last ``most`` of them are kept.

    ``stacks``: stack of the request for each block by address.  Nothing is decoded before it is
    asked for.
    """

    def __init__(self, allocator: Any, most: int) -> None:
        self.allocator = allocator
        self.events: deque[tuple[str, int, int, int, int, Stack]] = deque(maxlen=most)
        self.stacks: dict[int, Stack] = {}
        self.keeps_events = True
        self.keeps_stacks = True

    def attach(self) -> None:
        """Begin."""
        allocator = self.allocator
        allocator.watch(self.block)
        allocator.pieces.watch = self.segment
        self.make_error = allocator.error
        allocator.error = self.failed

    def detach(self) -> None:
        """End; what was recorded stays."""
        self.allocator.unwatch(self.block)
        self.allocator.pieces.watch = None
        self.allocator.error = self.make_error

    def add(self, action: str, address: int, size: int, stack: Stack) -> None:
        """Write an event down."""
        if self.keeps_events:
            stream = self.allocator.current()
            now = time.time_ns() // 1000
            self.events.append((action, address, size, stream, now, stack))

    def block(self, kind: str, address: int, size: int, nbytes: int) -> None:
        """A block was handed out or came back."""
        stack = stack_now() if self.keeps_stacks else ()
        if kind == "allocate":
            self.stacks[address] = stack
            self.add("alloc", address, nbytes, stack)
            return
        self.stacks.pop(address, None)
        # A block is free as soon as its return is noticed: work in order may use it again.
        self.add("free_requested", address, nbytes, stack)
        self.add("free_completed", address, nbytes, stack)

    def segment(self, action: str, address: int, nbytes: int, small: bool) -> None:
        """Memory was taken from the card or given back."""
        self.add(action, address, nbytes, stack_now() if self.keeps_stacks else ())

    def failed(self, allocator: Any, nbytes: int) -> BaseException:
        """No memory was found: write it down, make the error."""
        try:
            free = allocator.memory.info()[0]
        except (DriverError, AttributeError):
            free = 0
        self.add("oom", free, nbytes, stack_now())
        error: BaseException = self.make_error(allocator, nbytes)
        return error

    def entries(self) -> list[dict[str, Any]]:
        """The events as the viewer reads them."""
        found = []
        for action, address, size, stream, now, stack in tuple(self.events):
            place = {"device_free": address} if action == "oom" else {"addr": address}
            found.append({"action": action, **place, "size": size, "stream": stream,
                          "time_us": now, "pool_id": (0, 0), "frames": decoded(stack)})
        return found


class Recorder:
    """Whether allocators are recorded, and their histories; a singleton, `recorder`.

    ``beginning``: functions that are called with each new allocator of a card.
    """

    def __init__(self) -> None:
        self.wanted = False
        self.most = sys.maxsize
        self.keeps_events = True
        self.keeps_stacks = True
        self.histories: dict[int, History] = {}
        self.beginning: list[Callable[[Any], None]] = []

    def start(self, most: int, keeps_events: bool, keeps_stacks: bool) -> None:
        """Record every allocator from here on."""
        self.wanted, self.most = True, most
        self.keeps_events, self.keeps_stacks = keeps_events, keeps_stacks

    def attach(self, allocator: Any) -> None:
        """Record an allocator, if recording is wanted."""
        for begin in self.beginning:
            begin(allocator)
        if not self.wanted:
            return
        history = History(allocator, min(self.most, sys.maxsize))
        before = self.histories.get(allocator.ordinal)
        if before is not None and before.allocator is allocator:
            before.detach()
            history.events.extend(before.events)
            history.stacks = before.stacks
        history.keeps_events = self.keeps_events
        history.keeps_stacks = self.keeps_stacks
        self.histories[allocator.ordinal] = history
        history.attach()

    def stop(self) -> None:
        """Record no more; what was recorded is forgotten."""
        self.wanted = False
        for history in self.histories.values():
            history.detach()
        self.histories.clear()

    def clear(self) -> None:
        """Forget the events so far."""
        for history in self.histories.values():
            history.events.clear()

    def stack(self, allocator: Any, address: int) -> Stack:
        """The stack of the request for a live block; its innermost line at least."""
        history = self.histories.get(allocator.ordinal)
        if history is not None and history.stacks.get(address):
            return history.stacks[address]
        code, instruction, _ = allocator.ledger.site(address)
        return () if code is None else ((code, instruction),)


recorder = Recorder()


class Map:
    """Makes the map of an allocator: segments with their blocks, which fill them without gaps."""

    def __init__(self, allocator: Any, pool: tuple[int, int] = (0, 0)) -> None:
        self.allocator = allocator.settled()
        self.pool = pool
        self.slabs = {slab.base: (shelf, slab) for shelf in allocator.shelves
                      for slab in shelf.slabs}
        self.free = {shelf.size: shelf.free_addresses() for shelf in allocator.shelves}

    def segments(self) -> list[dict[str, Any]]:
        """Every segment, by address."""
        allocator = self.allocator
        found = [self.segment("large", first, self.block) for first in firsts(allocator.large)]
        found += [self.segment("small", first, self.slab)
                  for first in firsts(allocator.pieces.arena)]
        for address, size in allocator.strays.items():
            found.append(self.made("large", address, size, [self.live(address, size)]))
        for address in allocator.pieces.strays:
            found.append(self.made("small", address, self.slabs[address][1].nbytes,
                                   self.slots(address)))
        return sorted(found, key=lambda segment: segment["address"])

    def segment(self, kind: str, first: Any, show: Any) -> dict[str, Any]:
        """A segment of blocks that are chained from its first one on."""
        blocks, nbytes, block = [], 0, first
        while block is not None and not block.gap:
            blocks += show(block)
            nbytes += block.size
            block = block.after
        return self.made(kind, first.address, nbytes, blocks)

    def made(self, kind: str, address: int, nbytes: int,
             blocks: list[dict[str, Any]]) -> dict[str, Any]:
        """A segment of these blocks."""
        live = [block for block in blocks if block["state"] != "inactive"]
        active = sum(block["size"] for block in live)
        return {
            "device": self.allocator.ordinal, "address": address, "total_size": nbytes,
            "allocated_size": active, "active_size": active,
            "requested_size": sum(block["requested_size"] for block in live),
            "stream": 0, "segment_type": kind, "segment_pool_id": self.pool,
            "is_expandable": bool(self.allocator.pieces.growing), "frames": [],
            "blocks": blocks,
        }

    def block(self, block: Any) -> list[dict[str, Any]]:
        """A block of a large segment."""
        if block.free:
            return [self.hole(block.address, block.size)]
        return [self.live(block.address, block.size)]

    def slab(self, block: Any) -> list[dict[str, Any]]:
        """What lies in a block of the arena: a slab's slots, or nothing."""
        if block.address in self.slabs and not block.free:
            return self.slots(block.address)
        return [self.hole(block.address, block.size)]

    def slots(self, base: int) -> list[dict[str, Any]]:
        """The slots of a slab, and the rest behind them."""
        shelf, slab = self.slabs[base]
        free, blocks = self.free[shelf.size], []
        end = base + slab.slots * slab.size
        for address in range(base, end, slab.size):
            show = self.hole if address in free else self.live
            blocks.append(show(address, slab.size))
        if end < base + slab.nbytes:
            blocks.append(self.hole(end, base + slab.nbytes - end))
        return blocks

    def hole(self, address: int, size: int) -> dict[str, Any]:
        """A free block."""
        return {"address": address, "size": size, "requested_size": 0, "state": "inactive",
                "frames": []}

    def live(self, address: int, size: int) -> dict[str, Any]:
        """A block in use."""
        requested = self.allocator.ledger.site(address)[2] or size
        return {"address": address, "size": size, "requested_size": min(requested, size),
                "state": "active_allocated",
                "frames": decoded(recorder.stack(self.allocator, address))}


def firsts(segments: Any) -> list[Any]:
    """The first block of each segment, and of each part of one behind a gap."""
    blocks = [*segments.live.values(), *segments.holes]
    return [block for block in blocks if block.before is None or block.before.gap]


def snapshot(allocators: list[Any]) -> dict[str, Any]:
    """The memory of devices and what was recorded, as ``torch.cuda._memory_viz`` reads it."""
    segments: list[dict[str, Any]] = []
    traces: list[list[dict[str, Any]]] = []
    for allocator in allocators:
        segments += Map(allocator).segments()
        for memory in allocator.beside():
            segments += Map(memory, (0, memory.number)).segments()
        while len(traces) <= allocator.ordinal:
            traces.append([])
        history = recorder.histories.get(allocator.ordinal)
        if history is not None:
            traces[allocator.ordinal] = history.entries()
    return {"segments": segments, "device_traces": traces, "external_annotations": [],
            "allocator_settings": {"expandable_segments": True}}

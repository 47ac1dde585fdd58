# cython: nonecheck=False
"""The caching allocator: blocks of a device's memory, chosen by the set of free blocks alone.

Blocks up to 1 MiB lie in slabs of one size class each, larger ones are split from segments.  Both
take the lowest address that fits best, so a program that repeats itself meets the same addresses
again, whatever the order in which it let go of them.
"""

# The .pxd declares the C functions.
# mypy: disable-error-code="name-defined"
# ruff: noqa: F821

from __future__ import annotations

from collections.abc import Callable
from heapq import heappush
from typing import Any

import cython

from slipstream.core.memory.flows import Flow
from slipstream.core.memory.heaps import HeapShelf
from slipstream.core.memory.ladder import RUNGS, SMALL, climb, empty, round_up
from slipstream.core.memory.pieces import LOCK, Pieces, Provider
from slipstream.core.memory.segments import Segments
from slipstream.core.memory.slabs import Shelf, Slab
from slipstream.core.memory.statistics import out_of_memory
from slipstream.core.vocab.records import Memory

# Large blocks are multiples of this, or of the provider's minimum.
GRAIN = 4096


def class_sizes(minimum: int) -> list[int]:
    """Sizes of the classes of small blocks: a quarter of a power of two apart."""
    size, sizes = minimum, [minimum]
    while size < SMALL:
        power = 1 << (size.bit_length() - 1)
        size += max(minimum, power // 4)
        sizes.append(size)
    return sizes


def by_units(shelves: list[Any]) -> list[Any]:
    """For each multiple of the smallest size up to 1 MiB, the shelf that serves it."""
    minimum = shelves[0].size
    table, size = [shelves[0]], 0
    for shelf in shelves:
        table += [shelf] * ((shelf.size - size) // minimum)
        size = shelf.size
    return table


class Allocator(Memory):
    """Hands out blocks of one device's memory and keeps what comes back for the next request.

    ``callbacks``: called with the size before more memory is reserved, they may free blocks;
    ``drain``: called when memory runs out, it sends what is recorded and waits;
    ``error``: makes the exception from (allocator, size); ``collect_above``: free memory is given
    back before more bytes are reserved, 0 for never.  It lives until the process ends: blocks may
    come back until then.
    """

    def __init__(self, provider: Provider) -> None:
        self.granularity = provider.granularity
        self.slab_granularity = provider.granularity
        self.round_up = provider.minimum - 1
        self.shift = provider.minimum.bit_length() - 1
        kind = Shelf if cython.compiled else HeapShelf
        self.shelves = [kind(size) for size in class_sizes(provider.minimum)]
        self.table = by_units(self.shelves)
        self.large = Segments(max(GRAIN, provider.minimum))
        self.live_bytes = 0
        self.peak_bytes = 0
        self.requested_taken = 0
        self.requested_given = 0
        self.large_blocks, self.large_bytes = Flow(), Flow()
        self.pieces = Pieces(provider)
        self.retries = 0
        self.failures = self.collected = 0
        self.rungs = RUNGS
        self.collect_above = 0
        self.callbacks: list[Callable[[int], Any]] = []
        self.drain: Callable[[], Any] | None = None
        self.error: Callable[[Any, int], BaseException] = out_of_memory
        self.listener: Callable[[str, int, int], Any] | None = None
        self.outside = 0
        self.direct = True
        self.small = SMALL
        self.pending = 0
        self.room = 0
        self.busy = False
        self.returned: list[tuple[int, int]] = []
        self.strays: dict[int, int] = {}
        if not cython.compiled:
            self.stack: Any = None

    def allocate(self, nbytes: cython.Py_ssize_t) -> int:
        """Return the address of a block of at least ``nbytes`` bytes; 0 bytes have address 0.

        Raises OutOfMemoryError where no memory can be found; the state is then as before.
        """
        address: cython.size_t
        if nbytes <= 0:
            if nbytes < 0:
                raise RuntimeError(f"cannot allocate {nbytes} bytes")
            return 0
        if cython.compiled:
            address = self.take(nbytes)
        elif nbytes > self.small:
            address = self.take_alone(nbytes)
        else:
            if self.returned:
                self.alone(self.settle_now)
            # The heap's steps need no lock, and no counter is half changed where threads switch.
            shelf: Shelf = self.table[(nbytes + self.round_up) >> self.shift]
            address = shelf.take()
            if address:
                self.live_bytes += shelf.size
                if self.live_bytes > self.peak_bytes:
                    self.peak_bytes = self.live_bytes
                self.requested_taken += nbytes
            else:
                address = self.take_alone(nbytes)
        if address == 0:
            address = climb(self, nbytes)
        if self.listener is not None:
            announce(self, address, nbytes)
        return address

    def free(self, address: cython.size_t, nbytes: cython.Py_ssize_t) -> None:
        """Note that a block came back; the next request makes it free.

        A collector may call this anywhere, on any thread: nothing but the note happens here
        (uncompiled, small blocks go back at once, which is one step).
        """
        if address == 0:
            return
        if cython.compiled:
            if self.pending == self.room and not self.widen():
                return
            self.stack[2 * self.pending] = address
            self.stack[2 * self.pending + 1] = nbytes
            self.pending += 1
        elif nbytes <= self.small and self.direct:
            entry = self.table[(nbytes + self.round_up) >> self.shift]
            heappush(entry.heap, address)
            self.live_bytes -= entry.size
            self.requested_given += nbytes
        else:
            self.returned.append((address, nbytes))

    def widen(self) -> int:
        """Make room for more notes; 0 where there is none (the block is then lost)."""
        if cython.compiled:
            room: cython.Py_ssize_t = max(256, 2 * self.room)
            size: cython.size_t = 16 * room
            stack: cython.p_void = realloc(self.stack, size)
            if stack == cython.NULL:
                return 0
            self.stack = cython.cast(cython.pointer(cython.size_t), stack)
            self.room = room
        return 1

    def shelf(self, nbytes: cython.Py_ssize_t) -> Shelf:
        """The shelf of small blocks of this size."""
        shelf: Shelf = self.table[(nbytes + self.round_up) >> self.shift]
        return shelf

    def take(self, nbytes: cython.Py_ssize_t) -> int:
        """Take a free block, 0 where there is none that fits.

        Compiled, no Python code runs between the last note that is settled and the return.
        """
        if cython.compiled:
            if self.pending:
                self.settle()
        elif self.returned:
            self.settle()
        if nbytes > self.small:
            return self.take_large(nbytes)
        shelf: Shelf = self.table[(nbytes + self.round_up) >> self.shift]
        address: cython.size_t = shelf.take()
        if address:
            self.live_bytes += shelf.size
            if self.live_bytes > self.peak_bytes:
                self.peak_bytes = self.live_bytes
            self.requested_taken += nbytes
        return address

    def take_large(self, nbytes: cython.Py_ssize_t) -> int:
        """Take a block from the segments, 0 where none fits."""
        grain: cython.Py_ssize_t = self.large.grain
        size: cython.Py_ssize_t = (nbytes + grain - 1) // grain * grain
        address: cython.size_t = self.large.take(size)
        if address:
            self.count_large(size, nbytes)
        return address

    def count_large(self, size: cython.Py_ssize_t, nbytes: cython.Py_ssize_t) -> None:
        """Count a block that was taken outside the slabs."""
        self.large_blocks.add(1)
        self.large_bytes.add(size)
        self.live_bytes += size
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)
        self.requested_taken += nbytes

    def settle(self) -> int:
        """Make free what came back, once it was told: then other threads may be given it."""
        address: cython.size_t
        nbytes: cython.Py_ssize_t
        while self.pending if cython.compiled else self.returned:
            if cython.compiled:
                self.pending -= 1
                address = self.stack[2 * self.pending]
                nbytes = self.stack[2 * self.pending + 1]
            else:
                address, nbytes = self.returned.pop()
            listener: Any = self.listener
            if listener is None:
                give_back(self, address, nbytes)
                continue
            try:
                listener("free", address, nbytes)
            finally:
                # Ctrl-C while it was told does not lose it.
                give_back(self, address, nbytes)
        return 0

    def give_large(self, address: cython.size_t) -> int:
        """Make free what lies in no slab."""
        size: cython.Py_ssize_t = 0
        if self.strays:
            size = self.strays.pop(address, 0)
        if size:
            self.pieces.release(address, size, True)
        else:
            size = self.large.give(address)
        self.large_blocks.remove(1)
        self.large_bytes.remove(size)
        self.live_bytes -= size
        return 0

    def stray(self, nbytes: int) -> int:
        """A piece for a request that comes in the middle of another one's work."""
        size = round_up(nbytes, self.granularity)
        address = self.pieces.reserve(size, True)
        if address == 0:
            raise self.error(self, nbytes)
        self.strays[address] = size
        self.count_large(size, nbytes)
        if nbytes <= self.small:
            self.note_outside(1)
        return address

    def note_outside(self, change: int) -> None:
        """Count small blocks that lie in no slab: while there are any, none goes back at once."""
        self.outside += change
        self.direct = self.outside == 0 and self.listener is None

    def listen(self, listener: Callable[[str, int, int], Any] | None) -> None:
        """Call ``listener`` with ("allocate" or "free", address, size) from here on.

        "free" comes when a block that came back becomes free.  None ends it.
        """
        self.listener = listener
        self.direct = self.outside == 0 and listener is None

    def take_alone(self, nbytes: int) -> int:
        """`take`, uncompiled: under the lock, and safe from what the collector runs inside it."""
        with LOCK:
            if self.busy:
                return self.stray(nbytes)
            self.busy = True
            try:
                return self.take(nbytes)
            finally:
                self.busy = False

    def alone(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Do ``work`` as one step; None where another such step is under way on this thread."""
        if cython.compiled:
            return work(*arguments)
        with LOCK:
            if self.busy:
                return None
            self.busy = True
            try:
                return work(*arguments)
            finally:
                self.busy = False

    def retake(self, nbytes: cython.Py_ssize_t) -> int:
        """Look again for a free block."""
        if cython.compiled:
            return self.take(nbytes)
        else:  # noqa: RET505
            return self.alone(self.take, nbytes) or 0

    def borrow(self, nbytes: int) -> int:
        """A small block split from a segment."""
        address = self.take_large(nbytes)
        if address:
            self.note_outside(1)
        return address

    def adopt_slab(self, slab: Slab, nbytes: int) -> int:
        """Take in a new slab, and a block of it at once, before another thread does."""
        settle_before(self, self.shelf(nbytes), "add", slab)
        return self.take(nbytes)

    def adopt_segment(self, address: int, size: int, growing: bool, nbytes: int) -> int:
        """Take in a new segment, and a block of it at once."""
        settle_before(self, self.large, "add_growing" if growing else "add", address, size)
        return self.take(nbytes)

    def adopt_stretch(self, more: int, nbytes: int) -> int:
        """Take in what the growing segment grew by, and a block of it at once."""
        settle_before(self, self.large, "stretch", more)
        return self.take(nbytes)

    def before_release(self, restore: Callable[..., Any], *arguments: Any) -> None:
        """Memory goes back to the provider; ``restore`` puts it back if an error comes between."""

    def release_holes(self, nbytes: int) -> int:
        """Give back the memory behind holes, ``nbytes`` or all (0), where that can be done."""
        return 0

    def empty_cache(self) -> None:
        """Release all memory that can be: segments, slabs and ends in which no block is used."""
        empty(self)

    def set_limit(self, nbytes: int) -> None:
        """Reserve at most so many bytes from here on; 0 lifts the limit."""
        self.pieces.limit = nbytes

    def settle_now(self) -> None:
        """Make free what came back, without waiting for the next request."""
        self.settle()

    def settled(self) -> Allocator:
        """The allocator itself, with all that came back made free: for looking at it."""
        self.alone(self.settle_now)
        return self


def settle_before(memory: Allocator, owner: Any, adopt: str, *arguments: Any) -> None:
    """Settle frees, then let an owner adopt memory, also where Ctrl-C comes in the middle of them.
    """
    try:
        memory.settle()
    finally:
        getattr(owner, adopt)(*arguments)


def announce(memory: Allocator, address: cython.size_t, nbytes: cython.Py_ssize_t) -> None:
    """Tell of a block that is handed out; where Ctrl-C comes meanwhile, it goes back."""
    listener: Any = memory.listener
    try:
        if listener is not None:
            listener("allocate", address, nbytes)
    except BaseException:
        memory.free(address, nbytes)
        raise


def give_back(memory: Allocator, address: cython.size_t, nbytes: cython.Py_ssize_t) -> int:
    """Make a block free."""
    shelf: Shelf | None = None
    if nbytes <= memory.small:
        shelf = memory.table[(nbytes + memory.round_up) >> memory.shift]
    if shelf is not None and shelf.give(address):
        memory.live_bytes -= shelf.size
    else:
        memory.give_large(address)
        if nbytes <= memory.small:
            memory.note_outside(-1)
    memory.requested_given += nbytes
    return 0

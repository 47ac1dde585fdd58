"""The allocator of a CUDA device: blocks of its card for streams, with a ledger of who asked.

With one stream it is the caching allocator plus one note in the ledger.  Where a program uses
several streams (`several`), it follows which stream used which block, prefers blocks that are
clean for the stream that asks, and lets that stream wait, on the device, where none is.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from typing import Any

import cython

from slipstream.core.memory.arena import GRANULE, DevicePieces
from slipstream.core.memory.blocks import Allocator
from slipstream.core.memory.card import DeviceMemory
from slipstream.core.memory.history import recorder
from slipstream.core.memory.holders import forget_frames, out_of_memory, release_pools
from slipstream.core.memory.holders import holders as list_holders
from slipstream.core.memory.ladder import RUNGS, climb
from slipstream.core.memory.ledger import Ledger
from slipstream.core.memory.slabs import Judge, Shelf
from slipstream.core.memory.uses import Clean, Own, Uses
from slipstream.core.native.driver import Driver
from slipstream.core.vocab.modes import ModeState, ModeTable, modes

__all__ = ["DeviceAllocator", "DeviceMemory", "ModeTable"]

# Called with "allocate" or "free", the block's address and size, and the bytes asked for.
Watcher = Callable[[str, int, int, int], Any]
# Before this version the collector may run wherever an object is made.
COLLECTS_ANYWHERE = sys.version_info < (3, 12)


class Plugged:
    """What a user put in place of every device's own memory; a singleton, `plugged`.

    ``make(allocator)`` gives the route of a new allocator.
    """

    make: Callable[[Any], Callable[[int], Any]] | None = None


plugged = Plugged()


# Free slabs of so many bytes, and of this part of all that is reserved, stay with their classes.
SPARE = 32 << 20
SPARE_PART = 64


def default_stream() -> int:
    """The number of the stream that a request is for, until somebody knows better."""
    return 0


class DeviceAllocator(Allocator):
    """Hands out blocks of one card's memory.

    Set from outside: ``drain()`` sends what is recorded and waits for it; ``current()`` is the
    number of the running thread's stream; ``covered(stream, other)`` how far recorded order covers
    the launches of ``other`` for ``stream``, and where both are the same what it has recorded so
    far; ``order(stream, other, sequence)`` lets ``stream`` wait for a launch of ``other`` on the
    device; ``handle()`` is the driver's handle of that stream; ``route``: function that finds
    another memory for a request, or None.
    """

    def __init__(self, driver: Driver, ordinal: int, memory: Any = None) -> None:
        self.driver = driver
        self.ordinal = ordinal
        self.memory = DeviceMemory(driver, ordinal) if memory is None else memory
        Allocator.__init__(self, self.memory)
        self.pieces = DevicePieces(self.memory)
        self.pieces.recycle = self.spare_slab
        self.slab_granularity = GRANULE
        self.ledger = Ledger(self.keeps)
        self.error = out_of_memory
        self.rungs: tuple[Any, ...] = (*RUNGS[:2], release_pools, forget_frames, *RUNGS[2:])
        self.uses: Uses | None = None
        self.owns: list[Own] = []
        self.current: Callable[[], int] = default_stream
        self.handle: Callable[[], int] = default_stream
        self.covered: Callable[[int, int], int] | None = None
        self.order: Callable[[int, int, int], Any] | None = None
        self.route: Callable[[int], Any] | None = None
        self.elsewhere: dict[int, tuple[Any, int, int]] = {}
        self.watchers: list[Watcher] = []
        self.special = False
        self.streams = 1
        self.neighbours: list[DeviceAllocator] = []
        self.abandoned = False
        if memory is None:
            self.begin()

    def begin(self) -> None:
        """What the allocator of a device does and one beside it does not."""
        if self.driver.name == "simulated":
            self.watch(self.tell_driver)
        recorder.attach(self)
        if plugged.make is not None:
            self.divert(plugged.make(self))

    def allocate(self, nbytes: cython.Py_ssize_t) -> int:
        """Return the address of a block for the current stream; 0 bytes have address 0.

        Raises OutOfMemoryError where no memory can be found; the state is then as before.
        """
        address: cython.size_t
        if self.special and nbytes > 0:
            address = self.allocate_specially(nbytes)
        else:
            address = Allocator.allocate(self, nbytes)
        if address:
            state: ModeState = modes.current()
            self.ledger.note(address, state.code, state.instruction, nbytes)
        return address

    def allocate_specially(self, nbytes: int) -> int:
        """A block where there are several streams, or memories beside this one."""
        if self.route is not None:
            memory = self.route(nbytes)
            if memory is not None:
                return self.allocate_in(memory, nbytes)
        if self.uses is None:
            return Allocator.allocate(self, nbytes)
        return self.allocate_among(nbytes, self.current())

    # -- streams --

    def several(self, home: int = 0) -> None:
        """From here on there are several streams; until now only ``home`` used any block."""
        if self.uses is None and self.covered is not None:
            self.uses = Uses(home, self.covered(home, home))
            self.large.uses = self.uses
            self.special = True
            for memory in self.neighbours:
                memory.several(home)

    def used(self, address: cython.size_t, stream: cython.int, sequence: cython.longlong) -> None:
        """Note that a stream's launch number ``sequence`` uses the live block at an address."""
        if stream >= self.streams:
            self.streams = stream + 1
        if self.uses is None:
            self.several()
        if self.elsewhere:
            found = self.elsewhere.get(address)
            if found is not None and isinstance(found[0], DeviceAllocator):
                found[0].used(address, stream, sequence)
                return
        if self.uses is not None:
            self.uses.note(address, stream, sequence)

    def judge(self, stream: int) -> Clean:
        """What tells which free blocks are clean for a stream now."""
        covered, others = self.covered, [n for n in range(self.streams) if n != stream]
        if covered is None or self.uses is None:
            raise RuntimeError("the order of several streams is not known")
        return Clean(self.uses, stream, {other: covered(stream, other) for other in others},
                     {other: covered(other, other) for other in others})

    def allocate_for(self, nbytes: int, stream: int) -> int:
        """A block for a stream that need not be the current one."""
        if self.uses is None or nbytes <= 0:
            return self.allocate(nbytes)
        address = self.allocate_among(nbytes, stream)
        state: ModeState = modes.current()
        self.ledger.note(address, state.code, state.instruction, nbytes)
        return address

    def allocate_among(self, nbytes: int, stream: int) -> int:
        """A block for a stream: a clean one, else one that the stream waits for."""
        address: int = self.take_own(nbytes, stream) if nbytes <= self.small else 0
        return address or self.allocate_clean(nbytes, stream)

    def take_own(self, nbytes: cython.Py_ssize_t, stream: cython.int) -> int:
        """Take a small block that only this stream used: nothing has to be asked."""
        address: cython.size_t = 0
        uses: Uses = self.uses
        own: Own
        if not cython.compiled and self.busy:
            return 0
        while stream >= len(self.owns):
            self.owns.append(Own(uses, len(self.owns)))
        own = self.owns[stream]
        if cython.compiled:
            address = self.take_small(nbytes, own)
        else:
            address = self.alone(self.take_small, nbytes, own) or 0
        if address:
            uses.hand_on(address)
            if self.listener is not None:
                self.listener("allocate", address, nbytes)
        return address

    def take_small(self, nbytes: cython.Py_ssize_t, judge: Judge) -> int:
        """Take the lowest slot that ``judge`` accepts, 0 where there is none."""
        self.settle()
        shelf: Shelf = self.table[(nbytes + self.round_up) >> self.shift]
        address: cython.size_t = shelf.take_where(judge)
        if address:
            self.live_bytes += shelf.size
            if self.live_bytes > self.peak_bytes:
                self.peak_bytes = self.live_bytes
            self.requested_taken += nbytes
        return address

    def allocate_clean(self, nbytes: int, stream: int) -> int:
        """A block for a stream that other streams may have used."""
        self.streams = max(self.streams, stream + 1)
        judge = self.judge(stream)
        address: int = self.alone(self.take_clean, nbytes, judge) or 0
        if not address:
            address = self.retake(nbytes) if cython.compiled else self.take_alone(nbytes)
        if not address:
            address = climb(self, nbytes)
        try:
            self.claim(address, stream, judge)
        except BaseException:
            self.free(address, nbytes)
            raise
        if self.listener is not None:
            self.listener("allocate", address, nbytes)
        return address

    def take_clean(self, nbytes: int, judge: Clean) -> int:
        """Take the best block that ``judge`` accepts, 0 where there is none."""
        if nbytes <= self.small:
            return self.take_small(nbytes, judge)
        self.settle()
        grain = self.large.grain
        size = (nbytes + grain - 1) // grain * grain
        address: int = self.large.take_where(size, judge)
        if address:
            self.count_large(size, nbytes)
        return address

    def claim(self, address: int, stream: int, judge: Clean) -> None:
        """Hand a block that was taken to a stream, which waits for its uses elsewhere."""
        uses = self.uses
        if uses is None or self.order is None:
            return
        for other, sequence in sorted(judge.missing(uses.find(address)).items()):
            self.order(stream, other, sequence)
        uses.hand_out(address, stream)

    # -- steps that nothing may come between --

    def alone(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Do ``work`` as one step; see `Allocator.alone`.

        With several streams it makes objects, at which an older Python would let the collector in.
        """
        if not cython.compiled:
            return Allocator.alone(self, work, *arguments)
        if not COLLECTS_ANYWHERE or self.uses is None or not gc.isenabled():
            return work(*arguments)
        gc.disable()
        try:
            return work(*arguments)
        finally:
            gc.enable()

    def retake(self, nbytes: cython.Py_ssize_t) -> int:
        """Look again for a free block."""
        return self.alone(self.take_plainly, nbytes) or 0

    def take_plainly(self, nbytes: cython.Py_ssize_t) -> int:
        """`take`, as a step."""
        return self.take(nbytes)

    # -- memory beside this one --

    def allocate_in(self, memory: Any, nbytes: int) -> int:
        """A block of another memory, which `free` gives back to it."""
        address: int = memory.allocate(nbytes)
        size = memory.block_size(address, nbytes)
        self.elsewhere[address] = (memory, size, nbytes)
        self.count_large(size, nbytes)
        if nbytes <= self.small:
            self.note_outside(1)
        if self.listener is not None:
            self.listener("allocate", address, nbytes)
        return address

    def add_beside(self, memory: DeviceAllocator) -> None:
        """Take note of a pool's allocator of this device."""
        self.neighbours.append(memory)

    def beside(self) -> list[DeviceAllocator]:
        """The allocators of pools on this device."""
        return list(self.neighbours)

    def leave_behind(self) -> None:
        """The pool of this allocator is gone: its free memory may be given back at need."""
        self.abandoned = True

    def release_abandoned(self) -> None:
        """Give back the free memory of pools that are gone."""
        for memory in self.neighbours:
            if memory.abandoned:
                memory.empty_cache()

    def holders(self) -> list[Any]:
        """Which lines hold memory, the largest first."""
        return list_holders(self)

    def follow(self, owner: DeviceAllocator) -> None:
        """Know of streams what another allocator of the same device knows."""
        self.drain, self.current, self.handle = owner.drain, owner.current, owner.handle
        self.covered, self.order = owner.covered, owner.order
        self.streams = owner.streams
        if owner.uses is not None:
            self.several(owner.uses.home)

    def divert(self, route: Callable[[int], Any] | None) -> None:
        """Ask ``route(nbytes)`` for each request which memory it is for; None: this one."""
        self.route = route
        self.special = route is not None or self.uses is not None

    def give_large(self, address: cython.size_t) -> int:
        """Make free what lies in no slab."""
        if self.elsewhere:
            found = self.elsewhere.pop(address, None)
            if found is not None:
                memory, size, nbytes = found
                memory.free(address, nbytes)
                self.large_blocks.remove(1)
                self.large_bytes.remove(size)
                self.live_bytes -= size
                return 0
        return Allocator.give_large(self, address)

    # -- giving back --

    def before_release(self, restore: Callable[..., Any], *arguments: Any) -> None:
        """Send what is recorded and wait: nothing that it names may be unmapped."""
        if self.drain is None:
            return
        try:
            self.drain()
        except BaseException:
            self.alone(restore, *arguments)
            raise

    def empty_cache(self) -> None:
        """Send what is recorded, wait, and release all memory that can be."""
        if self.drain is not None:
            self.drain()
        for memory in self.neighbours:
            memory.empty_cache()
        Allocator.empty_cache(self)
        if self.uses is not None:
            self.uses.forget({address for address, _, _ in self.live_blocks()})

    def spare_slab(self) -> int:
        """Give up a free slab, so that another class gets its bytes; its address, 0 for none.

        Classes that are in use by turns, as with steps of varying length, share memory this way.
        A few free slabs stay: a loop that meets the same sizes again finds its addresses again.
        """
        if self.uses is not None:
            # The uses of its slots are known by their addresses.
            return 0
        spare = 0
        for shelf in self.shelves:
            spare += shelf.spare_bytes()
        if spare < max(SPARE, self.pieces.held() // SPARE_PART):
            return 0
        for shelf in reversed(self.shelves):
            slab = self.alone(shelf.drop)
            if slab is not None and slab.base not in self.pieces.strays:
                return slab.base
            if slab is not None:
                self.alone(shelf.add, slab)
        return 0

    # -- looking --

    def block_size(self, address: int, nbytes: int) -> int:
        """The size of the live block at an address that was asked for with ``nbytes``."""
        block = self.large.live.get(address)
        if block is not None:
            return block.size
        if address in self.elsewhere:
            return self.elsewhere[address][1]
        return self.strays.get(address) or self.shelf(nbytes).size

    def keeps(self, address: int, nbytes: int) -> bool:
        """Tell whether a block at an address may be live: a slot, or a block in use."""
        if address in self.large.live or address in self.elsewhere or address in self.strays:
            return True
        if nbytes > self.small:
            return False
        return any(slab.base <= address < slab.base + slab.nbytes
                   for slab in self.shelf(nbytes).slabs)

    def live_blocks(self) -> Iterator[tuple[int, int, bool]]:
        """Address, size and whether it is a slot, of every block in use."""
        self.settled()
        for shelf in self.shelves:
            free = shelf.free_addresses()
            for slab in shelf.slabs:
                for address in range(slab.base, slab.base + slab.slots * slab.size, slab.size):
                    if address not in free:
                        yield address, slab.size, True
        for block in tuple(self.large.live.values()):
            yield block.address, block.size, False
        for address, size in tuple(self.strays.items()):
            yield address, size, False
        for address, (_, size, _) in tuple(self.elsewhere.items()):
            yield address, size, False

    # -- who watches --

    def watch(self, watcher: Watcher) -> None:
        """Call ``watcher`` for each block handed out or taken back from here on."""
        self.watchers = [*self.watchers, watcher]
        self.listen(self.tell)

    def unwatch(self, watcher: Watcher) -> None:
        """Call it no more."""
        self.watchers = [each for each in self.watchers if each != watcher]
        self.listen(self.tell if self.watchers else None)

    def tell(self, kind: str, address: int, nbytes: int) -> None:
        """Tell those who watch."""
        size = self.block_size(address, nbytes) if kind == "allocate" else nbytes
        for watcher in self.watchers:
            watcher(kind, address, size, nbytes)

    def tell_driver(self, kind: str, address: int, size: int, nbytes: int) -> None:
        """Let the simulated driver check that only what was handed out is touched."""
        driver, state = self.driver, modes.current()
        before, driver.site = driver.site, (state.code, state.instruction)
        try:
            if kind == "allocate":
                driver.handed_out(address, size, nbytes)
            else:
                driver.taken_back(address, size)
        finally:
            driver.site = before

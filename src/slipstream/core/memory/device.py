# cython: nonecheck=False
"""The allocator of a CUDA device: blocks of its card for streams, with a ledger of who asked.

With one stream it is the caching allocator plus one note in the ledger.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import cython

from slipstream.core.memory.arena import GRANULE, DevicePieces, spare_slab
from slipstream.core.memory.blocks import announce
from slipstream.core.memory.card import DeviceMemory
from slipstream.core.memory.gaps import punch
from slipstream.core.memory.history import recorder
from slipstream.core.memory.holders import forget_frames, out_of_memory, release_pools
from slipstream.core.memory.holders import holders as list_holders
from slipstream.core.memory.ladder import RUNGS, again
from slipstream.core.memory.ledger import Ledger
from slipstream.core.memory.streams import StreamAllocator, default_stream
from slipstream.core.native.driver import Driver
from slipstream.core.vocab.modes import ModeState, ModeTable, modes

__all__ = ["DeviceAllocator", "DeviceMemory", "ModeTable"]

# Where a device's memory comes from when the card has no more; see `ladder.climb`.
ALL_RUNGS = (*RUNGS[:3], release_pools, forget_frames, *RUNGS[3:])
# Called with "allocate" or "free", the block's address and size, and the bytes asked for.
Watcher = Callable[[str, int, int, int], Any]


class Plugged:
    """What a user put in place of every device's own memory; a singleton, `plugged`.

    ``make(allocator)`` gives the route of a new allocator.
    """

    make: Callable[[Any], Callable[[int], Any]] | None = None


plugged = Plugged()


def release_owners(owner: Any, allocator: Any, nbytes: int) -> int:
    """Rung of a pool: the free memory of the device's own and of others goes back to the card."""
    owner.empty_cache()
    return again(allocator, nbytes)


def out_of_pool(owner: Any, allocator: Any, nbytes: int) -> Exception:
    """The error where a pool found no memory: told of the device's as a whole."""
    owner.failures += 1
    owner.collected = allocator.collected
    error: Exception = owner.error(owner, nbytes)
    return error


def hold_interrupts(driver: Driver) -> BaseException | None:
    """Let a driver hold interrupts; what came before it did, where they are not held."""
    try:
        driver.hold_interrupts()
    except BaseException as failure:
        return failure
    return None


def come_after(allocator: DeviceAllocator, stream: int) -> None:
    """Let a stream come after the replays that wrote to free blocks of a pool.

    Of those no use was noted: a graph writes to blocks that were given back in its capture.
    """
    covered, order = allocator.covered, allocator.order
    if covered is None or order is None:
        return
    for other, sequence in tuple(allocator.replays.items()):
        if other != stream and covered(stream, other) < sequence:
            order(stream, other, sequence)


def taken_slots(shelf: Any) -> list[int]:
    """The addresses of the slots of a class that are in use."""
    free = shelf.free_addresses()
    every = [address for slab in shelf.slabs
             for address in range(slab.base, slab.base + slab.slots * slab.size, slab.size)]
    return [address for address in every if address not in free]


def every_address(allocator: DeviceAllocator) -> set[int]:
    """Where a block lies, in use or free."""
    found = {address for shelf in allocator.shelves for slab in shelf.slabs
             for address in range(slab.base, slab.base + slab.slots * slab.size, slab.size)}
    found.update([block.address for block in allocator.large.holes])
    for each in (allocator.large.live, allocator.strays, allocator.elsewhere):
        found.update(each)
    return found


class DeviceAllocator(StreamAllocator):
    """Hands out blocks of one card's memory.

    Set from outside: ``drain()`` sends what is recorded and waits for it; ``handle()`` is the
    driver's handle of the running thread's stream; what `StreamAllocator` wants to know.
    ``route``: function that finds another memory for a request, or None.  ``number``: of the pool
    that it belongs to, 0 for the device's own.  ``replays``: for each stream its last launch of a
    graph that held this memory and is gone.
    """

    def __init__(self, driver: Driver, ordinal: int, memory: Any = None) -> None:
        self.driver = driver
        self.ordinal = ordinal
        self.memory = DeviceMemory(driver, ordinal) if memory is None else memory
        StreamAllocator.__init__(self, self.memory)
        self.pieces = DevicePieces(self.memory)
        self.pieces.recycle = lambda: spare_slab(self)
        self.slab_granularity = GRANULE
        self.ledger = Ledger(self.keeps)
        self.error = out_of_memory
        self.rungs: tuple[Any, ...] = ALL_RUNGS
        self.handle: Callable[[], int] = default_stream
        self.route: Callable[[int], Any] | None = None
        self.elsewhere: dict[int, tuple[Any, int, int]] = {}
        self.watchers: list[Watcher] = []
        self.special = False
        self.neighbours: list[DeviceAllocator] = []
        self.abandoned = False
        self.held = 0
        self.number = 0
        self.replays: dict[int, int] = {}
        if memory is None:
            self.begin()

    def begin(self) -> None:
        """What the allocator of a device does and one beside it does not."""
        if self.driver.told:
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
            address = StreamAllocator.allocate(self, nbytes)
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
            return StreamAllocator.allocate(self, nbytes)
        if self.replays:
            come_after(self, self.current())
        return self.allocate_among(nbytes, self.current())

    # -- streams --

    def several(self, home: int = 0) -> None:
        """From here on there are several streams; until now only ``home`` used any block."""
        StreamAllocator.several(self, home)
        self.special = self.special or self.uses is not None
        for memory in self.neighbours:
            memory.several(home)

    def used(self, address: cython.size_t, stream: cython.int, sequence: cython.longlong) -> None:
        """Note that a stream's launch number ``sequence`` uses the live block at an address."""
        if self.elsewhere:
            found = self.elsewhere.get(address)
            if found is not None and isinstance(found[0], DeviceAllocator):
                found[0].used(address, stream, sequence)
                return
        StreamAllocator.used(self, address, stream, sequence)

    def allocate_for(self, nbytes: int, stream: int) -> int:
        """A block for a stream that need not be the current one."""
        if self.uses is None or nbytes <= 0:
            return self.allocate(nbytes)
        if self.replays:
            come_after(self, stream)
        address = self.allocate_among(nbytes, stream)
        state: ModeState = modes.current()
        self.ledger.note(address, state.code, state.instruction, nbytes)
        return address

    # -- memory beside this one --

    def allocate_in(self, memory: Any, nbytes: int) -> int:
        """A block of another memory, which `free` gives back to it."""
        # What came back from there goes there first.
        self.settled()
        address: int = memory.allocate(nbytes)
        size = memory.block_size(address, nbytes)
        self.elsewhere[address] = (memory, size, nbytes)
        self.count_large(size, nbytes)
        if nbytes <= self.small:
            self.note_outside(1)
        if self.listener is not None:
            announce(self, address, nbytes)
        return address

    def add_beside(self, memory: DeviceAllocator) -> None:
        """Take note of a pool's allocator of this device."""
        self.neighbours.append(memory)

    def beside(self) -> list[DeviceAllocator]:
        """The allocators of pools on this device."""
        return list(self.neighbours)

    def hold(self, owner: DeviceAllocator) -> None:
        """A graph's replays use this memory, free or not: none of it goes back to the card."""
        self.held += 1
        self.abandoned = False
        self.rungs = self.rungs[-1:]

    def let_loose(self, replays: dict[int, int]) -> None:
        """One graph less holds this memory; its last replay on each stream."""
        self.held -= 1
        for stream, sequence in replays.items():
            self.replays[stream] = max(sequence, self.replays.get(stream, 0))
        if not self.held:
            self.rungs = (*ALL_RUNGS, *self.rungs)

    def leave_behind(self) -> None:
        """The pool of this allocator is gone: its free memory may be given back at need."""
        self.abandoned = True

    def release_abandoned(self) -> None:
        """Give back the free memory of pools that are gone."""
        for memory in [each for each in self.neighbours if each.abandoned and not each.held]:
            memory.empty_cache()
            if not memory.held and not memory.live_bytes and not memory.pieces.held():
                # Another thread may do the same.
                with contextlib.suppress(ValueError):
                    self.neighbours.remove(memory)

    def holders(self) -> list[Any]:
        """Which lines hold memory, the largest first."""
        return list_holders(self)

    def follow(self, owner: DeviceAllocator) -> None:
        """Be a pool beside another allocator: know its streams, and count among its memory."""
        self.pieces.owner = owner.pieces
        self.rungs = (*ALL_RUNGS, partial(release_owners, owner))
        self.error = partial(out_of_pool, owner)
        self.drain, self.current, self.handle = owner.drain, owner.current, owner.handle
        self.covered, self.order = owner.covered, owner.order
        self.streams, self.callbacks = owner.streams, owner.callbacks
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
        return StreamAllocator.give_large(self, address)

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

    def release_holes(self, nbytes: int) -> int:
        """Give back the memory behind holes between blocks, ``nbytes`` of it or all (0)."""
        return punch(self, nbytes) if self.pieces.growing and not self.held else 0

    def empty_cache(self) -> None:
        """Send what is recorded, wait, and release all memory that can be."""
        if self.held:
            return
        replays = dict(self.replays)
        if self.drain is not None:
            self.drain()
        self.settled()
        self.release_abandoned()
        for memory in tuple(self.neighbours):
            memory.empty_cache()
        StreamAllocator.empty_cache(self)
        # Other threads go on meanwhile: what came since is not waited for.
        for stream, sequence in replays.items():
            if self.replays.get(stream) == sequence:
                self.replays.pop(stream, None)
        self.alone(self.prune)

    def prune(self) -> None:
        """Forget the uses of memory that was given back."""
        uses = self.uses
        if uses is not None:
            uses.forget(every_address(self))

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
            for address in taken_slots(shelf):
                yield address, shelf.size, True
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
        """Let a driver that is told check that only what was handed out is touched."""
        driver, state = self.driver, modes.current()
        # Ctrl-C comes when it was told, or the driver would miss a block.
        came = hold_interrupts(driver)
        before, driver.site = driver.site, (state.code, state.instruction)
        try:
            if kind == "allocate":
                driver.handed_out(address, size, nbytes)
            else:
                driver.taken_back(address, size)
        finally:
            driver.site = before
            if came is None:
                driver.let_interrupts()
        if came is not None:
            raise came

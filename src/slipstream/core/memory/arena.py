"""What a device's allocator holds of its card: large segments, and an arena that slabs lie in.

A card's memory comes in pieces of 2 MiB at least, far more than the slab of a rarely used size
class needs, so slabs are cut from segments of their own, which grow like those of large blocks.
What is counted as reserved is what was taken from the card.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from slipstream.core.memory.card import DeviceMemory, round_up
from slipstream.core.memory.pieces import LOCK, Pieces
from slipstream.core.memory.segments import Segments
from slipstream.core.native.driver import DriverError

# Slabs are multiples of this.
GRANULE = 1 << 16


class DevicePieces(Pieces):
    """Pieces of a card.  ``arena``: the segments that slabs are cut from.

    ``watch``: called with (action, address, size, small) where memory is taken from the card and
    given back, or None; the actions are PyTorch's: segment_alloc, segment_free for pieces,
    segment_map and segment_unmap for parts of a piece that grows.
    """

    def __init__(self, provider: DeviceMemory) -> None:
        super().__init__(provider)
        self.arena = Segments(GRANULE)
        self.cutting = False
        self.strays: set[int] = set()
        # Pieces that the driver failed to take back, and whether they were for large blocks.
        self.undone: list[tuple[int, bool]] = []
        self.recycle: Callable[[], int] | None = None
        self.watch: Callable[[str, int, int, bool], None] | None = None

    def counted(self, large: bool, address: int, work: Callable[..., Any], *arguments: Any) -> Any:
        """Do what changes how much is taken from the card, and count the change.

        ``address``: where the change begins; 0 for a new piece, which ``work`` returns.
        """
        provider = self.provider
        before, pieces = provider.physical, len(provider.windows) + len(provider.pieces)
        grows = address == 0 or address not in provider.pieces
        try:
            result = work(*arguments)
        finally:
            change = provider.physical - before
            count = len(provider.windows) + len(provider.pieces) - pieces
            if change > 0 or count > 0:
                self.came(change, count, large)
            elif change < 0 or count < 0:
                self.went(-change, -count, large)
        if change and self.watch is not None:
            place = address or result
            grows = grows and place not in provider.pieces
            action = "segment_map" if grows else "segment_alloc"
            if change < 0:
                action = "segment_unmap" if grows else "segment_free"
            self.watch(action, place, abs(change), not large)
        return result

    # -- large --

    def reserve(self, nbytes: int, large: bool) -> int:
        """The address of a new piece, 0 where there is none within the limit."""
        with LOCK:
            self.retry()
            if not large:
                return self.cut(nbytes)
            return self.reserve_whole(nbytes, True)

    def reserve_whole(self, nbytes: int, large: bool) -> int:
        """A piece of the card's own, not one that grows."""
        if not self.fits(nbytes):
            return 0
        address: int = self.counted(large, 0, self.provider.reserve, nbytes)
        return address

    def reserve_growing(self, nbytes: int, large: bool = True) -> int:
        """The address of a new growing piece, 0 where there is none within the limit."""
        with LOCK:
            if not self.growing or not self.fits(nbytes):
                return 0
            address: int = self.counted(large, 0, self.provider.reserve_growing, nbytes)
            return address

    def extend(self, address: int, nbytes: int, large: bool = True) -> bool:
        """Make a growing piece longer; False where that is not possible within the limit."""
        with LOCK:
            if not self.fits(self.provider.missing(address, nbytes)):
                return False
            end = address + self.provider.windows[address].end
            done: bool = self.counted(large, end, self.provider.extend, address, nbytes)
            return done

    def release(self, address: int, nbytes: int, large: bool) -> None:
        """Give a piece back to the provider, or a slab's bytes to the arena."""
        with LOCK:
            self.retry()
            if large:
                self.give(address, True)
            else:
                self.mend(address)

    def give(self, address: int, large: bool) -> None:
        """Give a piece back; where the driver fails, once more next time."""
        try:
            self.counted(large, address, self.provider.release, address)
        except DriverError:
            self.undone.append((address, large))
            raise

    def retry(self) -> None:
        """Give back the pieces for which that failed."""
        while self.undone:
            self.give(*self.undone.pop())

    def shrink(self, address: int, nbytes: int, less: int, large: bool = True) -> None:
        """Give back the last ``less`` bytes of a growing piece, so that ``nbytes`` remain."""
        with LOCK:
            self.counted(large, address + nbytes, self.provider.shrink, address, nbytes)

    # -- small --

    def cut(self, nbytes: int) -> int:
        """Bytes for a slab from the arena, which grows at need; 0 where there is no more.

        A request that the collector makes in the middle of another one gets a piece of its own.
        """
        if self.cutting:
            address = self.reserve_whole(round_up(nbytes, self.provider.granularity), False)
            self.strays.add(address)
            return address
        self.cutting = True
        try:
            return self.reuse(nbytes) or self.grow_arena(nbytes)
        finally:
            self.cutting = False

    def reuse(self, nbytes: int) -> int:
        """Bytes for a slab that the arena holds already, 0 where there are none."""
        while True:
            address = self.arena.take_any(nbytes)
            base = 0 if address or self.recycle is None else self.recycle()
            if not base:
                return address
            self.arena.give_back(base)

    def grow_arena(self, nbytes: int) -> int:
        """Bytes for a slab from a longer or a new segment of the arena."""
        arena, granularity = self.arena, self.provider.granularity
        if arena.base:
            more = round_up(nbytes - arena.room(), granularity)
            if self.extend(arena.base, more, False):
                arena.stretch(more)
                return arena.take_any(nbytes)
        whole = round_up(nbytes, granularity)
        address = self.reserve_growing(whole, False)
        if address:
            arena.add_growing(address, whole)
        else:
            address = self.reserve_whole(whole, False)
            if not address:
                return 0
            arena.add(address, whole)
        return arena.take_any(nbytes)

    def mend(self, address: int) -> None:
        """Take a slab's bytes back; what the arena has free at its end goes to the card."""
        arena = self.arena
        if address in self.strays:
            self.strays.remove(address)
            self.give(address, False)
            return
        arena.give_back(address)
        block = arena.drop(0)
        if block is not None:
            self.give(block.address, False)
            return
        base, room = arena.base, arena.room()
        if room >= self.provider.granularity:
            tail = arena.trim()
            if tail is not None:
                self.shrink(base, tail.address - base, tail.size, False)

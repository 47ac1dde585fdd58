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
# Free slabs of so many bytes, and of this part of all that is reserved, stay with their classes.
SPARE = 32 << 20
SPARE_PART = 64


def best_gap(segments: Segments, size: int, most: int) -> Any:
    """The smallest gap of at most ``most`` bytes that makes a hole of ``size`` bytes, or None."""
    found = None
    for gap in segments.gaps.values():
        sides = [side.size for side in (gap.before, gap.after) if side is not None and side.free]
        if gap.size <= most and gap.size + sum(sides) >= size:
            if found is None or (gap.size, gap.address) < (found.size, found.address):
                found = gap
    return found


def spare_slab(allocator: Any) -> int:
    """Give up a free slab, so that another class gets its bytes; its address, 0 for none.

    Classes that are in use by turns, as with steps of varying length, share memory this way.  A
    few free slabs stay: a loop that meets the same sizes again finds its addresses again.
    """
    if allocator.uses is not None:
        # The uses of its slots are known by their addresses.
        return 0
    spare = sum(shelf.spare_bytes() for shelf in allocator.shelves)
    if spare < max(SPARE, allocator.pieces.own() // SPARE_PART):
        return 0
    for shelf in reversed(allocator.shelves):
        slab = allocator.alone(shelf.drop)
        if slab is not None and slab.base not in allocator.pieces.strays:
            base: int = slab.base
            return base
        if slab is not None:
            allocator.alone(shelf.add, slab)
    return 0


class DevicePieces(Pieces):
    """Pieces of a card.  ``arena``: the segments that slabs are cut from.

    ``recycle()`` gives up a slab in favour of the arena and returns its address, 0 for none.

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

    def kept(self, address: int) -> int:
        """How many bytes from an address on lie in a chunk that begins before it."""
        return self.provider.chunk_end(address) - address

    def unmap(self, address: int, nbytes: int, large: bool) -> None:
        """Give back the memory behind a gap."""
        with LOCK:
            self.counted(large, address, self.provider.unmap_range, address, nbytes)

    def fill(self, segments: Segments, size: int, large: bool) -> Any:
        """Put memory behind a gap, where that makes room for ``size`` bytes.

        Return the gap, for `Segments.close_gap`; None where there is none that takes at most as
        much as growing would, or where there is no memory.
        """
        with LOCK:
            most = round_up(size - segments.room(), self.provider.granularity)
            found = best_gap(segments, size, most if segments.base else size)
            if found is None or not self.fits(found.size):
                return None
            address, nbytes = found.address, found.size
            done = self.counted(large, address, self.provider.map_range, address, nbytes)
            return found if done else None

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
        gap = self.fill(arena, nbytes, False) if arena.gaps else None
        if gap is not None:
            arena.close_gap(gap)
            return arena.take_any(nbytes)
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
        base, end = arena.base, arena.free_end()
        tail = arena.trim(self.kept(end)) if end else None
        if tail is not None:
            self.shrink(base, tail.address - base, tail.size, False)

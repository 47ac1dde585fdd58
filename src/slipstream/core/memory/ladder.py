"""Where memory comes from when no free block fits: the ladder, and the way back down.

Provider's calls and user's functions run between the allocator's steps, never inside one: each
step that changes its pools is one call of `Allocator.alone`.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

from slipstream.core.memory.pieces import LOCK
from slipstream.core.memory.slabs import Slab

# Larger blocks are split from segments.
SMALL = 1 << 20
# Segments grow by multiples of this.
SEGMENT = 1 << 21


class Called(threading.local):
    """Whether the thread runs registered functions: what they allocate calls none of them."""

    now = False


called = Called()


def round_up(nbytes: int, multiple: int) -> int:
    """``nbytes`` rounded up to a multiple."""
    return (nbytes + multiple - 1) // multiple * multiple


def climb(allocator: Any, nbytes: int) -> int:
    """The address of a block where no free one fits, from the cheap rungs to the dear.

    Raises what ``allocator.error`` makes where there is no memory; nothing has changed then,
    but for free memory that was given back to the provider.
    """
    address = call_back(allocator, nbytes)
    if not address and allocator.collect_above:
        release_old(allocator, nbytes)
    address = address or grow(allocator, nbytes)
    if address:
        return address
    allocator.retries += 1
    for rung in allocator.rungs:
        address = rung(allocator, nbytes)
        if address:
            return address
    # A small block may still lie in a hole between large ones.
    address = allocator.alone(allocator.borrow, nbytes)
    if not address:
        allocator.failures += 1
        raise allocator.error(allocator, nbytes)
    return address


def call_back(allocator: Any, nbytes: int) -> int:
    """Rung: functions that others registered may free blocks."""
    if not allocator.callbacks or called.now:
        return 0
    called.now = True
    try:
        for callback in tuple(allocator.callbacks):
            callback(nbytes)
    finally:
        called.now = False
    return allocator.retake(nbytes)


def release_old(allocator: Any, nbytes: int) -> None:
    """Rung: keep what is reserved below a threshold, if free memory that is cached allows."""
    while allocator.pieces.held() + nbytes > allocator.collect_above:
        if not release_one(allocator, nbytes):
            return


def again(allocator: Any, nbytes: int) -> int:
    """Look for a free block again, and ask the provider again."""
    return allocator.retake(nbytes) or grow(allocator, nbytes)


def release_enough(allocator: Any, nbytes: int) -> int:
    """Rung: release free memory piece by piece until the provider can serve this request."""
    need = nbytes
    while need > 0:
        released = release_one(allocator, need)
        if not released:
            return 0
        need -= released
        address = again(allocator, nbytes)
        if address:
            return address
    return 0


def release_holes(allocator: Any, nbytes: int) -> int:
    """Rung: give back the memory behind holes, where they lie between blocks in use."""
    return again(allocator, nbytes) if allocator.release_holes(nbytes) else 0


def wait(allocator: Any, nbytes: int) -> int:
    """Rung: send what is recorded and wait for it, so that its blocks come back."""
    if allocator.drain is None:
        return 0
    allocator.drain()
    return again(allocator, nbytes)


def collect(allocator: Any, nbytes: int) -> int:
    """Rung: let Python's collector release what only cycles hold."""
    before = allocator.live_bytes
    gc.collect()
    allocator.settled()
    allocator.collected = max(0, before - allocator.live_bytes)
    return again(allocator, nbytes)


def release_all(allocator: Any, nbytes: int) -> int:
    """Rung: release all free memory."""
    empty(allocator)
    return again(allocator, nbytes)


# What is tried where the provider has no more; see `climb`.
RUNGS = (release_enough, release_holes, wait, collect, release_all)


def empty(allocator: Any) -> None:
    """Release every segment, end of a segment and slab in which no block is in use."""
    while release_one(allocator, 0):
        pass
    allocator.release_holes(0)


def exclusive(work: Callable[..., Any], allocator: Any, *arguments: Any) -> Any:
    """Let ``work`` change the growing segment and its piece together, one thread at a time.

    Return 0 where the collector, in the middle of such work, runs what asks for more of it.
    """
    with LOCK:
        if allocator.pieces.busy:
            return 0
        allocator.pieces.busy = True
        try:
            return work(allocator, *arguments)
        finally:
            allocator.pieces.busy = False


def release_one(allocator: Any, nbytes: int) -> int:
    """Release one free piece, best one of ``nbytes``; return its size, 0 where there is none."""
    return release_segment(allocator, nbytes) or trim(allocator) or release_slab(allocator)


def release_segment(allocator: Any, nbytes: int) -> int:
    """Release the free segment nearest above ``nbytes``; return its size, 0 for none."""
    allocator.settled()
    block = exclusive(drop_segment, allocator, nbytes)
    if not block:
        return 0
    allocator.before_release(allocator.large.add, block.address, block.size)
    allocator.pieces.release(block.address, block.size, True)
    return block.size


def drop_segment(allocator: Any, nbytes: int) -> Any:
    """Take a free segment out of the pool."""
    return allocator.alone(allocator.large.drop, nbytes)


def trim(allocator: Any) -> int:
    """Release the free end of the growing segment; return its size, 0 for none.

    The segment counts as busy until the provider has its end back; other threads, which must not
    wait here for what they may hold, make a segment of their own meanwhile.
    """
    pieces = allocator.pieces
    with LOCK:
        base, end = allocator.large.base, allocator.large.free_end()
        if pieces.busy or not end:
            return 0
        block = allocator.alone(allocator.large.trim, pieces.kept(end))
        if block is None:
            return 0
        pieces.busy = True
    try:
        allocator.before_release(allocator.large.stretch, block.size)
        pieces.shrink(base, block.address - base, block.size)
    finally:
        pieces.busy = False
    return block.size


def release_slab(allocator: Any) -> int:
    """Release one free slab; return its size, 0 for none."""
    for shelf in allocator.shelves:
        slab = allocator.alone(shelf.drop)
        if slab is not None:
            allocator.before_release(shelf.add, slab)
            allocator.pieces.release(slab.base, slab.nbytes, False)
            return slab.nbytes
    return 0


def grow(allocator: Any, nbytes: int) -> int:
    """Reserve memory and take the block from it, 0 where the provider has none."""
    return grow_small(allocator, nbytes) if nbytes <= SMALL else grow_large(allocator, nbytes)


def grow_small(allocator: Any, nbytes: int) -> int:
    """A block of a new slab; one of a single slot if need be."""
    shelf = allocator.shelf(nbytes)
    granularity = allocator.slab_granularity
    for size in (shelf.growth(granularity), round_up(shelf.size, granularity)):
        address = allocator.pieces.reserve(size, False)
        if address:
            slab = Slab(address, size, shelf.size)
            return allocator.alone(allocator.adopt_slab, slab, nbytes) or 0
    return 0


def grow_large(allocator: Any, nbytes: int) -> int:
    """A block of a longer or a new segment; no larger than it has to be if need be."""
    pieces = allocator.pieces
    size = round_up(nbytes, allocator.large.grain)
    filled: int = exclusive(fill, allocator, size, nbytes) if allocator.large.gaps else 0
    if filled:
        return filled
    for multiple in (SEGMENT, allocator.granularity):
        taken = exclusive(stretch, allocator, nbytes, multiple) if pieces.growing else 0
        if taken:
            return taken
        whole = round_up(size, multiple)
        address = pieces.reserve_growing(whole)
        growing = address != 0
        if not growing:
            address = pieces.reserve(whole, True)
        if address:
            return allocator.alone(allocator.adopt_segment, address, whole, growing, nbytes) or 0
    return 0


def fill(allocator: Any, size: int, nbytes: int) -> int:
    """A block where memory comes back behind a gap between holes, if that makes room for it."""
    gap = allocator.pieces.fill(allocator.large, size, True)
    if gap is None:
        return 0
    allocator.alone(allocator.large.close_gap, gap)
    taken: int = allocator.retake(nbytes)
    return taken


def stretch(allocator: Any, nbytes: int, multiple: int) -> int:
    """A block at the end of the growing segment, made longer by what is missing there."""
    large = allocator.large
    base = large.base
    more = round_up(round_up(nbytes, large.grain) - large.room(), multiple)
    if base == 0 or not allocator.pieces.extend(base, more):
        return 0
    return allocator.alone(allocator.adopt_stretch, more, nbytes) or 0

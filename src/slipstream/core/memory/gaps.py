"""Holes between blocks give their memory back, where the driver has virtual memory.

A segment that grows keeps its addresses; the chunks that lie wholly inside a hole are unmapped and
leave a gap.  So a request larger than any hole finds memory as long as enough is free in all.
"""

from __future__ import annotations

from typing import Any

from slipstream.core.memory.pieces import LOCK
from slipstream.core.memory.segments import Block, Segments
from slipstream.core.native.driver import DriverError


def punch(allocator: Any, nbytes: int) -> int:
    """Give back the memory behind holes, the largest first; return how much.

    ``nbytes``: how much is wanted, 0 for all.  While the work goes on, no segment grows.
    """
    pieces = allocator.pieces
    with LOCK:
        if pieces.busy:
            return 0
        pieces.busy = True
    try:
        allocator.settled()
        opened = allocator.alone(open_gaps, allocator, nbytes) or []
        if not opened:
            return 0
        allocator.before_release(close_gaps, opened)
        return unmap(allocator, opened)
    finally:
        pieces.busy = False


def unmap(allocator: Any, opened: list[tuple[Segments, Block]]) -> int:
    """Take the memory from behind gaps; return how much.

    Where the driver fails, gaps that still have all of theirs are holes again.
    """
    total = 0
    pieces = allocator.pieces
    while opened:
        segments, gap = opened[-1]
        address, size = gap.address, gap.size
        try:
            pieces.unmap(address, size, segments is allocator.large)
        except DriverError:
            whole = [each for each in opened
                     if pieces.provider.interior(each[1].address, each[1].size)[1] == each[1].size]
            allocator.alone(close_gaps, whole)
            raise
        opened.pop()
        allocator.alone(segments.unite, address)
        total += size
    return total


def open_gaps(allocator: Any, nbytes: int) -> list[tuple[Segments, Block]]:
    """Make gaps of what lies in holes: first of large blocks, then of slabs."""
    opened: list[tuple[Segments, Block]] = []
    total = 0
    pieces = allocator.pieces
    for segments in (allocator.large, pieces.arena):
        for hole in reversed(tuple(segments.holes)):
            if nbytes and total >= nbytes:
                return opened
            start, size = pieces.provider.interior(hole.address, hole.size)
            # The end of a segment is given back by itself.
            if size and hole.after is not None:
                opened.append((segments, segments.open_gap(hole, start, size)))
                total += size
    return opened


def close_gaps(opened: list[tuple[Segments, Block]]) -> None:
    """Undo it, before any memory was unmapped."""
    for segments, gap in opened:
        segments.close_gap(gap)

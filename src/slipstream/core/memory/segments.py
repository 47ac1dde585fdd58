# cython: nonecheck=False
"""Segments: pieces of memory that are split into blocks and merged again, for large blocks.

Which hole is taken depends only on the set of holes: the smallest that fits, and of several the
one at the lowest address.  Inside `take` and `give` nothing is made that Python's collector
follows, so that no other Python code can run between their first and last step when compiled.
"""

from __future__ import annotations

import cython

from slipstream.core.memory.slabs import Judge
from slipstream.core.memory.uses import Uses

# Records of merged blocks that are kept for the next split.
SPARES = 64


class Block:
    """A run of bytes in a segment, free or not, with its neighbours there.

    A ``gap`` has no memory behind it: it is neither free nor in use.
    """

    def __init__(self) -> None:
        self.address = 0
        self.size = 0
        self.free = True
        self.gap = False
        self.before: Block | None = None
        self.after: Block | None = None

    def whole(self) -> bool:
        """Tell whether the block is all of its segment."""
        return self.before is None and self.after is None


class Segments:
    """Blocks by best fit: ``holes`` sorted by (size, address), ``live`` by address.

    ``base`` is the address of the segment that may grow, 0 for none; ``tail`` its last block;
    ``gaps``: parts of segments without memory, by address; ``uses`` follows which streams used the
    holes, where there are several.
    """

    def __init__(self, grain: int) -> None:
        self.grain = grain
        self.holes: list[Block] = []
        self.live: dict[int, Block] = {}
        self.spare: list[Block] = []
        self.base = 0
        self.tail: Block | None = None
        self.uses: Uses | None = None
        self.gaps: dict[int, Block] = {}

    def place(self, size: cython.Py_ssize_t, address: cython.size_t) -> int:
        """How many holes come before (size, address)."""
        low: cython.Py_ssize_t = 0
        high: cython.Py_ssize_t = len(self.holes)
        while low < high:
            middle: cython.Py_ssize_t = (low + high) >> 1
            block: Block = self.holes[middle]
            if block.size < size or (block.size == size and block.address < address):
                low = middle + 1
            else:
                high = middle
        return low

    def shelve(self, block: Block) -> None:
        """Put a block among the holes."""
        block.free = True
        self.holes.insert(self.place(block.size, block.address), block)

    def unshelve(self, block: Block) -> None:
        """Take a block from among the holes."""
        block.free = False
        del self.holes[self.place(block.size, block.address)]

    def take(self, size: cython.Py_ssize_t) -> int:
        """Return the address of a block of ``size`` bytes, 0 where no hole is large enough."""
        while not self.spare:
            self.spare.append(Block())
        place: cython.Py_ssize_t = self.place(size, 0)
        if place == len(self.holes):
            return 0
        return self.carve(place, size)

    def take_where(self, size: cython.Py_ssize_t, judge: Judge) -> int:
        """`take`, from the holes that ``judge`` accepts by their address; nothing comes between."""
        while not self.spare:
            self.spare.append(Block())
        place: cython.Py_ssize_t
        for place in range(self.place(size, 0), len(self.holes)):
            block: Block = self.holes[place]
            if judge.accepts(block.address):
                return self.carve(place, size)
        return 0

    def carve(self, place: cython.Py_ssize_t, size: cython.Py_ssize_t) -> int:
        """Take ``size`` bytes from the hole at a place."""
        block: Block = self.holes[place]
        del self.holes[place]
        block.free = False
        if block.size - size >= self.grain:
            self.split(block, size)
        self.live[block.address] = block
        return block.address

    def split(self, block: Block, size: cython.Py_ssize_t) -> None:
        """Cut a block after ``size`` bytes; the rest becomes a hole."""
        rest: Block = self.spare.pop()
        uses: Uses | None = self.uses
        if uses is not None:
            uses.leave(block.address, block.address + size)
        rest.address = block.address + size
        rest.size = block.size - size
        rest.before = block
        rest.after = block.after
        if block.after is not None:
            block.after.before = rest
        block.after = rest
        block.size = size
        if block is self.tail:
            self.tail = rest
        self.shelve(rest)

    def give(self, address: cython.size_t) -> int:
        """Take a block back, merge it with free neighbours; return how large the block was."""
        block: Block | None = self.live.pop(address, None)
        if block is None:
            raise RuntimeError(f"no block is in use at {address:#x}: freed twice?")
        size: cython.Py_ssize_t = block.size
        before: Block | None = block.before
        after: Block | None = block.after
        if after is not None and after.free:
            self.unshelve(after)
            self.join(block, after)
        if before is not None and before.free:
            self.unshelve(before)
            self.join(before, block)
            block = before
        self.shelve(block)
        return size

    def give_back(self, address: cython.size_t) -> None:
        """`give`, for callers that are not compiled."""
        self.give(address)

    def take_any(self, size: cython.Py_ssize_t) -> int:
        """`take`, for callers that are not compiled."""
        return self.take(size)

    def join(self, block: Block, after: Block) -> None:
        """Add the bytes of the next block to a block."""
        uses: Uses | None = self.uses
        if uses is not None:
            uses.join(block.address, after.address)
        block.size += after.size
        block.after = after.after
        if after.after is not None:
            after.after.before = block
        if after is self.tail:
            self.tail = block
        after.before = None
        after.after = None
        if len(self.spare) < SPARES:
            self.spare.append(after)

    def add(self, address: cython.size_t, size: cython.Py_ssize_t) -> Block:
        """Take in a new segment, all free; return its block."""
        block: Block = Block()
        block.address = address
        block.size = size
        self.shelve(block)
        return block

    def add_growing(self, address: cython.size_t, size: cython.Py_ssize_t) -> None:
        """Take in a new segment that may grow; the last such one grows no more."""
        block: Block = self.add(address, size)
        self.base = address
        self.tail = block

    def room(self) -> int:
        """How many bytes are free at the end of the growing segment."""
        tail: Block | None = self.tail
        return tail.size if tail is not None and tail.free else 0

    def stretch(self, more: cython.Py_ssize_t) -> None:
        """Take in ``more`` bytes at the end of the growing segment."""
        block: Block = Block()
        tail: Block | None = self.tail
        if tail is None:
            raise RuntimeError("no segment grows")
        if tail.free:
            self.unshelve(tail)
            tail.size += more
            self.shelve(tail)
            return
        block.address = tail.address + tail.size
        block.size = more
        block.before = tail
        tail.after = block
        self.tail = block
        self.shelve(block)

    def free_end(self) -> int:
        """Where the free end of the growing segment begins, 0 where there is none."""
        tail: Block | None = self.tail
        if tail is None or not tail.free or tail.before is None:
            return 0
        return tail.address

    def trim(self, keep: cython.Py_ssize_t) -> Block | None:
        """Give up the free end of the growing segment but for its first ``keep`` bytes.

        A gap before it goes too.  Return what was given up as one block; None for nothing.
        """
        tail: Block | None = self.tail
        if tail is None or not tail.free or tail.before is None or tail.size <= keep:
            return None
        self.unshelve(tail)
        end: Block | None = tail
        if keep:
            while not self.spare:
                self.spare.append(Block())
            self.split(tail, keep)
            self.shelve(tail)
            end = tail.after
        if end is None or end.before is None:
            raise RuntimeError("the end of a segment was lost")
        if keep:
            self.unshelve(end)
        before: Block = end.before
        if before.gap and before.before is not None:
            del self.gaps[before.address]
            end.address = before.address
            end.size += before.size
            before = before.before
        self.tail = before
        before.after = None
        end.before = None
        return end

    def open_gap(self, hole: Block, start: cython.size_t, size: cython.Py_ssize_t) -> Block:
        """Make ``size`` bytes of a hole, from ``start`` on, a gap; what is left stays free."""
        while len(self.spare) < 2:
            self.spare.append(Block())
        self.unshelve(hole)
        if start > hole.address:
            self.split(hole, start - hole.address)
            gap: Block | None = hole.after
            self.shelve(hole)
        else:
            gap = hole
        if gap is None:
            raise RuntimeError("a hole was lost")
        if gap is not hole:
            self.unshelve(gap)
        if gap.size > size:
            self.split(gap, size)
        gap.gap = True
        self.gaps[gap.address] = gap
        return gap

    def unite(self, address: cython.size_t) -> None:
        """Make one gap of a gap and its neighbours that are gaps too."""
        gap: Block | None = self.gaps.get(address)
        if gap is None:
            return
        while gap.after is not None and gap.after.gap:
            del self.gaps[gap.after.address]
            gap.after.gap = False
            self.join(gap, gap.after)
        before: Block | None = gap.before
        if before is not None and before.gap:
            self.unite(before.address)

    def close_gap(self, gap: Block) -> None:
        """A gap has memory again: it is free, and merges with free neighbours."""
        del self.gaps[gap.address]
        gap.gap = False
        self.live[gap.address] = gap
        self.give(gap.address)

    def absorb(self) -> None:
        """Where a segment is but gaps and holes, make it one free block."""
        for each in tuple(self.gaps.values()):
            gap: Block = each
            block: Block | None = gap
            while block is not None and block.before is not None:
                block = block.before
            first: Block | None = block
            while block is not None and (block.free or block.gap):
                block = block.after
            if block is None and first is not None and gap.gap:
                self.flatten(first)

    def flatten(self, first: Block) -> None:
        """Make one free block of a segment of gaps and holes."""
        block: Block | None = first
        while block is not None:
            if block.free:
                self.unshelve(block)
            else:
                del self.gaps[block.address]
                block.gap = False
            block = block.after
        while first.after is not None:
            self.join(first, first.after)
        self.shelve(first)

    def drop(self, size: cython.Py_ssize_t) -> Block | None:
        """Give up a segment that is all free; None where there is none.

        The smallest of at least ``size`` bytes, or the largest where none has so many.
        """
        self.absorb()
        start: cython.Py_ssize_t = self.place(size, 0)
        count: cython.Py_ssize_t = len(self.holes)
        index: cython.Py_ssize_t
        for index in range(count):
            # From start upwards, then from start downwards.
            spot: cython.Py_ssize_t = start + index
            if spot >= count:
                spot = count - 1 - index
            block: Block = self.holes[spot]
            if block.whole():
                del self.holes[spot]
                if block is self.tail:
                    self.tail = None
                    self.base = 0
                return block
        return None

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
    """A run of bytes in a segment, free or not, with its neighbours there."""

    def __init__(self) -> None:
        self.address = 0
        self.size = 0
        self.free = True
        self.before: Block | None = None
        self.after: Block | None = None

    def whole(self) -> bool:
        """Tell whether the block is all of its segment."""
        return self.before is None and self.after is None


class Segments:
    """Blocks by best fit: ``holes`` sorted by (size, address), ``live`` by address.

    ``base`` is the address of the segment that may grow, 0 for none; ``tail`` its last block;
    ``uses`` follows which streams used the holes, where there are several.
    """

    def __init__(self, grain: int) -> None:
        self.grain = grain
        self.holes: list[Block] = []
        self.live: dict[int, Block] = {}
        self.spare: list[Block] = []
        self.base = 0
        self.tail: Block | None = None
        self.uses: Uses | None = None

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
        """`take`, from the holes that ``judge`` accepts by their address."""
        while not self.spare:
            self.spare.append(Block())
        place: cython.Py_ssize_t
        for place in range(self.place(size, 0), len(self.holes)):
            block: Block = self.holes[place]
            # The judge may let others run, who change the holes.
            if judge.accepts(block.address) and self.is_at(place, block) and self.spare:
                return self.carve(place, size)
        return 0

    def is_at(self, place: cython.Py_ssize_t, block: Block) -> bool:
        """Tell whether a block is the hole at a place."""
        return place < len(self.holes) and self.holes[place] is block

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

    def trim(self) -> Block | None:
        """Give up the free end of the growing segment; None where it is in use."""
        tail: Block | None = self.tail
        if tail is None or not tail.free or tail.before is None:
            return None
        self.unshelve(tail)
        self.tail = tail.before
        self.tail.after = None
        tail.before = None
        return tail

    def drop(self, size: cython.Py_ssize_t) -> Block | None:
        """Give up a segment that is all free; None where there is none.

        The smallest of at least ``size`` bytes, or the largest where none has so many.
        """
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

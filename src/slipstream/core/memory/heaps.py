"""Size classes where the core runs uncompiled: a heap of free addresses in place of bitmaps.

`heappop` and `heappush` are single steps that no other thread and no collector can come between,
so that small blocks need neither a lock nor a list of what came back.  The choice is the same as
`slabs.Shelf` makes: the free slot at the lowest address.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable
from heapq import heappop, heappush
from operator import attrgetter

from slipstream.core.memory.slabs import Judge, Slab, growth

BASE = attrgetter("base")


class HeapShelf:
    """The slabs of one size class; ``heap`` holds the free slots, but for those never used.

    Of a new slab only the lowest slot never used, ``frontier``, lies in the heap; those up to
    ``end`` follow one by one.  ``taken`` counts how many slots were ever taken.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.slots = 0
        self.taken = 0
        self.slabs: list[Slab] = []
        self.heap: list[int] = []
        self.frontier = 0
        self.end = 0

    def take(self) -> int:
        """Return the address of the lowest free slot, 0 where all are taken."""
        try:
            address = heappop(self.heap)
        except IndexError:
            return 0
        if address == self.frontier:
            self.advance()
        self.taken += 1
        return address

    def take_where(self, judge: Judge) -> int:
        """`take`, from the slots that ``judge`` accepts; no other thread may come between."""
        passed = []
        while True:
            address = self.take()
            if not address or judge.accepts(address):
                break
            passed.append(address)
        for other in passed:
            heappush(self.heap, other)
        self.taken -= len(passed)
        return address

    def advance(self) -> None:
        """Put the next slot never used into the heap."""
        self.frontier += self.size
        if self.frontier < self.end:
            heappush(self.heap, self.frontier)
        else:
            self.frontier = 0

    def give(self, address: int) -> bool:
        """Take a slot back; False where the address lies in no slab of this class."""
        for slab in self.slabs:
            if slab.base <= address < slab.base + slab.nbytes:
                heappush(self.heap, address)
                return True
        return False

    def add(self, slab: Slab) -> None:
        """Take in a new slab, all free."""
        insort(self.slabs, slab, key=BASE)
        self.slots += slab.slots
        end = slab.base + slab.slots * self.size
        if self.frontier:
            # Another thread brought a slab first.
            for address in range(slab.base, end, self.size):
                heappush(self.heap, address)
        else:
            self.frontier, self.end = slab.base, end
            heappush(self.heap, slab.base)

    def drop(self) -> Slab | None:
        """Give up one slab that is all free; None where there is none."""
        # From here on other threads find no slot, and wait for the lock that the caller holds.
        heap, self.heap = self.heap, []
        free = self.expand(heap)
        kept: Iterable[int] = heap
        found = None
        for slab in self.slabs:
            addresses = range(slab.base, slab.base + slab.slots * self.size, self.size)
            if free.issuperset(addresses):
                found, kept = slab, free.difference(addresses)
                break
        if found is not None:
            self.slabs.remove(found)
            self.slots -= found.slots
            self.frontier = 0 if self.frontier in free else self.frontier
        for address in kept:
            heappush(self.heap, address)
        return found

    def expand(self, heap: list[int]) -> set[int]:
        """The slots of a heap and those never used, which no thread may be taking now."""
        fresh = range(self.frontier, self.end, self.size) if self.frontier in heap else ()
        return {*heap, *fresh}

    def free_addresses(self) -> set[int]:
        """The addresses of all free slots."""
        return self.expand(self.heap)

    def spare_bytes(self) -> int:
        """How many bytes at least lie in slabs that are all free, as far as counts can tell."""
        largest = max((slab.nbytes for slab in self.slabs), default=0)
        return max(0, self.free_slots() * self.size - largest)

    def free_slots(self) -> int:
        """How many slots are free."""
        fresh = (self.end - self.frontier) // self.size - 1 if self.frontier else 0
        return len(self.heap) + fresh

    def growth(self, granularity: int) -> int:
        """How many bytes the next slab of this class should have."""
        return growth(self.size, self.slots, granularity)

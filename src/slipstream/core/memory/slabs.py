# cython: nonecheck=False
"""Slabs: pieces of memory cut into slots of one size, for blocks up to 1 MiB.

Which slot is taken depends only on the set of free slots: the one at the lowest address.
"""

# The .pxd declares the C functions.
# mypy: disable-error-code="name-defined"
# ruff: noqa: F821

from __future__ import annotations

import cython

# Free slots are bits of 64 words, and a 65th word says which of those have any.
MOST_SLOTS = 64 * 64
# The first slab of a class: this many bytes, but never fewer slots than FEW_SLOTS.
FIRST = 1 << 16
FEW_SLOTS = 2
# A later slab grows the class by a quarter, up to this many bytes.
LARGEST = 1 << 21


def raise_freed_twice(address: int) -> None:
    """Raise the error for a block that is free already."""
    raise RuntimeError(f"block at {address:#x} was freed twice")


def growth(size: int, slots: int, granularity: int) -> int:
    """How many bytes a new slab should have for a class of ``slots`` slots so far."""
    wanted = max(FIRST // size, slots // 4)
    wanted = max(FEW_SLOTS, min(wanted, MOST_SLOTS, LARGEST // size))
    return (wanted * size + granularity - 1) // granularity * granularity


class Judge:
    """Says which free blocks may be taken, by their addresses."""

    def accepts(self, address: cython.size_t) -> bool:
        """Tell whether the free block at an address will do."""
        return True


class Slab:
    """``slots`` slots of ``size`` bytes at ``base``; ``free`` of them are free."""

    def __init__(self, base: int, nbytes: int, size: int) -> None:
        self.base = base
        self.nbytes = nbytes
        self.size = size
        self.slots = min(nbytes // size, MOST_SLOTS)
        self.free = self.slots
        self.position = 0
        self.fill()

    def fill(self) -> None:
        """Make every slot free."""
        if cython.compiled:
            word: cython.Py_ssize_t
            rest: cython.Py_ssize_t = self.slots
            self.summary = 0
            for word in range(64):
                self.words[word] = 0
                if rest > 0:
                    # A shift by 64 is undefined in C: a full word is written as such.
                    full: cython.ulonglong = 0
                    full = ~full
                    self.words[word] = full if rest >= 64 else ~(full << rest)
                    self.summary |= cython.cast(cython.ulonglong, 1) << word
                rest -= 64
        else:
            self.words: list[int] = []
            self.bits = (1 << self.slots) - 1

    def occupy(self, slot: cython.Py_ssize_t) -> None:
        """Make a free slot taken."""
        self.free -= 1
        if cython.compiled:
            bit: cython.ulonglong = cython.cast(cython.ulonglong, 1) << (slot & 63)
            self.words[slot >> 6] &= ~bit
            if self.words[slot >> 6] == 0:
                self.summary &= ~(cython.cast(cython.ulonglong, 1) << (slot >> 6))
        else:
            self.bits &= ~(1 << slot)

    def find_slot(self, judge: Judge) -> int:
        """The lowest free slot that ``judge`` accepts, -1 where there is none."""
        slot: cython.Py_ssize_t
        if cython.compiled:
            word: cython.Py_ssize_t = 0
            bits: cython.ulonglong = self.words[0]
            while word < 64:
                if bits == 0:
                    word += 1
                    bits = self.words[word] if word < 64 else 0
                    continue
                slot = word * 64 + slip_lowest_bit(bits)
                if judge.accepts(self.base + slot * self.size):
                    return slot
                bits &= bits - 1
            return -1
        for slot in range(self.slots):
            if self.is_free(slot) and judge.accepts(self.base + slot * self.size):
                return slot
        return -1

    def is_free(self, slot: cython.Py_ssize_t) -> bool:
        """Tell whether a slot is free."""
        if cython.compiled:
            one: cython.ulonglong = 1
            return self.words[slot >> 6] & (one << (slot & 63)) != 0
        return self.bits >> slot & 1


class Shelf:
    """The slabs of one size class, by address.

    ``current`` is the slab at the lowest address that may have a free slot: all before it are
    full.  ``slots`` counts the slots of all slabs, ``taken`` how many were ever taken.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.slots = 0
        self.taken = 0
        self.slabs: list[Slab] = []
        self.current: Slab | None = None

    def take(self) -> int:
        """Return the address of the lowest free slot, 0 where all are taken."""
        slab: Slab | None = self.current
        if slab is None:
            return 0
        if slab.free == 0:
            slab = self.advance(slab.position + 1)
            if slab is None:
                return 0
        self.taken += 1
        slab.free -= 1
        if cython.compiled:
            word: cython.int = slip_lowest_bit(slab.summary)
            bits: cython.ulonglong = slab.words[word]
            slot: cython.Py_ssize_t = word * 64 + slip_lowest_bit(bits)
            bits &= bits - 1
            slab.words[word] = bits
            if bits == 0:
                slab.summary &= slab.summary - 1
            return slab.base + slot * self.size
        free = slab.bits
        lowest = free & -free
        slab.bits = free ^ lowest
        return slab.base + (lowest.bit_length() - 1) * self.size

    def take_where(self, judge: Judge) -> int:
        """`take`, from the slots that ``judge`` accepts."""
        current: Slab | None = self.current
        index: cython.Py_ssize_t
        if current is None:
            return 0
        for index in range(current.position, len(self.slabs)):
            slab: Slab = self.slabs[index]
            if slab.free:
                slot: cython.Py_ssize_t = slab.find_slot(judge)
                if slot >= 0:
                    self.taken += 1
                    slab.occupy(slot)
                    return slab.base + slot * self.size
        return 0

    def advance(self, start: cython.Py_ssize_t) -> Slab | None:
        """Move on to a slab with a free slot, from place ``start`` on; None where all are full."""
        index: cython.Py_ssize_t
        for index in range(start, len(self.slabs)):
            slab: Slab = self.slabs[index]
            # Where all are full, the next search has only the last slab to look at.
            self.current = slab
            if slab.free:
                return slab
        return None

    def give(self, address: cython.size_t) -> bool:
        """Take a slot back; False where the address lies in no slab of this class.

        Raises RuntimeError where the slot is free already.
        """
        current: Slab | None = self.current
        if current is None:
            return False
        slab: Slab = current
        if address < slab.base or address >= slab.base + slab.nbytes:
            found: Slab | None = self.find(address)
            if found is None:
                return False
            slab = found
        # Offsets in a slab and sizes fit 32 bits, which divide faster than 64.
        offset: cython.uint = address - slab.base
        size: cython.uint = self.size
        slot: cython.uint = offset // size
        if cython.compiled:
            bit: cython.ulonglong = cython.cast(cython.ulonglong, 1) << (slot & 63)
            if slab.words[slot >> 6] & bit:
                raise_freed_twice(address)
            slab.words[slot >> 6] |= bit
            slab.summary |= cython.cast(cython.ulonglong, 1) << (slot >> 6)
        else:
            place = 1 << slot
            if slab.bits & place:
                raise_freed_twice(address)
            slab.bits |= place
        slab.free += 1
        if slab.position < current.position:
            self.current = slab
        return True

    def place(self, address: cython.size_t) -> int:
        """How many slabs begin at or below an address."""
        low: cython.Py_ssize_t = 0
        high: cython.Py_ssize_t = len(self.slabs)
        while low < high:
            middle: cython.Py_ssize_t = (low + high) >> 1
            slab: Slab = self.slabs[middle]
            if slab.base <= address:
                low = middle + 1
            else:
                high = middle
        return low

    def find(self, address: cython.size_t) -> Slab | None:
        """The slab that holds an address, or None."""
        place: cython.Py_ssize_t = self.place(address)
        if place == 0:
            return None
        slab: Slab = self.slabs[place - 1]
        return slab if address < slab.base + slab.nbytes else None

    def add(self, slab: Slab) -> None:
        """Take in a new slab, all free."""
        place: cython.Py_ssize_t = self.place(slab.base)
        current: Slab | None = self.current
        self.slabs.insert(place, slab)
        self.renumber(place)
        self.slots += slab.slots
        if current is None or place < current.position or current.free == 0:
            self.current = self.slabs[0]

    def drop(self) -> Slab | None:
        """Give up one slab that is all free; None where there is none."""
        index: cython.Py_ssize_t
        for index in range(len(self.slabs)):
            slab: Slab = self.slabs[index]
            if slab.free == slab.slots:
                del self.slabs[index]
                self.renumber(index)
                self.slots -= slab.slots
                self.current = self.slabs[0] if self.slabs else None
                return slab
        return None

    def free_addresses(self) -> set[int]:
        """The addresses of all free slots."""
        return {
            slab.base + slot * slab.size
            for slab in self.slabs
            for slot in range(slab.slots)
            if slab.is_free(slot)
        }

    def spare_bytes(self) -> int:
        """How many bytes lie in slabs that are all free."""
        return sum([slab.nbytes for slab in self.slabs if slab.free == slab.slots])

    def free_slots(self) -> int:
        """How many slots are free."""
        return sum(slab.free for slab in self.slabs)

    def renumber(self, start: cython.Py_ssize_t) -> None:
        """Write down the places of the slabs from ``start`` on."""
        index: cython.Py_ssize_t
        for index in range(start, len(self.slabs)):
            slab: Slab = self.slabs[index]
            slab.position = index

    def growth(self, granularity: int) -> int:
        """How many bytes the next slab of this class should have."""
        return growth(self.size, self.slots, granularity)

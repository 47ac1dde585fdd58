"""Ranges of addresses, given out lowest first: the same program sees the same addresses."""

from __future__ import annotations

from bisect import insort

PAGE = 4096
# Far from where the operating system puts libraries, stacks and heaps.
FIRST, STRIDE, COUNT = 1 << 44, 1 << 39, 128


class AddressSpace:
    """Holes as (start, end), sorted."""

    def __init__(self, start: int, end: int) -> None:
        self.start, self.end = start, end
        self.holes = [(start, end)]

    def take(self, nbytes: int, alignment: int) -> int:
        """The lowest free range of a size; 0 where there is none."""
        for place, (start, end) in enumerate(self.holes):
            aligned = -(-start // alignment) * alignment
            if aligned + nbytes <= end:
                rest = [(start, aligned), (aligned + nbytes, end)]
                self.holes[place : place + 1] = [hole for hole in rest if hole[0] < hole[1]]
                return aligned
        return 0

    def give(self, start: int, nbytes: int) -> None:
        """Give a range back; one that came from elsewhere is no concern of ours."""
        if not self.start <= start < self.end:
            return
        insort(self.holes, (start, start + nbytes))
        merged: list[tuple[int, int]] = []
        for hole in self.holes:
            if merged and merged[-1][1] == hole[0]:
                merged[-1] = (merged[-1][0], hole[1])
            else:
                merged.append(hole)
        self.holes = merged


free_spaces = list(range(COUNT))


def new_space() -> AddressSpace:
    """A space that no other living one overlaps."""
    number = free_spaces.pop(0) if free_spaces else COUNT
    return AddressSpace(FIRST + number * STRIDE, FIRST + (number + 1) * STRIDE)


def close_space(start: int) -> None:
    """Let later drivers use a space."""
    number = (start - FIRST) // STRIDE
    if number < COUNT and number not in free_spaces:
        insort(free_spaces, number)

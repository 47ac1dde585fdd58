"""What is ordered before what: vector clocks of the host and of every stream.

Slot 0 is the host's.  A clock says for each slot how much of it is ordered before; slots are even,
and behind each one lies how much of it the program itself put before: all but what the allocator
lets a stream wait for because of a block's former owner.
"""

from __future__ import annotations

from array import array


def join(clock: array[int], other: array[int]) -> None:
    """Let a clock know what another one knows."""
    clock.extend([0] * (len(other) - len(clock)))
    for slot, count in enumerate(other):
        if count > clock[slot]:
            clock[slot] = count


def join_unasked(clock: array[int], other: array[int]) -> None:
    """`join`, for an order that the program did not ask for."""
    clock.extend([0] * (len(other) - len(clock)))
    for slot in range(0, len(other), 2):
        clock[slot] = max(clock[slot], other[slot])


def tick(clock: array[int], slot: int, count: int = 1) -> None:
    """Count ``count`` more pieces of work in a slot."""
    clock.extend([0] * (slot + 2 - len(clock)))
    clock[slot] += count
    clock[slot + 1] += count


class Host:
    """The host's clock; ``version`` grows whenever it learns something."""

    def __init__(self) -> None:
        self.clock = array("I", [1, 1])
        self.version = 0
        self.slots = 2

    def new_slot(self) -> int:
        """A slot for a stream, or for works of a graph that may run at once."""
        self.slots += 2
        return self.slots - 2

    def learn(self, clock: array[int]) -> None:
        """The host has waited for what a clock stands for."""
        join(self.clock, clock)
        self.version += 1

    def touch(self) -> array[int]:
        """The clock of an access of the host: work sent later is ordered after it."""
        tick(self.clock, 0)
        self.version += 1
        return array("I", self.clock)

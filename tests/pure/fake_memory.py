"""Providers without memory behind them, and the sizes that blocks should have."""

from __future__ import annotations

import random

from slipstream.core.memory import slabs

COMPILED = not slabs.__file__.endswith(".py")
WINDOW = 1 << 40


def block_size(nbytes):
    """The size of the block for a request: written down again, from the law."""
    if nbytes > 1 << 20:
        return -(-nbytes // 4096) * 4096
    for power in range(8, 21):
        for quarter in range(1, 5):
            size = (1 << power) // 4 * quarter if power == 8 else (1 << power) * (4 + quarter) // 8
            if nbytes <= size:
                return size
    raise AssertionError(nbytes)


class FakeMemory:
    """Pieces of addresses; ``capacity`` bytes at most."""

    granularity = 4096
    minimum = 64

    def __init__(self, capacity=1 << 60, seed=0):
        self.capacity = capacity
        self.random = random.Random(seed)
        self.next = 1 << 40
        self.pieces = {}
        self.calls = 0

    def reserve(self, nbytes):
        """A piece at addresses never used before, now above and now below the others."""
        self.calls += 1
        assert nbytes % self.granularity == 0
        if sum(self.pieces.values()) + nbytes > self.capacity:
            return 0
        address = self.next
        if self.random.random() < 0.5:
            address = (1 << 41) - self.next
        self.next += nbytes + 4096
        address = (address - nbytes) & -4096 if address < 1 << 40 else address
        self.pieces[address] = nbytes
        return address

    def release(self, address):
        """Take a piece back, whole."""
        del self.pieces[address]


class GrowingMemory(FakeMemory):
    """Pieces that may grow, far from the others."""

    def __init__(self, capacity=1 << 60, seed=0):
        super().__init__(capacity, seed)
        self.windows = 0

    def reserve_growing(self, nbytes):
        """A piece with a window of addresses behind it."""
        if sum(self.pieces.values()) + nbytes > self.capacity:
            return 0
        self.windows += 1
        address = (1 << 45) + self.windows * WINDOW
        self.pieces[address] = nbytes
        return address

    def extend(self, address, nbytes):
        """Make a piece longer."""
        if sum(self.pieces.values()) + nbytes > self.capacity:
            return False
        self.pieces[address] += nbytes
        return True

    def shrink(self, address, nbytes):
        """Make a piece shorter."""
        assert 0 < nbytes <= self.pieces[address]
        self.pieces[address] = nbytes

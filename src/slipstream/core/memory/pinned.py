"""Pinned host memory: blocks that copy engines reach, kept for the next request.

A copy may still run when the tensor that it fills or reads is let go of.  Such a block is parked
until its copies are done, and only then given out again: the host may write to it at once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from slipstream.core.memory.blocks import Allocator
from slipstream.core.memory.statistics import format_bytes
from slipstream.core.native.driver import Driver, DriverError
from slipstream.core.vocab.errors import OutOfMemoryError

GRANULARITY = 1 << 16
MINIMUM = 512


class PinnedMemory:
    """Reserves and releases pieces of pinned host memory, as any provider does."""

    def __init__(self, driver: Driver, enter: Callable[[], Any]) -> None:
        self.driver = driver
        self.enter = enter
        self.granularity = GRANULARITY
        self.minimum = MINIMUM
        self.pieces: dict[int, int] = {}

    def reserve(self, nbytes: int) -> int:
        """Return the address of a new piece, 0 where there is none."""
        self.enter()
        try:
            address = self.driver.allocate_host(nbytes)
        except DriverError as error:
            if error.code != "OUT_OF_MEMORY":
                raise
            return 0
        self.pieces[address] = nbytes
        return address

    def release(self, address: int) -> None:
        """Give a piece back."""
        self.enter()
        self.driver.free_host(address)
        del self.pieces[address]


def out_of_pinned(allocator: Any, nbytes: int) -> OutOfMemoryError:
    """The error where the machine has no more memory to pin."""
    return OutOfMemoryError(
        f"no pinned host memory for {format_bytes(nbytes)}: "
        f"{format_bytes(allocator.live_bytes)} in use, "
        f"{format_bytes(allocator.pieces.held())} reserved"
    )


class PinnedAllocator(Allocator):
    """Hands out blocks of pinned memory.

    ``parked``: blocks that came back before their copies were done, the oldest first.
    """

    def __init__(self, driver: Driver, enter: Callable[[], Any] = lambda: None) -> None:
        super().__init__(PinnedMemory(driver, enter))
        self.error = out_of_pinned
        self.copies: dict[int, list[Callable[[], bool]]] = {}
        self.parked: list[tuple[int, int]] = []

    def used(self, address: int, done: Callable[[], bool]) -> None:
        """A copy uses a live block until ``done()`` is true.

        Other threads come in wherever the driver is asked: the list only ever gains and loses
        single entries, so that none of theirs is lost.
        """
        pending = self.copies.setdefault(address, [])
        pending.append(done)
        if len(pending) == 1:
            return
        # A block that is copied again and again remembers what still runs only.
        for each in [each for each in tuple(pending) if each is not done and each()]:
            # Another thread may have found it done as well.
            with contextlib.suppress(ValueError):
                pending.remove(each)

    def owns(self, address: int) -> bool:
        """Tell whether an address lies in pinned memory of ours."""
        pieces = self.pieces.provider.pieces
        return any(base <= address < base + size for base, size in tuple(pieces.items()))

    def allocate(self, nbytes: int) -> int:
        """Return the address of a block that the host may write to at once.

        Raises OutOfMemoryError where no more memory can be pinned.
        """
        if self.parked:
            self.unpark()
        return super().allocate(nbytes)

    def free(self, address: int, nbytes: int) -> None:
        """Note that a block came back; may run anywhere."""
        if address in self.copies:
            self.parked.append((address, nbytes))
        else:
            super().free(address, nbytes)

    def unpark(self) -> None:
        """Make free the parked blocks whose copies are done."""
        for _ in range(len(self.parked)):
            try:
                address, nbytes = self.parked.pop(0)
            except IndexError:
                # Another thread took the rest.
                return
            if all(done() for done in self.copies.get(address, ())):
                self.copies.pop(address, None)
                super().free(address, nbytes)
            else:
                self.parked.append((address, nbytes))

    def retake(self, nbytes: int) -> int:
        """Look again for a free block, also among those whose copies are done now."""
        self.unpark()
        return super().retake(nbytes)

    def empty_cache(self) -> None:
        """Release all memory that no block and no copy uses."""
        self.unpark()
        super().empty_cache()

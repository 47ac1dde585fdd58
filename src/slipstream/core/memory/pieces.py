"""Pieces of memory from a provider: reserved within a limit, counted, given back."""

from __future__ import annotations

import os
import threading
from typing import Any, Protocol

from slipstream.core.memory.flows import Flow

# One thread at a time asks a provider; uncompiled, the lock guards every pool too, for a thread may
# lose the interpreter anywhere.  No child is born while another thread is half through a change.
LOCK = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=LOCK.acquire, after_in_parent=LOCK.release, after_in_child=LOCK.release
    )


class Provider(Protocol):
    """Where an allocator gets its memory.

    ``granularity``: sizes are multiples of it; ``minimum``: the smallest block to make.  A
    provider that has the three methods of `GrowingProvider` too may grow a piece in place.
    """

    granularity: int
    minimum: int

    def reserve(self, nbytes: int) -> int:
        """Return the address of a new piece, 0 where there is none."""

    def release(self, address: int) -> None:
        """Give a piece back."""


class GrowingProvider(Provider, Protocol):
    """A provider with pieces that grow at their end, so that holes before it can merge."""

    def reserve_growing(self, nbytes: int) -> int:
        """Return the address of a new piece that can be extended, 0 where there is none."""

    def extend(self, address: int, nbytes: int) -> bool:
        """Make a piece ``nbytes`` bytes longer in place; False where that is not possible."""

    def shrink(self, address: int, nbytes: int) -> None:
        """Give back what lies behind the first ``nbytes`` bytes of a growing piece."""


class Pieces:
    """What an allocator holds of its provider's memory.

    ``limit``: most bytes to reserve, 0 for no limit; ``busy``: a segment is growing or shrinking
    now; ``reserved``: bytes; ``count``: pieces; both also for large blocks alone; ``beside``: how
    many of the bytes pools of the same device hold, whose pieces have this one as their ``owner``.
    """

    def __init__(self, provider: Any) -> None:
        self.provider = provider
        self.growing = hasattr(provider, "extend")
        self.limit = 0
        self.busy = False
        self.owner: Pieces | None = None
        self.beside = 0
        self.reserved, self.reserved_large = Flow(), Flow()
        self.count, self.count_large = Flow(), Flow()

    def held(self) -> int:
        """How many bytes are reserved now, by pools beside too."""
        return self.reserved.taken - self.reserved.given

    def own(self) -> int:
        """How many bytes are reserved now, pools beside left out."""
        return self.held() - self.beside

    def fits(self, nbytes: int) -> bool:
        """Tell whether so many bytes more are within the limit."""
        within = self.limit == 0 or self.held() + nbytes <= self.limit
        return within and (self.owner is None or self.owner.fits(nbytes))

    def kept(self, address: int) -> int:
        """How many bytes from an address on cannot be given back by `shrink`."""
        return 0

    def came(self, nbytes: int, pieces: int, large: bool) -> None:
        """Count what was reserved."""
        self.reserved.add(nbytes)
        self.count.add(pieces)
        if large:
            self.reserved_large.add(nbytes)
            self.count_large.add(pieces)
        if self.owner is not None:
            self.owner.came_beside(nbytes, pieces)

    def went(self, nbytes: int, pieces: int, large: bool) -> None:
        """Count what was released."""
        self.reserved.remove(nbytes)
        self.count.remove(pieces)
        if large:
            self.reserved_large.remove(nbytes)
            self.count_large.remove(pieces)
        if self.owner is not None:
            self.owner.went_beside(nbytes, pieces)

    def came_beside(self, nbytes: int, pieces: int) -> None:
        """Count what a pool reserved: as large, for so its blocks are counted here."""
        self.beside += nbytes
        self.came(nbytes, pieces, True)

    def went_beside(self, nbytes: int, pieces: int) -> None:
        """Count what a pool released."""
        self.beside -= nbytes
        self.went(nbytes, pieces, True)

    def reserve(self, nbytes: int, large: bool) -> int:
        """The address of a new piece, 0 where there is none within the limit."""
        with LOCK:
            address = self.provider.reserve(nbytes) if self.fits(nbytes) else 0
            if address:
                self.came(nbytes, 1, large)
            return address

    def reserve_growing(self, nbytes: int) -> int:
        """The address of a new growing piece for large blocks, 0 where there is none."""
        with LOCK:
            wanted = self.growing and self.fits(nbytes)
            address = self.provider.reserve_growing(nbytes) if wanted else 0
            if address:
                self.came(nbytes, 1, True)
            return address

    def extend(self, address: int, nbytes: int) -> bool:
        """Make a growing piece longer; False where that is not possible within the limit."""
        with LOCK:
            done = self.fits(nbytes) and self.provider.extend(address, nbytes)
            if done:
                self.came(nbytes, 0, True)
            return done

    def release(self, address: int, nbytes: int, large: bool) -> None:
        """Give a piece back to the provider."""
        with LOCK:
            self.provider.release(address)
            self.went(nbytes, 1, large)

    def shrink(self, address: int, nbytes: int, less: int) -> None:
        """Give back the last ``less`` bytes of a growing piece, so that ``nbytes`` remain."""
        with LOCK:
            self.provider.shrink(address, nbytes)
            self.went(less, 0, True)

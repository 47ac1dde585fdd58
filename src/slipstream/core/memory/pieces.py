"""Pieces of memory from a provider: reserved within a limit, counted, given back."""

from __future__ import annotations

from typing import Any, Protocol

from slipstream.core.memory.flows import Flow


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

    ``limit``: most bytes to reserve, 0 for no limit; ``reserved``: bytes; ``count``: pieces; both
    also for large blocks alone.
    """

    def __init__(self, provider: Any) -> None:
        self.provider = provider
        self.growing = hasattr(provider, "extend")
        self.limit = 0
        self.reserved, self.reserved_large = Flow(), Flow()
        self.count, self.count_large = Flow(), Flow()

    def fits(self, nbytes: int) -> bool:
        """Tell whether so many bytes more are within the limit."""
        current = self.reserved.taken - self.reserved.given
        return self.limit == 0 or current + nbytes <= self.limit

    def came(self, nbytes: int, pieces: int, large: bool) -> None:
        """Count what was reserved."""
        self.reserved.add(nbytes)
        self.count.add(pieces)
        if large:
            self.reserved_large.add(nbytes)
            self.count_large.add(pieces)

    def went(self, nbytes: int, pieces: int, large: bool) -> None:
        """Count what was released."""
        self.reserved.remove(nbytes)
        self.count.remove(pieces)
        if large:
            self.reserved_large.remove(nbytes)
            self.count_large.remove(pieces)

    def reserve(self, nbytes: int, large: bool) -> int:
        """The address of a new piece, 0 where there is none within the limit."""
        address = self.provider.reserve(nbytes) if self.fits(nbytes) else 0
        if address:
            self.came(nbytes, 1, large)
        return address

    def reserve_growing(self, nbytes: int) -> int:
        """The address of a new growing piece for large blocks, 0 where there is none."""
        address = 0
        if self.growing and self.fits(nbytes):
            address = self.provider.reserve_growing(nbytes)
        if address:
            self.came(nbytes, 1, True)
        return address

    def extend(self, address: int, nbytes: int) -> bool:
        """Make a growing piece longer; False where that is not possible within the limit."""
        if not self.fits(nbytes) or not self.provider.extend(address, nbytes):
            return False
        self.came(nbytes, 0, True)
        return True

    def release(self, address: int, nbytes: int, large: bool) -> None:
        """Give a piece back to the provider."""
        self.provider.release(address)
        self.went(nbytes, 1, large)

    def shrink(self, address: int, nbytes: int, less: int) -> None:
        """Give back the last ``less`` bytes of a growing piece, so that ``nbytes`` remain."""
        self.provider.shrink(address, nbytes)
        self.went(less, 0, True)

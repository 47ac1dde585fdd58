"""Tickets: words on which the blocks of a launch count who comes last.

They are zero before and after each launch: the block that comes last leaves them so.  Every stream
has its own, and so has every stream of a captured graph.  A stream's are no block of the
allocator's, so that it counts none.
"""

from __future__ import annotations

from collections.abc import Callable

from slipstream.core.native.driver import Driver, DriverError

# How many rows or tiles of a launch may be shared by several blocks.
TICKETS = 4096


class Tickets:
    """The tickets of a device's streams."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.addresses: dict[int, int] = {}

    def of(self, number: int, stream: int, enter: Callable[[], None]) -> int:
        """The address of a stream's tickets; ``number`` is what its device calls it.

        ``enter`` is called before memory is asked for.
        """
        found = self.addresses.get(number)
        if found is None:
            enter()
            found = self.driver.allocate(4 * TICKETS)
            try:
                self.driver.fill(found, 0, 4, TICKETS, stream)
            except DriverError:
                self.driver.free(found)
                raise
            self.addresses[number] = found
        return found

# cython: nonecheck=False
"""Who asked for each block: the user's line and the size, for the report of who holds memory.

It is always on, since the question is asked after memory ran out.  Compiled, an entry is a C record
in a table hashed by address and noting one costs a few nanoseconds; a Storage could not tell, for
nothing finds all storages, and a record beside each slot would make the host's slabs larger.
Blocks that come back are not struck out, which would cost as much again: their entries are written
over when the address is given out again, and a report asks about live blocks only.
"""

# The .pxd declares the C functions.
# mypy: disable-error-code="name-defined"
# ruff: noqa: F821

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cython

# How many entries the table has room for at first.
FIRST = 2048


class Ledger:
    """The last request for each address: (code, instruction offset, bytes).

    ``keeps(address, nbytes)`` tells whether a block at the address may still be live: when the
    table is full, other entries leave it.
    """

    def __init__(self, keeps: Callable[[int, int], bool]) -> None:
        self.keeps = keeps
        self.count = 0
        self.most = FIRST
        self.busy = False
        self.sites: dict[int, tuple[Any, int, int]] = {}
        if cython.compiled:
            self.mask = 0
            self.table = cython.NULL

    def __len__(self) -> int:
        return self.count if cython.compiled else len(self.sites)

    def note(
        self, address: cython.size_t, code: Any, instruction: cython.int,
        nbytes: cython.Py_ssize_t,
    ) -> None:
        """Write down who asked for the block at an address."""
        if cython.compiled:
            if 2 * self.count >= self.mask and not self.make_room():
                return
            entry = slip_entry_of(self.table, self.mask, address)
            if entry.address == 0:
                entry.address = address
                self.count += 1
            slip_entry_set(entry, code, instruction, nbytes)
        else:
            self.sites[address] = (code, instruction, nbytes)
            if len(self.sites) > self.most and not self.busy:
                self.make_room()

    def make_room(self) -> int:
        """Let entries that are not needed go, make the table larger; 0: this one is not noted."""
        if self.busy:
            # Asked for in the middle of this very work.
            return 4 * self.count < 3 * self.mask
        self.busy = True
        try:
            stale: set = self.stale()
            if cython.compiled:
                size: cython.size_t = self.mask + 1 if self.mask else FIRST
                left: cython.Py_ssize_t = self.count - len(stale)
                if self.mask and 4 * left >= self.mask:
                    size = 2 * size
                return self.rebuild(size, stale)
            for address in stale:
                self.sites.pop(address, None)
            self.most = max(FIRST, 2 * len(self.sites))
            return 1
        finally:
            self.busy = False

    def stale(self) -> set[int]:
        """The addresses at which no block is live."""
        if not cython.compiled:
            sites = tuple(self.sites.items())
            return {each for each, site in sites if not self.keeps(each, site[2])}
        found = set()
        place: cython.size_t
        count: cython.size_t = self.mask + 1 if self.mask else 0
        for place in range(count):
            address: cython.size_t = self.table[place].address
            if address and not self.keeps(address, self.table[place].nbytes):
                found.add(address)
        return found

    def rebuild(self, size: cython.size_t, stale: set[int]) -> int:
        """Move the entries but the stale ones to a table of ``size``; 0: there is no memory."""
        if cython.compiled:
            table = slip_entries(size)
            if table == cython.NULL:
                return 0
            place: cython.size_t
            address: cython.size_t
            old = self.table
            dropped: list = []
            count: cython.size_t = self.mask + 1 if self.mask else 0
            for place in range(count):
                address = old[place].address
                if address and address in stale:
                    # Held until the end: what a release runs may ask for a block.
                    dropped.append(slip_entry_code(cython.address(old[place])))
                    slip_entry_drop(cython.address(old[place]))
                elif address:
                    slip_entry_move(cython.address(old[place]), table, size - 1)
            self.table = table
            self.mask = size - 1
            self.count -= len(stale)
            free(old)
        return 1

    def site(self, address: cython.size_t) -> tuple[Any, int, int]:
        """The code object, instruction and bytes of the last request for an address.

        (None, 0, 0) where none was noted.
        """
        if cython.compiled:
            if self.mask == 0:
                return None, 0, 0
            entry = slip_entry_of(self.table, self.mask, address)
            if entry.address == 0:
                return None, 0, 0
            return slip_entry_code(entry), entry.instruction, entry.nbytes
        return self.sites.get(address, (None, 0, 0))

    def request(self, address: int, code: Any, instruction: int, nbytes: int) -> None:
        """`note`, for callers that are not compiled."""
        self.note(address, code, instruction, nbytes)

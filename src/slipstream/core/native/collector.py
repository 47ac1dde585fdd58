"""What CUPTI calls for buffers of activity records: C functions that need no interpreter.

CUPTI calls from threads of its own, in the middle of the driver's calls, and once more when the
process ends: a callback in Python would wait for the interpreter's lock there, or find it gone.
"""

# The .pxd declares the C functions.
# mypy: disable-error-code="name-defined"
# ruff: noqa: F821

from __future__ import annotations

import cython


class Collector:
    """Buffers that were filled, of the whole process: there is one CUPTI.

    ``callbacks``: the addresses of CUPTI's request for a buffer, of the return of a filled one, and
    of a subscriber that does nothing; empty where the core runs uncompiled.
    """

    callbacks: tuple[int, ...]

    def __init__(self) -> None:
        self.callbacks = ()
        if cython.compiled:
            self.callbacks = (slip_callback(0), slip_callback(1), slip_callback(2))

    def begin(self, most: int) -> None:
        """Give out buffers of at most so many bytes in all; what was filled before is gone."""
        for address, _ in self.take():
            self.free(address)
        if cython.compiled:
            slip_bound(most)

    def take(self) -> list[tuple[int, int]]:
        """(address, bytes that hold records) of each filled buffer; `free` each of them."""
        found: list[tuple[int, int]] = []
        if cython.compiled:
            head: cython.pointer[slip_filled] = slip_take()
            while head != cython.NULL:
                found.append((slip_data(head), slip_valid(head)))
                head = slip_after(head)
        return found

    def free(self, address: int) -> None:
        """Give a buffer back."""
        if cython.compiled:
            slip_free(address)

    def refused(self) -> int:
        """How many buffers CUPTI asked for and did not get."""
        if cython.compiled:
            return slip_refusals()
        return 0

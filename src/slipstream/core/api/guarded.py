"""C functions that call Python where an error may be under way, and leave that error alone.

A consumer may let go of memory, or of its capsule, while an error of its own is raised.  Python
code that is called then, as ctypes does it, would take that error for its own.
"""

# The .pxd declares the C function.
# mypy: disable-error-code="name-defined"

from __future__ import annotations

from collections.abc import Callable

import cython

# Who is called: for memory that a consumer is done with, for a capsule that goes.
MEMORY, CAPSULE = range(2)


def guarded(slot: int, function: Callable[[int], None]) -> int:
    """The address of the C function of a slot, which calls a function with the address it is given.

    0 where the core runs uncompiled: there is no such C function.
    """
    if not cython.compiled:
        return 0
    return slip_guard(slot, function)  # noqa: F821

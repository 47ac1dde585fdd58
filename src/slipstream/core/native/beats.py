"""Heartbeats: what a thread that needs no interpreter watches of work that waits to be sent.

Whoever gathers work counts it in a `Beat` as it is recorded and as it is sent.  Compiled, a thread
in C looks at all beats each millisecond; only where something has waited, unmoved, since its last
look does it ask for the interpreter's lock and call ``drain``.  Uncompiled, a `Beat` is two
numbers, and a thread in Python has to look (`launch.cuda.watchdog`).
"""

# The .pxd declares the C functions.
# mypy: disable-error-code="name-defined"

from __future__ import annotations

import atexit
from collections.abc import Callable
from typing import Any

import cython

if cython.compiled:
    from cython.cimports.slipstream.core.native.watching import (
        slip_new_beat,
        slip_note_waiting,
        slip_record,
        slip_start_watch,
        slip_stop_watch,
    )


class Beat:
    """How much work was recorded and how much of it was sent; alive as long as the process."""

    data: Any
    recorded: int
    sent: int

    def __init__(self) -> None:
        if cython.compiled:
            self.data = slip_new_beat()
            if self.data is cython.NULL:
                raise MemoryError("no memory for a heartbeat")
        else:
            self.recorded = 0
            self.sent = 0

    def record(self) -> None:
        """One piece of work more was recorded."""
        if cython.compiled:
            slip_record(self.data)
        else:
            self.recorded += 1

    def note_waiting(self, count: int) -> None:
        """So many pieces of work wait now; everything else was sent."""
        if cython.compiled:
            slip_note_waiting(self.data, count)
        else:
            self.sent = self.recorded - count


class Watch:
    """The thread that looks at beats; a singleton, `watch`."""

    drain: Callable[[], Any] | None

    def __init__(self) -> None:
        self.drain = None

    def start(self, drain: Callable[[], Any]) -> bool:
        """Call ``drain()`` whenever work has waited for a look; whether a thread does it."""
        if not cython.compiled:
            return False
        if self.drain is None:
            self.drain = drain
            if slip_start_watch(drain):
                return False
            atexit.register(self.stop)
        return True

    def stop(self) -> None:
        """Let the thread end; the interpreter is about to."""
        if cython.compiled:
            slip_stop_watch()


watch = Watch()

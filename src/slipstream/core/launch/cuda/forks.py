"""Forks: a child process has no CUDA context, whatever its parent made.

Before a fork, windows are sent.  In the child the first use of CUDA says which line of the parent
made the context.
"""

from __future__ import annotations

import os
from typing import Any

from slipstream.core.launch.door import door
from slipstream.core.vocab.modes import decode_site, modes


class Forks:
    """Knows whether this process was forked after a context was made; a singleton, `forks`."""

    def __init__(self) -> None:
        self.forked = False
        self.site: Any = None

    def context_made(self) -> None:
        """The user's line that runs now made a context."""
        if self.site is None:
            state = modes.current()
            # Not an op's site: a stream or a wait may be what makes the context.
            modes.note_site(state)
            self.site = (state.code, state.instruction)
            if hasattr(os, "register_at_fork"):
                os.register_at_fork(before=self.before, after_in_child=self.in_child)

    def before(self) -> None:
        """Send what is recorded; what kernels reported shows at the parent's next wait."""
        for queue in queues():
            queue.watch_drain()

    def in_child(self) -> None:
        """Nothing is deferred from here on, so that the first use is refused where it is made.

        What a profile or an optimizer's step waits for, or sends, is the parent's.
        """
        self.forked = self.forked or bool(door.windowed)
        for queue in queues():
            queue.deferred = False
        door.windowed = ()
        if modes.ring is not None:
            modes.ring.timer.driver = None

    def refuse(self) -> None:
        """Raise RuntimeError: this process cannot use CUDA."""
        file, line = decode_site(*self.site)
        where = f" (made at {file}:{line})" if file else ""
        raise RuntimeError(
            f"CUDA cannot be used in a forked process: the parent had a context{where}; start "
            "the process with the method 'spawn', or fork before CUDA is used")


def queues() -> list[Any]:
    """The queues of all devices."""
    backends: tuple[Any, ...] = door.windowed
    return [queue for backend in backends for queue in backend.queues]


forks = Forks()

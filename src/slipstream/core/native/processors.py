"""Which processor a thread runs on: neighbours make one slower than another, up to twice."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

# Of Linux: numbers behind the name of the running thread's command, the processor among them.
STATE = Path("/proc/thread-self/stat")
PLACE = 36


def running_on() -> int | None:
    """The number of the processor that the running thread is on; None where nobody tells."""
    with suppress(OSError, ValueError, IndexError):
        return int(STATE.read_text().rpartition(")")[2].split()[PLACE])
    return None


def stay_on(processor: int | None) -> None:
    """Keep the running thread, and what it starts, on a processor, where that can be."""
    if processor is not None:
        with suppress(AttributeError, OSError):
            os.sched_setaffinity(0, {processor})

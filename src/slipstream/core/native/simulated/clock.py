"""The host's virtual clock, for a profile on the simulated driver.

The host's own work takes no virtual time by itself.  While a profile is on, each call of an op
costs what follows, so that launches are as far apart as a plain program's; a program that stands
for slower work advances the driver's clock (`advance`).
"""

from __future__ import annotations

from typing import Any

# Microseconds of a Python line that calls an op, and of the road from there to the launch.
PYTHON_TIME, DISPATCH_TIME = 2.0, 1.0
# Bytes a microsecond that the host moves between pageable and pinned memory.
MOVED = 6e3


class HostClock:
    """Reads and advances the schedule's time."""

    def __init__(self, schedule: Any) -> None:
        self.schedule = schedule

    def now(self) -> int:
        """Nanoseconds of virtual time."""
        return int(self.schedule.now * 1000)

    def call(self) -> None:
        """A line calls an op."""
        self.schedule.now += PYTHON_TIME

    def dispatched(self) -> None:
        """The call has its plan and its memory."""
        self.schedule.now += DISPATCH_TIME

    def moved(self, nbytes: int) -> None:
        """The host moved bytes between pageable and pinned memory."""
        self.schedule.now += nbytes / MOVED

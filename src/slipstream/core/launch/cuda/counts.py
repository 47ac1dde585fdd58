# cython: annotation_typing=False
"""What was launched, and how: the counts behind `cuda.launch_stats`."""

from __future__ import annotations

from typing import Any

import cython


class Counts:
    """Counts since start.

    ``single`` holds, for each reason why launches went out one by one, how many there were of
    each kernel: first sight, drained, exported storage, not capturable, handed-out stream,
    too short, memo off.
    """

    launches: int
    replayed: int
    patched: int
    captured: int
    windows: int
    single: dict[str, dict[str, int]]

    def __init__(self) -> None:
        self.launches = 0
        self.replayed = 0
        self.patched = 0
        self.captured = 0
        self.windows = 0
        self.single = {}

    def alone(self, reason: str, launches: list[Any]) -> None:
        """Count launches that went out one by one."""
        counter: Any = self.single.get(reason)
        if counter is None:
            counter = self.single[reason] = {}
        # Often one kernel many times over: those are counted at once.
        before: Any = None
        times: cython.Py_ssize_t = 0
        for launch in launches:
            if launch is not before and times:
                counter[before.name] = counter.get(before.name, 0) + times
                times = 0
            before = launch
            times += 1
        if times:
            counter[before.name] = counter.get(before.name, 0) + times

    def report(self) -> dict[str, Any]:
        """The counts as a mapping."""
        return {
            "launches": self.launches, "replayed": self.replayed, "patched": self.patched,
            "captured": self.captured, "windows": self.windows,
            "single": {reason: dict(names) for reason, names in self.single.items()},
        }

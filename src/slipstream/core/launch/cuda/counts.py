# cython: annotation_typing=False
"""What was launched, and how: the counts behind `cuda.launch_stats`."""

from __future__ import annotations

from collections import Counter
from typing import Any


class Counts:
    """Counts since start.

    ``single`` holds, for each reason why launches went out one by one, how many there were of
    each kernel: first sight, drained, exported storage, not capturable, handed-out stream,
    too short, memo off.
    """

    def __init__(self) -> None:
        self.launches = 0
        self.replayed = 0
        self.patched = 0
        self.captured = 0
        self.windows = 0
        self.single: dict[str, Counter[str]] = {}

    def alone(self, reason: str, launches: list[Any]) -> None:
        """Count launches that went out one by one."""
        counter = self.single.get(reason)
        if counter is None:
            counter = self.single[reason] = Counter()
        for launch in launches:
            counter[launch.name] += 1

    def report(self) -> dict[str, Any]:
        """The counts as a mapping."""
        return {
            "launches": self.launches, "replayed": self.replayed, "patched": self.patched,
            "captured": self.captured, "windows": self.windows,
            "single": {reason: dict(names) for reason, names in self.single.items()},
        }

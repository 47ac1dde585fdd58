"""How long the device takes for windows, by events around each of them."""

from __future__ import annotations

from collections import deque
from typing import Any

# So many windows may be under way before the oldest are looked at.
OPEN = 64


class WindowTimer:
    """Measures the windows of a device's queues.

    ``replayed`` and ``single``: [launches, microseconds] of windows that went out as one graph and
    of those whose launches went out one by one, where the gaps between these count too.
    """

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        self.idle: list[tuple[int, int]] = []
        self.open: deque[tuple[tuple[int, int], int, bool]] = deque()
        self.replayed = [0, 0.0]
        self.single = [0, 0.0]

    def timed(self, queue: Any, window: Any, reason: str) -> None:
        """Hand a window to the driver between two events."""
        if queue.capture is not None:
            queue.dispatch(window, reason)
            return
        queue.owner.enter()
        pair = self.idle.pop() if self.idle else (
            self.driver.create_event(True, False), self.driver.create_event(True, False))
        before, launches = queue.counts.replayed, queue.counts.launches
        self.driver.record_event(pair[0], queue.stream)
        queue.dispatch(window, reason)
        self.driver.record_event(pair[1], queue.stream)
        count = queue.counts.launches - launches
        self.open.append((pair, count, queue.counts.replayed > before))
        if len(self.open) > OPEN:
            self.look()

    def look(self) -> None:
        """Add up the windows that are done, the oldest first."""
        while self.open and self.driver.query_event(self.open[0][0][1]):
            pair, count, replayed = self.open.popleft()
            total = self.replayed if replayed else self.single
            total[0] += count
            total[1] += self.driver.elapsed(*pair) * 1e3
            self.idle.append(pair)

    def close(self) -> None:
        """Add up what is done, and give the events back."""
        self.look()
        for pair in [*self.idle, *(each[0] for each in self.open)]:
            for event in pair:
                self.driver.destroy_event(event)
        self.idle.clear()
        self.open.clear()

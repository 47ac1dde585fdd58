"""Streams that are made on request: beyond some number, dropped ones are taken again."""

from __future__ import annotations

from collections import deque
from typing import Any

# Streams of a card beside the default one, as many as PyTorch has, before a dropped one is taken
# again.
STREAMS = 32


class Streams:
    """Makes the queues of a device's streams; ``idle``, by priority, those that nobody has."""

    def __init__(self, backend: Any) -> None:
        self.backend = backend
        self.idle: dict[int, deque[Any]] = {}

    def make(self, priority: int) -> Any:
        """The queue of a new stream; beyond `STREAMS` one that is idle, the longest so first."""
        backend = self.backend
        backend.enter()
        idle: Any = self.idle.get(priority, ())
        for _ in range(len(idle) if len(backend.queues) > STREAMS else 0):
            try:
                queue = idle.popleft()
            except IndexError:
                # Others took them meanwhile.
                break
            if queue.capture is not None:
                idle.append(queue)
            # A handle that was given away is somebody's still.
            elif queue.deferred:
                return queue
        return backend.new_queue(backend.driver.create_stream(priority))

    def drop(self, queue: Any, priority: int) -> None:
        """Nobody has a queue's stream any longer.  A collector may call this anywhere."""
        self.idle.setdefault(priority, deque()).append(queue)

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
        with backend.lock:
            idle = self.idle.get(priority)
            while idle and len(backend.queues) > STREAMS:
                queue = idle.popleft()
                # A handle that was given away is somebody's still.
                if queue.deferred and queue.capture is None:
                    return queue
        return backend.new_queue(backend.driver.create_stream(priority))

    def drop(self, queue: Any, priority: int) -> None:
        """Nobody has a queue's stream any longer.  A collector may call this anywhere."""
        self.idle.setdefault(priority, deque()).append(queue)

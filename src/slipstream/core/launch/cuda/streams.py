"""Streams that are made on request: beyond some number, dropped ones are taken again."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Any

# Streams of a card beside the default one, as many as PyTorch has, before a dropped one is taken
# again.
STREAMS = 32


class Streams:
    """Makes the queues of a device's streams; ``idle``, by priority, those that nobody has.

    ``foreign``: of queues whose streams others made, and may destroy at any time, by the queue's
    number: the driver's number of the stream.
    """

    def __init__(self, backend: Any) -> None:
        self.backend = backend
        self.idle: defaultdict[int, deque[Any]] = defaultdict(deque)
        self.foreign: dict[int, int] = {}

    def make(self, priority: int) -> Any:
        """The queue of a new stream; beyond `STREAMS` one that is idle, the longest so first."""
        backend = self.backend
        backend.enter()
        idle = self.idle[priority]
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
        self.idle[priority].append(queue)

    def of_handle(self, handle: int) -> Any:
        """The queue of a stream by the driver's handle; what is not known is another's stream.

        A handle comes back once its stream is destroyed: the driver numbers streams for good.
        """
        backend = self.backend
        backend.enter()
        number = backend.driver.stream_number(handle)
        for queue in tuple(backend.queues):
            if queue.stream == handle and self.foreign.get(queue.number, number) == number:
                return queue
        made = backend.new_queue(handle)
        self.foreign[made.number] = number
        return made

    def wait(self, queues: tuple[Any, ...], places: Sequence[Any] = ()) -> None:
        """Let the host wait for streams; ``places``: what waiting for each stands for.

        Those of others may be gone, but not their work: it is waited for with all of the card.
        """
        driver, order = self.backend.driver, self.backend.order
        foreign = any(queue.number in self.foreign for queue in queues)
        if foreign:
            driver.synchronize()
        for number, queue in enumerate(queues):
            if not foreign:
                driver.wait_stream(queue.stream)
            if places:
                order.host_waited(places[number])

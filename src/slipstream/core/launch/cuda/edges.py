"""Events, and the order that they put between the streams of a device and the host."""

from __future__ import annotations

import contextlib
from typing import Any

from slipstream.core.launch.cuda.capturing import CapturedPlace, join, refuse_captured
from slipstream.core.launch.cuda.queue import Queue
from slipstream.core.launch.waiting import host_waits
from slipstream.core.native.driver import DriverError
from slipstream.core.vocab.modes import modes

# Driver handles of streams that nobody made: the legacy default stream is 1, the threads' own 2.
PER_THREAD = 2


class Edges:
    """Records and waits for the events of one device's streams."""

    def __init__(self, backend: Any) -> None:
        self.backend = backend
        self.driver = backend.driver
        self.order = backend.order

    def wait_queue(self, queue: Queue) -> None:
        """Return when a stream's work so far is done."""
        self.backend.forbid_capture(queue, "the host waits for its stream")
        place = self.before_wait(queue)
        self.driver.wait_stream(queue.stream)
        self.order.host_waited(place)
        self.backend.check()

    def before_wait(self, queue: Queue) -> Any:
        """Send what a wait of the host for a stream is for; what the wait stands for.

        That is reckoned first: what other threads record from here on may not be waited for.
        """
        place = self.order.snapshot(queue)
        if queue.shared:
            self.send_earlier(queue)
        queue.send("wait")
        self.backend.enter()
        return place

    def send_earlier(self, queue: Queue | None) -> None:
        """Send what the running thread recorded on other streams before it waits for one.

        The program says that first: held back, it would come after the wait, as if in order.
        """
        author = id(modes.current())
        for each in tuple(self.backend.queues):
            if each is not queue and each.author == author and each.capture is None:
                each.send("wait")

    def record_event(self, queue: Queue, handle: int, timing: bool,
                     blocking: bool) -> tuple[int, Any]:
        """Record an event (made where ``handle`` is 0); its handle and what it stands for."""
        if queue.capture is None:
            return self.mark(queue, handle, timing, blocking)
        queue.send("edge")
        self.backend.enter()
        return handle or self.driver.create_event(timing, blocking), queue.capture.place(queue)

    def mark(self, queue: Queue, handle: int, timing: bool, blocking: bool) -> tuple[int, Any]:
        """Record an event behind what was recorded on a stream."""
        # Other threads may record behind it meanwhile.
        place = self.order.snapshot(queue)
        queue.send("edge")
        self.backend.enter()
        made = handle or self.driver.create_event(timing, blocking)
        try:
            self.driver.record_event(made, queue.stream)
        except DriverError:
            if not handle:
                self.driver.destroy_event(made)
            raise
        return made, place

    def order_after(self, queue: Queue, handle: int, place: Any, ours: bool = True) -> None:
        """Let a stream's later work start only after an event; ``ours``: it is of this card."""
        queue.send("edge")
        self.backend.enter()
        if isinstance(place, CapturedPlace) or queue.capture is not None:
            join(queue, place)
            return
        self.driver.stream_wait_event(queue.stream, handle)
        if ours:
            self.order.waited(queue.number, place)

    def covered(self, number: int, other: int) -> int:
        """Up to which launch of stream ``other`` is before the next one of stream ``number``."""
        if number == other:
            return self.backend.queues[number].sequence
        return self.order.covered(number, other)

    def order_streams(self, number: int, other: int, sequence: int) -> None:
        """Let a stream wait on the device for another's work so far."""
        later, earlier = self.backend.queues[number], self.backend.queues[other]
        if later.capture is None:
            handle, place = self.mark(earlier, 0, False, False)
        elif later.capture is earlier.capture:
            handle, place = self.record_event(earlier, 0, False, False)
        else:
            # A pool's block that another capture used: the user orders their replays.
            return
        try:
            # What is still to be sent goes out before: its own waits are the program's.
            later.send("edge")
            self.driver.unasked = True
            self.order_after(later, handle, place)
        finally:
            self.driver.unasked = False
            self.driver.destroy_event(handle)

    def wait_event(self, handle: int, place: Any) -> None:
        """Return when what an event stands for is done."""
        if self.backend.default.shared:
            self.send_earlier(None)
        self.backend.enter()
        refuse_captured(place, "the host waits for an event that was recorded in it")
        self.driver.wait_event(handle)
        self.order.host_waited(place)
        self.backend.check()

    def event_done(self, handle: int, place: Any) -> bool:
        """Whether what an event stands for is done; does not wait.

        Who asks in a loop waits: what the thread said first is at work, as before a wait.
        """
        refuse_captured(place, "an event that was recorded in it is asked for")
        if self.backend.default.shared:
            self.send_earlier(None)
        self.backend.enter()
        done: bool = self.driver.query_event(handle)
        return done

    def queue_done(self, queue: Queue) -> bool:
        """Whether a stream's work so far is done; does not wait."""
        self.backend.forbid_capture(queue, "its stream is asked for")
        if queue.shared:
            self.send_earlier(queue)
        self.backend.enter()
        queue.drain()
        done: bool = self.driver.query_stream(queue.stream)
        return done

    def let_follow(self, stream: int) -> int | None:
        """Let other code's stream come after what the current one holds; the stream's handle.

        None where the host waited instead, as the driver knows no such stream.
        """
        queue = self.backend.queue()
        for each in self.backend.queues:
            if each.stream == stream:
                if each is not queue:
                    self.follow(each, queue)
                return stream
        self.backend.forbid_capture(queue, "its memory is handed to another stream")
        if self.driver.name == "simulated" and stream <= PER_THREAD:
            host_waits(self.backend.device, "handing out", self.wait_queue, queue)
            return None
        handle, _ = self.record_event(queue, 0, False, False)
        try:
            self.driver.stream_wait_event(stream, handle)
        finally:
            self.driver.destroy_event(handle)
        return stream

    def follow(self, later: Queue, earlier: Queue) -> None:
        """Let a stream's later work start only after another's work so far."""
        handle, place = self.record_event(earlier, 0, False, False)
        try:
            self.order_after(later, handle, place)
        finally:
            self.driver.destroy_event(handle)

    def forget_event(self, handle: int) -> None:
        """Give an event back."""
        with contextlib.suppress(DriverError):
            # It is the collector that gives it back: there is nobody to tell.
            self.driver.destroy_event(handle)

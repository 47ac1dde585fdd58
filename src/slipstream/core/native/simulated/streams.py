"""Streams, events, copies and fills."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

from slipstream.core.native.driver import TO_DEVICE, TO_HOST, WITHIN, DriverError
from slipstream.core.native.simulated.calls import POLL_TIME, SUBMIT_TIME, driver_call
from slipstream.core.native.simulated.memory import MemoryCalls
from slipstream.core.native.simulated.order import join, join_unasked
from slipstream.core.native.simulated.schedule import ActionWork, Event, Marker, Stream, Work
from slipstream.core.native.simulated.working import Action, CallAction, CopyAction, FillAction

LEAST, GREATEST = 0, -5
UNKNOWN, DEVICE, HOST = 0, 1, 2


class Marks(threading.local):
    """What a thread's next calls are for: the user's line, and when the launches were recorded.

    Each thread has its own: the watchdog launches what one recorded while that one allocates.
    """

    site: Any = None
    stamp: int | None = None
    stamps: list[Any] | None = None
    unasked: bool = False


class StreamCalls(MemoryCalls):
    """Streams, events and the work that they order."""

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self.marks = Marks()

    @property
    def site(self) -> Any:
        """The user's line that this thread's calls are for, as (code, instruction) or None."""
        return self.marks.site

    @site.setter
    def site(self, site: Any) -> None:
        self.marks.site = site

    @property
    def stamp(self) -> int | None:
        """The moment at which this thread's launches were recorded; None where it is now."""
        return self.marks.stamp

    @stamp.setter
    def stamp(self, stamp: int | None) -> None:
        self.marks.stamp = stamp

    @property
    def stamps(self) -> list[Any] | None:
        """(site, moment) of each node of the graph that this thread launches next; or None."""
        return self.marks.stamps

    @stamps.setter
    def stamps(self, stamps: list[Any] | None) -> None:
        self.marks.stamps = stamps

    @property
    def unasked(self) -> bool:
        """Whether this thread's waits are the allocator's: races of the program's stay such."""
        return self.marks.unasked

    @unasked.setter
    def unasked(self, unasked: bool) -> None:
        self.marks.unasked = unasked

    # -- submitting --

    def stream_of(self, handle: int, call: str) -> Stream:
        """A stream by its handle."""
        stream: Stream = self.find(Stream, handle, call)
        return stream

    def submit(self, stream: Stream, action: Action, call: str) -> Work | None:
        """Send work to a stream; None where it was captured instead."""
        if stream.capture is not None:
            self.capture_action(stream, action, call)
            return None
        self.schedule.now += SUBMIT_TIME
        moment = self.moment if self.stamp is None else self.stamp
        ticket = self.schedule.ticket(stream, self.site, moment)
        work = ActionWork(stream, self.schedule.now, action, ticket)
        self.schedule.enqueue(work)
        return work

    def capture_action(self, stream: Stream, action: Action, call: str) -> None:
        """Add work to the graph that a stream's capture makes."""
        raise NotImplementedError

    def capture_record(self, stream: Stream, event: Event) -> None:
        """Let an event stand for a place in a capture."""
        raise NotImplementedError

    def capture_wait(self, stream: Stream, event: Event) -> None:
        """Let a stream's capture go on after an event's place in it."""
        raise NotImplementedError

    def forbid_captured(self, stream: Stream, call: str) -> None:
        """Raise DriverError where a stream captures: the host cannot wait for it."""

    # -- streams --

    def priorities(self) -> tuple[int, int]:
        """(least, greatest) priority of streams."""
        return LEAST, GREATEST

    @driver_call
    def create_stream(self, priority: int = 0) -> int:
        """A stream of the current context."""
        ordinal = self.current("create_stream").ordinal
        priority = max(GREATEST, min(LEAST, priority))
        return self.add(Stream(ordinal, priority, self.schedule))

    @driver_call
    def destroy_stream(self, stream: int) -> None:
        """Give back a stream; its work still finishes."""
        self.forbid_captured(self.stream_of(stream, "destroy_stream"), "destroy_stream")
        self.remove(Stream, stream, "destroy_stream")

    @driver_call
    def stream_number(self, stream: int) -> int:
        """What tells a stream from all others: its handle, as none is used twice."""
        return int(self.stream_of(stream, "stream_number").handle)

    @driver_call
    def query_stream(self, stream: int) -> bool:
        """Whether a stream's work is done; time passes while one asks."""
        found = self.stream_of(stream, "query_stream")
        self.forbid_captured(found, "query_stream")
        self.schedule.now += POLL_TIME
        self.schedule.run_due()
        done = not found.queue
        if done:
            self.schedule.host.learn(found.clock)
            self.raise_faults()
        return done

    @driver_call
    def wait_stream(self, stream: int) -> None:
        """Let the host wait until a stream's work is done."""
        found = self.stream_of(stream, "wait_stream")
        self.forbid_captured(found, "wait_stream")
        self.counts["synchronizations"] += 1
        self.finish(found)
        self.raise_faults()

    def finish(self, stream: Stream) -> None:
        """Run a stream's work; the host knows of it."""
        self.schedule.run_until(stream.last)
        self.schedule.host.learn(stream.clock)

    @driver_call
    def synchronize(self) -> None:
        """Wait until the current context's work is done."""
        ordinal = self.current("synchronize").ordinal
        self.forbid_in_capture("synchronize")
        self.counts["synchronizations"] += 1
        mine = [each for each in self.objects.values()
                if isinstance(each, Stream) and each.ordinal == ordinal]
        # Streams that were destroyed still finish.
        mine += [each for each in self.schedule.busy.values() if each.ordinal == ordinal]
        for stream in mine:
            self.finish(stream)
        self.raise_faults()

    # -- events --

    @driver_call
    def create_event(self, timing: bool = False, blocking: bool = False) -> int:
        """An event of the current context."""
        return self.add(Event(timing, self.current("create_event").ordinal))

    @driver_call
    def destroy_event(self, event: int) -> None:
        """Give back an event."""
        self.remove(Event, event, "destroy_event")

    def event_of(self, handle: int, call: str) -> Event:
        """An event by its handle."""
        event: Event = self.find(Event, handle, call)
        return event

    @driver_call
    def record_event(self, event: int, stream: int) -> None:
        """Let an event stand for what the stream holds now."""
        which = self.event_of(event, "record_event")
        found = self.stream_of(stream, "record_event")
        if which.ordinal != found.ordinal:
            raise DriverError("record_event", "INVALID_HANDLE",
                              "the event and the stream are of different devices")
        self.counts["event_records"] += 1
        if found.capture is not None:
            self.capture_record(found, which)
            return
        self.schedule.arrive(found)
        which.marker = Marker(found, self.schedule.now)
        which.captured = None
        self.schedule.enqueue(which.marker)

    @driver_call
    def stream_wait_event(self, stream: int, event: int) -> None:
        """Let later work of a stream start only after an event."""
        found = self.stream_of(stream, "stream_wait_event")
        which = self.event_of(event, "stream_wait_event")
        if which.captured is not None or found.capture is not None:
            self.capture_wait(found, which)
            return
        marker = which.marker
        if marker is None:
            return
        if self.options.race:
            (join_unasked if self.marks.unasked else join)(found.clock, marker.clock)
        if not marker.done and marker.stream is not found:
            wait = Work(found, self.schedule.now)
            wait.needs = (marker,)
            self.schedule.enqueue(wait)

    @driver_call
    def query_event(self, event: int) -> bool:
        """Whether what an event stands for is done."""
        marker = self.recorded(event, "query_event")
        self.schedule.now += POLL_TIME
        self.schedule.run_due()
        if marker is not None and marker.done:
            self.schedule.host.learn(marker.clock)
            self.raise_faults()
        return marker is None or marker.done

    def recorded(self, event: int, call: str) -> Marker | None:
        """What an event stands for; raises DriverError where that is in a capture."""
        which = self.event_of(event, call)
        if which.captured is not None:
            raise DriverError(call, "CAPTURED_EVENT", "the event was recorded in a capture")
        return which.marker

    @driver_call
    def wait_event(self, event: int) -> None:
        """Let the host wait for an event."""
        marker = self.recorded(event, "wait_event")
        self.counts["synchronizations"] += 1
        if marker is not None:
            self.schedule.run_until(marker)
            self.schedule.host.learn(marker.clock)
        self.raise_faults()

    @driver_call
    def elapsed(self, start: int, end: int) -> float:
        """Milliseconds between two events."""
        both = [(self.event_of(each, "elapsed"), self.recorded(each, "elapsed"))
                for each in (start, end)]
        if not all(event.timing and marker is not None for event, marker in both):
            raise DriverError("elapsed", "INVALID_HANDLE",
                              "both events need timing and must have been recorded")
        first, last = (marker for _, marker in both if marker is not None)
        if not (first.done and last.done):
            raise DriverError("elapsed", "NOT_READY")
        return (last.end - first.end) * 1e-3

    # -- copies and fills --

    @driver_call
    def copy(self, target: int, source: int, nbytes: int, kind: str, stream: int) -> None:
        """Copy bytes in stream order; from or to pageable memory as CUDA does it."""
        found = self.stream_of(stream, "copy")
        if nbytes == 0:
            return
        pageable = self.check_copy(target, source, nbytes, kind, "copy")
        if pageable:
            self.forbid_captured(found, "copy")
        self.counts["copies"] += 1
        action = CopyAction(target, source, nbytes, kind, pageable=pageable)
        if pageable and kind == TO_DEVICE:
            action.data = ctypes.string_at(source, nbytes)
        work = self.submit(found, action, "copy")
        if pageable and kind == TO_HOST and isinstance(work, ActionWork):
            self.schedule.run_until(work)
            self.schedule.host.learn(work.ticket.clock)
            self.raise_faults()

    def check_copy(self, target: int, source: int, nbytes: int, kind: str, call: str) -> bool:
        """Whether a copy's host side is pageable; raises DriverError where it cannot be."""
        if kind not in (TO_DEVICE, TO_HOST, WITHIN) or nbytes < 0:
            raise DriverError(call, "INVALID_VALUE", f"{nbytes} bytes, {kind}")
        sides = [("target", target, TO_HOST), ("source", source, TO_DEVICE)]
        pageable = False
        for side, address, host in sides:
            found = self.engine.kind_of(self.world, address)
            if found == UNKNOWN and kind == host and address:
                pageable = True
            elif found == UNKNOWN or (found == DEVICE) == (kind == host):
                raise DriverError(call, "INVALID_VALUE",
                                  f"the {side} {address:#x} does not suit a copy {kind}")
            elif not self.engine.is_mapped(self.world, address, nbytes):
                raise DriverError(call, "INVALID_VALUE",
                                  f"{nbytes} bytes at {address:#x} reach past the {side}'s memory")
        return pageable

    @driver_call
    def fill(self, target: int, value: int, width: int, count: int, stream: int) -> None:
        """Write ``count`` values of ``width`` bytes in stream order."""
        found = self.stream_of(stream, "fill")
        if count == 0:
            return
        self.check_fill(target, width, count, "fill")
        self.counts["fills"] += 1
        self.submit(found, FillAction(target, value, width, count), "fill")

    def check_fill(self, target: int, width: int, count: int, call: str) -> None:
        """Raise DriverError where a fill cannot be."""
        if width not in (1, 2, 4) or count < 0 or target % max(width, 1):
            raise DriverError(call, "INVALID_VALUE", f"{count} values of {width} bytes")
        if not self.engine.is_mapped(self.world, target, width * count):
            raise DriverError(call, "INVALID_VALUE",
                              f"{width * count} bytes at {target:#x} are not there")

    @driver_call
    def matmul_stand_in(self, stream: int, call: Any, reads: Any = (), writes: Any = ()) -> None:
        """Run ``call()`` in stream order; it reads and writes ranges (address, bytes)."""
        found = self.stream_of(stream, "matmul_stand_in")
        reads = tuple(reads or getattr(call, "reads", ()))
        writes = tuple(writes or getattr(call, "writes", ()))
        self.submit(found, CallAction(call, reads, writes), "matmul_stand_in")

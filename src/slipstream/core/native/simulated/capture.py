"""Captures: what is submitted to streams becomes nodes of a graph."""

from __future__ import annotations

import threading
from typing import Any

from slipstream.core.native.driver import DriverError
from slipstream.core.native.simulated.calls import driver_call
from slipstream.core.native.simulated.graphs import Graph, Node
from slipstream.core.native.simulated.kernels import KernelCalls
from slipstream.core.native.simulated.schedule import Event, Stream
from slipstream.core.native.simulated.working import Action, CopyAction


class Capture:
    """A capture: ``tails`` has for each stream in it the nodes that its next node follows."""

    def __init__(self, origin: Stream) -> None:
        self.graph = Graph()
        self.origin = origin
        self.thread = threading.get_ident()
        self.tails: dict[Stream, tuple[int, ...]] = {origin: ()}
        self.lost = ""


class CaptureCalls(KernelCalls):
    """Begins, ends and feeds captures."""

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self.captures: dict[int, Capture] = {}

    def failure(self, name: str) -> Exception:
        """The error of a call that the options let fail; a capture that does not end well ends."""
        for capture in self.mine() if name == "end_capture" else ():
            self.close(capture)
        return super().failure(name)

    def mine(self) -> list[Capture]:
        """The captures of the calling thread."""
        return [capture for capture in self.captures.values()
                if capture.thread == threading.get_ident()]

    @driver_call
    def begin_capture(self, stream: int) -> None:
        """Gather what is submitted to a stream into a graph."""
        found = self.stream_of(stream, "begin_capture")
        if found.capture is not None:
            raise DriverError("begin_capture", "ILLEGAL_STATE", "the stream captures already")
        found.capture = Capture(found)
        self.captures[id(found.capture)] = found.capture
        self.counts["captures"] += 1

    @driver_call
    def end_capture(self, stream: int) -> int:
        """The graph that was gathered."""
        found = self.stream_of(stream, "end_capture")
        capture = found.capture
        if capture is None:
            raise DriverError("end_capture", "ILLEGAL_STATE", "the stream captures nothing")
        if capture.origin is not found:
            self.lose(capture, "it was ended on another stream than it began on")
            raise DriverError("end_capture", "STREAM_CAPTURE_UNMATCHED", capture.lost)
        self.close(capture)
        if capture.lost:
            raise DriverError("end_capture", "STREAM_CAPTURE_INVALIDATED", capture.lost)
        tails = capture.tails.pop(found)
        if len(capture.graph.ancestors(set(tails))) < len(capture.graph.nodes):
            raise DriverError("end_capture", "STREAM_CAPTURE_UNJOINED",
                              "work of another stream is not waited for")
        return self.add(capture.graph)

    def close(self, capture: Capture) -> None:
        """Let the streams of a capture run their work again."""
        del self.captures[id(capture)]
        for stream in capture.tails:
            stream.capture = None

    def lose(self, capture: Capture, reason: str) -> None:
        """A capture cannot be ended well any longer."""
        capture.lost = capture.lost or reason

    def add_captured(self, stream: Stream, call: str, action: Action | None = None,
                     child: Graph | None = None) -> None:
        """Add a node after a stream's last ones."""
        capture: Capture = stream.capture
        if capture.lost:
            raise DriverError(call, "STREAM_CAPTURE_INVALIDATED", capture.lost)
        self.next_handle += 16
        handle = self.next_handle
        capture.graph.nodes[handle] = Node(handle, capture.tails[stream], action, child)
        capture.tails[stream] = (handle,)

    def capture_action(self, stream: Stream, action: Action, call: str) -> None:
        """Add work to the graph that a stream's capture makes."""
        if isinstance(action, CopyAction):
            self.counts["copies"] -= 1
        self.add_captured(stream, call, action)

    def capture_record(self, stream: Stream, event: Event) -> None:
        """Let an event stand for a place in a capture."""
        event.captured = (stream.capture, stream.capture.tails[stream])
        event.marker = None

    def capture_wait(self, stream: Stream, event: Event) -> None:
        """Let a stream's capture go on after an event's place in it; the stream joins it."""
        capture, tails = event.captured or (None, ())
        if capture is None or id(capture) not in self.captures:
            if stream.capture is None:
                return
            if event.marker is None:
                return
            self.lose(stream.capture, "it waited for work outside of it")
            raise DriverError("stream_wait_event", "STREAM_CAPTURE_ISOLATION",
                              "the event was recorded outside of the capture")
        if stream.capture is None:
            stream.capture = capture
            capture.tails[stream] = ()
        elif stream.capture is not capture:
            self.lose(capture, "two captures met")
            self.lose(stream.capture, "two captures met")
            raise DriverError("stream_wait_event", "STREAM_CAPTURE_MERGE", "two captures met")
        capture.tails[stream] = tuple(dict.fromkeys((*capture.tails[stream], *tails)))

    def forbid_captured(self, stream: Stream, call: str) -> None:
        """Raise DriverError where a stream captures: the capture is lost."""
        if stream.capture is not None:
            self.lose(stream.capture, f"{call} is not allowed in a capture")
            raise DriverError(call, "STREAM_CAPTURE_UNSUPPORTED", "the stream captures")

    def forbid_in_capture(self, call: str) -> None:
        """Raise DriverError where the calling thread captures: the capture is lost."""
        mine = self.mine()
        for capture in mine:
            self.lose(capture, f"{call} is not allowed in a capture")
        if mine:
            raise DriverError(call, "STREAM_CAPTURE_UNSUPPORTED", "the thread captures")

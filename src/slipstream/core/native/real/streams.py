"""Streams and events."""

from __future__ import annotations

from cuda.bindings import driver as cu

from slipstream.core.native.driver import DriverError
from slipstream.core.native.real.checked import Checked, failure

NON_BLOCKING = 1
BLOCKING_SYNC, DISABLE_TIMING = 1, 2
NOT_READY = int(cu.CUresult.CUDA_ERROR_NOT_READY)


class StreamCalls(Checked):
    """Streams and events of the current context."""

    def priorities(self) -> tuple[int, int]:
        """(least, greatest) priority of streams."""
        least, greatest = self.call("cuCtxGetStreamPriorityRange")
        return int(least), int(greatest)

    def create_stream(self, priority: int = 0) -> int:
        """A stream that does not wait for the legacy default stream."""
        return int(self.call("cuStreamCreateWithPriority", NON_BLOCKING, priority))

    def destroy_stream(self, stream: int) -> None:
        """Give a stream back."""
        self.call("cuStreamDestroy", stream)

    def stream_number(self, stream: int) -> int:
        """What tells a stream from all others of the process, whatever its handle."""
        return int(self.call("cuStreamGetId", stream))

    def query_stream(self, stream: int) -> bool:
        """Whether a stream's work is done."""
        return self._is_done("cuStreamQuery", stream)

    def wait_stream(self, stream: int) -> None:
        """Let the host wait for a stream."""
        self.counts["synchronizations"] += 1
        self.call("cuStreamSynchronize", stream)

    def create_event(self, timing: bool = False, blocking: bool = False) -> int:
        """An event."""
        flags = (0 if timing else DISABLE_TIMING) | (BLOCKING_SYNC if blocking else 0)
        return int(self.call("cuEventCreate", flags))

    def destroy_event(self, event: int) -> None:
        """Give an event back."""
        self.call("cuEventDestroy", event)

    def record_event(self, event: int, stream: int) -> None:
        """Let an event stand for what the stream holds now."""
        self.counts["event_records"] += 1
        self.call("cuEventRecord", event, stream)

    def stream_wait_event(self, stream: int, event: int) -> None:
        """Let later work of a stream start only after an event."""
        self.call("cuStreamWaitEvent", stream, event, 0)

    def query_event(self, event: int) -> bool:
        """Whether what an event stands for is done."""
        return self._is_done("cuEventQuery", event)

    def wait_event(self, event: int) -> None:
        """Let the host wait for an event."""
        self.counts["synchronizations"] += 1
        self.call("cuEventSynchronize", event)

    def elapsed(self, start: int, end: int) -> float:
        """Milliseconds between two events."""
        return float(self.call("cuEventElapsedTime", start, end))

    def _is_done(self, name: str, handle: int) -> bool:
        status, *_ = getattr(cu, name)(handle)
        if status and int(status) != NOT_READY:
            raise failure(name, status)
        return not status


__all__ = ["DriverError", "StreamCalls"]

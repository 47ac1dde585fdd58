"""Streams and events, as PyTorch has them."""

from __future__ import annotations

import threading
from typing import Any

from slipstream.core.api.cuda.devices import backend, index_of
from slipstream.core.launch.door import backends
from slipstream.core.launch.waiting import host_waits
from slipstream.core.native.driver import DriverError
from slipstream.core.vocab.devices import Device, current
from slipstream.core.vocab.modes import modes


class CurrentStreams:
    """A thread's current stream on each card where it is not the default one."""

    def __init__(self, streams: dict[int, Stream]) -> None:
        self.streams = streams

    def queue_on(self, backend: Any) -> Any:
        """The queue of the current stream on a card."""
        found = self.streams.get(backend.ordinal)
        return backend.default if found is None else found.queue


def come_after(streams: list[Any]) -> None:
    """Let the thread's current stream on each card come after others, where it does not yet.

    ``streams``: `CurrentStreams`, or None for the default ones.  Backward asks for it: what the
    forward saved was written on the streams of the forward.
    """
    cards: list[Any] = [each for device, each in tuple(backends.items()) if device.type == "cuda"]
    for card in cards:
        queue = card.queue()
        others = [card.default if each is None else each.queue_on(card) for each in streams]
        for other in {each.number: each for each in others}.values():
            # What one capture holds and another stream does not is for the user to order.  What
            # others launch on a handle of theirs is not counted.
            if other is not queue and other.capture is queue.capture and (
                    other.capture is not None or not other.deferred
                    or card.order.covered(queue.number, other.number) < other.sequence):
                card.edges.follow(queue, other)


class Stream:
    """A queue of work of one card, in order; work of different streams may overlap.

    ``priority``: smaller numbers go first.  Once a card has 32, a new one takes the place of one
    that was dropped.  Raises RuntimeError where there is no card.
    """

    def __new__(cls, device: Any = None, priority: int = 0, **more: Any) -> Any:
        """A new stream, or None's place where ``device`` is not CUDA."""
        made = super().__new__(cls)
        made.backend = backend(device)
        made.device = Device("cuda", made.backend.ordinal)
        made.priority = priority
        made.queue = made.backend.streams.make(priority)
        made.owned = True
        return made

    backend: Any
    device: Device
    priority: int
    queue: Any
    owned: bool = False

    def __del__(self) -> None:
        if self.owned:
            self.backend.streams.drop(self.queue, self.priority)

    def __copy__(self) -> Stream:
        return self

    def __deepcopy__(self, memo: Any) -> Stream:
        return self

    def __reduce__(self) -> Any:
        raise TypeError(f"{self!r} cannot be pickled: a stream belongs to its process")

    @property
    def device_index(self) -> int:
        """The card's index."""
        return self.device.index or 0

    @property
    def cuda_stream(self) -> int:
        """The driver's handle.  Given away, the stream is never deferred again."""
        self.queue.send("handed-out stream")
        self.queue.deferred = False
        handle: int = self.queue.stream
        return handle

    @property
    def stream_id(self) -> int:
        """The stream's number on its card."""
        number: int = self.queue.number
        return number

    def query(self) -> bool:
        """Whether all work submitted so far is done."""
        done: bool = self.backend.edges.queue_done(self.queue)
        return done

    def synchronize(self) -> None:
        """Wait until all work submitted so far is done."""
        host_waits(self.device, "Stream.synchronize", self.backend.edges.wait_queue, self.queue)

    def record_event(self, event: Event | None = None) -> Event:
        """An event (a new one where none is given) that stands for the work so far."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        """Let later work here start only after an event."""
        event.wait(self)

    def wait_stream(self, stream: Stream) -> None:
        """Let later work here start only after all work of another stream so far."""
        self.wait_event(stream.record_event())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other.queue is self.queue

    def __hash__(self) -> int:
        return hash((self.device_index, self.stream_id))

    def __repr__(self) -> str:
        return f"<slipstream.cuda.Stream device={self.device} number={self.stream_id}>"

    def __enter__(self) -> Stream:
        _entered.scopes.append(stream_scope := stream(self))
        stream_scope.__enter__()
        return self

    def __exit__(self, *failure: Any) -> None:
        _entered.scopes.pop().__exit__(*failure)


class Entered(threading.local):
    """The scopes of streams that a thread has entered, the innermost last."""

    def __init__(self) -> None:
        self.scopes: list[stream] = []


_entered = Entered()


class ExternalStream(Stream):
    """A stream that other code made, by its handle; its launches are never deferred."""

    def __new__(cls, stream_ptr: int, device: Any = None, **more: Any) -> Any:
        """Wrap a handle; the stream is never destroyed by us."""
        made = object.__new__(cls)
        made.backend = backend(device)
        made.device = Device("cuda", made.backend.ordinal)
        made.priority = 0
        made.queue = made.backend.streams.of_handle(stream_ptr)
        made.queue.send("handed-out stream")
        made.queue.deferred = False
        made.owned = False
        return made


def get_stream_from_external(data_ptr: int, device: Any = None) -> Stream:
    """A stream that other code made, by its handle."""
    made: Stream = ExternalStream(data_ptr, device)
    return made


def over(queue: Any, device: Device) -> Stream:
    """The stream object of a queue."""
    made = object.__new__(Stream)
    made.backend = backend(device)
    made.device = device
    made.priority = 0
    made.queue = queue
    made.owned = False
    return made


def current_stream(device: Any = None) -> Stream:
    """The thread's current stream on a card."""
    found = backend(device)
    state = modes.current().stream
    if isinstance(state, CurrentStreams) and found.ordinal in state.streams:
        return state.streams[found.ordinal]
    return default_stream(found.ordinal)


def default_stream(device: Any = None) -> Stream:
    """A card's default stream."""
    found = backend(device)
    return over(found.default, Device("cuda", found.ordinal))


def check_stream(stream: Any) -> None:
    """Raise TypeError for what is no stream."""
    if not isinstance(stream, Stream):
        raise TypeError(f"expected a cuda.Stream, not {type(stream).__name__}")


def set_stream(stream: Stream | None) -> None:
    """Make a stream the thread's current one on its card."""
    if stream is None:
        return
    check_stream(stream)
    state = modes.current()
    known = dict(state.stream.streams) if isinstance(state.stream, CurrentStreams) else {}
    if stream.queue is stream.backend.default:
        known.pop(stream.device_index, None)
    else:
        known[stream.device_index] = stream
    state.stream = CurrentStreams(known) if known else None


class stream:  # noqa: N801
    """A scope in which a stream, and its card, are the thread's current ones."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream
        self.before: Any = None
        self.index = -1

    def __enter__(self) -> None:
        if self.stream is None:
            return
        check_stream(self.stream)
        self.index = current.index
        self.before = modes.current().stream
        current.index = self.stream.device_index
        set_stream(self.stream)

    def __exit__(self, *failure: Any) -> None:
        if self.stream is None:
            return
        modes.current().stream = self.before
        current.index = self.index


StreamContext = stream


class Event:
    """A mark in a stream's work.

    ``enable_timing``: `elapsed_time` can be asked; ``blocking``: the host sleeps while it waits.
    """

    def __init__(self, enable_timing: bool = False, blocking: bool = False,
                 interprocess: bool = False, external: bool = False) -> None:
        self.enable_timing = enable_timing
        self.blocking = blocking
        self.handle = 0
        self.backend: Any = None
        self.place: tuple[int, int] | None = None

    @property
    def device(self) -> Device | None:
        """The card, once the event was recorded."""
        return None if self.backend is None else Device("cuda", self.backend.ordinal)

    @property
    def cuda_event(self) -> int:
        """The driver's handle; 0 before the first record."""
        return self.handle

    def record(self, stream: Stream | None = None) -> None:
        """Let the event stand for what a stream (the current one) holds now."""
        stream = current_stream() if stream is None else stream
        if self.backend is not None and self.backend is not stream.backend:
            raise RuntimeError(f"event of {self.device} recorded on a stream of {stream.device}")
        self.backend = stream.backend
        self.handle, self.place = self.backend.edges.record_event(
            stream.queue, self.handle, self.enable_timing, self.blocking)

    def wait(self, stream: Stream | None = None) -> None:
        """Let later work of a stream (the current one) start only after the event."""
        if self.backend is None:
            return
        stream = current_stream() if stream is None else stream
        stream.backend.edges.order_after(stream.queue, self.handle, self.place,
                                         stream.backend is self.backend)

    def query(self) -> bool:
        """Whether the work before the event is done (True where it was never recorded)."""
        if self.backend is None:
            return True
        done: bool = self.backend.edges.event_done(self.handle, self.place)
        return done

    def synchronize(self) -> None:
        """Wait until the work before the event is done."""
        if self.backend is not None:
            host_waits(self.backend.device, "Event.synchronize", self.backend.edges.wait_event,
                       self.handle, self.place)

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds between this event and a later one.

        Raises ValueError without timing or a record, RuntimeError where one is not done.
        """
        if not (self.enable_timing and end_event.enable_timing):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self.backend is None or end_event.backend is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        self.backend.enter()
        try:
            milliseconds: float = self.backend.driver.elapsed(self.handle, end_event.handle)
        except DriverError as failure:
            if failure.code != "NOT_READY":
                raise
            raise RuntimeError(
                "Both events must be completed before calculating elapsed time.\n  mend: "
                "end_event.synchronize(), or slipstream.cuda.synchronize(), before it") from None
        return milliseconds

    def __del__(self) -> None:
        # An event whose making failed has no handle.
        if getattr(self, "handle", 0) and self.backend is not None:
            self.backend.edges.forget_event(self.handle)

    def __repr__(self) -> str:
        return "<slipstream.cuda.Event>" if self.handle else "<slipstream.cuda.Event uninitialized>"


__all__ = ["CurrentStreams", "Event", "ExternalStream", "Stream", "StreamContext",
           "come_after", "current_stream", "default_stream",
           "get_stream_from_external", "index_of", "over", "set_stream", "stream"]

"""What every part of the simulated driver shares: calls that are counted and can be made to fail,
handles, and the engine."""

from __future__ import annotations

import _thread
import functools
import random
import signal
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

from slipstream.core.native.driver import CompileError, Driver, DriverError
from slipstream.core.native.simulated.clock import HostClock
from slipstream.core.native.simulated.engine import Engine, engine_for
from slipstream.core.native.simulated.schedule import Schedule
from slipstream.core.native.simulated.toolchain import Toolchain
from slipstream.core.native.simulated.working import Desk, first_moment
from slipstream.core.vocab.settings import SimulatedCard, settings

F = TypeVar("F", bound=Callable[..., Any])

# What a real driver says where a call fails through no fault of the caller.
FAILURES = {
    "allocate": "OUT_OF_MEMORY", "allocate_host": "OUT_OF_MEMORY", "reserve": "OUT_OF_MEMORY",
    "create_physical": "OUT_OF_MEMORY", "map": "OUT_OF_MEMORY", "context": "OUT_OF_MEMORY",
    "create_stream": "OUT_OF_MEMORY", "create_event": "OUT_OF_MEMORY",
    "load_module": "OUT_OF_MEMORY", "create_graph": "OUT_OF_MEMORY",
    "instantiate": "OUT_OF_MEMORY", "launch": "LAUNCH_OUT_OF_RESOURCES",
    "launch_graph": "LAUNCH_OUT_OF_RESOURCES", "wait_stream": "LAUNCH_FAILED",
    "wait_event": "LAUNCH_FAILED", "synchronize": "LAUNCH_FAILED", "query_stream": "LAUNCH_FAILED",
    "query_event": "LAUNCH_FAILED", "end_capture": "STREAM_CAPTURE_INVALIDATED",
    "set_kernel_node": "GRAPH_EXEC_UPDATE_FAILURE", "set_copy_node": "GRAPH_EXEC_UPDATE_FAILURE",
    "set_fill_node": "GRAPH_EXEC_UPDATE_FAILURE", "set_child_node": "GRAPH_EXEC_UPDATE_FAILURE",
}
# The host's time in a call, in microseconds; in a call that submits work; between two polls.
CALL_TIME, SUBMIT_TIME, POLL_TIME = 0.2, 2.0, 2.0
# Seconds between two looks of a watchdog, and looks in one stretch of idle time.
LOOK_TIME, MOST_LOOKS = 1e-3, 8
FIRST_HANDLE = 0x51000
# Frames that a call may need, and those that there have to be before it.
ROOM, MARGIN = 200, 5


def find_room(frames: int) -> None:
    """Raise RecursionError where there is no room for so many frames."""
    if frames:
        find_room(frames - 1)


# Ctrl-C, and the alarm by which test runners end what takes too long.
SIGNALS = (signal.SIGINT, *((signal.SIGALRM,) if hasattr(signal, "SIGALRM") else ()))
Handlers = list[tuple[int, Any]]


def restore(handlers: Handlers) -> None:
    """Give signals back their handlers, all of them though one already raises."""
    if handlers:
        try:
            signal.signal(*handlers[0])
        finally:
            restore(handlers[1:])


def deliver(noted: list[int]) -> None:
    """Let signals that were noted arrive, all of them though the handler of one raises."""
    if noted:
        try:
            _thread.interrupt_main(signal.Signals(noted[0]))
        finally:
            deliver(noted[1:])


class Interrupts:
    """Keeps signals out of a call of the driver: a real one is no Python, and nothing stops it.

    The program's handlers are called when the call has been made.
    """

    def __init__(self) -> None:
        self.thread = threading.main_thread().ident
        self.depth = 0
        self.noted: list[int] = []
        self.handlers: Handlers = []

    def hold(self) -> None:
        """Note signals only, from here on.  Those of the main thread: others get none."""
        if threading.get_ident() != self.thread:
            return
        if not self.depth:
            handlers = [(each, handler) for each in SIGNALS
                        if callable(handler := signal.getsignal(each))]
            if not handlers:
                return
            try:
                for number, _ in handlers:
                    signal.signal(number, self.note)
            except BaseException:
                restore(handlers)
                raise
            # From the moment that the handlers are others, all this runs to its end.
            self.handlers = handlers
        self.depth += 1

    def note(self, number: int, frame: Any) -> None:
        """The handler in the meantime."""
        self.noted.append(number)

    def let(self) -> None:
        """Hand over what was noted."""
        if threading.get_ident() != self.thread or not self.depth:
            return
        self.depth -= 1
        if self.depth:
            return
        noted, self.noted = self.noted, []
        try:
            restore(self.handlers)
        finally:
            deliver(noted)


class DriverLock:
    """Held while the driver works: one piece of work at a time, whichever driver asks.

    A driver has a stack of its own for what it does; ours would stop in the middle of it where a
    program is near the limit of recursion, which is therefore farther away in the meantime.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.interrupts = Interrupts()
        self.depth = 0
        self.limit = 0

    def __enter__(self) -> None:
        # Python takes the old limit again only from some frames below it.
        find_room(MARGIN)
        self.interrupts.hold()
        self.lock.acquire()
        if not self.depth:
            self.limit = sys.getrecursionlimit()
            sys.setrecursionlimit(self.limit + ROOM)
        self.depth += 1

    def __exit__(self, *failure: object) -> None:
        self.depth -= 1
        if not self.depth:
            sys.setrecursionlimit(self.limit)
        self.lock.release()
        self.interrupts.let()


LOCK = DriverLock()


def driver_call(function: F) -> F:
    """Make a method a call of the driver: locked, counted, and failing where that is asked for."""
    name = function.__name__

    @functools.wraps(function)
    def call(self: Base, *arguments: Any, **named: Any) -> Any:
        with LOCK:
            self.calls[name] += 1
            self.schedule.now += CALL_TIME
            if name in self.failing and self.calls[name] == self.failing[name]:
                raise self.failure(name)
            return function(self, *arguments, **named)

    return call  # type: ignore[return-value]


class Base(Driver):
    """The state of a simulated driver."""

    name = "simulated"
    told = True

    def __init__(self, options: SimulatedCard | None = None) -> None:
        self.options = options or settings.simulated
        self.has_library = self.options.library
        self.toolchain = Toolchain(self.options.compiler)
        self.engine: Engine = engine_for(self.toolchain)
        self.calls: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        self.failing = dict(self.options.fail)
        self.looks: list[Callable[[], Any]] = []
        self.unsent: list[Callable[[], list[int]]] = []
        self.idle = 0.0
        self.objects: dict[int, Any] = {}
        self.next_handle = FIRST_HANDLE
        self.thread = threading.local()
        self.world: int = self.engine.world_new(
            self.options.poison, self.options.race, self.options.peer)
        weakref.finalize(self, self.engine.world_free, self.world).atexit = False
        self.schedule = Schedule(random.Random(self.options.seed), self.options)
        self.desk = Desk(self.engine, self.world, self.schedule, self.options)

    def failure(self, name: str) -> Exception:
        """The error of a call that the options let fail."""
        text = f"call {self.calls[name]} of its kind was made to fail by the option 'fail'"
        if name == "compile":
            return CompileError(name, text)
        return DriverError(name, FAILURES.get(name, "UNKNOWN"), text)

    def fail_next(self, name: str, number: int = 1) -> None:
        """Let the ``number``-th call of a kind from now fail, once."""
        self.failing[name] = self.calls[name] + number

    def statistics(self) -> dict[str, int]:
        """Counts since start: those of every driver, and how often each method was called."""
        names = ("kernel_launches", "graph_launches", "graph_kernel_nodes", "node_updates",
                 "captures", "copies", "fills", "allocations", "synchronizations",
                 "event_records", "compilations", "library_questions")
        return {**dict.fromkeys(names, 0), **self.counts, **self.calls}

    def hold_interrupts(self) -> None:
        """Keep Ctrl-C out of several calls."""
        LOCK.interrupts.hold()

    def let_interrupts(self) -> None:
        """Hand over what was noted."""
        LOCK.interrupts.let()

    def virtual_time(self) -> float:
        """The host's time, in seconds of the simulation."""
        return self.schedule.now * 1e-6

    def advance(self, seconds: float) -> None:
        """Let the host be idle for a while: work whose time has come runs."""
        with LOCK:
            self.idle_for(seconds)
            self.schedule.now += seconds * 1e6
            self.schedule.run_due()

    def tell_work(self, listener: Any) -> bool:
        """Call a function for each piece of work that ran."""
        self.desk.listener = listener
        return True

    def host_clock(self) -> HostClock:
        """The host's virtual clock."""
        return HostClock(self.schedule)

    def on_idle(self, look: Callable[[], Any], unsent: Callable[[], list[int]]) -> None:
        """Call ``look()`` for each millisecond in which the host is idle."""
        self.looks.append(look)
        self.unsent.append(unsent)

    def idle_for(self, seconds: float) -> None:
        """Let watchdogs look; what they did not see to in a few looks they never will."""
        self.idle += seconds
        for _ in range(min(int(self.idle / LOOK_TIME), MOST_LOOKS)):
            for look in self.looks:
                look()
        self.idle %= LOOK_TIME

    # -- handles --

    def add(self, thing: Any) -> int:
        """A handle for a thing."""
        self.next_handle += 16
        self.objects[self.next_handle] = thing
        thing.handle = self.next_handle
        return self.next_handle

    def find(self, kind: type, handle: int, call: str) -> Any:
        """What a handle stands for; raises DriverError where that is nothing of this kind."""
        thing = self.objects.get(handle)
        if not isinstance(thing, kind):
            raise DriverError(call, "INVALID_HANDLE", f"{handle:#x} is no {kind.__name__.lower()}")
        return thing

    def remove(self, kind: type, handle: int, call: str) -> Any:
        """Take a handle away; what it stood for."""
        thing = self.find(kind, handle, call)
        del self.objects[handle]
        return thing

    # -- faults of work that ran --

    def raise_faults(self) -> None:
        """Raise the first fault of the work that has run, or a stand-in's own error."""
        faults, self.desk.faults = self.desk.faults, []
        failure, self.desk.failure = self.desk.failure, None
        if failure is not None:
            raise failure
        if faults:
            first = faults[0]
            first.others = len(faults) - 1
            raise first

    def moments_needed(self) -> int:
        """The oldest moment that work still to run, or still to be launched, knows."""
        oldest = self.schedule.oldest_moment()
        waiting = [first_moment(moment) for unsent in self.unsent for moment in unsent()]
        return min([self.moment if oldest is None else oldest, *waiting])

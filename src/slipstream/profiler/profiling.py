"""`profile`: a scope whose ops, launches, waits, copies and kernels are recorded."""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable, Iterable
from enum import Enum
from pathlib import Path
from typing import Any

from slipstream.core.api.profiling import RECORDS, Session, span
from slipstream.core.api.recording import Recording
from slipstream.profiler import chrome, html
from slipstream.profiler.averages import EventList, function_events
from slipstream.profiler.diagnosis import diagnose
from slipstream.profiler.page import page


class ProfilerActivity(Enum):
    """What is recorded: the host's ops, the cards' work."""

    CPU = 0
    CUDA = 1


class ProfilerAction(Enum):
    """What a schedule wants of a step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


Schedule = Callable[[int], ProfilerAction]
RECORDING = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)


def schedule(*, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0,
             skip_first_wait: int = 0) -> Schedule:
    """A cycle of ``wait``, ``warmup`` and ``active`` steps, after ``skip_first``; ``repeat``
    times, or for ever where that is 0.  ``skip_first_wait``: the first cycle does not wait.

    Raises ValueError where a number is negative or nothing would be recorded.
    """
    if min(wait, warmup, repeat, skip_first) < 0 or active < 1:
        raise ValueError("schedule(): wait, warmup, repeat and skip_first must not be negative, "
                         f"and active must be at least 1; got wait={wait}, warmup={warmup}, "
                         f"active={active}, repeat={repeat}, skip_first={skip_first}")

    def action(step: int) -> ProfilerAction:
        at = step - skip_first
        if at < 0:
            return ProfilerAction.NONE
        if skip_first_wait:
            at += wait
        cycle, place = divmod(at, wait + warmup + active)
        if (repeat and cycle >= repeat) or place < wait:
            return ProfilerAction.NONE
        if place < wait + warmup:
            return ProfilerAction.WARMUP
        last = place == wait + warmup + active - 1
        return ProfilerAction.RECORD_AND_SAVE if last else ProfilerAction.RECORD

    return action


def always(step: int) -> ProfilerAction:
    """Record from the beginning to the end."""
    return ProfilerAction.RECORD


def supported_activities() -> set[ProfilerActivity]:
    """All of them; where there is no card, nothing is recorded of it."""
    return set(ProfilerActivity)


class profile:  # noqa: N801
    """Record what a block of code does.

    A context manager, or `start`, `step` and `stop`.  ``activities``: CPU, CUDA, both by default;
    ``schedule``: which steps are recorded; ``on_trace_ready``: called with this object where a
    recording is complete; ``record_shapes``, ``profile_memory``: what tables show; ``with_stack``:
    keep whole stacks, not lines alone; ``records``: how many records the ring holds: older ones
    are overwritten, and counted; ``every_kernel``: time each kernel by itself, where otherwise most
    take the mean of some: dearer for the host.  Only one profile can be on.

    The attribute ``gives_way``, set before the start, is called where another profile begins: this
    one is then over without a recording, where otherwise the other could not begin.
    """

    def __init__(self, *, activities: Iterable[ProfilerActivity] | None = None,
                 schedule: Schedule | None = None,
                 on_trace_ready: Callable[[profile], Any] | None = None,
                 record_shapes: bool = False, profile_memory: bool = False,
                 with_stack: bool = False, with_flops: bool = False, with_modules: bool = False,
                 experimental_config: Any = None, execution_trace_observer: Any = None,
                 acc_events: bool = False, use_cuda: bool | None = None,
                 records: int = RECORDS, every_kernel: bool = False) -> None:
        wanted = set(ProfilerActivity if activities is None else activities)
        if use_cuda is not None:
            wanted = wanted - {ProfilerActivity.CUDA} | (
                {ProfilerActivity.CUDA} if use_cuda else set())
        if not wanted or not wanted <= supported_activities():
            raise ValueError(f"profile(): activities must be some of ProfilerActivity, not "
                             f"{activities!r}")
        self.activities = wanted
        self.schedule = schedule or always
        self.on_trace_ready = on_trace_ready
        self.record_shapes = record_shapes
        self.profile_memory = profile_memory
        self.with_stack = with_stack
        self.records = records
        self.every_kernel = every_kernel
        self.step_num = 0
        self.current_action = self.schedule(0)
        self.metadata: dict[str, Any] = {}
        self.session: Session | None = None
        self.recording: Recording | None = None
        self.stepped = 0
        self.gives_way: Callable[[], None] | None = None

    # -- beginning and end --

    def start(self) -> None:
        """Begin.  Raises RuntimeError where this or another profile is on."""
        if self.session is not None:
            raise RuntimeError("this profile is already on: stop() it first")
        if self.current_action in RECORDING:
            self._open()

    def stop(self) -> None:
        """End; a recording that is under way is complete.

        Raises what the last wait for the devices raised, after the recording was kept.
        """
        failure = self._complete()
        if failure is not None:
            raise failure

    def step(self) -> None:
        """The next step begins."""
        before = self.current_action
        if self.session is not None:
            self.stepped = self.session.step(self.step_num, self.stepped)
        self.step_num += 1
        self.current_action = self.schedule(self.step_num)
        failure = None
        if before is ProfilerAction.RECORD_AND_SAVE:
            failure = self._complete()
        if failure is not None:
            raise failure
        if self.session is None and self.current_action in RECORDING:
            self._open()

    def _open(self) -> None:
        session = Session(
            self.records, cuda=ProfilerActivity.CUDA in self.activities, stacks=self.with_stack,
            memory=self.profile_memory, every_kernel=self.every_kernel)
        if self.gives_way is not None:
            session.gives_way = self._given_way
        session.start()
        self.session = session
        self.stepped = session.begun

    def _given_way(self) -> None:
        """Another profile begins: this one is over, and has recorded nothing."""
        self.session = None
        if self.gives_way is not None:
            self.gives_way()

    def _complete(self) -> Exception | None:
        """Keep the recording that is under way, and tell of it; what its last wait raised."""
        session, self.session = self.session, None
        if session is None:
            return None
        self.recording = session.stop()
        if self.on_trace_ready is not None:
            self.on_trace_ready(self)
        return session.failure

    def __del__(self) -> None:
        # Nobody can stop it any more.
        session = getattr(self, "session", None)
        if session is not None:
            session.abandon()

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(self, *failure: object) -> None:
        error = self._complete()
        # The block's own error is the first that there was.
        if error is not None and failure[:1] in ((), (None,)):
            raise error

    # -- what was recorded --

    def recorded(self) -> Recording:
        """The last recording; raises RuntimeError where there is none yet."""
        if self.recording is None:
            raise RuntimeError("nothing was recorded: the profile is still on, or its schedule "
                               "recorded no step")
        return self.recording

    def events(self) -> EventList:
        """Every event, in the order of its start."""
        return function_events(self.recorded(), memory=self.profile_memory,
                               shapes=self.record_shapes)

    def key_averages(self, group_by_input_shape: bool = False, group_by_stack_n: int = 0,
                     group_by_overload_name: bool = False) -> EventList:
        """Averages by name; by shapes and by the innermost ``n`` frames too where asked for."""
        return self.events().key_averages(group_by_input_shape, group_by_stack_n)

    def export_chrome_trace(self, path: Any, most: int = chrome.MOST_EVENTS) -> None:
        """Write the trace that Chrome and Perfetto read; it holds at most ``most`` events, the
        longest, and says what it leaves out."""
        chrome.write(self.recorded(), path, most, self.metadata)

    def export_html(self, path: Any, most: int = html.MOST_EVENTS) -> None:
        """Write one page: verdict, timeline, flame graph, memory, kernels; needs no network.

        At most ``most`` events are shown one by one; shorter ones are joined, and the page says so.
        """
        html.write(self.recorded(), path, most)

    def export_stacks(self, path: Any, metric: str = "self_cpu_time_total") -> None:
        """Write stacks with their µs; needs ``with_stack=True`` for more than lines."""
        self.events().export_stacks(path, metric)

    def report(self) -> str:
        """The page of text: where the time went, and what the program is bound by."""
        return page(self.recorded())

    def verdict(self) -> str:
        """One sentence: what the program is bound by, and the mend."""
        return diagnose(self.recorded()).verdict

    def add_metadata(self, key: str, value: str) -> None:
        """Put a text into the trace."""
        self.metadata[key] = value

    def add_metadata_json(self, key: str, value: str) -> None:
        """Put JSON, given as text, into the trace."""
        self.metadata[key] = json.loads(value)


class record_function(span):  # noqa: N801
    """A named scope in the profile; also a decorator."""

    def __init__(self, name: str, args: str | None = None) -> None:
        super().__init__(name)

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Decorate a function: its calls are scopes of this name."""

        @functools.wraps(function)
        def named(*args: Any, **kwargs: Any) -> Any:
            with record_function(self.name):
                return function(*args, **kwargs)

        return named


def tensorboard_trace_handler(dir_name: str, worker_name: str | None = None,
                              use_gzip: bool = False) -> Callable[[profile], None]:
    """A handler for ``on_trace_ready`` that writes each trace into a folder."""
    def handle(found: profile) -> None:
        folder = Path(dir_name)
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{worker_name or 'worker'}.{time.time_ns()}.pt.trace.json"
        found.export_chrome_trace(folder / (name + (".gz" if use_gzip else "")))

    return handle


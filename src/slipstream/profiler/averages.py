"""Events and their averages in PyTorch's shape: `EventList`, `FunctionEvent`, `key_averages`."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from slipstream.core.api.recording import Event, Recording
from slipstream.profiler import chrome
from slipstream.profiler.tables import COLUMNS, SORTS, render

HOST_KINDS = ("op", "view", "span", "data", "step")


class Interval:
    """A time range in µs."""

    def __init__(self, start: float, end: float) -> None:
        self.start = start
        self.end = end

    def elapsed_us(self) -> float:
        """Its length."""
        return self.end - self.start


class FunctionEvent:
    """One call on the host, or one kernel or copy (``device_type`` CUDA).  Times in µs.

    ``device_time_total``: the time of the kernels that it launched, and that its children did.
    """

    def __init__(self, event: Event, recording: Recording) -> None:
        facts = recording.plans.get(event.plan)
        self.name = event.name
        self.key = "ProfilerStep*" if event.kind == "step" else event.name
        self.event = event
        self.count = 1
        self.thread = event.thread
        self.device_type = "CUDA" if event.device >= 0 else "CPU"
        self.device_index = max(event.device, 0)
        self.time_range = Interval((event.start - recording.start) / 1000,
                                   (event.end - recording.start) / 1000)
        self.input_shapes = [list(shape) for shape in facts.shapes] if facts is not None else []
        self.stack = [f"{file}({line}): {function}" for file, line, function in stack_of(event)]
        self.cpu_parent: FunctionEvent | None = None
        self.cpu_children: list[FunctionEvent] = []
        on_host = event.device < 0
        self.cpu_time_total = self.time_range.elapsed_us() if on_host else 0.0
        self.self_device_time_total = 0.0 if on_host else self.time_range.elapsed_us()
        self.self_cpu_memory_usage = self.self_device_memory_usage = 0
        if facts is not None and event.kind == "op":
            on_card = facts.device.startswith("cuda")
            self.self_device_memory_usage = facts.out_bytes if on_card else 0
            self.self_cpu_memory_usage = 0 if on_card else facts.out_bytes

    @property
    def self_cpu_time_total(self) -> float:
        """Without the children."""
        return self.cpu_time_total - sum(child.cpu_time_total for child in self.cpu_children)

    def _total(self, own: str) -> Any:
        """An own figure with those of all below."""
        total, left = 0, [self]
        while left:
            each = left.pop()
            total += getattr(each, own)
            left.extend(each.cpu_children)
        return total

    @property
    def device_time_total(self) -> float:
        """With the children."""
        return float(self._total("self_device_time_total"))

    @property
    def cpu_memory_usage(self) -> int:
        """Bytes of results on the host, the children's too."""
        return int(self._total("self_cpu_memory_usage"))

    @property
    def device_memory_usage(self) -> int:
        """Bytes of results on cards, the children's too."""
        return int(self._total("self_device_memory_usage"))

    @property
    def cpu_time(self) -> float:
        """The same as ``cpu_time_total``: it is one call."""
        return self.cpu_time_total

    @property
    def device_time(self) -> float:
        """The same as ``device_time_total``."""
        return self.device_time_total

    def __repr__(self) -> str:
        return (f"<FunctionEvent name={self.name} device_type={self.device_type} "
                f"cpu_time={self.cpu_time_total:.3f}us device_time={self.device_time_total:.3f}us "
                f"at {self.event.where}>")


FIGURES = ("cpu_time_total", "self_cpu_time_total", "device_time_total", "self_device_time_total",
           "cpu_memory_usage", "self_cpu_memory_usage", "device_memory_usage",
           "self_device_memory_usage")


class FunctionEventAvg:
    """Calls of one name (and shapes, and stack) together."""

    cpu_time_total = self_cpu_time_total = 0.0
    device_time_total = self_device_time_total = 0.0
    cpu_memory_usage = self_cpu_memory_usage = 0
    device_memory_usage = self_device_memory_usage = 0

    def __init__(self, first: FunctionEvent) -> None:
        self.key = first.key
        self.count = 0
        self.device_type = first.device_type
        self.input_shapes = first.input_shapes
        self.stack = first.stack

    def add(self, other: Any) -> FunctionEventAvg:
        """Take in a call, or another average."""
        self.count += other.count
        for name in FIGURES:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        return self

    @property
    def cpu_time(self) -> float:
        """A call's."""
        return self.cpu_time_total / max(self.count, 1)

    @property
    def device_time(self) -> float:
        """A call's."""
        return self.device_time_total / max(self.count, 1)

    def __repr__(self) -> str:
        return (f"<FunctionEventAvg key={self.key} self_cpu_time={self.self_cpu_time_total:.3f}us "
                f"cpu_time={self.cpu_time:.3f}us self_device_time="
                f"{self.self_device_time_total:.3f}us calls={self.count}>")


for _class in (FunctionEvent, FunctionEventAvg):
    for _name in ("device_time", "device_time_total", "self_device_time_total",
                  "device_memory_usage", "self_device_memory_usage"):
        # PyTorch's older names.
        setattr(_class, _name.replace("device", "cuda"), property(operator.attrgetter(_name)))


class EventList(list[Any]):
    """Events, or averages, with PyTorch's methods."""

    def __init__(self, items: Iterable[Any], recording: Recording, **wanted: bool) -> None:
        super().__init__(items)
        self.recording = recording
        self.wanted = wanted

    @property
    def self_cpu_time_total(self) -> float:
        """The host's time in µs."""
        return float(sum(each.self_cpu_time_total for each in self))

    def total_average(self) -> FunctionEventAvg | None:
        """Everything as one; None of nothing."""
        if not self:
            return None
        total = FunctionEventAvg(self[0])
        for each in self:
            total.add(each)
        total.key = "Total"
        return total

    def key_averages(self, group_by_input_shapes: bool = False, group_by_stack_n: int = 0,
                     group_by_overload_name: bool = False) -> EventList:
        """Averages by name; and by shapes, and by the innermost ``n`` frames."""
        groups: dict[Any, FunctionEventAvg] = {}
        for each in self:
            shapes = str(each.input_shapes) if group_by_input_shapes else ""
            stack = tuple(each.stack[:group_by_stack_n])
            key = (each.key, each.device_type, shapes, stack)
            groups.setdefault(key, FunctionEventAvg(each)).add(each)
        wanted = {**self.wanted, "shapes": group_by_input_shapes, "stack": group_by_stack_n > 0}
        return EventList(groups.values(), self.recording, **wanted)

    def table(self, sort_by: str | None = None, row_limit: int = 100,
              max_src_column_width: int = 75, max_name_column_width: int = 55,
              max_shapes_column_width: int = 80, header: str | None = None,
              top_level_events_only: bool = False) -> str:
        """A table as text; ``sort_by`` as in PyTorch (``cpu_time_total``, ``cuda_time_total``,
        ``self_cpu_time_total``, ``cpu_memory_usage``, ``count`` ...).

        Raises AttributeError for a key that there is not.
        """
        rows = [each for each in self
                if not top_level_events_only or getattr(each, "cpu_parent", None) is None]
        if sort_by is not None:
            if sort_by not in SORTS:
                raise AttributeError(f"no column {sort_by!r} to sort by; there are "
                                     f"{', '.join(sorted(SORTS))}")
            rows.sort(key=lambda each: getattr(each, SORTS[sort_by]), reverse=True)
        widths = {"name": max_name_column_width, "shapes": max_shapes_column_width,
                  "stack": max_src_column_width}
        return render(self, rows[:row_limit], widths, header)

    def export_chrome_trace(self, path: Any) -> None:
        """Write the trace that Chrome and Perfetto read."""
        chrome.write(self.recording, path)

    def export_stacks(self, path: Any, metric: str) -> None:
        """Write stacks, outermost first, joined by ``;``, each with its µs: for flame graphs.

        ``metric``: self_cpu_time_total or self_cuda_time_total (self_device_time_total).
        Raises ValueError for another.
        """
        if metric not in METRICS:
            raise ValueError(f"metric should be one of: {', '.join(METRICS)}")
        spent: dict[str, float] = {}
        for each in self:
            if each.stack:
                stack = ";".join(reversed([frame.replace(" ", "_") for frame in each.stack]))
                spent[stack] = spent.get(stack, 0.0) + getattr(each, METRICS[metric])
        lines = [f"{stack} {int(time)}" for stack, time in spent.items() if int(time)]
        Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8",
                              errors="backslashreplace")

    def __str__(self) -> str:
        return self.table()


METRICS = {"self_cpu_time_total": "self_cpu_time_total",
           "self_cuda_time_total": "self_device_time_total",
           "self_device_time_total": "self_device_time_total"}


def stack_of(event: Event) -> tuple[tuple[str, int, str], ...]:
    """The frames that were kept, or else the line alone."""
    return event.stack or (((event.file, event.line, event.function),) if event.file else ())


def function_events(recording: Recording, **wanted: bool) -> EventList:
    """A recording's events, each under the one that it lies in, kernels given to their ops."""
    host = [FunctionEvent(event, recording) for event in recording.of(*HOST_KINDS)]
    work = [FunctionEvent(event, recording) for event in recording.of("kernel", "copy", "fill")]
    nest(host)
    give_device_time(host, work)
    return EventList([*host, *work], recording, **wanted)


def nest(events: list[FunctionEvent]) -> None:
    """Put each event under the innermost of its thread that holds it; they come by their start."""
    open_by_thread: dict[int, list[FunctionEvent]] = {}
    for each in events:
        stack = open_by_thread.setdefault(each.thread, [])
        while stack and stack[-1].event.end < each.event.end:
            stack.pop()
        while stack and stack[-1].event.end <= each.event.start:
            stack.pop()
        if stack:
            each.cpu_parent = stack[-1]
            stack[-1].cpu_children.append(each)
        stack.append(each)


def give_device_time(host: list[FunctionEvent], work: list[FunctionEvent]) -> None:
    """Give the k-th part of the kernels of an op at a line to its k-th call there."""
    calls: dict[tuple[int, str], list[FunctionEvent]] = {}
    for each in host:
        if each.event.kind == "op":
            calls.setdefault((each.event.plan, each.event.where), []).append(each)
    kernels: dict[tuple[int, str], list[FunctionEvent]] = {}
    for each in work:
        if each.event.kind == "kernel":
            kernels.setdefault((each.event.plan, each.event.where), []).append(each)
    for key, launched in kernels.items():
        owners = calls.get(key)
        if owners:
            for place, each in enumerate(launched):
                owner = owners[place * len(owners) // len(launched)]
                owner.self_device_time_total += each.self_device_time_total


__all__ = ["COLUMNS", "EventList", "FunctionEvent", "FunctionEventAvg", "function_events"]

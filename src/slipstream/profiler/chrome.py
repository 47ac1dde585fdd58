"""The trace that Chrome's about:tracing and Perfetto read, bounded in size."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from slipstream.core.api.recording import Event, Recording

# Events in a trace; the shortest are left out where there are more.
MOST_EVENTS = 200_000
CATEGORIES = {"op": "cpu_op", "view": "cpu_op", "span": "user_annotation", "kernel": "kernel",
              "copy": "gpu_memcpy", "fill": "gpu_memset", "wait": "cuda_runtime",
              "data": "user_annotation", "send": "cuda_runtime", "step": "user_annotation",
              "host copy": "cuda_runtime"}
# Process of the host; a device's is its number and this.
HOST, DEVICES = 1, 100


def chosen(recording: Recording, most: int) -> tuple[list[Event], int, int]:
    """(events that are kept, how many are left out, their ns): the longest stay, in order."""
    events = [event for event in recording.events if event.kind in CATEGORIES]
    if len(events) <= most:
        return events, 0, 0
    longest = sorted(events, key=lambda event: event.start - event.end)
    kept = {id(event) for event in longest[:most]}
    out = longest[most:]
    return ([event for event in events if id(event) in kept], len(out),
            sum(event.end - event.start for event in out))


def trace(recording: Recording, most: int = MOST_EVENTS) -> dict[str, Any]:
    """The trace as a dict.  ``leftOut`` says what is not in it."""
    events, count, spent = chosen(recording, most)
    rows = [*names(events), *(row(event, recording.start) for event in events),
            *memory(recording)]
    if count or recording.dropped:
        rows.append({"ph": "i", "s": "g", "pid": HOST, "tid": 0, "ts": 0.0,
                     "name": f"left out: {count} short events, {recording.dropped} overwritten"})
    return {"schemaVersion": 1, "displayTimeUnit": "ms", "traceEvents": rows,
            "leftOut": {"shortEvents": count, "shortEventsNs": spent,
                        "overwritten": recording.dropped, "untimed": recording.untimed,
                        "averaged": recording.averaged}}


def row(event: Event, origin: int) -> dict[str, Any]:
    """One complete event, in µs from the profile's start."""
    on_device = event.device >= 0
    facts: dict[str, Any] = {"line": event.where} if event.file else {}
    if event.op and event.op != event.name:
        facts["op"] = event.op
    if event.kind in ("copy", "fill", "wait", "host copy"):
        facts["bytes"] = event.value
    if event.kind == "send":
        facts["launches"] = event.value
    if on_device:
        facts["replayed"] = event.replayed
        if event.estimated:
            facts["estimated"] = True
        if event.averaged:
            facts["averaged"] = True
    return {"ph": "X", "cat": CATEGORIES[event.kind], "name": title(event),
            "pid": DEVICES + event.device if on_device else HOST,
            "tid": event.stream if on_device else event.thread,
            "ts": (event.start - origin) / 1000, "dur": (event.end - event.start) / 1000,
            "args": facts}


def title(event: Event) -> str:
    """What an event is called in a picture."""
    if event.kind == "wait":
        return f"wait: {event.name}"
    if event.kind == "send":
        return f"launch {event.value}: {event.name}"
    return event.name


def names(events: list[Event]) -> Iterator[dict[str, Any]]:
    """Names of processes and threads."""
    places = {(DEVICES + event.device, event.stream) for event in events if event.device >= 0}
    yield meta("process_name", HOST, 0, "host")
    for process in sorted({process for process, _ in places}):
        yield meta("process_name", process, 0, f"cuda:{process - DEVICES}")
    for process, stream in sorted(places):
        yield meta("thread_name", process, stream, f"stream {stream}")


def meta(kind: str, process: int, thread: int, name: str) -> dict[str, Any]:
    """A metadata event."""
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": name}}


def memory(recording: Recording) -> Iterator[dict[str, Any]]:
    """Counters of allocated bytes."""
    for event in recording.of("memory"):
        yield {"ph": "C", "pid": HOST, "tid": 0, "name": f"allocated on {event.name}",
               "ts": (event.start - recording.start) / 1000, "args": {"bytes": event.value}}


def write(recording: Recording, path: Any, most: int = MOST_EVENTS,
          metadata: dict[str, Any] | None = None) -> None:
    """Write the trace as JSON; compressed where the name ends in .gz."""
    found = {**trace(recording, most), **(metadata or {})}
    text = json.dumps(found, separators=(",", ":")).encode()
    target = Path(path)
    target.write_bytes(gzip.compress(text) if target.suffix == ".gz" else text)

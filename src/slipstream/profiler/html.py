"""The profile as one page of HTML: no network, at most 3 MB.

Events are cut down to what a page can hold: the longest stay, the others of a lane are joined into
bins of equal width, each with the name that takes most of it; the page says so.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from slipstream.core.api.budget import EVEN, GRAPH, REPLAYED
from slipstream.core.api.recording import Event, Recording
from slipstream.profiler import chrome
from slipstream.profiler.averages import function_events
from slipstream.profiler.budgets import budget_of, host_cost, steps_of
from slipstream.profiler.diagnosis import Diagnosis, diagnose
from slipstream.profiler.page import card_limits, host_by_line, kernel_rows, page
from slipstream.profiler.words import micro, percent, short

TEMPLATE = Path(__file__).with_name("report.html")
# Events that are shown one by one, all lanes together, and bins of each lane.
MOST_EVENTS = 40_000
BINS = 2_000
# Nodes of the flame graph; rows of a table; launches of which the ops are told; memory's points.
MOST_NODES = 4_000
MOST_ROWS = 200
MOST_EXTRAS = 2_000
MOST_POINTS = 4_000
# Times in the page are whole numbers of so many nanoseconds.
UNIT = 100
# Which kinds stand in which lane of the host.
HOST_LANES = (("scopes and steps", ("span", "step", "data")), ("ops", ("op", "view")),
              ("launches", ("send",)), ("waits", ("wait",)), ("copies", ("host copy",)),
              ("making plans", ("plan",)))
PARTS = (("GPU", "kernels"), ("copy", "copies"), ("launch", "idle: launching"),
         ("wait", "idle: after waits"), ("data", "idle: data"), ("plan", "idle: making plans"))


class Table:
    """Distinct texts and their numbers."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        """The number of a text."""
        found = self.numbers.setdefault(text, len(self.texts))
        if found == len(self.texts):
            self.texts.append(text)
        return found


class Lanes:
    """Makes the timeline's lanes: flat rows of (start, length, name, line, extra)."""

    def __init__(self, recording: Recording, most: int) -> None:
        self.recording = recording
        self.names = Table()
        self.lines = Table()
        self.lines.number("")
        self.extras = Table()
        self.behind = ops_behind(recording)
        self.total = sum(event.kind != "memory" for event in recording.events)
        self.most = most
        self.binned = 0

    def lane(self, title: str, events: list[Event]) -> dict[str, Any]:
        """One lane; its share of the events that may stand alone is that of its size."""
        room = max(self.most * len(events) // max(self.total, 1), 1)
        alone, rest = events, []
        if len(events) > room and self.total > self.most:
            ordered = sorted(events, key=lambda event: event.start - event.end)
            alone, rest = ordered[:room], ordered[room:]
        rows = [self.row(event) for event in alone] + self.bins(rest)
        self.binned += len(rest)
        rows.sort(key=lambda row: (row[0], -row[1]))
        flat: list[int] = []
        at = 0
        for start, *others in rows:
            flat += (start - at, *others)
            at = start
        return {"title": title, "binned": len(rest), "e": flat}

    def row(self, event: Event) -> tuple[int, int, int, int, int]:
        """An event of its own."""
        start = (event.start - self.recording.start) // UNIT
        return (start, max((event.end - event.start) // UNIT, 0),
                self.names.number(chrome.title(event)), self.lines.number(event.where),
                self.extra(event))

    def extra(self, event: Event) -> int:
        """The number of what else is known of an event; -1 for nothing."""
        text = ""
        if event.kind == "send":
            text = self.behind.get(id(event), "")
        elif event.kind in ("copy", "fill", "wait") and event.value:
            text = f"{event.value:,} bytes"
        elif event.kind == "kernel":
            how = "replayed in a graph" if event.replayed else "launched alone"
            about = ", time shared by bytes" if event.estimated else (
                ", mean of its measured times" if event.averaged else "")
            text = f"op {event.op or 'unknown'}, {how}{about}"
        if not text or len(self.extras.texts) >= MOST_EXTRAS:
            return self.extras.numbers.get(text, -1)
        return self.extras.number(text)

    def bins(self, events: list[Event]) -> list[tuple[int, int, int, int, int]]:
        """Short events joined: each bin with its busy time, its count and its largest name."""
        origin = self.recording.start
        width = max((self.recording.end - origin) // BINS, 1)
        found: dict[int, list[Event]] = {}
        for event in events:
            found.setdefault((event.start - origin) // width, []).append(event)
        rows = []
        for place, inside in found.items():
            spent: Counter[tuple[str, str]] = Counter()
            for event in inside:
                spent[chrome.title(event), event.where] += event.end - event.start + 1
            (name, where), _ = spent.most_common(1)[0]
            busy = sum(event.end - event.start for event in inside)
            label = f"{len(inside)} events" if len(inside) > 1 else name
            text = f"{label}, most of them {name}" if len(inside) > 1 else name
            rows.append((max(place * width, 0) // UNIT, min(busy, width) // UNIT,
                         self.names.number(name), self.lines.number(where),
                         self.extras.number(text) if len(self.extras.texts) < 2 * MOST_EXTRAS
                         else -1))
        return rows

    def all(self) -> list[dict[str, Any]]:
        """The host's lanes by thread, then those of streams."""
        found = []
        threads = sorted({event.thread for event in self.recording.events if event.device < 0
                          and event.kind != "memory"})
        for number, thread in enumerate(threads):
            mark = "" if len(threads) == 1 else f", thread {number}"
            for title, kinds in HOST_LANES:
                events = [event for event in self.recording.of(*kinds) if event.thread == thread]
                if events:
                    found.append(self.lane(f"host{mark}: {title}", events))
        work = self.recording.of("kernel", "copy", "fill")
        for device, stream in sorted({(event.device, event.stream) for event in work}):
            events = [event for event in work
                      if (event.device, event.stream) == (device, stream)]
            found.append(self.lane(f"cuda:{device}, stream {stream}", events))
        return found


def ops_behind(recording: Recording) -> dict[int, str]:
    """For each send (by identity) the ops behind its launches, in words.

    The kernels of a stream run in the order in which they were sent.
    """
    if recording.dropped:
        # Which kernels belong to which send is only known where none is missing.
        return {}
    work = iter(recording.of("kernel"))
    found = {}
    for event in recording.of("send"):
        ops: Counter[str] = Counter()
        for _ in range(event.value):
            kernel = next(work, None)
            if kernel is not None:
                ops[f"{kernel.op or kernel.name} at {short(kernel.where)}"] += 1
        listed = ", ".join(f"{count} × {name}" for name, count in ops.most_common(12))
        found[id(event)] = f"{event.value} launches: {listed}"
    return found


# -- the flame graph ---------------------------------------------------------------------------
def flame(recording: Recording) -> list[Any]:
    """The tree of lines: a node is [name, host, card, children], the times with the children's."""
    spent: dict[tuple[str, ...], list[int]] = {}
    for each in function_events(recording):
        if each.event.kind not in ("op", "view"):
            continue
        frames = [f"{function or '?'} {short(file)}:{line}" for file, line, function in reversed(
            each.event.stack or ((each.event.file, each.event.line, each.event.function),))]
        entry = spent.setdefault((*frames, each.name), [0, 0])
        entry[0] += (each.event.end - each.event.start) // UNIT
        entry[1] += int(each.self_device_time_total * 1000) // UNIT
    root: list[Any] = ["all", 0, 0, {}]
    largest = sorted(spent.items(), key=lambda item: -sum(item[1]))
    for path, times in largest[:MOST_NODES // 4]:
        add_path(root, path, times)
    add_path(root, ("(the rest)",), [sum(times[place] for _, times in largest[MOST_NODES // 4:])
                                     for place in (0, 1)])
    return listed(root)


def add_path(root: list[Any], path: tuple[str, ...], times: list[int]) -> None:
    """Add times to every node of a path."""
    node = root
    for name in ("", *path):
        if name:
            node = node[3].setdefault(name, [name, 0, 0, {}])
        node[1] += times[0]
        node[2] += times[1]


def listed(node: list[Any]) -> list[Any]:
    """A tree with lists of children, the largest first."""
    children = sorted(node[3].values(), key=lambda child: -child[1] - child[2])
    return [node[0], node[1], node[2], [listed(child) for child in children
                                        if child[1] or child[2]]]


# -- tables and the rest -----------------------------------------------------------------------
def kernel_table(recording: Recording) -> list[list[Any]]:
    """Rows of kernels: op, name, line, calls, time, time each, share, share of the limit."""
    rows = kernel_rows(recording)
    limits = card_limits()
    total = max(sum(row.spent for row in rows), 1)
    return [[row.op, row.name, short(row.where), row.count, row.spent // UNIT,
             row.spent // UNIT // row.count, round(row.spent / total, 4),
             row.limit_share(limits)] for row in rows[:MOST_ROWS]]


def roofline(recording: Recording) -> dict[str, Any]:
    """Kernels by operations a byte and operations a second, and what bounds both.

    A point is [op, line, bytes, operations, time, calls, dtype]; ``hidden``: kernels whose
    operations or bytes are not known.
    """
    rows = kernel_rows(recording)
    limits = card_limits()
    known = [row for row in rows if row.counted and row.operations and row.nbytes and row.spent
             and (limits is None or row.limit_share(limits) is not None)]
    return {
        "points": [[row.op or row.name, short(row.where), row.nbytes, row.operations,
                    row.spent // UNIT, row.count, row.dtype] for row in known[:MOST_ROWS]],
        "hidden": len(rows) - len(known), "bandwidth": limits.bandwidth if limits else None,
        "peaks": limits.peaks if limits else {},
    }


def budget(recording: Recording) -> dict[str, Any]:
    """Where the sliders of the dispatch budget begin: µs an op, as measured, and the constants."""
    found = budget_of(recording)
    calls = max(recording.threads[0][1] if recording.threads else recording.calls, 1)
    return {
        "ops": max(round(recording.calls / steps_of(recording)), 1),
        "host": max(round(found.host if found else host_cost(recording) / 1000 / calls, 2), 0.01),
        "device": max(round(found.device if found else 0.0, 2), 0.01),
        "measured": found is not None,
        "saved": round(found.saved or 0.0, 3) if found else None,
        "replayed": REPLAYED, "graph": GRAPH, "even": EVEN,
    }


def line_table(recording: Recording) -> list[list[Any]]:
    """Rows of lines: line, ops, host time, launches, card time."""
    rows = [row for row in host_by_line(recording) if row[1] or row[0].of("kernel")[0]]
    rows.sort(key=lambda row: -row[2] - row[0].of("kernel")[1])
    return [[short(f"{line.file}:{line.line}"), count, spent // UNIT,
             line.of("kernel")[0], line.of("kernel")[1] // UNIT]
            for line, count, spent in rows[:MOST_ROWS]]


def memory_lines(recording: Recording) -> list[dict[str, Any]]:
    """Allocated bytes of each card over time, thinned out where there are many points."""
    found: dict[str, list[int]] = {}
    samples = recording.of("memory")
    stride = -(-len(samples) // MOST_POINTS) or 1
    for event in samples[::stride]:
        found.setdefault(event.name, []).extend(
            (max(event.start - recording.start, 0) // UNIT, event.value))
    return [{"title": name, "p": points} for name, points in found.items()]


def opening(steps: Iterable[Event], recording: Recording) -> list[int]:
    """The slowest step, which the timeline opens on; everything where there is none."""
    slowest = max(steps, key=lambda event: event.end - event.start, default=None)
    if slowest is None:
        return [0, (span_end(recording) - recording.start) // UNIT]
    return [(slowest.start - recording.start) // UNIT, (slowest.end - recording.start) // UNIT]


def span_end(recording: Recording) -> int:
    """When the last event ended."""
    return max([recording.end, *(event.end for event in recording.events)])


def facts_text(recording: Recording, found: Diagnosis) -> str:
    """What stands below the verdict."""
    texts = [f"{recording.calls:,} calls of ops", f"{found.launches:,} launches",
             f"{found.replayed:,} replayed in graphs",
             f"the card busy {percent(found.busy / found.span)} of {micro(found.span)}"]
    if recording.timed_by not in ("", "driver"):
        texts.append(f"kernels timed by {recording.timed_by}")
    if recording.averages:
        texts.append(recording.averages)
    if recording.virtual:
        texts.append("times are the simulated driver's virtual time, in which the program's own "
                     "work between calls of ops takes none")
    text = "; ".join(texts if found.launches else texts[:1])
    failed = "; ".join(recording.failed.splitlines())
    return f"{failed} {text}" if failed else text


def left_text(recording: Recording, lanes: Lanes) -> str:
    """What the timeline leaves out."""
    texts = []
    if lanes.binned:
        texts.append(f"{lanes.binned:,} of {lanes.total:,} events, the shortest, are joined in "
                     "bins")
    if recording.dropped:
        texts.append(f"the ring dropped the oldest {recording.dropped:,} records")
    if recording.untimed:
        texts.append(f"{recording.untimed:,} launches have no time")
    return "; ".join(texts)


def contents(recording: Recording, most: int = MOST_EVENTS) -> dict[str, Any]:
    """What the page shows, as plain data."""
    found = diagnose(recording)
    lanes = Lanes(recording, most)
    timeline = lanes.all()
    steps = recording.of("step")
    parts = [[name, round(found.share(name), 5), label] for name, label in PARTS
             if found.parts.get(name)]
    return {
        "verdict": found.verdict, "facts": facts_text(recording, found),
        "text": page(recording, found), "left": left_text(recording, lanes), "parts": parts,
        "span": (span_end(recording) - recording.start) // UNIT,
        "open": opening(steps, recording),
        "steps": [[(event.start - recording.start) // UNIT, (event.end - recording.start) // UNIT,
                   event.name] for event in steps[:MOST_EXTRAS]],
        "lanes": timeline, "names": lanes.names.texts, "lines": lanes.lines.texts,
        "extras": lanes.extras.texts, "flame": flame(recording),
        "memory": memory_lines(recording), "kernels": kernel_table(recording),
        "waits": [[short(where), name, count, spent // UNIT]
                  for where, name, count, spent in found.waits[:MOST_ROWS]],
        "byline": line_table(recording), "roofline": roofline(recording),
        "budget": budget(recording),
    }


def render(recording: Recording, most: int = MOST_EVENTS) -> str:
    """The page as text."""
    data = json.dumps(contents(recording, most), separators=(",", ":"), ensure_ascii=False)
    # Inside a script element only the end tag and a comment's beginning would be read.
    data = data.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return TEMPLATE.read_text(encoding="utf-8").replace("/*DATA*/", data)


def write(recording: Recording, path: Any, most: int = MOST_EVENTS) -> None:
    """Write the page; what is no text in a name becomes an escape in its strings."""
    Path(path).write_text(render(recording, most), encoding="utf-8", errors="backslashreplace")

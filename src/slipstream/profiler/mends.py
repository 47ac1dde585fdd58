"""Why launches go alone and what would mend it, in words that name the line."""

from __future__ import annotations

import linecache
import re
from collections import Counter

from slipstream.core.api.recording import Recording
from slipstream.core.api.waits import mend_of_wait
from slipstream.profiler.words import quoted, size

# Reasons that fewer waits would mend.
ENDED_BY_WAITS = ("too short", "wait")
# Copies of fewer bytes are tiny.
TINY = 4096
# How a line hands out a tensor's memory, and how that is said.
HANDED = (
    (re.compile(r"([A-Za-z_][\w.]*)\.(?:data_ptr|untyped_storage)\("), "its address is taken"),
    (re.compile(r"([A-Za-z_][\w.]*)\.__cuda_array_interface__"), "its array interface is read"),
    (re.compile(r"from_dlpack\(\s*([A-Za-z_][\w.]*)"), "it is exported through DLPack"),
    (re.compile(r"([A-Za-z_][\w.]*)\.(?:__dlpack__|numpy)\("), "it is exported to NumPy"),
    (re.compile(r"as(?:array|_tensor)\(\s*([A-Za-z_][\w.]*)"), "it is exported"),
)


def waits_by_line(recording: Recording) -> list[tuple[str, str, int, int]]:
    """(line, what waited, how often, ns), the longest first."""
    found: dict[tuple[str, str], list[int]] = {}
    for event in recording.of("wait"):
        entry = found.setdefault((event.where, event.name), [0, 0])
        entry[0] += 1
        entry[1] += event.end - event.start
    rows = [(where, name, count, spent) for (where, name), (count, spent) in found.items()]
    return sorted(rows, key=lambda row: -row[3])


def dearest_copies(recording: Recording) -> list[tuple[str, str, int, int]]:
    """(direction, line, how many, bytes) of the copies of a line that take the card longest, and
    of the next two lines where they take about as long in the same direction."""
    moved: dict[tuple[str, str], list[int]] = {}
    for event in recording.of("copy"):
        entry = moved.setdefault((event.name, event.where), [0, 0, 0])
        entry[0] += 1
        entry[1] += event.value
        entry[2] += event.end - event.start
    rows = sorted(moved.items(), key=lambda item: -item[1][2])
    (direction, _), (_, _, most) = rows[0]
    return [(name, where, count, nbytes) for (name, where), (count, nbytes, spent) in rows[:3]
            if name == direction and 10 * spent >= 9 * most]


def dearest_copy(recording: Recording) -> tuple[str, str, int, int]:
    """The first of them."""
    return dearest_copies(recording)[0]


def why_alone(recording: Recording, reason: str) -> str:
    """Why launches went alone, with what would mend it."""
    if reason == "exported storage":
        sites = Counter(event.exported for event in recording.of("send") if event.exported)
        if sites:
            return exported_text(*sites.most_common(1)[0][0])
        return "they touch memory that other code holds: let go of it, or hand out a copy"
    if reason in ENDED_BY_WAITS:
        return early_text(recording, reason)
    if reason == "copy":
        return copies_text(recording)
    return {
        "memo off": "the graph memo is off: set SLIPSTREAM_MEMO=1, or leave cuda.immediate()",
        "handed-out stream": "their stream's handle was given away: launch on a stream of "
                             "Slipstream's own",
        "drained": "the host was too slow to fill their window: do its other work elsewhere",
        "not capturable": "they are library calls that a graph cannot hold",
    }.get(reason, f"of {reason}")


def early_text(recording: Recording, reason: str) -> str:
    """The line whose waits leave few launches between them."""
    how = ("waits leave fewer than three launches between them" if reason == "too short"
           else "waits end their windows early")
    waits = waits_by_line(recording)
    if not waits:
        return f"{how}: wait less often"
    where, kind, count, _ = max(waits, key=lambda row: row[2])
    return f"{how}, {count:,} times at {quoted(where)}: {mend_of_wait(kind)}"


def copies_text(recording: Recording) -> str:
    """The line whose copies come between launches."""
    if not recording.of("copy"):
        return "copies come between them: make fewer, larger ones"
    _, where, count, nbytes = dearest_copy(recording)
    mend = ("make one tensor of them and copy it once, or make them on the card (device=...)"
            if nbytes < TINY * count else "keep the data on the card, or copy ahead of its use")
    return (f"copies come between them, {count:,} of {size(nbytes / count)} at {quoted(where)}: "
            f"{mend}")


def exported_text(file: str, line: int) -> str:
    """Which tensor a line hands out, how, and where."""
    text = linecache.getline(file, line)
    place = f"{file.rpartition('/')[2]}:{line}"
    for pattern, how in HANDED:
        match = pattern.search(text)
        if match:
            said = how.replace("it is", "is").replace("its", "whose", 1)
            joined = f"`{match[1]}` {said}" if said.startswith("is") else f"`{match[1]}`, {said},"
            return f"{joined} at {place}: hand out a copy of it, once"
    return f"memory that they touch is handed out at {place}: hand out a copy of it, once"

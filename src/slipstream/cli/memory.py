"""``slipstream memory script.py ARGS``: runs a script, says who held its memory at the peak."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import Any

import slipstream as ss
from slipstream.cli.charts import chart
from slipstream.cli.run import FAILED, refused, run_to_end, settle, unwritten
from slipstream.core.api.memory import (
    HolderRow,
    MemoryReport,
    holders_table,
    hole_text,
    memory_report,
    record_memory,
    rows_of,
)
from slipstream.core.api.tables import size

SUMMARY = "run a script and say which lines held its memory at the peak"
# A line that holds this part of the peak is worth a word.
MUCH = 0.5
# Fewer bytes are not worth a word.
WORTH = 64 << 10
# From so many blocks on a line that goes on making them looks like a list that grows; from a few
# on where they are this part of what is in use.
MANY, FEW, PART = 100, 16, 0.25
# Part of what is reserved that may be cached without a word, and the least that is worth one.
SPARE, LEAST = 0.5, 64 << 20
# What shrinks a line's part of the peak.
RESULTS = "fewer elements at a time or a narrower dtype there shrink the peak most"
SAVED = ("backward needs it: smaller batches or a narrower dtype there shrink the peak most, and "
         "utils.checkpoint computes it again instead")
UNUSED = "run what is only read under no_grad() or inference_mode(), which keep nothing for it"
PARAMETERS = ("they are parameters: a narrower dtype, as .bfloat16(), or a smaller model shrinks "
              "the peak most")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments: all that follow the script are the script's."""
    parser.add_argument("--json", action="store_true",
                        help="print the report as JSON; the script's output goes to stderr")
    parser.add_argument("--snapshot", metavar="FILE",
                        help="write the cards' maps and histories, with stacks, for PyTorch's "
                             "viewer (pytorch.org/memory_viz)")
    parser.add_argument("script", help="path of the script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGS",
                        help="its own arguments, as they are")


def run(arguments: argparse.Namespace) -> int:
    """Run the script, print the report; the status is the script's."""
    if refused(arguments, "memory", "snapshot"):
        return 2
    if arguments.snapshot:
        ss.cuda.memory._record_memory_history()
    with record_memory() as recording:
        status = settle(arguments, run_to_end(arguments))
        now = memory_report()
    devices = [device_facts(timeline, now, arguments.broken)
               for timeline in recording.timelines.values() if timeline.requests]
    # What matters most comes first.
    devices.sort(key=lambda each: -each["peak"])
    if arguments.snapshot and unwritten(arguments, "memory", "snapshot",
                                        ss.cuda.memory._dump_snapshot):
        status = status or FAILED
    if arguments.json:
        print(json.dumps({"script": arguments.script, "devices": devices}, indent=2))
    else:
        if arguments.failure:
            print(f"{arguments.failure}\nThe figures cover only what ran until then.")
        print("\n\n".join([as_text(each) for each in devices] or ["no memory was asked for"]))
    return status


def device_facts(timeline: Any, now: MemoryReport, broken: bool) -> dict[str, Any]:
    """What is told of one device, as plain data; times are milliseconds, the rest bytes.

    ``broken``: an error ended the script, perhaps before its backward().
    """
    found = next(each for each in now.devices if each.device == timeline.name)
    peak, left = rows_of(timeline.at_peak), rows_of(timeline.held)
    curve = timeline.curve
    facts: dict[str, Any] = {
        "device": timeline.name, "peak": timeline.peak, "peak_at_ms": timeline.peak_at / 1e6,
        "reserved_at_peak": timeline.reserved, "requests": timeline.requests,
        "at_peak": [asdict(row) for row in peak],
        "live_at_end": timeline.live, "at_end": [asdict(row) for row in left],
        "reserved_at_end": found.reserved, "cached_at_end": found.cached,
        "largest_hole": found.largest_hole, "pinned": found.pinned,
        "curve": {"step_ms": curve.width / 1e6, "bytes": curve.values},
    }
    facts["advice"] = advice(facts, timeline, left, broken)
    return facts


def advice(facts: dict[str, Any], timeline: Any, left: list[HolderRow],
           broken: bool) -> list[str]:
    """What could be done with less, a sentence each."""
    lines = []
    graphs = places(timeline.in_graphs)
    much = max(MUCH * facts["peak"], WORTH)
    saved = places(timeline.saved)
    unused = saved if timeline.unused and not broken else {}
    held = places(timeline.at_peak)
    top = max(held, key=lambda place: held[place], default=None)
    if timeline.kept is not None:
        # What a loop keeps grows with its steps: a smaller batch only puts that off.
        lines.append(timeline.kept[0].text(*timeline.kept[1:]))
    elif sum(unused.values()) >= much:
        most = max(unused, key=lambda place: unused[place])
        keep = "and others keep" if len(unused) > 1 else "keeps"
        lines.append(f"{place_text(most)} {keep} {size(sum(unused.values()))} of the peak "
                     f"of {size(facts['peak'])} for a backward() that never came: {UNUSED}")
    elif top is not None and held[top] >= much:
        lines.append(f"{place_text(top)} held {size(held[top])} of the peak of "
                     f"{size(facts['peak'])}: {mend_of(top, held[top], timeline)}")
    growing = growing_places(timeline)
    for row in left:
        many = row.blocks >= MANY or (row.blocks >= FEW and row.nbytes >= PART * timeline.live)
        place = (row.file, row.line, row.expression)
        if many and place in growing and place not in graphs and place not in unused:
            lines.append(f"{row.place}: {row.blocks} blocks of `{row.expression}` "
                         f"({size(row.nbytes)}) are still held at the end, made all along: does a "
                         "list or dict grow? x.item() or a running sum keeps what is needed of "
                         "each; one tensor with a row a step needs one block")
    if facts["cached_at_end"] > max(LEAST, SPARE * facts["reserved_at_end"]):
        lines.append(f"{size(facts['cached_at_end'])} of {size(facts['reserved_at_end'])} reserved "
                     f"are in no use, the largest hole is {size(facts['largest_hole'])}: the peak "
                     "was short; empty_cache() gives it to other programs")
    return lines


def growing_places(timeline: Any) -> set[tuple[str, int, str]]:
    """The lines of which blocks in use were made over half of the run, not in one go."""
    found = [key for key, (first, last) in timeline.spans.items()
             if 2 * (last - first) >= timeline.requests]
    return set(places({key: timeline.held[key] for key in found}))


def place_text(place: tuple[str, int, str]) -> str:
    """A line and its expression."""
    file, line, expression = place
    return f"{file}:{line}: `{expression}`" if file else "no line is known:"


def mend_of(place: tuple[str, int, str], nbytes: int, timeline: Any) -> str:
    """What shrinks a line's part of the peak."""
    for sums, mend in ((timeline.leaves, PARAMETERS), (timeline.saved, SAVED)):
        if places(sums).get(place, 0) >= MUCH * nbytes:
            return mend
    return RESULTS


def places(sums: dict[Any, list[int]]) -> dict[tuple[str, int, str], int]:
    """Bytes by file, line and expression."""
    found: dict[tuple[str, int, str], int] = {}
    for row in rows_of(sums):
        place = (row.file, row.line, row.expression)
        found[place] = found.get(place, 0) + row.nbytes
    return found


def as_text(facts: dict[str, Any]) -> str:
    """One device's part of the report."""
    peak = [HolderRow(**row) for row in facts["at_peak"]]
    left = [HolderRow(**row) for row in facts["at_end"]]
    span = facts["curve"]["step_ms"] * len(facts["curve"]["bytes"])
    parts = [
        f"{facts['device']}: peak {size(facts['peak'])} in use after {facts['peak_at_ms']:.0f} ms "
        f"({size(facts['reserved_at_peak'])} reserved); {facts['requests']:,} "
        f"request{'s' if facts['requests'] > 1 else ''}",
        chart(facts["curve"]["bytes"], f"{span:.0f} ms", size),
        holders_table("held at the peak, by line and op", peak, facts["peak"]),
    ]
    if left:
        parts.append(holders_table(f"still held at the end ({size(facts['live_at_end'])})", left,
                                   facts["live_at_end"]))
    parts.append(f"at the end {size(facts['reserved_at_end'])} reserved, "
                 f"{size(facts['cached_at_end'])} of it cached; "
                 f"{hole_text(facts['largest_hole'])}")
    return "\n".join(parts + [f"advice: {line}" for line in facts["advice"]])

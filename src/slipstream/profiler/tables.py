"""The table of averages as text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# What a table may be sorted by, in PyTorch's words, and the figure that it is.
SORTS = {
    "cpu_time": "cpu_time", "cpu_time_total": "cpu_time_total",
    "self_cpu_time_total": "self_cpu_time_total", "cuda_time": "device_time",
    "cuda_time_total": "device_time_total", "self_cuda_time_total": "self_device_time_total",
    "device_time": "device_time", "device_time_total": "device_time_total",
    "self_device_time_total": "self_device_time_total", "cpu_memory_usage": "cpu_memory_usage",
    "self_cpu_memory_usage": "self_cpu_memory_usage", "cuda_memory_usage": "device_memory_usage",
    "self_cuda_memory_usage": "self_device_memory_usage",
    "device_memory_usage": "device_memory_usage",
    "self_device_memory_usage": "self_device_memory_usage", "count": "count",
}
Column = tuple[str, Callable[[Any, Any], str]]


def time_text(microseconds: float) -> str:
    """A time with its unit."""
    if microseconds >= 1e6:
        return f"{microseconds / 1e6:.3f}s"
    if microseconds >= 1e3:
        return f"{microseconds / 1e3:.3f}ms"
    return f"{microseconds:.3f}us"


def memory_text(nbytes: int) -> str:
    """Bytes with their unit."""
    for unit, shift in (("GB", 30), ("MB", 20), ("KB", 10)):
        if abs(nbytes) >= 1 << shift:
            return f"{nbytes / (1 << shift):.2f} {unit}"
    return f"{nbytes} b"


def share_text(part: float, whole: float) -> str:
    """A share in percent."""
    return f"{100 * part / whole:.2f}%" if whole else "0.00%"


class Sums:
    """What shares are taken of."""

    def __init__(self, events: Any) -> None:
        self.cpu = sum(each.self_cpu_time_total for each in events)
        work = [each for each in events if each.device_type == "CUDA"]
        self.device = sum(each.self_device_time_total for each in work)


COLUMNS: list[Column] = [
    ("Self CPU %", lambda each, sums: share_text(each.self_cpu_time_total, sums.cpu)),
    ("Self CPU", lambda each, sums: time_text(each.self_cpu_time_total)),
    ("CPU total %", lambda each, sums: share_text(each.cpu_time_total, sums.cpu)),
    ("CPU total", lambda each, sums: time_text(each.cpu_time_total)),
    ("CPU time avg", lambda each, sums: time_text(each.cpu_time)),
]
DEVICE_COLUMNS: list[Column] = [
    ("Self CUDA", lambda each, sums: time_text(each.self_device_time_total)),
    ("Self CUDA %", lambda each, sums: share_text(each.self_device_time_total, sums.device)),
    ("CUDA total", lambda each, sums: time_text(each.device_time_total)),
    ("CUDA time avg", lambda each, sums: time_text(each.device_time)),
]
MEMORY_COLUMNS: list[Column] = [
    ("CPU Mem", lambda each, sums: memory_text(each.cpu_memory_usage)),
    ("Self CPU Mem", lambda each, sums: memory_text(each.self_cpu_memory_usage)),
    ("CUDA Mem", lambda each, sums: memory_text(each.device_memory_usage)),
    ("Self CUDA Mem", lambda each, sums: memory_text(each.self_device_memory_usage)),
]


def clipped(text: str, width: int | None) -> str:
    """A text that is no wider."""
    if width is None or width <= 0 or len(text) <= width:
        return text
    return text[:max(width - 3, 0)] + "..."


def columns_of(events: Any, widths: dict[str, int]) -> list[Column]:
    """The columns that a table has."""
    sums_device = any(each.self_device_time_total for each in events)
    found: list[Column] = [("Name", lambda each, sums: clipped(each.key, widths["name"])),
                           *COLUMNS]
    if sums_device:
        found += DEVICE_COLUMNS
    if events.wanted.get("memory"):
        found += MEMORY_COLUMNS
    found.append(("# of Calls", lambda each, sums: str(each.count)))
    if events.wanted.get("shapes"):
        found.append(("Input Shapes", lambda each, sums: clipped(
            str(each.input_shapes), widths["shapes"])))
    if events.wanted.get("stack"):
        found.append(("Source Location", lambda each, sums: clipped(
            each.stack[0] if each.stack else "", widths["stack"])))
    return found


def render(events: Any, rows: list[Any], widths: dict[str, int], header: str | None) -> str:
    """The table: a line a row, then the sums, which are those of all events."""
    sums = Sums(events)
    columns = columns_of(events, widths)
    cells = [[text(each, sums) for _, text in columns] for each in rows]
    sizes = [max(len(title), *(len(line[place]) for line in cells), 0)
             for place, (title, _) in enumerate(columns)]
    rule = "  ".join("-" * size for size in sizes)

    def line(texts: list[str]) -> str:
        first = texts[0].ljust(sizes[0])
        return "  ".join([first, *(text.rjust(size) for text, size in zip(
            texts[1:], sizes[1:], strict=True))]).rstrip()

    lines = [header] if header is not None else []
    lines += [rule, line([title for title, _ in columns]), rule, *map(line, cells), rule]
    lines.append(f"Self CPU time total: {time_text(sums.cpu)}")
    if sums.device:
        lines.append(f"Self CUDA time total: {time_text(sums.device)}")
        if events.recording.averages:
            lines.append(f"({events.recording.averages})")
    return "\n".join(lines) + "\n"

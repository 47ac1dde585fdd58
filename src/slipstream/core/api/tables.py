"""Tables of text, and numbers as people read them, for reports."""

from __future__ import annotations

from collections.abc import Sequence

from slipstream.core.memory.statistics import format_bytes

size = format_bytes


def microseconds(value: float) -> str:
    """A time given in microseconds."""
    for unit, scale in (("s", 1e6), ("ms", 1e3)):
        if value >= scale:
            return f"{value / scale:.2f} {unit}"
    return f"{value:.1f} µs"


def as_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A title, columns and rows as lines: numbers to the right, all after ``line`` to the left."""
    widths = [max(map(len, cells)) for cells in zip(columns, *rows, strict=True)]
    lines = [title]
    for cells in (columns, *rows):
        parts = [cell.rjust(width) if _is_figure(column) else cell.ljust(width)
                 for cell, width, column in zip(cells, widths, columns, strict=True)]
        lines.append(("  " + "  ".join(parts)).rstrip())
    return "\n".join(lines)


def _is_figure(column: str) -> bool:
    return column in ("count", "total", "each", "bytes", "blocks", "share")

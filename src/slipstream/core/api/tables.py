"""Tables of text, and numbers as people read them, for reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from slipstream.core.memory.statistics import format_bytes
from slipstream.core.vocab import optional

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


def print_tables(tables: Sequence[tuple[str, Sequence[str], Sequence[Sequence[str]]]],
                 notes: Sequence[str], text: str) -> None:
    """Print tables (title, columns, rows) and notes with rich, or ``text`` where rich is not."""
    try:
        console: Any = optional.require("rich.console", "demo").Console()
        rich: Any = optional.require("rich.table", "demo")
        markup: Any = optional.require("rich.text", "demo")
    except ImportError:
        print(text)
        return
    for title, columns, rows in tables:
        table = rich.Table(title=title, title_justify="left", box=None, header_style="bold")
        for column in columns:
            table.add_column(column, justify="right" if _is_figure(column) else "left",
                             overflow="fold")
        for row in rows:
            table.add_row(*[markup.Text(cell) for cell in row])
        console.print(table)
    for note in notes:
        console.print(markup.Text(note))


def _is_figure(column: str) -> bool:
    return column in ("count", "total", "each", "bytes", "blocks", "share")

"""Sites as users read them: the file, the line and the expression in it."""

from __future__ import annotations

import linecache
from types import CodeType

# The longest piece of source that a report shows.
LONGEST = 60


def source_line(file: str, line: int) -> str:
    """A line of a file without its indentation; "" where it cannot be read."""
    return linecache.getline(file, line).strip() if file else ""


def expression_of(code: CodeType | None, instruction: int) -> str:
    """The call or operator of a site as it is written: ``x @ w`` out of ``y = f(x @ w)``.

    The whole line where the interpreter does not know the columns, "" where there is no source.
    """
    if code is None:
        return ""
    places = list(code.co_positions())
    index = instruction // 2
    start, end, first, last = places[index] if index < len(places) else (None,) * 4
    if start is None:
        return ""
    line = linecache.getline(code.co_filename, start)
    if first is None or last is None:
        return shortened(line.strip())
    # Columns count bytes of UTF-8.
    raw = line.encode()
    part = raw[first:last] if start == end else raw[first:]
    text = part.decode(errors="replace").strip()
    return shortened(text if start == end else text + " …")


def shortened(text: str, width: int = LONGEST) -> str:
    """The beginning of a text."""
    return text if len(text) <= width else text[:width - 1] + "…"

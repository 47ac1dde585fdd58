"""How a verdict and a page say things."""

from __future__ import annotations

import linecache


def percent(value: float) -> str:
    """A share as text."""
    return f"{100 * value:.0f} %"


def short(where: str) -> str:
    """A line with its file's last part."""
    return where.rpartition("/")[2] or "an unknown line"


def quoted(where: str) -> str:
    """A line's place and its text."""
    file, _, line = where.rpartition(":")
    text = linecache.getline(file, int(line or 0)).strip() if file else ""
    return f"{short(where)} (`{text[:60]}`)" if text else short(where)


def size(nbytes: float) -> str:
    """Bytes as text."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if nbytes < 1024 or unit == "GiB":
            return f"{nbytes:,.0f} {unit}" if unit == "bytes" else f"{nbytes:,.1f} {unit}"
        nbytes /= 1024
    return ""


def micro(nanoseconds: float) -> str:
    """Nanoseconds as µs."""
    return f"{nanoseconds / 1000:,.1f} µs"

"""Waits: where the host waited for a device, what that cost, and scopes that refuse it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

from slipstream.core.api.tables import as_table, microseconds, print_tables, size
from slipstream.core.dispatch.modes import grad_scope
from slipstream.core.launch.advice import MENDS, READ, mend_of
from slipstream.core.launch.waiting import (
    DEFAULT,
    ERROR,
    WARN,
    Tally,
    asked,
    asking,
    watching,
)
from slipstream.core.vocab.errors import SyncError
from slipstream.core.vocab.modes import decode_site
from slipstream.core.vocab.sites import shortened, source_line

__all__ = ["SyncError", "SyncReport", "asked", "get_sync_debug_mode", "no_sync",
           "set_sync_debug_mode", "sync_report"]

NAMES = {"default": DEFAULT, "warn": WARN, "error": ERROR}
# From so many times on a line is said to be in a loop.
OFTEN = 10
# Bytes below which a copy costs what its launch costs.
TINY = 16 << 10


class _Refusing(grad_scope):
    """A scope, or decorator, in which waits of the running thread are refused, or not."""

    def __enter__(self) -> None:
        self.before.append(asking.mode)
        asking.mode = ERROR if self.value else DEFAULT

    def __exit__(self, *failure: object) -> None:
        asking.mode = self.before.pop()


def no_sync(mode: bool | Callable[..., Any] = True) -> Any:
    """A scope, or decorator, in which no op may let the host wait for a device.

    An op that would raises SyncError, a RuntimeError, before it waits; the text names the op, its
    operands, the line and the mend.  Of the calling thread only; inside, ``no_sync(False)`` allows
    waits again.  What the CPU computes is there at once: on it nothing waits, nothing is refused.
    """
    if callable(mode):
        return _Refusing(True)(mode)
    if not isinstance(mode, bool):
        raise TypeError(f"no_sync(): argument 'mode' must be bool, not {type(mode).__name__}")
    return _Refusing(mode)


def set_sync_debug_mode(debug_mode: int | str) -> None:
    """What becomes of waits outside `no_sync`, in all threads.

    "default" or 0: nothing; "warn" or 1: a UserWarning at the line; "error" or 2: SyncError.
    Raises RuntimeError for another value, TypeError for one of another type.
    """
    if isinstance(debug_mode, bool) or not isinstance(debug_mode, (int, str)):
        raise TypeError("set_sync_debug_mode(): argument 'debug_mode' must be int or str, not "
                        f"{type(debug_mode).__name__}")
    if isinstance(debug_mode, str) and debug_mode not in NAMES:
        raise RuntimeError(f"invalid value of debug_mode, expected one of `default`, `warn`, "
                           f"`error`, not `{debug_mode}`")
    wanted = NAMES[debug_mode] if isinstance(debug_mode, str) else debug_mode
    if wanted not in NAMES.values():
        raise RuntimeError(f"invalid value of debug_mode, expected one of 0, 1, 2, not {wanted}")
    watching.mode = wanted


def get_sync_debug_mode() -> int:
    """The mode that `set_sync_debug_mode` set: 0, 1 or 2."""
    return watching.mode


@dataclass
class SyncRow:
    """Waits of one kind at one line: ``count``, ``microseconds`` in all, ``nbytes`` read."""

    file: str
    line: int
    text: str
    kind: str
    device: str
    count: int
    microseconds: float
    nbytes: int


@dataclass
class CopyRow:
    """Copies from the host to a device of one dtype at one line: ``count``, ``nbytes`` in all."""

    file: str
    line: int
    text: str
    dtype: str
    device: str
    count: int
    nbytes: int


@dataclass
class SyncReport:
    """The waits of the host by line, the dearest first, the copies to devices, and ``advice``.

    ``advice`` has a sentence for each line that waited often, for tiny copies and for float64 that
    nobody seems to have wanted.  Prints as a table; ``print()`` uses rich where it is installed.
    """

    waits: list[SyncRow]
    copies: list[CopyRow]
    advice: list[str]

    @property
    def count(self) -> int:
        """How often the host waited."""
        return sum(row.count for row in self.waits)

    @property
    def microseconds(self) -> float:
        """How long the host waited in all."""
        return sum(row.microseconds for row in self.waits)

    def to_dict(self) -> dict[str, Any]:
        """The report as dicts, lists, numbers and strings."""
        return asdict(self) | {"count": self.count, "microseconds": self.microseconds}

    def tables(self) -> list[tuple[str, list[str], list[list[str]]]]:
        """The report's tables: title, columns, rows."""
        waits = [[str(row.count), microseconds(row.microseconds),
                  microseconds(row.microseconds / row.count), row.kind, row.device, *_place(row)]
                 for row in self.waits]
        copies = [[str(row.count), size(row.nbytes), size(row.nbytes // row.count), row.dtype,
                   row.device, *_place(row)] for row in self.copies]
        return [
            (f"the host waited {self.count} times, {microseconds(self.microseconds)}",
             ["count", "total", "each", "kind", "device", "line", ""], waits),
            ("copies to devices", ["count", "bytes", "each", "dtype", "device", "line", ""],
             copies)]

    def __str__(self) -> str:
        parts = [as_table(*each) for each in self.tables() if each[2]]
        if not parts:
            return "the host waited for no device"
        return "\n\n".join([*parts, *(["\n".join(self.advice)] if self.advice else [])])

    __repr__ = __str__

    def print(self) -> None:
        """Print the tables with rich where it is installed, the text elsewhere."""
        print_tables([each for each in self.tables() if each[2]], self.advice or [
            "" if self.waits or self.copies else str(self)], str(self))


def sync_report(reset: bool = False) -> SyncReport:
    """Where the host waited for devices since the process began or the last reset, in all threads.

    Every wait goes through one function, which counts it under the user's line: nothing has to be
    switched on.  A wait costs about a microsecond more for it.  ``reset``: begin anew afterwards.
    """
    waits = [_wait_row(each) for each in tuple(watching.waits.values())]
    copies = [_copy_row(each) for each in tuple(watching.copies.values())]
    waits = _merged(waits)
    copies = _merged(copies)
    waits.sort(key=lambda row: (-row.microseconds, row.file, row.line))
    copies.sort(key=lambda row: (-row.count, row.file, row.line))
    report = SyncReport(waits, copies, [*_of_waits(waits), *_of_copies(copies), *_of_widths()])
    if reset:
        watching.clear()
    return report


def _wait_row(tally: Tally) -> SyncRow:
    file, line = decode_site(*tally.site)
    return SyncRow(file, line, source_line(file, line), tally.what, tally.device,
                   tally.count, tally.nanoseconds / 1000, tally.nbytes)


def _copy_row(tally: Tally) -> CopyRow:
    file, line = decode_site(*tally.site)
    return CopyRow(file, line, source_line(file, line), tally.what, tally.device,
                   tally.count, tally.nbytes)


def _merged(rows: list[Any]) -> list[Any]:
    """One row a line and kind: a line may hold several calls."""
    found: dict[tuple[Any, ...], Any] = {}
    for row in rows:
        what = row.kind if isinstance(row, SyncRow) else row.dtype
        first = found.setdefault((row.file, row.line, what, row.device), row)
        if first is not row:
            first.count += row.count
            first.nbytes += row.nbytes
            if isinstance(row, SyncRow):
                first.microseconds += row.microseconds
    return list(found.values())


def _place(row: SyncRow | CopyRow) -> list[str]:
    return [f"{row.file}:{row.line}" if row.file else "inside slipstream", shortened(row.text)]


def _of_waits(rows: Iterable[SyncRow]) -> list[str]:
    return [f"{row.file}:{row.line}: {row.kind} made the host wait {row.count} times, "
            f"{microseconds(row.microseconds)} in all: {mend_of(row.kind)}"
            for row in rows if row.count >= OFTEN]


def also_seen() -> list[str]:
    """A sentence for each line of many tiny copies and of float64 by accident, in all threads."""
    copies = _merged([_copy_row(each) for each in tuple(watching.copies.values())])
    return [*_of_copies(sorted(copies, key=lambda row: -row.count)), *_of_widths()]


def only_reads(kind: str) -> bool:
    """Whether a wait goes when its value is read later; others leave work in its place."""
    return MENDS.get(kind, READ) == READ


def mend_of_wait(kind: str) -> str:
    """What to do about the waits of a line, in a few words."""
    if only_reads(kind):
        return "keep the value on the card and read it once, at the end"
    return mend_of(kind)


def _of_copies(rows: Iterable[CopyRow]) -> list[str]:
    lines = [f"{row.file}:{row.line}: {row.count} tiny copies to {row.device}, "
             f"{size(row.nbytes // row.count)} each on average: make one tensor of them and copy "
             "it once, or make them there (device=...)"
             for row in rows if row.count >= OFTEN and row.nbytes < TINY * row.count]
    lines += [f"{row.file}:{row.line}: float64 went to {row.device}, {row.count} times, "
              f"{size(row.nbytes)} in all: NumPy's arrays are float64 where nothing else is said; "
              "if float32 will do, call .float() before the copy"
              for row in rows if row.dtype == "float64"]
    return lines


def _of_widths() -> list[str]:
    found = []
    for site, (operands, result) in tuple(watching.widened.items()):
        file, line = decode_site(*site)
        found.append(f"{file}:{line}: a float64 operand makes the result float64, which costs "
                     f"twice the memory and at least twice the time: {operands} gave {result}; "
                     "cast the float64 operand with .float()")
    return found

"""Standard output and error as a report needs them, whatever a script made of them."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO

NUMBERS = {"stdout": 1, "stderr": 2}
# The status where nobody reads what is printed any more.
CUT_OFF = 1


# What scripts left in the place of the streams: one that is let go of may close the stream below.
kept: list[Any] = []


def mend() -> None:
    """Let both streams be written to, though a script closed them, or the shell gave none."""
    for name in NUMBERS:
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, nowhere())
        elif is_closed(stream):
            setattr(sys, name, reopened(name))


def is_closed(stream: Any) -> bool:
    """Whether nothing can be written; a class with write and flush alone knows nothing of it."""
    try:
        return bool(getattr(stream, "closed", False))
    except ValueError:
        # Its buffer is another stream's now.
        return True


@contextlib.contextmanager
def restored() -> Iterator[None]:
    """Write on where was written before, whatever a script puts in the place of the streams.

    What it wrote there comes first.
    """
    before = sys.stdout, sys.stderr
    try:
        yield
    finally:
        for left, first in zip((sys.stdout, sys.stderr), before, strict=True):
            if left is not first and left is not None:
                kept.append(left)
                flush_quietly(left)
        sys.stdout, sys.stderr = before
        mend()


def flush_quietly(stream: Any) -> None:
    """Write out what a script's own stream holds, as far as it can."""
    # Its class is the script's: any error is one of its own, not the report's.
    with contextlib.suppress(Exception):
        stream.flush()


def reopened(name: str) -> TextIO:
    """The stream that the process began with, or what it wrote to; else nowhere."""
    first: TextIO | None = getattr(sys, f"__{name}__")
    if first is not None and not is_closed(first):
        return first
    try:
        # The interpreter's own streams do not close the file descriptor.
        return open(NUMBERS[name], "w", encoding="utf-8", errors="backslashreplace",
                    closefd=False)
    except OSError:
        return nowhere()


def nowhere() -> TextIO:
    """A stream that nobody reads."""
    return open(os.devnull, "w", encoding="utf-8")


def flush() -> int:
    """Write out what was printed; 0, or the status where it cannot be written."""
    mend()
    try:
        sys.stdout.flush()
    except OSError as error:
        return cut_off(error)
    except (AttributeError, ValueError):
        # A stream of the script's own, as `run` leaves it: the interpreter deals with it.
        return 0
    return 0


def cut_off(error: OSError) -> int:
    """What is printed cannot be written: say so, but where the reader has gone; the status."""
    if not isinstance(error, BrokenPipeError):
        with contextlib.suppress(OSError):
            print(f"slipstream: the output cannot be written: {error.strerror}", file=sys.stderr)
    # What is left in the buffer would fail again at exit.
    sys.stdout = nowhere()
    return CUT_OFF

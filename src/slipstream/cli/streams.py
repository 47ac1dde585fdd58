"""Standard output and error as a report needs them, whatever became of them meanwhile."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TextIO

NUMBERS = {"stdout": 1, "stderr": 2}
# The status where nobody reads what is printed any more.
CUT_OFF = 1


def mend() -> None:
    """Let both streams be written to, though a script closed them, or the shell gave none."""
    for name in NUMBERS:
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, nowhere())
        elif stream.closed:
            setattr(sys, name, reopened(name))


def reopened(name: str) -> TextIO:
    """The stream that the process began with, or what it wrote to; else nowhere."""
    first: TextIO | None = getattr(sys, f"__{name}__")
    if first is not None and not first.closed:
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
    return 0


def cut_off(error: OSError) -> int:
    """What is printed cannot be written: say so, but where the reader has gone; the status."""
    if not isinstance(error, BrokenPipeError):
        with contextlib.suppress(OSError):
            print(f"slipstream: the output cannot be written: {error.strerror}", file=sys.stderr)
    # What is left in the buffer would fail again at exit.
    sys.stdout = nowhere()
    return CUT_OFF

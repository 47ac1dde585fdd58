"""Named ranges of a profile, with the names of PyTorch's ``torch.cuda.nvtx``.

They show where a profile of Slipstream's is on, as `profiler.record_function` does; NVIDIA's own
tools are not told of them.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from slipstream.core.api.profiling import span

__all__ = ["mark", "range", "range_end", "range_pop", "range_push", "range_start"]


class Open(threading.local):
    """The ranges that a thread has pushed, the innermost last."""

    def __init__(self) -> None:
        self.pushed: list[span] = []


_open = Open()
_started: dict[int, span] = {}
_numbers = itertools.count(1)


def range_push(msg: str) -> int:
    """Begin a range inside those that this thread has begun; returns how deep it lies, from 0."""
    found = span(str(msg))
    found.__enter__()
    _open.pushed.append(found)
    return len(_open.pushed) - 1


def range_pop() -> int:
    """End the innermost range; returns how deep it lay, or -1 where none was begun."""
    if not _open.pushed:
        return -1
    _open.pushed.pop().__exit__()
    return len(_open.pushed)


def range_start(msg: str) -> int:
    """Begin a range that may end anywhere; returns a number for `range_end`."""
    found, number = span(str(msg)), next(_numbers)
    found.__enter__()
    _started[number] = found
    return number


def range_end(range_id: int) -> None:
    """End a range by the number that `range_start` gave."""
    found = _started.pop(range_id, None)
    if found is not None:
        found.__exit__()


def mark(msg: str) -> None:
    """A range without length."""
    with span(str(msg)):
        pass


@contextmanager
def range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:
    """A scope, or decorator, that is a range; ``msg`` may have places for the other arguments."""
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()

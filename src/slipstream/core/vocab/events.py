"""Trace events: one record type, written at the doors, the allocator and the wait."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True, eq=False, repr=False)
class TraceEvent:
    """Something that happened: ``kind`` is call, plan, launch, allocate, free, wait or tape.

    ``start`` and ``end`` are nanoseconds of `time.perf_counter_ns`; ``name`` the op or kernel;
    ``details`` what belongs to the kind (operands, bytes, plan ...).
    """

    kind: str
    name: str
    start: int
    end: int
    code: Any
    instruction: int
    details: dict[str, Any]


Listener = Callable[[TraceEvent], None]

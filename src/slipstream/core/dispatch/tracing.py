# cython: annotation_typing=False
"""The trace events of the door in: plans, allocations, tape nodes; taken only while one listens."""

from __future__ import annotations

import time
from typing import Any

from slipstream.core.engine.tape import tape
from slipstream.core.launch.door import emit
from slipstream.core.launch.waiting import note_plan
from slipstream.core.vocab.modes import modes
from slipstream.core.vocab.records import Node
from slipstream.core.vocab.ring import DISPATCH, PLAN, PLANNING, SPAN


def reserved_bytes(memory: Any) -> int:
    """How many bytes an allocator ever took from the system; 0 where it has no memory."""
    pieces = getattr(memory, "pieces", None)
    return 0 if pieces is None else int(pieces.reserved.taken)


def traced_allocation(backend: Any, nbytes: int) -> int:
    """A block of the backend's memory, with an event that says whether it had to be reserved."""
    before = reserved_bytes(backend.memory)
    start = time.perf_counter_ns()
    address: int = backend.memory.allocate(nbytes)
    end = time.perf_counter_ns()
    fresh = reserved_bytes(backend.memory) > before
    emit("allocate", backend.name, start, end,
         {"address": address, "nbytes": nbytes, "block": "new" if fresh else "reused"})
    return address


def traced_node(rule: Any, values: Any, state: Any) -> Node:
    """A tape node, with an event."""
    start = time.perf_counter_ns()
    node = tape.make_node(rule, values, state)
    emit("tape", rule.name, start, time.perf_counter_ns(), {"node": node})
    return node


def traced_record(rule: Any, values: Any, outs: tuple[Any, ...], state: Any) -> None:
    """Record a call on the tape, with an event."""
    start = time.perf_counter_ns()
    node = tape.record(rule, values, outs, state)
    emit("tape", rule.name, start, time.perf_counter_ns(), {"node": node})


def emit_plan(plan: Any, start: int, made: bool) -> None:
    """Tell that a call's plan was found or made."""
    emit("plan", plan.op.name, start, time.perf_counter_ns(), {"plan": plan, "made": made})


def begin_planning() -> tuple[int, int] | None:
    """A plan is about to be made, and its kernel compiled; None while no profile is on."""
    ring = modes.ring
    return None if ring is None else (ring.switch(PLANNING), ring.now())


def end_planning(values: Any, plan: Any, begun: tuple[int, int] | None) -> None:
    """It was made, for a call with these arguments."""
    note_plan(values, plan)
    ring = modes.ring
    if ring is None or begun is None:
        return
    ring.switch(begun[0])
    state = modes.current()
    ring.write(PLAN, ring.name_of(plan.op.name), ring.site_of(state.code, state.instruction),
               begun[1], ring.now(), 0)


def profiled_compound(op: Any, values: Any) -> Any:
    """Call the function of a compound op as a span of the profile; what it calls lies inside."""
    ring: Any = modes.ring
    state = modes.current()
    site = ring.site_of(state.code, state.instruction)
    start = ring.entered or ring.now()
    before = ring.surround(DISPATCH)
    try:
        return op.function(*values)
    finally:
        ring.entered = 0
        ring.surround(before)
        ring.write(SPAN, ring.name_of(op.name), site, start, ring.now(), 0)

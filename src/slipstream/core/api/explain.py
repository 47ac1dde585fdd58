"""What a call does, layer by layer: ``explain``, plans as text, shares of time."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

from slipstream.core.api.fusions import KernelReport, kernels_of, sent, sent_since
from slipstream.core.api.launched import launch_facts, launch_text, program_of
from slipstream.core.api.library import op_named
from slipstream.core.dispatch.modes import listening
from slipstream.core.dispatch.op import IN_PLACE, OUT, PLAIN
from slipstream.core.engine.tape import SavedTensor
from slipstream.core.vocab.errors import describe_value
from slipstream.core.vocab.events import TraceEvent
from slipstream.core.vocab.modes import decode_site, modes

LAYERS = ("dispatch", "plan", "allocation", "kernel", "tape", "wait")
# The layer that the time of an event counts for.
LAYER_OF = {"plan": "plan", "allocate": "allocation", "launch": "kernel", "tape": "tape",
            "wait": "wait"}
FORMS = {PLAIN: "", IN_PLACE: " in place", OUT: " out="}


@dataclass
class PlanReport:
    """A plan as text: whether it was made or found, results, kernels considered, program.

    ``launches``: what a plan of a card launches, with sources (without the prelude).
    """

    op: str
    state: str
    results: list[str]
    kernel: str
    considered: list[tuple[str, str]]
    program: str
    launches: list[KernelReport] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"plan of {self.op} ({self.state})", f"  results   {', '.join(self.results)}",
                 f"  kernel    {self.kernel}"]
        lines += [f"  considered {name}: {verdict}" for name, verdict in self.considered]
        lines += [f"  launch    {each.name}: {each.fusion}" for each in self.launches]
        if self.program:
            lines += ["  program", *["    " + line for line in self.program.splitlines()]]
        return "\n".join(lines)


@dataclass
class CallReport:
    """One call of an op; ``inner`` holds the calls it made, ``microseconds`` a figure a layer.

    ``thread``: the name of the thread that called, where it is not the one that asked.
    """

    op: str
    form: str
    file: str
    line: int
    operands: dict[str, str]
    plan: PlanReport | None = None
    launches: list[str] = field(default_factory=list)
    allocations: list[dict[str, Any]] = field(default_factory=list)
    tape: list[dict[str, Any]] = field(default_factory=list)
    waits: list[str] = field(default_factory=list)
    microseconds: dict[str, float] = field(default_factory=dict)
    inner: list[CallReport] = field(default_factory=list)
    start: int = 0
    kernels: list[dict[str, Any]] = field(default_factory=list)
    thread: str = ""

    def __str__(self) -> str:
        return "\n".join(_call_lines(self))


@dataclass
class Explanation:
    """What `explain` saw: ``calls`` in order, ``waits`` outside them, the function's ``result``.

    ``replays``: of each card, (launches that left it meanwhile, those of them by graph replay).
    """

    calls: list[CallReport]
    waits: list[str]
    result: Any
    replays: dict[str, tuple[int, int]] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Everything but the result, as dicts, lists, numbers and strings."""
        return {"calls": [asdict(call) for call in self.calls], "waits": list(self.waits),
                "replays": {device: list(counts) for device, counts in self.replays.items()}}

    def __str__(self) -> str:
        lines = [line for call in self.calls for line in _call_lines(call)]
        lines += [f"wait: {wait}" for wait in self.waits]
        lines += [f"graph replay: {replayed} of {sent} launches that left {device} meanwhile"
                  for device, (sent, replayed) in self.replays.items()]
        return "\n".join(lines) or "no op was called"

    __repr__ = __str__

    def print(self) -> None:
        """Print the text."""
        print(self)


def explain(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Explanation:
    """Call ``fn(*args, **kwargs)`` once and tell what each op of it did, layer by layer.

    Each call: the line that made it, the operands as dtype[shape]@device, the plan (found or made,
    the kernels considered and why each was refused, each launch of a card with the kind of fusion
    that made it, the program as Python), allocations (new or reused blocks), the tape node with the
    bytes it saves, waits, microseconds a layer.  Calls of other threads
    that run meanwhile are told of too, with the thread's name.  The figures include the cost of
    looking; raises what ``fn`` raises.
    """
    if not callable(fn):
        raise TypeError(f"explain() needs a function to call, not {type(fn).__name__}")
    seen = _Collector()
    before = sent()
    with listening(seen):
        result = fn(*args, **kwargs)
    calls, waits = seen.finish()
    return Explanation(calls, waits, result, sent_since(before))


def describe_plan(op: Any, *args: Any, **kwargs: Any) -> PlanReport:
    """The plan that ``op(*args, **kwargs)`` takes, without running it; ``op`` a name or function.

    Prints as the kernels considered, each with the reason why it was refused or chosen, and the
    program.  Raises ValueError for an op that has no plan since it calls others, and what the
    call itself would raise.
    """
    found = op_named(op if isinstance(op, str) else getattr(op, "__name__", ""))
    if found.compound:
        raise ValueError(f"{found.name} has no plan of its own: it calls other ops")
    before = len(found.plans)
    plan = found.plan_for(modes.current(), found.bind(args, kwargs), None, PLAIN)
    return plan_report(plan, len(found.plans) > before)


def plan_report(plan: Any, made: bool) -> PlanReport:
    """A plan as a report."""
    recipe = plan.recipe
    specs = plan.out_specs or (plan.out_spec,)
    kernel = "none: another geometry over the same storage"
    if plan.kernel is not None:
        kernel = plan.kernel.name
    return PlanReport(plan.op.name, "made" if made else "found",
                      [repr(spec) for spec in specs if spec is not None],
                      kernel, list(getattr(recipe, "considered", ())), program_of(plan),
                      kernels_of(plan))


class _Collector:
    """Gathers events into reports, those of each thread by themselves.

    An event comes when what it tells of ended.
    """

    def __init__(self) -> None:
        # What is not settled yet, and the name, of each thread: their numbers are used again.
        self.threads: dict[Any, tuple[list[Any], str]] = {threading.current_thread(): ([], "")}

    @property
    def pending(self) -> list[Any]:
        """The running thread's events and calls that no call holds."""
        thread = threading.current_thread()
        if thread not in self.threads:
            self.threads[thread] = ([], thread.name)
        return self.threads[thread][0]

    def __call__(self, event: TraceEvent) -> None:
        if event.kind not in (*LAYER_OF, "call"):
            return
        pending = self.pending
        if event.kind != "call":
            pending.append(_digest(event))
            return
        first = len(pending)
        while first and pending[first - 1].start >= event.start:
            first -= 1
        inside, pending[first:] = pending[first:], []
        op = event.details["op"]
        values = zip(op.names, event.details["arguments"], strict=True)
        report = _report(op.name + FORMS[event.details["form"]], event, inside)
        report.operands = {name: describe_value(value) for name, value in values}
        pending.append(report)

    def finish(self) -> tuple[list[CallReport], list[str]]:
        """The outermost calls in order, and the waits outside them, of every thread."""
        calls: list[CallReport] = []
        waits: list[TraceEvent] = []
        for pending, name in tuple(self.threads.values()):
            mine, others = _outermost(pending)
            for call in mine:
                call.thread = name
            calls += mine
            waits += others
        return sorted(calls, key=lambda call: call.start), [_wait_text(wait) for wait in waits]


def _outermost(pending: list[Any]) -> tuple[list[CallReport], list[TraceEvent]]:
    """One thread's calls, and its waits outside them.

    Plans that the tape carries out belong to no call of the user: each is shown as a call.
    """
    calls: list[CallReport] = []
    waits: list[TraceEvent] = []
    loose: list[_Digest] = []
    for item in pending:
        if isinstance(item, CallReport):
            calls.append(item)
        elif item.event.kind == "wait":
            waits.append(item.event)
        else:
            loose.append(item)
            if item.event.kind == "launch":
                calls.append(_loose_call(item, loose))
                loose = []
    return calls, waits


@dataclass
class _Digest:
    """An event, with what has to be read of it at once: tensors are not kept alive."""

    event: TraceEvent
    start: int
    facts: Any
    plan: Any = None
    kernel: dict[str, Any] = field(default_factory=dict)


def _digest(event: TraceEvent) -> _Digest:
    details = event.details
    facts: Any = None
    plan: Any = None
    if event.kind == "plan":
        facts = plan_report(details["plan"], details["made"])
    elif event.kind == "allocate":
        facts = {"nbytes": details["nbytes"], "block": details["block"]}
    elif event.kind == "tape":
        facts = _node_facts(details["node"])
    elif event.kind == "launch":
        facts = [repr(spec) for spec in details["operands"]]
        plan = details["plan"]
    kept = TraceEvent(event.kind, event.name, event.start, event.end, event.code,
                      event.instruction, details if event.kind == "wait" else {})
    kernel = launch_facts(plan, details["shared"]) if plan is not None else {}
    return _Digest(kept, event.start, facts, plan, kernel)


def _node_facts(node: Any) -> dict[str, Any]:
    saved = list(_saved_tensors(node))
    return {"node": node.name(), "saved": [repr(each.tensor.spec) for each in saved],
            "saved_bytes": sum(each.tensor.spec.nbytes for each in saved)}


def _saved_tensors(node: Any) -> Iterator[Any]:
    entries: list[Any] = [*(node.saved or ()), node.extra]
    for entry in entries:
        for each in entry if isinstance(entry, list) else [entry]:
            if isinstance(each, SavedTensor) and each.tensor is not None:
                yield each


def _report(name: str, event: TraceEvent, inside: list[Any]) -> CallReport:
    op, _, form = name.partition(" ")
    own = [item for item in inside if isinstance(item, _Digest)]
    # The site of the call is that of its own first event: calls inside may have noted theirs.
    site = own[0].event if own else event
    file, line = decode_site(site.code, site.instruction)
    report = CallReport(op, form, file, line, {}, start=event.start)
    report.inner = [item for item in inside if isinstance(item, CallReport)]
    times = dict.fromkeys(LAYERS, 0)
    for item in own:
        times[LAYER_OF[item.event.kind]] += item.event.end - item.event.start
        _take_in(report, item)
    inner = sum(sum(each.microseconds.values()) for each in report.inner)
    spent = event.end - event.start - sum(times.values())
    report.microseconds = {layer: times[layer] / 1000 for layer in LAYERS}
    report.microseconds["dispatch"] = max(spent / 1000 - inner, 0.0)
    return report


def _take_in(report: CallReport, item: _Digest) -> None:
    kind = item.event.kind
    if kind == "plan":
        report.plan = item.facts
    elif kind == "allocate":
        report.allocations.append(item.facts)
    elif kind == "tape":
        report.tape.append(item.facts)
    elif kind == "launch":
        report.launches.append(item.event.name)
        report.kernels.append(item.kernel)
        # What goes over lists of tensors keeps its own plans.
        report.plan = report.plan or plan_report(item.plan, False)
    else:
        report.waits.append(_wait_text(item.event))


def _loose_call(launch: _Digest, items: list[_Digest]) -> CallReport:
    plan = next((item.facts for item in items if item.event.kind == "plan"), None)
    first = items[0].event
    event = TraceEvent("call", first.name, first.start, launch.event.end, launch.event.code,
                       launch.event.instruction, {})
    report = _report(plan.op if plan is not None else launch.event.name, event, list(items))
    count = len(plan.results) if plan is not None else 0
    report.operands = {f"operand {place}": text
                       for place, text in enumerate(launch.facts[count:])}
    return report


def _wait_text(event: TraceEvent) -> str:
    return f"{event.name} on {event.details.get('device', '?')}, {_micro(event.end - event.start)}"


def _micro(nanoseconds: float) -> str:
    return f"{nanoseconds / 1000:.1f} µs"


def _call_lines(call: CallReport, depth: int = 0) -> list[str]:
    where = f"{call.file}:{call.line}" if call.file else "inside slipstream"
    if call.thread:
        where += f", in thread {call.thread}"
    lines = [f"{call.op}{' ' if call.form else ''}{call.form}  at {where}"]
    lines += [f"  {name}: {text}" for name, text in call.operands.items()]
    if call.plan is not None:
        lines += ["  " + line for line in str(call.plan).splitlines()]
    lines += [f"  kernel    {launch_text(each)}" for each in call.kernels]
    for each in call.allocations:
        lines.append(f"  allocation {each['nbytes']} bytes, {each['block']} block")
    for each in call.tape:
        saved = ", ".join(each["saved"]) or "nothing"
        lines.append(f"  tape      {each['node']} saves {saved} ({each['saved_bytes']} bytes)")
    lines += [f"  wait      {text}" for text in call.waits] or ["  wait      none"]
    times = [f"{layer} {value:.1f} µs" for layer, value in call.microseconds.items() if value]
    if times:
        lines.append("  time      " + ", ".join(times))
    lines += [line for inner in call.inner for line in _call_lines(inner, depth + 1)]
    return ["    " * (depth > 0) + line for line in lines]


class OwnTime:
    """The time of spans without that of the spans inside them; these end, and come, before it."""

    # A span that holds more than these is a kernel that waited thousands of times: there is none.
    KEPT = 4096

    def __init__(self) -> None:
        self.before: deque[tuple[int, int]] = deque(maxlen=self.KEPT)

    def of(self, start: int, end: int) -> int:
        """The own time of the span from ``start`` to ``end``."""
        inside = 0
        while self.before and self.before[-1][0] >= start:
            first, last = self.before.pop()
            inside += last - first
        self.before.append((start, end))
        return end - start - inside


@contextmanager
def time_shares() -> Iterator[dict[str, float]]:
    """Measure a block; at its end the dict that it got holds each part's share of the time.

    ``kernels``: inside kernels; ``waits``: waiting for devices; ``dispatch``: all else, the
    block's own Python too.  A wait inside a launch counts as a wait; other threads' work does not
    count.  Every call takes its usual road; a launch costs an event more.
    """
    shares: dict[str, float] = {}
    spent = {"kernels": 0, "waits": 0}
    thread = threading.get_ident()
    alone = OwnTime()

    def listen(event: TraceEvent) -> None:
        part = {"launch": "kernels", "wait": "waits"}.get(event.kind)
        if part is not None and threading.get_ident() == thread:
            spent[part] += alone.of(event.start, event.end)

    start = time.perf_counter_ns()
    modes.listeners = [*(modes.listeners or ()), listen]
    try:
        yield shares
    finally:
        left = [each for each in modes.listeners or () if each is not listen]
        modes.listeners = left or None
    total = max(time.perf_counter_ns() - start, 1)
    shares["dispatch"] = max(total - sum(spent.values()), 0) / total
    shares.update({part: nanoseconds / total for part, nanoseconds in spent.items()})

"""``SLIPSTREAM_DEBUG=1..5``: what each call did, told on standard error while the program runs.

1: the op, its operands and their device, the line.  2: the kernel and its time.  3: its source, at
its first use.  4: plans made or found, blocks of memory.  5: what the formula became after every
rewriting, and each kernel that was considered.
"""

from __future__ import annotations

import sys
from typing import Any, TextIO

from slipstream.core.api.launched import launch_facts, launch_text, program_of, source_of
from slipstream.core.dispatch.modes import listening
from slipstream.core.dispatch.op import IN_PLACE, OUT
from slipstream.core.vocab.errors import describe_value
from slipstream.core.vocab.events import TraceEvent
from slipstream.core.vocab.modes import decode_site
from slipstream.core.vocab.settings import settings

OP, KERNEL, SOURCE, PLAN, REWRITES = range(1, 6)
FORMS = {IN_PLACE: "_", OUT: " (out=)"}


class Teller:
    """A listener that writes lines; ``level`` as in the module's text."""

    def __init__(self, level: int, stream: TextIO | None = None) -> None:
        self.level = level
        self.stream = stream
        self.shown: set[str] = set()

    def write(self, text: str, indent: int = 2) -> None:
        """Write lines, each with the mark of ours."""
        target = self.stream or sys.stderr
        for line in text.splitlines():
            target.write(f"slipstream: {' ' * indent}{line}\n")

    def __call__(self, event: TraceEvent) -> None:
        """Tell of one event."""
        tell = {"call": self.call, "launch": self.launch, "plan": self.plan,
                "allocate": self.allocate, "wait": self.wait}.get(event.kind)
        if tell is not None:
            tell(event)

    def call(self, event: TraceEvent) -> None:
        """An op was called: told behind what it did."""
        op = event.details["op"]
        values = zip(op.names, event.details["arguments"], strict=True)
        operands = ", ".join(f"{name}={describe_value(value)}" for name, value in values
                             if value is not None)
        file, line = decode_site(event.code, event.instruction)
        where = f"  at {file}:{line}" if file else ""
        self.write(f"{op.name}{FORMS.get(event.details['form'], '')}({operands}){where}", 0)

    def launch(self, event: TraceEvent) -> None:
        """A kernel was launched."""
        if self.level < KERNEL:
            return
        plan = event.details["plan"]
        spent = (event.end - event.start) / 1000
        shared = event.details["shared"]
        self.write(f"kernel {launch_text(launch_facts(plan, shared))}; {spent:.1f} µs of the host")
        if self.level >= SOURCE:
            source = source_of(plan)
            if source and source not in self.shown:
                self.shown.add(source)
                self.write(source, 4)

    def plan(self, event: TraceEvent) -> None:
        """A plan was found or made."""
        if self.level < PLAN:
            return
        plan, made = event.details["plan"], event.details["made"]
        spent = (event.end - event.start) / 1000
        self.write(f"plan {'made' if made else 'found'} in {spent:.1f} µs: {plan!r}")
        if self.level >= REWRITES and made:
            for name, verdict in getattr(plan.recipe, "considered", ()):
                self.write(f"considered {name}: {verdict}", 4)
            self.write(program_of(plan), 4)

    def allocate(self, event: TraceEvent) -> None:
        """A block was handed out."""
        if self.level >= PLAN:
            facts: dict[str, Any] = event.details
            self.write(f"{facts['block']} block of {facts['nbytes']:,} bytes at "
                       f"{facts['address']:#x} on {event.name}")

    def wait(self, event: TraceEvent) -> None:
        """The host waited."""
        spent = (event.end - event.start) / 1000
        self.write(f"wait for {event.name} on {event.details.get('device')}, {spent:.1f} µs")


def install(level: int | None = None) -> None:
    """Begin to tell of the calling thread's ops, as the setting says; nothing at level 0."""
    wanted = settings.debug if level is None else level
    if wanted > 0:
        listening(Teller(wanted)).__enter__()

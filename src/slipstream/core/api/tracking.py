"""Explaining the calls that a script makes at a line, while it runs."""

from __future__ import annotations

import os
import threading
from typing import Any

from slipstream.core.api.explain import (
    CallReport,
    Explanation,
    _Collector,
    _outermost,
    _wait_text,
)
from slipstream.core.dispatch.modes import listening
from slipstream.core.vocab.events import TraceEvent
from slipstream.core.vocab.modes import decode_site

# Reports of a line that are kept; the rest are counted.
MOST_CALLS = 32
# What may be pending before what belongs to no such call is let go.
MOST_PENDING = 4096


class LineExplainer(_Collector):
    """A scope that keeps the calls made at a line of a file; at any line where it is 0.

    ``called``: the file's lines that call ops; ``counted``: how many calls there were; the first
    `MOST_CALLS` are explained, the later ones of a loop do the same again.
    """

    def __init__(self, file: str, line: int = 0) -> None:
        super().__init__()
        self.file = os.path.abspath(file)
        self.line = line
        self.kept: list[CallReport] = []
        self.waits: list[str] = []
        self.counted = 0
        self.called: set[int] = set()
        self.scope = listening(self)

    def __enter__(self) -> LineExplainer:
        self.scope.__enter__()
        return self

    def __exit__(self, *failure: object) -> None:
        self.scope.__exit__(*failure)
        self.settle()

    def __call__(self, event: TraceEvent) -> None:
        """Take an event in."""
        super().__call__(event)
        if len(self.pending) > MOST_PENDING:
            pending = self.pending
            name = self.threads[threading.current_thread()][1]
            self.take(pending, name)
            pending.clear()

    def settle(self) -> None:
        """Keep what is of the line, and let the rest go."""
        for pending, name in tuple(self.threads.values()):
            self.take(pending, name)
        self.threads.clear()
        self.kept.sort(key=lambda call: call.start)

    def take(self, pending: list[Any], thread: str) -> None:
        """Keep what one thread did at the line."""
        calls, waits = _outermost(pending)
        for call in calls:
            call.thread = thread
        self.keep(calls)
        for wait in waits:
            if len(self.waits) < MOST_CALLS and self.wanted(*decode_site(wait.code,
                                                                         wait.instruction)):
                self.waits.append(_wait_text(wait))

    def keep(self, calls: list[CallReport]) -> None:
        """Keep those of the line."""
        for call in calls:
            if os.path.abspath(call.file) == self.file:
                self.called.add(call.line)
            if self.wanted(call.file, call.line):
                self.counted += 1
                if len(self.kept) < MOST_CALLS:
                    self.kept.append(call)

    def wanted(self, file: str, line: int) -> bool:
        """Whether it is the line."""
        return os.path.abspath(file) == self.file and self.line in (0, line)

    def explanation(self, result: Any = None) -> Explanation:
        """What was kept."""
        return Explanation(self.kept, self.waits, result)

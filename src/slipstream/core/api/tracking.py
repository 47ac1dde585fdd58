"""Explaining the calls that a script makes at a line, while it runs."""

from __future__ import annotations

import os
import threading
from typing import Any

from slipstream.core.api.explain import CallReport, Explanation, _Collector, _outermost
from slipstream.core.dispatch.modes import listening
from slipstream.core.vocab.events import TraceEvent

# Reports of a line that are kept; the rest are counted.
MOST_CALLS = 32
# What may be pending before what belongs to no such call is let go.
MOST_PENDING = 4096


class LineExplainer(_Collector):
    """A scope that keeps the calls made at a line of a file; at any line where it is 0.

    ``counted``: how many calls there were; the first `MOST_CALLS` are explained, the later ones of
    a loop do the same again.
    """

    def __init__(self, file: str, line: int = 0) -> None:
        super().__init__()
        self.file = os.path.abspath(file)
        self.line = line
        self.kept: list[CallReport] = []
        self.counted = 0
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
            calls, _ = _outermost(pending)
            pending.clear()
            for call in calls:
                call.thread = self.threads[threading.current_thread()][1]
            self.keep(calls)

    def settle(self) -> None:
        """Keep what is of the line, and let the rest go."""
        calls, _ = self.finish()
        self.threads.clear()
        self.keep(calls)

    def keep(self, calls: list[CallReport]) -> None:
        """Keep those of the line."""
        for call in calls:
            if self.wanted(call):
                self.counted += 1
                if len(self.kept) < MOST_CALLS:
                    self.kept.append(call)

    def wanted(self, call: CallReport) -> bool:
        """Whether a call was made at the line."""
        return os.path.abspath(call.file) == self.file and self.line in (0, call.line)

    def explanation(self, result: Any = None) -> Explanation:
        """What was kept."""
        return Explanation(self.kept, [], result)

"""Explaining the calls that a script makes at a line, while it runs."""

from __future__ import annotations

import os
import sys
import threading
from types import FrameType
from typing import Any

from slipstream.core.api.explain import (
    LAYER_OF,
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

    What the line calls in turn, in other functions and files, is the line's too, and ``elsewhere``
    counts it.  ``called``: the file's lines that call ops, themselves or below; ``counted``: how
    many calls there were; the first `MOST_CALLS` are explained, the later ones of a loop do the
    same again.
    """

    def __init__(self, file: str, line: int = 0) -> None:
        super().__init__()
        # The folder that modules are imported from is known without symbolic links.
        self.files = {os.path.abspath(file), os.path.realpath(file)}
        self.line = line
        self.kept: list[CallReport] = []
        self.waits: list[str] = []
        self.counted = self.elsewhere = 0
        # When what happened below the line began, as far as it is not settled yet.
        self.below: set[int] = set()
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
        if self.line and event.kind in (*LAYER_OF, "call") and self.passed():
            self.below.add(event.start)
        super().__call__(event)
        if len(self.pending) > MOST_PENDING:
            pending = self.pending
            name = self.threads[threading.current_thread()][1]
            self.take(pending, name)
            pending.clear()

    def passed(self) -> bool:
        """Whether the line is on the running stack; its other lines there call ops too."""
        found = False
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_filename in self.files:
                self.called.add(frame.f_lineno or 0)
                found = found or frame.f_lineno == self.line
            frame = frame.f_back
        return found

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
            wanted = wait.start in self.below or self.wanted(*decode_site(wait.code,
                                                                         wait.instruction))
            if wanted and len(self.waits) < MOST_CALLS:
                self.waits.append(_wait_text(wait))
        self.below.difference_update([item.start for item in pending])

    def keep(self, calls: list[CallReport]) -> None:
        """Keep those of the line."""
        for call in calls:
            here = self.wanted(call.file, call.line)
            if os.path.abspath(call.file) in self.files:
                self.called.add(call.line)
            if here or call.start in self.below:
                self.counted += 1
                self.elsewhere += not here
                if len(self.kept) < MOST_CALLS:
                    self.kept.append(call)

    def wanted(self, file: str, line: int) -> bool:
        """Whether it is the line."""
        return os.path.abspath(file) in self.files and self.line in (0, line)

    def explanation(self, result: Any = None) -> Explanation:
        """What was kept."""
        return Explanation(self.kept, self.waits, result)

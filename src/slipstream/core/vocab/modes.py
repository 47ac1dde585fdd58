# cython: nonecheck=False
"""Mode state per thread, and the site: the user's line that called an op."""

from __future__ import annotations

import os
import sys
import threading
import weakref
from types import CodeType, FrameType
from typing import Any

import cython

from slipstream.core.vocab.autocast import MODE
from slipstream.core.vocab.events import Listener
from slipstream.core.vocab.ring import Ring

__all__ = ["ROOT", "ModeState", "ModeTable", "Ring", "decode_site", "hearing", "modes"]

# The .pxd declares the C functions.
# mypy: disable-error-code="name-defined"
# Frames of files below this folder are ours; the first frame outside it is the user's.
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep


class ModeState:
    """The modes of one thread.

    ``special`` says what the fast path cannot carry out: a bit for each device type with autocast,
    and above them the count of user modes, recordings and listeners; ``autocast`` is the thread's
    `AutocastState`, None before it was ever used.  ``code`` and ``instruction`` are the site of
    the last op, undecoded.
    """

    grad_enabled: bool
    inference: bool
    special: int
    autocast: Any
    stack: list[Any]
    device: Any
    code: CodeType | None
    instruction: int
    stream: Any

    def __init__(self) -> None:
        self.grad_enabled = True
        self.inference = False
        self.special = 0
        self.autocast = None
        self.stack = []
        self.device = None
        self.code = None
        self.instruction = 0
        self.stream = None


class Holder:
    """Keeps a thread's state as long as the thread lives."""

    def __init__(self, state: ModeState) -> None:
        self.state = state


class Hearing:
    """Lets scopes hear of the calls of every thread; a singleton, `hearing`.

    ``count``: how many such scopes are on; while one is, each thread takes the door's slow way.
    """

    def __init__(self) -> None:
        self.holders: weakref.WeakSet[Holder] = weakref.WeakSet()
        self.count = 0
        self.renew()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.renew)

    def renew(self) -> None:
        """Another thread may have held the lock when this process was forked."""
        self.lock = threading.Lock()

    def change(self, more: int) -> None:
        """One scope more or less."""
        with self.lock:
            self.count += more
            for holder in self.holders:
                holder.state.special += more * MODE

    def meet(self, state: ModeState) -> Holder:
        """A new thread's state."""
        holder = Holder(state)
        with self.lock:
            state.special += self.count * MODE
            self.holders.add(holder)
        return holder


class ModeTable:
    """Finds the running thread's `ModeState`; a singleton, `modes`.

    ``listeners`` get every trace event; ``ring`` is the profiler's, None while none is on.
    """

    _by_thread: dict[int, ModeState]
    _local: threading.local
    _last_thread: int
    _last: ModeState
    listeners: list[Listener] | None
    ring: Ring | None
    root: str

    def __init__(self) -> None:
        self._by_thread = {}
        self._local = threading.local()
        self._last_thread = 0
        self._last = ModeState()
        self.listeners = None
        self.ring = None
        self.root = ROOT

    def current(self) -> ModeState:
        """The running thread's state."""
        if cython.compiled:
            # Thread ids of the interpreter are never used twice, so the last one found is safe.
            thread: cython.ulonglong = slip_thread()  # noqa: F821
            if thread == self._last_thread:
                return self._last
            state: ModeState = self._find()
            self._last_thread = thread
            self._last = state
            return state
        try:
            return self._local.state
        except AttributeError:
            return self._find()

    def _find(self) -> ModeState:
        state: ModeState | None = getattr(self._local, "state", None)
        if state is None:
            state = ModeState()
            self._local.holder = hearing.meet(state)
            self._local.state = state
        return state

    def note_site(self, state: ModeState) -> None:
        """Store the innermost frame outside slipstream as (code, instruction offset)."""
        if self.ring is not None:
            self.ring.enter(state)
        if cython.compiled:
            instruction: cython.int = 0
            code = slip_site(self.root, state.code, cython.address(instruction))  # noqa: F821
            if code is not None:
                state.code = code
                state.instruction = instruction
            return
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and frame.f_code.co_filename.startswith(ROOT):
            frame = frame.f_back
        if frame is not None:
            state.code = frame.f_code
            state.instruction = frame.f_lasti

    def note_scope(self, state: ModeState, ring: Ring) -> int:
        """The same where no op is called; the site's number in a profile that is on."""
        self.note_site(state)
        ring.entered = 0
        return ring.site_of(state.code, state.instruction)


def decode_site(code: CodeType | None, instruction: int) -> tuple[str, int]:
    """The file and line of a site; ("", 0) where none was noted."""
    if code is None:
        return "", 0
    line = code.co_firstlineno
    for start, end, number in code.co_lines():
        if start <= instruction < end and number is not None:
            return code.co_filename, number
    return code.co_filename, line


hearing = Hearing()
modes = ModeTable()

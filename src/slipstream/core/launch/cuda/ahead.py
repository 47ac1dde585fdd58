"""Kernels compiled before they are asked for, by threads beside the program's own.

What may be asked for is said as an idea: a function that lists kernels, the likeliest first.  A
thread lists them and compiles those that are not known.  Which kernel a call takes follows from its
shapes alone, never from what lies ready here: an image that is asked for is handed over, one that
is being made is waited for, and one that waits its turn is made by whoever asks.
"""

from __future__ import annotations

import atexit
import heapq
import os
import threading
from collections.abc import Callable, Iterable
from typing import Any

from slipstream.core.vocab.settings import settings

# Source, name and options of a kernel, and the architecture that it is compiled for.
Key = tuple[str, str, tuple[str, ...], str]
Idea = tuple[Callable[..., Iterable[Any]], tuple[Any, ...]]
# Ideas that wait, and images that nobody has asked for, beyond which no more are thought of.
MOST_IDEAS, MOST_IMAGES = 256, 512


def key_of(code: Any, arch: str) -> Key:
    """What an image is known by."""
    return (code.source, code.name, code.options, arch)


class Ahead:
    """Threads that compile; ``make(code, arch)`` gives an image, or None where that fails.

    What fails here fails again where the kernel is asked for, and is told there.
    """

    def __init__(self, make: Callable[[Any, str], bytes | None]) -> None:
        self.make = make
        self.hooked = False
        self.start_anew()

    def start_anew(self) -> None:
        """Know nothing: as at the start, and in a forked process, which has no such threads."""
        self.changed = threading.Condition()
        self.threads: list[threading.Thread] = []
        self.ideas: list[tuple[Idea, str]] = []
        # Kernels that wait, by their place among the new ones of their idea, then by age.
        self.queue: list[tuple[int, int, Key]] = []
        self.queued = 0
        self.waiting: dict[Key, Any] = {}
        self.running: set[Key] = set()
        self.busy = 0
        self.images: dict[Key, bytes] = {}
        # What was made here or is made by whoever asks for it.
        self.known: set[Key] = set()
        self.ended = False

    def think(self, arch: str, idea: Callable[..., Iterable[Any]], *arguments: Any) -> None:
        """Take in an idea: ``idea(*arguments)`` lists kernels for an architecture."""
        most = settings.ahead
        with self.changed:
            if most <= 0 or self.ended or len(self.ideas) >= MOST_IDEAS:
                return
            self.ideas.append(((idea, arguments), arch))
            self._start(most)
            self.changed.notify()

    def take(self, code: Any, arch: str) -> bytes | None:
        """The image of a kernel, if a thread made it or is making it; None: make it yourself."""
        key = key_of(code, arch)
        with self.changed:
            self.known.add(key)
            self.waiting.pop(key, None)
            while key in self.running:
                self.changed.wait()
            return self.images.pop(key, None)

    def settle(self) -> None:
        """Wait until there is nothing left to make."""
        with self.changed:
            while self.ideas or self.waiting or self.busy:
                self.changed.wait()

    def stop(self) -> None:
        """Give up what waits and see the threads end: no compiler may run while a process exits."""
        with self.changed:
            self.ended = True
            self._give_up()
            self.changed.notify_all()
        for thread in self.threads:
            thread.join()

    def forget(self) -> None:
        """Give up what waits and let go of what was made, for another driver."""
        with self.changed:
            self._give_up()
            while self.busy:
                self.changed.wait()
            self.images.clear()
            self.known.clear()

    def _give_up(self) -> None:
        self.ideas.clear()
        self.queue.clear()
        self.waiting.clear()

    def _start(self, most: int) -> None:
        self.threads = [thread for thread in self.threads if thread.is_alive()]
        if len(self.threads) >= most:
            return
        if not self.hooked:
            self.hooked = True
            atexit.register(self.stop)
            if hasattr(os, "register_at_fork"):
                os.register_at_fork(after_in_child=self.start_anew)
        thread = threading.Thread(target=self._run, name="slipstream-ahead", daemon=True)
        self.threads.append(thread)
        thread.start()

    def _run(self) -> None:
        """Follow ideas first, then make what waits; an error of ours shows, and ends it."""
        while True:
            with self.changed:
                while not (self.ended or self.ideas or self.queue):
                    self.changed.wait()
                if self.ended:
                    return
                self.busy += 1
                idea = self.ideas.pop(0) if self.ideas else None
            try:
                if idea is not None:
                    self._follow(*idea)
                else:
                    self._make_next()
            except BaseException:
                with self.changed:
                    self._give_up()
                raise
            finally:
                with self.changed:
                    self.busy -= 1
                    self.changed.notify_all()

    def _follow(self, idea: Idea, arch: str) -> None:
        """Let the kernels of an idea wait for their turn."""
        listed, arguments = idea
        place = 0
        for code in listed(*arguments):
            key = key_of(code, arch)
            with self.changed:
                if self.ended or len(self.waiting) + len(self.images) >= MOST_IMAGES:
                    return
                if key in self.known or key in self.waiting:
                    continue
                self.waiting[key] = code
                heapq.heappush(self.queue, (place, self.queued, key))
                place += 1
                self.queued += 1
                self.changed.notify()

    def _make_next(self) -> None:
        with self.changed:
            key = heapq.heappop(self.queue)[2] if self.queue else None
            code = None if key is None else self.waiting.pop(key, None)
            if key is None or code is None:
                # Another thread took it, or whoever asked for it makes it.
                return
            self.running.add(key)
        image = None
        try:
            image = self.make(code, key[3])
        finally:
            with self.changed:
                self.running.discard(key)
                self.known.add(key)
                if image is not None:
                    self.images[key] = image
                self.changed.notify_all()

"""The watchdog: work that waits in a window longer than about a millisecond goes out.

It drains the window (what is recorded goes out one by one) while the recorder keeps its place, so
that the window still ends where its content says.  Compiled, a thread that needs no interpreter
looks (`native.beats`) and calls only where something has waited.  Uncompiled, the thread here
needs the interpreter's lock: under a busy interpreter it promises only to run.  While nothing is
recorded either sleeps.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from slipstream.core.native.beats import watch

# Seconds that work may wait, and after which an idle watchdog sleeps until it is woken.
LIMIT = 0.001
IDLE = 0.5


class Watchdog:
    """A thread that looks at the queues of all devices; a singleton, `watchdog`."""

    def __init__(self) -> None:
        self.backends: list[Any] = []
        self.thread: threading.Thread | None = None
        self.wake = threading.Event()

    def watch(self, backend: Any) -> None:
        """Look at a device's queues from here on."""
        self.backends.append(backend)
        if not watch.start(self.drain_waiting) and self.thread is None:
            self.thread = threading.Thread(target=self.run, name="slipstream-watchdog",
                                           daemon=True)
            self.thread.start()

    def drain_waiting(self) -> None:
        """Send what waits; the watch saw that it has waited."""
        for backend in tuple(self.backends):
            for queue in tuple(backend.queues):
                if len(queue.window.launches) != queue.window.drained:
                    queue.watch_drain()

    def run(self) -> None:
        """Look every millisecond while there is work; then sleep."""
        quiet = time.monotonic()
        while True:
            time.sleep(LIMIT)
            if self.look():
                quiet = time.monotonic()
            elif time.monotonic() - quiet > IDLE:
                self.wake.clear()
                self.set_asleep(True)
                self.wake.wait()
                self.set_asleep(False)
                quiet = time.monotonic()

    def set_asleep(self, asleep: bool) -> None:
        """Tell the queues whether the next record has to wake us."""
        for backend in tuple(self.backends):
            for queue in tuple(backend.queues):
                queue.asleep = asleep

    def look(self) -> bool:
        """Drain what has waited since the last look; whether anything was recorded since."""
        busy = False
        for backend in tuple(self.backends):
            for queue in tuple(backend.queues):
                busy = queue.tick() or busy
        return busy


watchdog = Watchdog()

"""The workers of one DataLoader iterator, threads or processes: started, fed, watched, ended."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from typing import Any

from slipstream.utils.data.packing import packed, unpacked
from slipstream.utils.data.workers import LOOKS_AFTER, Job, work

# So long, in seconds, an ending worker may take before it is left behind or, a process, killed.
PATIENCE = 5.0


class Crew:
    """Workers with a queue of tasks each and one queue of results.

    ``context``: a context of multiprocessing, or None for threads.  Raises what pickle raises for
    a dataset or function that cannot be sent to a process.
    """

    def __init__(self, context: Any) -> None:
        self.context = context
        self.stop: Any = threading.Event() if context is None else context.Event()
        self.results = self._queue()
        self.tasks: list[Any] = []
        self.workers: list[Any] = []
        self.closed = False

    def _queue(self) -> Any:
        # Of threads one whose put may come in the middle of a get: see close.
        return queue.SimpleQueue() if self.context is None else self.context.Queue()

    def start(self, job: Job) -> None:
        """Start one more worker."""
        tasks = self._queue()
        kind = threading.Thread if self.context is None else self.context.Process
        worker = kind(target=work, args=(job, tasks, self.results, self.stop), daemon=True)
        worker.start()
        self.tasks.append(tasks)
        self.workers.append(worker)

    def give(self, worker: int, task: Any) -> None:
        """Send a task, or None to let the worker end; what pickle raises is raised here."""
        self.tasks[worker].put(task if self.context is None else packed(task))

    def receive(self, timeout: float) -> tuple[Any, Any]:
        """The next result.

        Raises RuntimeError after ``timeout`` seconds, if not 0, and where a worker has died.
        """
        deadline = time.monotonic() + timeout if timeout else float("inf")
        while True:
            wait = min(LOOKS_AFTER, max(0.0, deadline - time.monotonic()))
            try:
                return unpacked(self.results.get(timeout=wait))
            except queue.Empty:
                self._check(deadline, timeout)

    def _check(self, deadline: float, timeout: float) -> None:
        # While somebody waits no worker has a reason to end, whatever its status says.
        dead = [str(getattr(each, "pid", each.name)) for each in self.workers
                if not each.is_alive()]
        # A worker's last words may have come since.
        if dead and self.results.empty():
            what = "thread(s)" if self.context is None else "pid(s)"
            raise RuntimeError(f"DataLoader worker ({what} {', '.join(dead)}) exited unexpectedly")
        if time.monotonic() >= deadline:
            raise RuntimeError(f"DataLoader timed out after {timeout} seconds")

    def close(self) -> None:
        """End all workers: each finishes the batch it is at.  Closing twice is fine.

        The collector may call it in any thread and at any place, a worker's too.
        """
        if self.closed:
            return
        self.closed = True
        here = threading.current_thread()
        if any(getattr(each, "_thread", None) is here for each in (*self.tasks, self.results)):
            # The thread that feeds a queue of processes may hold the lock that put would take.
            threading.Thread(target=self._end, daemon=True).start()
        else:
            self._end()

    def _end(self) -> None:
        self.stop.set()
        for tasks in self.tasks:
            # At the interpreter's exit queues may be closed already.
            with contextlib.suppress(ValueError, OSError):
                tasks.put(None)
        deadline = time.monotonic() + PATIENCE
        for worker in self.workers:
            if worker is threading.current_thread():
                continue
            worker.join(max(0.0, deadline - time.monotonic()))
            if self.context is not None and worker.is_alive():
                worker.terminate()
                worker.join(PATIENCE)
        if self.context is not None:
            self._close_queues()

    def _close_queues(self) -> None:
        for each in (*self.tasks, self.results):
            each.cancel_join_thread()
            each.close()

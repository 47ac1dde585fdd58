"""Graphs that a user captures, as PyTorch has them.

Captured work runs at each replay, in the order in which it was captured, on the same memory: the
memory outside of the graph's pool that it uses is held as long as the graph lives, and so is the
pool.  Random numbers are new at each replay.
"""

from __future__ import annotations

import contextlib
import gc
import warnings
from typing import Any

from slipstream.core.api.cuda.devices import backend, synchronize
from slipstream.core.api.cuda.memory import MemPool
from slipstream.core.api.cuda.random import generator
from slipstream.core.api.cuda.streams import Stream, current_stream, stream
from slipstream.core.launch.cuda.capturing import Capture, begin_capture
from slipstream.core.launch.door import backends
from slipstream.core.memory.pools import Pool
from slipstream.core.vocab.devices import Device, current
from slipstream.core.vocab.generators import Generator

ERROR_MODES = ("global", "thread_local", "relaxed")


class PoolHandle(tuple[int, int]):
    """What names a pool of memory that graphs may share; it keeps the pool."""

    pool: Pool


def graph_pool_handle() -> PoolHandle:
    """What names a new pool, for the ``pool`` of several captures.

    Graphs of one pool use the same memory: they are replayed in the order of their captures, one
    after the other, and an output is read before the next replay.
    """
    return handle_of(Pool())


def handle_of(pool: Pool) -> PoolHandle:
    """What names a pool."""
    made = PoolHandle((0, pool.number))
    made.pool = pool
    return made


def pool_of(given: Any) -> Pool:
    """The pool that an argument ``pool`` means: a new one for None.

    Raises ValueError for what names no pool.
    """
    if given is None:
        return Pool()
    if isinstance(given, PoolHandle):
        return given.pool
    if isinstance(given, MemPool):
        return given.pool
    found = Pool.known.get(given[1]) if isinstance(given, tuple) and len(given) == 2 else None
    if found is None:
        raise ValueError(f"cuda graph: {given!r} names no pool that still exists")
    return found


class CUDAGraph:
    """Work that is captured once and launched again and again as a whole.

    ``keep_graph``: `instantiate` makes it executable later, where the capture is over.
    """

    def __init__(self, keep_graph: bool = False) -> None:
        self.keep_graph = keep_graph
        self.capture: Capture | None = None
        self.made: Any = None
        self.used: Pool | None = None
        self.more: list[Generator] = []

    def register_generator_state(self, generator: Generator) -> None:
        """Let a generator draw inside the capture, and go on at each replay.

        The default generator of the card needs no registration.
        """
        if self.capture is not None:
            raise RuntimeError("cuda graph: a generator is registered before the capture begins")
        if all(each is not generator for each in self.more):
            self.more.append(generator)

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global") -> None:
        """Begin to capture what the current stream is given.

        ``pool``: a handle of `graph_pool_handle` or of another graph's `pool`, for memory that
        they share.  Raises RuntimeError where the graph holds a capture already, or the stream
        captures.
        """
        if capture_error_mode not in ERROR_MODES:
            raise RuntimeError("Unknown capture error mode. Expected one of "
                               f"{', '.join(ERROR_MODES)}; got {capture_error_mode}")
        if self.made is not None or self.capture is not None:
            raise RuntimeError("cuda graph: this graph holds a capture already\n"
                               "  mend: reset() it first, or make another CUDAGraph")
        found = backend(None)
        self.used = pool_of(pool)
        default = generator(found.ordinal)
        # What is drawn on other devices is drawn at once.
        others = [each for each in self.more
                  if each is not default and each.device is default.device]
        self.capture = begin_capture(found, self.used, [default, *others])

    def capture_end(self) -> None:
        """End the capture; the graph can be replayed now.

        Raises RuntimeError where no capture goes on, or work of another stream was not joined;
        warns where nothing was captured.
        """
        self._end()

    def _end(self) -> None:
        # Called by capture_end and by graph's exit, so that the warning names the caller's line.
        if self.capture is None:
            raise RuntimeError("cuda graph: capture_end without capture_begin")
        self.capture.check_end()
        capture, self.capture = self.capture, None
        self.made = capture.end()
        if not self.made.steps:
            # Work of another device or stream has run at once, and no replay will repeat it.
            warnings.warn("The CUDA Graph is empty. This usually means that the graph was "
                          "attempted to be captured on wrong device or stream.", stacklevel=3)
        if self.keep_graph:
            return
        try:
            self.instantiate()
        except BaseException:
            self.reset()
            raise

    def instantiate(self) -> None:
        """Make the captured graph executable; only with ``keep_graph=True``, and again at will."""
        self._captured().instantiate()

    def replay(self) -> None:
        """Launch the captured work on the current stream.

        Raises RuntimeError where nothing was captured.
        """
        made = self._captured()
        if not made.executable:
            made.instantiate()
        made.replay()

    def reset(self) -> None:
        """Forget the captured work and let go of its memory; a replay in flight still finishes."""
        if self.capture is not None:
            self.abandon()
        made, self.made = self.made, None
        if made is not None:
            made.drop()
        self.used = None

    def abandon(self) -> None:
        """End the capture without a graph."""
        capture, self.capture = self.capture, None
        if capture is not None:
            capture.abandon()

    def pool(self) -> PoolHandle:
        """What names the graph's pool, for captures that share its memory."""
        if self.used is None:
            raise RuntimeError("cuda graph: a graph has a pool once its capture has begun")
        return handle_of(self.used)

    def enable_debug_mode(self) -> None:
        """Nothing to enable: every graph can be dumped."""

    def debug_dump(self, debug_path: str) -> None:
        """Write the graph to a file, in the language of Graphviz."""
        with open(debug_path, "w", encoding="utf-8") as file:
            file.write(self._captured().text())

    def raw_cuda_graph(self) -> int:
        """The driver's handle of the graph; only with ``keep_graph=True``."""
        if not self.keep_graph:
            raise RuntimeError("You cannot access the raw cudaGraph_t instance unless "
                               "CUDAGraph was initialized with keep_graph=true")
        handle: int = self._captured().graph
        return handle

    def raw_cuda_graph_exec(self) -> int:
        """The driver's handle of the executable graph."""
        handle: int = self._captured().executable
        if not handle:
            raise RuntimeError("cuda graph: instantiate() it first")
        return handle

    def _captured(self) -> Any:
        if self.made is None:
            raise RuntimeError("cuda graph: nothing was captured\n  mend: with cuda.graph(g): ...")
        return self.made

    def __del__(self) -> None:
        if getattr(self, "made", None) is not None or getattr(self, "capture", None) is not None:
            with contextlib.suppress(Exception):
                # Where the process ends, parts of the runtime may be gone.
                self.reset()


sides: dict[int, Stream] = {}


def side_stream() -> Stream:
    """The stream of captures that name none: other threads do not come upon it."""
    found = backend(None)
    made = sides.get(found.ordinal)
    if made is None or made.backend is not found:
        made = sides[found.ordinal] = Stream(Device("cuda", found.ordinal))
    return made


class graph:  # noqa: N801
    """A scope whose work is captured into a `CUDAGraph`, on ``stream`` or a side stream.

    ``pool``: as in `CUDAGraph.capture_begin`.  An exception that leaves the scope ends the capture
    without a graph.
    """

    def __init__(self, cuda_graph: CUDAGraph, pool: Any = None, stream: Stream | None = None,
                 capture_error_mode: str = "global") -> None:
        self.cuda_graph = cuda_graph
        self.pool = pool
        self.capture_stream = stream
        self.capture_error_mode = capture_error_mode
        self.scope: Any = None

    def __enter__(self) -> None:
        if is_current_stream_capturing():
            raise RuntimeError("cuda graph: the current stream captures a graph already\n"
                               "  mend: end that capture first, or capture all of it in one graph")
        synchronize()
        gc.collect()
        self.scope = stream(self.capture_stream or side_stream())
        self.scope.__enter__()
        try:
            self.cuda_graph.capture_begin(self.pool, self.capture_error_mode)
        except BaseException:
            self.scope.__exit__(None, None, None)
            raise

    def __exit__(self, *failure: Any) -> None:
        try:
            if failure and failure[0] is not None:
                self.cuda_graph.abandon()
            else:
                self.cuda_graph._end()
        except BaseException:
            self.cuda_graph.abandon()
            raise
        finally:
            self.scope.__exit__(*failure)


def is_current_stream_capturing() -> bool:
    """Whether the thread's current stream captures a graph; makes no context."""
    if Device("cuda", current.index) not in backends:
        return False
    capturing: bool = current_stream().queue.capture is not None
    return capturing

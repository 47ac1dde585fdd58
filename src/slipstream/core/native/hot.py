"""The driver's calls of the hot path, through its function pointers: no binding in between.

Uncompiled, and on a driver that names no pointers, the same calls go through `Driver`.
"""

# The .pxd declares the C functions.
# mypy: disable-error-code="name-defined"
# ruff: noqa: F821

from __future__ import annotations

from typing import Any

import cython

from slipstream.core.native.driver import Driver, DriverError

# Bytes of the largest parameter block that every card takes.
LARGEST = 4096
# The driver's word for an event that is still to happen.
NOT_READY = 600


class HotCalls:
    """Launches kernels and graphs and patches kernel nodes.

    ``kernel_launches``, ``graph_launches``, ``node_updates``, ``event_records`` count what went
    past the binding, ``graph_kernel_nodes`` the kernels inside launched graphs.
    """

    driver: Driver
    direct: bool
    launcher: int
    graph_launcher: int
    node_setter: int
    node_adder: int
    recorder: int
    query: int
    clock: int
    kernel_launches: int
    graph_launches: int
    graph_kernel_nodes: int
    node_updates: int
    event_records: int

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.launcher = driver.launcher
        self.graph_launcher = driver.graph_launcher
        self.node_setter = driver.node_setter
        self.node_adder = driver.node_adder
        self.recorder, self.query, self.clock = driver.event_calls if cython.compiled else (0, 0, 0)
        self.direct = bool(cython.compiled and driver.launcher)
        self.kernel_launches = 0
        self.graph_launches = 0
        self.graph_kernel_nodes = 0
        self.node_updates = 0
        self.event_records = 0

    def use(self, context: cython.size_t) -> None:
        """Make a context the running thread's, where it is another one's yet."""
        if cython.compiled and self.direct and slip_is_current(context):
            return
        use_context(self.driver, context)

    def launch(self, function: cython.size_t, shape: Any, stream: cython.size_t,
               block: bytes) -> None:
        """Launch a kernel; ``shape`` is (grid, block, shared)."""
        grid, threads, shared = shape
        if not self.direct:
            self.driver.launch(function, grid, threads, shared, stream, block)
            return
        if cython.compiled:
            x, y, z = grid
            u, v, w = threads
            self.kernel_launches += 1
            status: cython.int = slip_launch(self.launcher, function, x, y, z, u, v, w, shared,
                                             stream, block, len(block))
            if status:
                raise self.failure("cuLaunchKernel", status)

    def launch_words(self, function: cython.size_t, shape: tuple[Any, ...],
                     stream: cython.size_t, words: cython.size_t, nbytes: cython.Py_ssize_t,
                     tail: bytes) -> bool:
        """Launch a kernel with the words at an address and a tail; False where `launch` has to."""
        if cython.compiled:
            if not self.direct or nbytes + len(tail) > LARGEST:
                return False
            grid: tuple = shape[0]
            threads: tuple = shape[1]
            self.kernel_launches += 1
            status: cython.int = slip_launch_words(
                self.launcher, function, grid[0], grid[1], grid[2], threads[0], threads[1],
                threads[2], shape[2], stream, words, nbytes, tail, len(tail))
            if status:
                raise self.failure("cuLaunchKernel", status)
            return True
        return False

    def launch_graph(self, executable: cython.size_t, stream: cython.size_t) -> None:
        """Launch a graph."""
        if not self.direct:
            self.driver.launch_graph(executable, stream)
            return
        if cython.compiled:
            self.graph_launches += 1
            status: cython.int = slip_launch_graph(self.graph_launcher, executable, stream)
            if status:
                raise self.failure("cuGraphLaunch", status)

    def set_kernel_node(self, executable: cython.size_t, node: cython.size_t,
                        function: cython.size_t, shape: Any, block: bytes) -> None:
        """Change a kernel node of an executable graph."""
        if not self.direct:
            self.driver.set_kernel_node(executable, node, function, shape, block)
            return
        if cython.compiled:
            grid, threads, shared = shape
            x, y, z = grid
            u, v, w = threads
            self.node_updates += 1
            status: cython.int = slip_set_node(self.node_setter, executable, node, function,
                                               x, y, z, u, v, w, shared, block, len(block))
            if status:
                raise self.failure("cuGraphExecKernelNodeSetParams", status)

    def add_kernel_node(self, graph: cython.size_t, after: cython.size_t,
                        function: cython.size_t, shape: Any, block: bytes) -> int:
        """Add a kernel node to a graph, after a node or, where that is 0, after none."""
        if not (self.direct and self.node_adder):
            return self.driver.add_kernel_node(graph, (after,) if after else (), function, shape,
                                               block)
        if cython.compiled:
            grid, threads, shared = shape
            x, y, z = grid
            u, v, w = threads
            made: cython.size_t = 0
            status: cython.int = slip_add_node(self.node_adder, graph, after,
                                               cython.address(made), function, x, y, z, u, v, w,
                                               shared, block, len(block))
            if status:
                raise self.failure("cuGraphAddKernelNode", status)
            return made
        return 0

    def record_event(self, event: cython.size_t, stream: cython.size_t) -> None:
        """Let an event stand for what a stream holds now."""
        if not self.recorder:
            self.driver.record_event(event, stream)
            return
        if cython.compiled:
            self.event_records += 1
            status: cython.int = slip_record(self.recorder, event, stream)
            if status:
                raise self.failure("cuEventRecord", status)

    def query_event(self, event: cython.size_t) -> bool:
        """Whether what an event stands for is done."""
        if cython.compiled and self.query:
            status: cython.int = slip_query(self.query, event)
            if status and status != NOT_READY:
                raise self.failure("cuEventQuery", status)
            return not status
        return self.driver.query_event(event)

    def elapsed(self, start: cython.size_t, end: cython.size_t) -> float:
        """Milliseconds between two events."""
        if cython.compiled and self.clock:
            spent: cython.float = 0.0
            status: cython.int = slip_elapsed(self.clock, cython.address(spent), start, end)
            if status:
                raise self.failure("cuEventElapsedTime", status)
            return spent
        return self.driver.elapsed(start, end)

    def failure(self, call: str, status: cython.int) -> DriverError:
        """The error of a call that failed."""
        return DriverError(call, self.driver.status_name(status))


def use_context(driver: Driver, context: cython.size_t) -> None:
    """Make a context the running thread's; every such call of a driver goes through here."""
    driver.use(context)
    # A driver that names no pointers looks at every call itself.
    if cython.compiled and driver.launcher:
        slip_set_current(context)

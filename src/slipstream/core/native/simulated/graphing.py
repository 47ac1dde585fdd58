"""The driver's calls on graphs."""

from __future__ import annotations

from array import array
from typing import Any

from slipstream.core.native.driver import DriverError, Shape
from slipstream.core.native.simulated.calls import SUBMIT_TIME, driver_call
from slipstream.core.native.simulated.capture import CaptureCalls
from slipstream.core.native.simulated.graphs import Executable, Graph, Node, Tickets, difference
from slipstream.core.native.simulated.order import join
from slipstream.core.native.simulated.schedule import GraphWork, Stream
from slipstream.core.native.simulated.working import (
    Action,
    CopyAction,
    FillAction,
    KernelAction,
    first_moment,
)


class GraphCalls(CaptureCalls):
    """Graphs: making, instantiating, changing and launching them."""

    # -- graphs --

    @driver_call
    def create_graph(self) -> int:
        """An empty graph."""
        return self.add(Graph())

    @driver_call
    def destroy_graph(self, graph: int) -> None:
        """Give back a graph."""
        self.remove(Graph, graph, "destroy_graph")

    def add_node(self, graph: int, after: tuple[int, ...], call: str,
                 action: Action | None = None, child: Graph | None = None) -> int:
        """Add a node to a graph."""
        found = self.find(Graph, graph, call)
        found.check_after(after, call)
        self.next_handle += 16
        node = Node(self.next_handle, tuple(after), action, child)
        found.nodes[node.handle] = node
        return node.handle

    @driver_call
    def add_kernel_node(self, graph: int, after: tuple[int, ...], function: int, shape: Shape,
                        parameters: bytes) -> int:
        """A node that launches a kernel after other nodes."""
        action = self.make_launch("add_kernel_node", function, shape, parameters)
        return self.add_node(graph, after, "add_kernel_node", action)

    def copy_of(self, call: str, target: int, source: int, nbytes: int, kind: str) -> CopyAction:
        """The copy of a node; its host side must be pinned."""
        if self.check_copy(target, source, nbytes, kind, call):
            raise DriverError(call, "INVALID_VALUE", "a node copies from or to pinned memory only")
        return CopyAction(target, source, nbytes, kind)

    @driver_call
    def add_copy_node(self, graph: int, after: tuple[int, ...], target: int, source: int,
                      nbytes: int, kind: str) -> int:
        """A node that copies."""
        action = self.copy_of("add_copy_node", target, source, nbytes, kind)
        return self.add_node(graph, after, "add_copy_node", action)

    @driver_call
    def add_fill_node(self, graph: int, after: tuple[int, ...], target: int, value: int,
                      width: int, count: int) -> int:
        """A node that fills."""
        self.check_fill(target, width, count, "add_fill_node")
        action = FillAction(target, value, width, count)
        return self.add_node(graph, after, "add_fill_node", action)

    @driver_call
    def add_child_node(self, graph: int, after: tuple[int, ...], child: int) -> int:
        """A node that stands for a copy of another graph."""
        inner = self.find(Graph, child, "add_child_node").copy()
        return self.add_node(graph, after, "add_child_node", child=inner)

    def nodes(self, graph: int) -> tuple[int, ...]:
        """The nodes of a graph."""
        return tuple(self.find(Graph, graph, "nodes").nodes)

    def captured_kernels(self, graph: int) -> list[tuple[int, Any, bytes]] | None:
        """(function, shape, parameters) of a chain of kernels; None for others."""
        chain = self.find(Graph, graph, "captured_kernels").chain()
        found = []
        for node in chain or ():
            if not isinstance(node.action, KernelAction):
                return None
            each = node.action
            shape = (each.grid, each.block, each.shared)
            found.append((each.function.handle, shape, each.parameters))
        return None if chain is None else found

    # -- executable graphs --

    @driver_call
    def instantiate(self, graph: int) -> int:
        """An executable copy of a graph."""
        ordinal = self.current("instantiate").ordinal
        return self.add(Executable(self.find(Graph, graph, "instantiate"), ordinal))

    def stamp_executable(self, executable: int, stamps: list[Any]) -> None:
        """Check a graph's nodes against the blocks that lived at (site, moment) of each."""
        self.find(Executable, executable, "stamp_executable").stamps = stamps

    def moments_needed(self) -> int:
        """The oldest moment that work still to run, or to be launched again, knows."""
        kept = [first_moment(moment) for each in self.objects.values()
                if isinstance(each, Executable) for _, moment in each.stamps or ()]
        return min([super().moments_needed(), *kept])

    @driver_call
    def destroy_executable(self, executable: int) -> None:
        """Give back an executable graph; a launch in flight still finishes."""
        self.remove(Executable, executable, "destroy_executable")

    @driver_call
    def launch_graph(self, executable: int, stream: int) -> None:
        """Launch a graph."""
        stamps, self.stamps = self.stamps, None
        found = self.find(Executable, executable, "launch_graph")
        target = self.stream_of(stream, "launch_graph")
        if target.capture is not None:
            self.add_captured(target, "launch_graph", child=found.graph.copy())
            return
        stamps = stamps or found.stamps or [(self.site, self.moment)] * len(found.graph.nodes)
        if len(stamps) != len(found.graph.nodes):
            raise DriverError("launch_graph", "INVALID_VALUE",
                              f"{len(stamps)} stamps for {len(found.graph.nodes)} nodes")
        self.counts["graph_launches"] += 1
        self.counts["graph_kernel_nodes"] += found.kernels
        self.schedule.now += SUBMIT_TIME
        self.enqueue_graph(found, target, stamps)

    def enqueue_graph(self, found: Executable, stream: Stream, stamps: Any) -> None:
        """Put a launch in a stream's queue; it begins after the same graph's last launch."""
        last = None
        if found.launched is not None:
            last, clock = found.launched
            join(stream.clock, clock)
        tickets = Tickets(stream, found.shape, stamps, self.schedule)
        work = GraphWork(stream, self.schedule.now, found.shape, list(found.actions), tickets)
        if last is not None and not last.done:
            work.needs = (last,)
        found.launched = (work, array("I", stream.clock))
        self.schedule.enqueue(work)

    @driver_call
    def set_kernel_node(self, executable: int, node: int, function: int, shape: Shape,
                        parameters: bytes) -> None:
        """Change a kernel node of an executable graph; the function must stay the same."""
        call = "set_kernel_node"
        found = self.find(Executable, executable, call)
        which = found.node(node, "kernel", call)
        action = self.make_launch(call, function, shape, parameters)
        old = which.action
        if isinstance(old, KernelAction) and old.function is not action.function:
            raise DriverError(call, "INVALID_VALUE",
                              f"kernel {action.function.name} instead of {old.function.name}")
        found.set_action(which, action)
        self.counts["node_updates"] += 1

    @driver_call
    def set_copy_node(self, executable: int, node: int, target: int, source: int, nbytes: int,
                      kind: str) -> None:
        """Change a copy node; its kind must stay the same."""
        found = self.find(Executable, executable, "set_copy_node")
        which = found.node(node, "copy", "set_copy_node")
        action = self.copy_of("set_copy_node", target, source, nbytes, kind)
        if isinstance(which.action, CopyAction) and which.action.direction != kind:
            raise DriverError("set_copy_node", "INVALID_VALUE", "the kind of a copy must stay")
        found.set_action(which, action)
        self.counts["node_updates"] += 1

    @driver_call
    def set_fill_node(self, executable: int, node: int, target: int, value: int, width: int,
                      count: int) -> None:
        """Change a fill node."""
        found = self.find(Executable, executable, "set_fill_node")
        which = found.node(node, "fill", "set_fill_node")
        self.check_fill(target, width, count, "set_fill_node")
        found.set_action(which, FillAction(target, value, width, count))
        self.counts["node_updates"] += 1

    @driver_call
    def set_child_node(self, executable: int, node: int, child: int) -> None:
        """Change a child node to another graph of the same topology."""
        found = self.find(Executable, executable, "set_child_node")
        which = found.node(node, "child", "set_child_node")
        graph = self.find(Graph, child, "set_child_node")
        text = difference(which.child or Graph(), graph)
        if text:
            raise DriverError("set_child_node", "GRAPH_EXEC_UPDATE_FAILURE", text)
        found.set_child(which, graph)
        self.counts["node_updates"] += 1

"""Graphs: building, capture, instantiation, launch, and changes of an executable's nodes."""

from __future__ import annotations

from typing import Any

from cuda.bindings import driver as cu

from slipstream.core.native.driver import TO_DEVICE, TO_HOST, Shape
from slipstream.core.native.real.checked import Checked
from slipstream.core.native.real.parameters import Block

THREAD_LOCAL = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL


class GraphCalls(Checked):
    """Graphs of the current context."""

    def begin_capture(self, stream: int) -> None:
        """Gather what is submitted to a stream into a graph."""
        self.call("cuStreamBeginCapture", stream, THREAD_LOCAL)

    def end_capture(self, stream: int) -> int:
        """The graph that was gathered."""
        self.counts["captures"] += 1
        return int(self.call("cuStreamEndCapture", stream))

    def create_graph(self) -> int:
        """An empty graph."""
        return int(self.call("cuGraphCreate", 0))

    def destroy_graph(self, graph: int) -> None:
        """Give a graph back."""
        self.call("cuGraphDestroy", graph)

    def add_kernel_node(self, graph: int, after: tuple[int, ...], function: int, shape: Shape,
                        parameters: bytes) -> int:
        """A node that launches a kernel."""
        held = Block(parameters)
        node = kernel_node(function, shape, held)
        return int(self.call("cuGraphAddKernelNode", graph, named(after), len(after), node))

    def add_copy_node(self, graph: int, after: tuple[int, ...], target: int, source: int,
                      nbytes: int, kind: str) -> int:
        """A node that copies."""
        copy = copy_node(target, source, nbytes, kind)
        return int(self.call("cuGraphAddMemcpyNode", graph, named(after), len(after), copy,
                             self.call("cuCtxGetCurrent")))

    def add_fill_node(self, graph: int, after: tuple[int, ...], target: int, value: int,
                      width: int, count: int) -> int:
        """A node that fills."""
        return int(self.call("cuGraphAddMemsetNode", graph, named(after), len(after),
                             fill_node(target, value, width, count),
                             self.call("cuCtxGetCurrent")))

    def add_child_node(self, graph: int, after: tuple[int, ...], child: int) -> int:
        """A node that stands for a copy of another graph."""
        return int(self.call("cuGraphAddChildGraphNode", graph, named(after), len(after), child))

    def nodes(self, graph: int) -> tuple[int, ...]:
        """The nodes of a graph."""
        _, count = self.call("cuGraphGetNodes", graph, 0)
        found, _ = self.call("cuGraphGetNodes", graph, count)
        return tuple(int(node) for node in found)

    def instantiate(self, graph: int) -> int:
        """An executable copy of a graph."""
        self.counts["instantiations"] += 1
        return int(self.call("cuGraphInstantiate", graph, 0))

    def destroy_executable(self, executable: int) -> None:
        """Give an executable graph back."""
        self.call("cuGraphExecDestroy", executable)

    def launch_graph(self, executable: int, stream: int) -> None:
        """Launch a graph."""
        self.counts["graph_launches"] += 1
        self.call("cuGraphLaunch", executable, stream)

    def set_kernel_node(self, executable: int, node: int, function: int, shape: Shape,
                        parameters: bytes) -> None:
        """Change a kernel node of an executable graph."""
        self.counts["node_updates"] += 1
        held = Block(parameters)
        self.call("cuGraphExecKernelNodeSetParams", executable, node,
                  kernel_node(function, shape, held))

    def set_copy_node(self, executable: int, node: int, target: int, source: int, nbytes: int,
                      kind: str) -> None:
        """Change a copy node."""
        self.counts["node_updates"] += 1
        self.call("cuGraphExecMemcpyNodeSetParams", executable, node,
                  copy_node(target, source, nbytes, kind), self.call("cuCtxGetCurrent"))

    def set_fill_node(self, executable: int, node: int, target: int, value: int, width: int,
                      count: int) -> None:
        """Change a fill node."""
        self.counts["node_updates"] += 1
        self.call("cuGraphExecMemsetNodeSetParams", executable, node,
                  fill_node(target, value, width, count), self.call("cuCtxGetCurrent"))

    def set_child_node(self, executable: int, node: int, child: int) -> None:
        """Change a child node to another graph of the same topology."""
        self.counts["node_updates"] += 1
        self.call("cuGraphExecChildGraphNodeSetParams", executable, node, child)


def named(nodes: tuple[int, ...]) -> list[Any]:
    """Handles as the binding wants them in lists."""
    return [cu.CUgraphNode(node) for node in nodes]


def kernel_node(function: int, shape: Shape, held: Block) -> Any:
    """The parameters of a kernel node."""
    grid, block, shared = shape
    node = cu.CUDA_KERNEL_NODE_PARAMS()
    node.func = function
    node.gridDimX, node.gridDimY, node.gridDimZ = grid
    node.blockDimX, node.blockDimY, node.blockDimZ = block
    node.sharedMemBytes = shared
    node.extra = held.address
    return node


def copy_node(target: int, source: int, nbytes: int, kind: str) -> Any:
    """The parameters of a node that copies one row of bytes."""
    device = cu.CUmemorytype.CU_MEMORYTYPE_DEVICE
    host = cu.CUmemorytype.CU_MEMORYTYPE_HOST
    copy = cu.CUDA_MEMCPY3D()
    copy.WidthInBytes, copy.Height, copy.Depth = nbytes, 1, 1
    if kind == TO_DEVICE:
        copy.srcMemoryType, copy.srcHost = host, source
    else:
        copy.srcMemoryType, copy.srcDevice = device, source
    if kind == TO_HOST:
        copy.dstMemoryType, copy.dstHost = host, target
    else:
        copy.dstMemoryType, copy.dstDevice = device, target
    return copy


def fill_node(target: int, value: int, width: int, count: int) -> Any:
    """The parameters of a node that fills one row."""
    fill = cu.CUDA_MEMSET_NODE_PARAMS()
    fill.dst, fill.value, fill.elementSize = target, value, width
    fill.width, fill.height, fill.pitch = count, 1, 0
    return fill

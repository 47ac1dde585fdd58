"""What a captured graph holds: its kernels with their whole parameter blocks."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from cuda.bindings import driver as cu

from slipstream.core.native.real.checked import Checked

KERNEL = cu.CUgraphNodeType.CU_GRAPH_NODE_TYPE_KERNEL


def captured_kernels(driver: Checked, graph: int) -> list[tuple[int, Any, bytes]] | None:
    """(function, (grid, block, shared), parameter block) of each kernel, in order.

    None where the graph holds anything else, its nodes are no chain, or the driver does not tell a
    kernel's parameters.
    """
    _, count = driver.call("cuGraphGetNodes", graph, 0)
    nodes, _ = driver.call("cuGraphGetNodes", graph, count)
    found = []
    for node in nodes[:count]:
        if driver.call("cuGraphNodeGetType", node) != KERNEL:
            return None
        kernel = described(driver, node)
        if kernel is None:
            return None
        found.append(kernel)
    return found


def described(driver: Checked, node: Any) -> tuple[int, Any, bytes] | None:
    """A kernel node as (function, (grid, block, shared), parameter block).

    None for one that was launched with a whole block: its parameters are not listed.
    """
    node_parameters = driver.call("cuGraphKernelNodeGetParams", node)
    function = node_parameters.func
    places = parameter_places(int(function))
    nbytes = max((offset + size for offset, size in places), default=0)
    block = bytearray(nbytes)
    if places and not int(node_parameters.kernelParams):
        return None
    if places:
        pointers = ctypes.cast(int(node_parameters.kernelParams), ctypes.POINTER(ctypes.c_void_p))
        for index, (offset, size) in enumerate(places):
            block[offset:offset + size] = ctypes.string_at(pointers[index], size)
    grid = (node_parameters.gridDimX, node_parameters.gridDimY, node_parameters.gridDimZ)
    threads = (node_parameters.blockDimX, node_parameters.blockDimY, node_parameters.blockDimZ)
    return int(function), (grid, threads, node_parameters.sharedMemBytes), bytes(block)


@functools.cache
def parameter_places(function: int) -> list[tuple[int, int]]:
    """(offset, size) of each parameter of a kernel; kernels of libraries are never unloaded."""
    places: list[tuple[int, int]] = []
    while True:
        status, offset, size = cu.cuFuncGetParamInfo(function, len(places))
        if status:
            return places
        places.append((int(offset), int(size)))

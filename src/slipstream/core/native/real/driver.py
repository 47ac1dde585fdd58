"""The real driver: `native.driver.Driver` on NVIDIA's bindings."""

from __future__ import annotations

from typing import Any

from cuda.bindings import driver as cu

from slipstream.core.native.driver import Driver
from slipstream.core.native.real.devices import Devices
from slipstream.core.native.real.graphs import GraphCalls
from slipstream.core.native.real.kernels import KernelCalls
from slipstream.core.native.real.memory import DeviceMemoryCalls
from slipstream.core.native.real.nodes import captured_kernels
from slipstream.core.native.real.streams import StreamCalls

COUNTED = ("kernel_launches", "graph_launches", "graph_kernel_nodes", "node_updates", "captures",
           "instantiations", "copies", "fills", "allocations", "synchronizations",
           "event_records", "compilations", "library_questions")


class RealDriver(Devices, DeviceMemoryCalls, StreamCalls, KernelCalls, GraphCalls, Driver):
    """The machine's driver.  Making it calls cuInit and makes no context.

    Raises DriverError where there is no card or the driver is too old for the bindings.
    """

    name = "real"

    def captured_kernels(self, graph: int) -> list[tuple[int, Any, bytes]] | None:
        """The kernels of a captured graph with their parameter blocks; None for other nodes."""
        return captured_kernels(self, graph)

    def statistics(self) -> dict[str, int]:
        """Counts since start."""
        return {name: self.counts[name] for name in COUNTED}


__all__ = ["RealDriver", "cu"]

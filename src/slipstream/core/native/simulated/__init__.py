"""The simulated driver: a CUDA driver in software, for running CUDA programs without a card."""

from __future__ import annotations

from slipstream.core.native.simulated.faults import SimulatedFault
from slipstream.core.native.simulated.graphing import GraphCalls

__all__ = ["SimulatedDriver", "SimulatedFault"]


class SimulatedDriver(GraphCalls):
    """Every call of the driver, in software; options from settings where none are given."""

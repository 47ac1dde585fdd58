"""Calls of the driver's binding, with its results checked and counted."""

from __future__ import annotations

import ctypes
from collections import Counter
from typing import Any

from cuda.bindings import driver as cu

from slipstream.core.native.driver import DriverError

PREFIX = "CUDA_ERROR_"


class Checked:
    """What every part of the real driver shares: checked calls and their counts."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        library = ctypes.CDLL("libcuda.so.1")
        self.launcher = address_of(library.cuLaunchKernel)
        self.graph_launcher = address_of(library.cuGraphLaunch)
        self.node_setter = address_of(library.cuGraphExecKernelNodeSetParams_v2)
        self.node_adder = address_of(library.cuGraphAddKernelNode_v2)
        # Newer drivers have another function for the elapsed time; both tell the same.
        self.event_calls = (address_of(library.cuEventRecord), address_of(library.cuEventQuery),
                            address_of(library.cuEventElapsedTime))

    def status_name(self, status: int) -> str:
        """The name of a status, without its prefix."""
        return cu.CUresult(status).name.removeprefix(PREFIX)

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a function of the binding; its value, or values, without the status."""
        status, *values = getattr(cu, name)(*arguments)
        if status:
            raise failure(name, status)
        return values[0] if len(values) == 1 else tuple(values)


def address_of(function: Any) -> int:
    """The address of a function of a C library."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def failure(name: str, status: Any) -> DriverError:
    """The error of a call that failed."""
    code = cu.CUresult(status).name.removeprefix(PREFIX)
    text = ""
    state, found = cu.cuGetErrorString(status)
    if not state and found:
        text = found.decode()
    return DriverError(name, code, text)

"""Time on the device, for any torch-like module: the host's side stays out of it."""

from __future__ import annotations

import importlib
import importlib.util
import statistics
from collections.abc import Callable
from types import ModuleType
from typing import Any

Call = Callable[[], Any]
WARM = 3
CALLS = 8
BURSTS = 9


def peer() -> ModuleType | None:
    """PyTorch, where it is installed and has a card."""
    if importlib.util.find_spec("torch") is None:
        return None
    found = importlib.import_module("torch")
    return found if found.cuda.is_available() else None


def milliseconds(module: ModuleType, call: Call) -> float:
    """The time of a call on the device: median of bursts of calls between two events.

    While the first call of a burst runs the host submits the others, so that its own time counts
    for one of them at most.
    """
    for _ in range(WARM):
        call()
    module.cuda.synchronize()
    times = []
    for _ in range(BURSTS):
        start, end = [module.cuda.Event(enable_timing=True) for _ in range(2)]
        start.record()
        for _ in range(CALLS):
            call()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / CALLS)
    return statistics.median(times)


def copy_speed(module: ModuleType, count: int) -> float:
    """GB/s of a copy within the device, of as many float32 numbers."""
    x = module.rand(count, device="cuda")
    y = module.empty_like(x)
    return 8 * count / milliseconds(module, lambda: y.copy_(x)) / 1e6

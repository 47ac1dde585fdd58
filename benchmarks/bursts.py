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
# Numbers of a copy that takes a large card some 0.25 ms.
HEAD_START = 1 << 27


def peer() -> ModuleType | None:
    """PyTorch, where it is installed and has a card."""
    if importlib.util.find_spec("torch") is None:
        return None
    found = importlib.import_module("torch")
    return found if found.cuda.is_available() else None


def milliseconds(module: ModuleType, call: Call) -> float:
    """The time of a call on the device: median of bursts of calls between two events.

    Before each burst the device gets work that lasts longer than the host takes to submit the
    burst, so that the calls run back to back and the host's time is in none of them.
    """
    for _ in range(WARM):
        call()
    source, target = (module.zeros(HEAD_START, device="cuda") for _ in range(2))
    module.cuda.synchronize()
    times = []
    for _ in range(BURSTS):
        start, end = [module.cuda.Event(enable_timing=True) for _ in range(2)]
        for _ in range(2):
            target.copy_(source)
        start.record()
        for _ in range(CALLS):
            call()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / CALLS)
    return statistics.median(times)


def copy_speed(module: ModuleType, count: int, dtype: str = "float32") -> float:
    """GB/s of a copy within the device, of as many numbers."""
    x = module.rand(count, device="cuda").to(getattr(module, dtype))
    y = module.empty_like(x)
    return 2 * x.element_size() * count / milliseconds(module, lambda: y.copy_(x)) / 1e6

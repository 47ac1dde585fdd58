"""The one place where the host waits for a device."""

from __future__ import annotations

import time

from slipstream.core.launch.door import backends, emit
from slipstream.core.vocab.devices import Device
from slipstream.core.vocab.modes import modes


def wait(device: Device, reason: str) -> None:
    """Return when all work submitted to ``device`` is done; ``reason`` names what asked."""
    backend = backends.get(device)
    if backend is None:
        return
    if modes.listeners is None:
        backend.wait()
        return
    start = time.perf_counter_ns()
    backend.wait()
    emit("wait", reason, start, time.perf_counter_ns(), {"device": str(device)})

"""The one place where the host waits for a device, or reads what it wrote."""

from __future__ import annotations

import time
from typing import Any

from slipstream.core.launch.door import backend_of, backends, emit
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


def read(device: Device, address: int, nbytes: int, reason: str) -> bytes:
    """Bytes of a device's memory, once the current stream has written them: a wait too."""
    backend = backend_of(device)
    if modes.listeners is None:
        return backend.read_back(address, nbytes)
    start = time.perf_counter_ns()
    data = backend.read_back(address, nbytes)
    emit("wait", reason, start, time.perf_counter_ns(), {"device": str(device)})
    return data


def read_into(device: Device, target: int, address: int, nbytes: int, reason: str) -> None:
    """Copy bytes of a device's memory to the host's at ``target``: `read` without a copy more."""
    backend: Any = backend_of(device)
    start = time.perf_counter_ns()
    backend.read_into(target, address, nbytes)
    if modes.listeners is not None:
        emit("wait", reason, start, time.perf_counter_ns(), {"device": str(device)})

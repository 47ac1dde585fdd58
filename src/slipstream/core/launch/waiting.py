"""The one place where the host waits for a device, or reads what it wrote."""

from __future__ import annotations

import time
from typing import Any

from slipstream.core.launch.door import backend_of, backends, emit
from slipstream.core.vocab.devices import Device
from slipstream.core.vocab.modes import modes
from slipstream.core.vocab.ring import WAIT, WAITING

# When a wait began, and the layer that the profiled thread was in.
Begun = tuple[int, int] | None


def begin_wait() -> Begun:
    """The host is about to wait; None where nobody wants to know."""
    ring = modes.ring
    if ring is not None:
        before = ring.layer
        # What waits is often no call of an op: the line is found here.
        modes.note_site(modes.current())
        ring.switch(WAITING)
        return ring.now(), before
    return None if modes.listeners is None else (time.perf_counter_ns(), 0)


def end_wait(reason: str, device: Device, begun: Begun, nbytes: int = 0) -> None:
    """The host waited for ``reason``, or for ``nbytes`` that it reads."""
    if begun is None:
        return
    ring, start = modes.ring, begun[0]
    if ring is not None:
        ring.switch(begun[1])
        state = modes.current()
        what = WAIT | (device.index or 0) << 8
        ring.write(what, ring.name_of(reason), ring.site_of(state.code, state.instruction), start,
                   ring.now(), nbytes)
    if modes.listeners is not None:
        emit("wait", reason, start, time.perf_counter_ns(), {"device": str(device)})


def wait(device: Device, reason: str) -> None:
    """Return when all work submitted to ``device`` is done; ``reason`` names what asked."""
    backend = backends.get(device)
    if backend is None:
        return
    if backend.immediate and modes.listeners is None:
        # Nothing is ever pending.
        backend.wait()
        return
    begun = begin_wait()
    backend.wait()
    end_wait(reason, device, begun)


def read(device: Device, address: int, nbytes: int, reason: str) -> bytes:
    """Bytes of a device's memory, once the current stream has written them: a wait too."""
    backend = backend_of(device)
    begun = begin_wait()
    data = backend.read_back(address, nbytes)
    end_wait(reason, device, begun, nbytes)
    return data


def read_into(device: Device, target: int, address: int, nbytes: int, reason: str) -> None:
    """Copy bytes of a device's memory to the host's at ``target``: `read` without a copy more."""
    backend: Any = backend_of(device)
    begun = begin_wait()
    backend.read_into(target, address, nbytes)
    end_wait(reason, device, begun, nbytes)

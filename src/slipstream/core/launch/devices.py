"""The devices that every process has: cpu, meta, delay."""

from __future__ import annotations

import ctypes

from slipstream.core.launch.delay import DelayBackend
from slipstream.core.launch.door import ImmediateBackend, MetaBackend, register_backend
from slipstream.core.memory.blocks import Allocator
from slipstream.core.native.host import HostMemory
from slipstream.core.vocab.devices import CPU, META, Device

host_memory = HostMemory()
host_allocator = Allocator(host_memory)
delay_allocator = Allocator(host_memory)
DELAY = Device("delay")


def register() -> None:
    """Register the backends; once, at import."""
    register_backend(CPU, ImmediateBackend("cpu", host_allocator))
    register_backend(META, MetaBackend())
    register_backend(DELAY, DelayBackend("delay", delay_allocator))


def move_bytes(target: int, source: int, nbytes: int) -> None:
    """Copy bytes within host memory."""
    ctypes.memmove(target, source, nbytes)

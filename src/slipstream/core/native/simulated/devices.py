"""Simulated cards and their contexts."""

from __future__ import annotations

from typing import Any

from slipstream.core.native.driver import DeviceProperties, DriverError
from slipstream.core.native.simulated.calls import Base, driver_call

KIB, MIB = 1 << 10, 1 << 20
# model: name, capability, multiprocessors, shared memory a block may ask for, threads of a
# multiprocessor, L2 cache, copy engines.
CARDS: dict[str, tuple[str, tuple[int, int], int, int, int, int, int]] = {
    "V100": ("Tesla V100-SXM2-16GB", (7, 0), 80, 96 * KIB, 2048, 6 * MIB, 6),
    "T4": ("Tesla T4", (7, 5), 40, 64 * KIB, 1024, 4 * MIB, 3),
    "A100": ("NVIDIA A100-SXM4-80GB", (8, 0), 108, 163 * KIB, 2048, 40 * MIB, 3),
    "L4": ("NVIDIA L4", (8, 9), 58, 99 * KIB, 1536, 48 * MIB, 2),
    "H100": ("NVIDIA H100 80GB HBM3", (9, 0), 132, 227 * KIB, 2048, 50 * MIB, 3),
    "H200": ("NVIDIA H200", (9, 0), 132, 227 * KIB, 2048, 60 * MIB, 3),
    "B200": ("NVIDIA B200", (10, 0), 148, 227 * KIB, 2048, 126 * MIB, 4),
}
VERSION = 13000


class Context:
    """A device's primary context; ``used`` bytes of its memory are taken."""

    def __init__(self, ordinal: int) -> None:
        self.handle = 0
        self.ordinal = ordinal
        self.used = 0


class DeviceCalls(Base):
    """Devices and contexts."""

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self.contexts: dict[int, Context] = {}
        if self.options.model not in CARDS:
            raise ValueError(f"no simulated card is called {self.options.model!r}; there are "
                             f"{', '.join(CARDS)}")

    def version(self) -> int:
        """The CUDA version that the driver supports."""
        return VERSION

    def device_count(self) -> int:
        """How many cards there are."""
        return self.options.devices

    def check_ordinal(self, ordinal: int, call: str) -> None:
        """Raise DriverError where there is no such card."""
        if not 0 <= ordinal < self.options.devices:
            raise DriverError(call, "INVALID_DEVICE", f"there is no device {ordinal}")

    @driver_call
    def properties(self, ordinal: int) -> DeviceProperties:
        """What a card offers."""
        self.check_ordinal(ordinal, "properties")
        name, (major, minor), processors, shared, threads, cache, engines = (
            CARDS[self.options.model])
        return DeviceProperties(
            name=f"{name} (simulated)", total_memory=self.options.memory, major=major, minor=minor,
            multi_processor_count=processors, shared_memory_per_block=48 * KIB,
            shared_memory_per_block_optin=shared, registers_per_block=65536,
            max_threads_per_block=1024, max_threads_per_multi_processor=threads, warp_size=32,
            L2_cache_size=cache, async_engines=engines, virtual_memory=True,
            pci_bus_id=f"0000:{ordinal + 1:02x}:00.0",
            uuid=f"51d51d51-0000-0000-0000-{ordinal:012x}", regs_per_multiprocessor=65536,
            # From Ampere on the system keeps a kibibyte of each block's.
            shared_memory_per_multiprocessor=shared + (KIB if major >= 8 else 0))

    @driver_call
    def context(self, ordinal: int) -> int:
        """The primary context of a card."""
        self.check_ordinal(ordinal, "context")
        if ordinal not in self.contexts:
            self.contexts[ordinal] = Context(ordinal)
            self.add(self.contexts[ordinal])
        return self.contexts[ordinal].handle

    @driver_call
    def use(self, context: int) -> None:
        """Make a context the calling thread's."""
        self.thread.context = self.find(Context, context, "use")

    def current(self, call: str) -> Context:
        """The calling thread's context; raises DriverError where there is none."""
        found: Context | None = getattr(self.thread, "context", None)
        if found is None:
            raise DriverError(call, "INVALID_CONTEXT", "the thread uses no context")
        return found

    @driver_call
    def can_access_peer(self, ordinal: int, peer: int) -> bool:
        """Whether kernels of one card can read another's memory."""
        self.check_ordinal(ordinal, "can_access_peer")
        self.check_ordinal(peer, "can_access_peer")
        return self.options.peer and ordinal != peer

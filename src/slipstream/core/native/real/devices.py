"""Cards and contexts."""

from __future__ import annotations

import threading

from cuda.bindings import driver as cu

from slipstream.core.native.driver import DeviceProperties
from slipstream.core.native.real.checked import Checked

ATTRIBUTE = cu.CUdevice_attribute


class Devices(Checked):
    """Cards and their primary contexts."""

    def __init__(self) -> None:
        super().__init__()
        self.call("cuInit", 0)
        self.contexts: dict[int, int] = {}
        self.thread = threading.local()
        self.known: dict[int, DeviceProperties] = {}

    def version(self) -> int:
        """The CUDA version that the driver supports, such as 13000."""
        return int(self.call("cuDriverGetVersion"))

    def device_count(self) -> int:
        """How many cards there are."""
        return int(self.call("cuDeviceGetCount"))

    def attribute(self, device: object, name: str) -> int:
        """An attribute of a card."""
        which = getattr(ATTRIBUTE, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(self.call("cuDeviceGetAttribute", which, device))

    def properties(self, ordinal: int) -> DeviceProperties:
        """What a card offers."""
        found = self.known.get(ordinal)
        if found is None:
            found = self.known[ordinal] = self._properties(ordinal)
        return found

    def _properties(self, ordinal: int) -> DeviceProperties:
        device = self.call("cuDeviceGet", ordinal)

        def of(name: str) -> int:
            return self.attribute(device, name)

        return DeviceProperties(
            name=self.call("cuDeviceGetName", 256, device).split(b"\0")[0].decode(),
            total_memory=int(self.call("cuDeviceTotalMem", device)),
            major=of("COMPUTE_CAPABILITY_MAJOR"),
            minor=of("COMPUTE_CAPABILITY_MINOR"),
            multi_processor_count=of("MULTIPROCESSOR_COUNT"),
            shared_memory_per_block=of("MAX_SHARED_MEMORY_PER_BLOCK"),
            shared_memory_per_block_optin=of("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
            registers_per_block=of("MAX_REGISTERS_PER_BLOCK"),
            max_threads_per_block=of("MAX_THREADS_PER_BLOCK"),
            max_threads_per_multi_processor=of("MAX_THREADS_PER_MULTIPROCESSOR"),
            warp_size=of("WARP_SIZE"),
            L2_cache_size=of("L2_CACHE_SIZE"),
            async_engines=of("ASYNC_ENGINE_COUNT"),
            virtual_memory=bool(of("VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED")),
            pci_bus_id=self.call("cuDeviceGetPCIBusId", 32, device).split(b"\0")[0].decode(),
            uuid=bytes(self.call("cuDeviceGetUuid", device).bytes).hex(),
            regs_per_multiprocessor=of("MAX_REGISTERS_PER_MULTIPROCESSOR"),
            shared_memory_per_multiprocessor=of("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"),
            is_integrated=of("INTEGRATED"),
            is_multi_gpu_board=of("MULTI_GPU_BOARD"),
        )

    def context(self, ordinal: int) -> int:
        """The primary context of a card."""
        found = self.contexts.get(ordinal)
        if found is None:
            device = self.call("cuDeviceGet", ordinal)
            found = self.contexts[ordinal] = int(self.call("cuDevicePrimaryCtxRetain", device))
        return found

    def use(self, context: int) -> None:
        """Make a context the calling thread's."""
        if getattr(self.thread, "context", 0) != context:
            self.call("cuCtxSetCurrent", context)
            self.thread.context = context

    def synchronize(self) -> None:
        """Wait until the current context's work is done."""
        self.counts["synchronizations"] += 1
        self.call("cuCtxSynchronize")

    def can_access_peer(self, ordinal: int, peer: int) -> bool:
        """Whether kernels of one card can read another's memory."""
        return bool(self.call("cuDeviceCanAccessPeer", self.call("cuDeviceGet", ordinal),
                              self.call("cuDeviceGet", peer)))

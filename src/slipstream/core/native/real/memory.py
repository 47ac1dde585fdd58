"""Device memory, virtual memory, pinned host memory, copies and fills."""

from __future__ import annotations

from typing import Any

from cuda.bindings import driver as cu

from slipstream.core.native.driver import TO_DEVICE, TO_HOST
from slipstream.core.native.real.checked import Checked

PORTABLE, MAPPED = 1, 2


class DeviceMemoryCalls(Checked):
    """Memory of the current context's card, and of the host."""

    def memory_info(self) -> tuple[int, int]:
        """(free, total) bytes."""
        free, total = self.call("cuMemGetInfo")
        return int(free), int(total)

    def allocate(self, nbytes: int) -> int:
        """Device memory."""
        self.counts["allocations"] += 1
        return int(self.call("cuMemAlloc", nbytes))

    def free(self, address: int) -> None:
        """Give device memory back."""
        self.call("cuMemFree", address)

    def granularity(self, ordinal: int) -> int:
        """Physical memory comes in multiples of this."""
        which = cu.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
        return int(self.call("cuMemGetAllocationGranularity", on_card(ordinal), which))

    def reserve(self, nbytes: int) -> int:
        """A range of addresses."""
        return int(self.call("cuMemAddressReserve", nbytes, 0, 0, 0))

    def release(self, address: int, nbytes: int) -> None:
        """Give a range of addresses back."""
        self.call("cuMemAddressFree", address, nbytes)

    def create_physical(self, nbytes: int, ordinal: int) -> int:
        """Physical memory of a card."""
        self.counts["allocations"] += 1
        return int(self.call("cuMemCreate", nbytes, on_card(ordinal), 0))

    def destroy_physical(self, handle: int) -> None:
        """Give physical memory back."""
        self.call("cuMemRelease", handle)

    def map(self, address: int, nbytes: int, handle: int, ordinal: int) -> None:
        """Put physical memory behind addresses, readable and writable."""
        self.call("cuMemMap", address, nbytes, 0, handle, 0)
        access = cu.CUmemAccessDesc()
        access.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        access.location.id = ordinal
        access.flags = cu.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        self.call("cuMemSetAccess", address, nbytes, [access], 1)

    def unmap(self, address: int, nbytes: int) -> None:
        """Take the memory away from behind addresses."""
        self.call("cuMemUnmap", address, nbytes)

    def allocate_host(self, nbytes: int, mapped: bool = False) -> int:
        """Pinned host memory."""
        self.counts["host_allocations"] += 1
        return int(self.call("cuMemHostAlloc", nbytes, PORTABLE | (MAPPED if mapped else 0)))

    def free_host(self, address: int) -> None:
        """Give pinned memory back."""
        self.call("cuMemFreeHost", address)

    def device_address(self, address: int) -> int:
        """Where kernels find mapped host memory."""
        return int(self.call("cuMemHostGetDevicePointer", address, 0))

    def copy(self, target: int, source: int, nbytes: int, kind: str, stream: int) -> None:
        """Copy bytes in stream order."""
        self.counts["copies"] += 1
        if kind == TO_DEVICE:
            self.call("cuMemcpyHtoDAsync", target, source, nbytes, stream)
        elif kind == TO_HOST:
            self.call("cuMemcpyDtoHAsync", target, source, nbytes, stream)
        else:
            self.call("cuMemcpyAsync", target, source, nbytes, stream)

    def fill(self, target: int, value: int, width: int, count: int, stream: int) -> None:
        """Write ``count`` values of ``width`` bytes in stream order."""
        self.counts["fills"] += 1
        self.call(f"cuMemsetD{8 * width}Async", target, value, count, stream)


def on_card(ordinal: int) -> Any:
    """The properties of physical memory of a card."""
    wanted = cu.CUmemAllocationProp()
    wanted.type = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    wanted.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    wanted.location.id = ordinal
    return wanted

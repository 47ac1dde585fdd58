"""Memory of the simulated cards and of the host, at real addresses: kernels can follow them."""

from __future__ import annotations

import os
import tempfile
import weakref
from collections import deque
from dataclasses import dataclass
from typing import Any

from slipstream.core.native.driver import DriverError
from slipstream.core.native.simulated.addresses import PAGE, AddressSpace, close_space, new_space
from slipstream.core.native.simulated.calls import LOCK, driver_call
from slipstream.core.native.simulated.devices import Context, DeviceCalls
from slipstream.core.native.simulated.engine import READ, WRITE
from slipstream.core.native.simulated.working import ANY_DEVICE, Ticket

GRANULARITY = 2 << 20
# Memory up to this size is filled with poison when it is allocated; blocks are when first used.
POISONED = 64 << 20
# Blocks of the past are forgotten in heaps of this size; windows not yet sent may know the last.
PAST, RECENT = 8192, 4096
HOST = -1


@dataclass
class Allocation:
    """What `allocate`, `allocate_host` or `reserve` made."""

    start: int
    nbytes: int
    span: int
    ordinal: int
    kind: str


@dataclass
class Physical:
    """Physical memory; it stays while it is mapped."""

    ordinal: int
    nbytes: int
    offset: int
    handle: int = 0
    mapped: int = 0
    alive: bool = True


class MemoryCalls(DeviceCalls):
    """Device memory, addresses with memory behind them, pinned host memory."""

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self.block_sizes: dict[int, int] = {}
        self.spaces: dict[int, AddressSpace] = {}
        self.allocations: dict[int, Allocation] = {}
        self.mappings: dict[int, tuple[int, Physical]] = {}
        self.past: deque[int] = deque()
        self.forgotten = 0
        self.files: dict[int, tuple[int, AddressSpace]] = {}

    # -- addresses --

    def space(self, ordinal: int) -> AddressSpace:
        """Where a device's (or the host's) memory lies."""
        if ordinal not in self.spaces:
            space = self.spaces[ordinal] = new_space()
            weakref.finalize(self, close_space, space.start).atexit = False
        return self.spaces[ordinal]

    def obtain(self, nbytes: int, ordinal: int, kind: str, call: str) -> Allocation:
        """Memory, or only addresses, of the operating system."""
        if nbytes <= 0:
            raise DriverError(call, "INVALID_VALUE", f"{nbytes} bytes were asked for")
        # A page that is never mapped lies behind it.
        size = -(-nbytes // PAGE) * PAGE
        span = size + PAGE
        alignment = GRANULARITY if nbytes >= GRANULARITY else PAGE
        hint = self.space(ordinal).take(span, alignment)
        start = self.engine.memory_new(hint, size, kind != "reserved")
        if not start:
            self.space(ordinal).give(hint, span)
            raise DriverError(call, "OUT_OF_MEMORY", f"{nbytes} bytes were asked for")
        if start != hint:
            self.space(ordinal).give(hint, span)
        allocation = Allocation(start, size, span, ordinal, kind)
        self.allocations[start] = allocation
        weakref.finalize(allocation, self.engine.memory_free, start, size).atexit = False
        host = kind.startswith("host")
        self.engine.unit_add(self.world, start, size, ordinal, host, kind == "host mapped")
        if kind != "reserved":
            self.engine.part_add(self.world, start, nbytes)
        return allocation

    def give_up(self, address: int, kinds: tuple[str, ...], call: str) -> Allocation:
        """Give memory or addresses back to the operating system."""
        allocation = self.allocations.get(address)
        if allocation is None or allocation.kind not in kinds:
            raise DriverError(call, "INVALID_VALUE", f"nothing was made at {address:#x}")
        del self.allocations[address]
        self.engine.unit_remove(self.world, address)
        self.space(allocation.ordinal).give(address, allocation.span)
        return allocation

    # -- device memory --

    @driver_call
    def memory_info(self) -> tuple[int, int]:
        """(free, total) bytes of the current context's card."""
        context = self.current("memory_info")
        return self.options.memory - context.used, self.options.memory

    def take_bytes(self, context: Context, nbytes: int, call: str) -> None:
        """Count a card's bytes as used; raises DriverError where too few are left."""
        left = self.options.memory - context.used
        if nbytes > left:
            raise DriverError(call, "OUT_OF_MEMORY",
                              f"{nbytes} bytes were asked for, {left} are free")
        context.used += nbytes

    @driver_call
    def allocate(self, nbytes: int) -> int:
        """Device memory."""
        context = self.current("allocate")
        self.forbid_in_capture("allocate")
        size = -(-nbytes // 512) * 512
        self.take_bytes(context, size, "allocate")
        try:
            allocation = self.obtain(nbytes, context.ordinal, "device", "allocate")
        except DriverError:
            context.used -= size
            raise
        allocation.nbytes = size
        self.counts["allocations"] += 1
        if self.options.poison and nbytes <= POISONED:
            self.desk.fill_poison(allocation.start, nbytes)
        return allocation.start

    @driver_call
    def free(self, address: int) -> None:
        """Give device memory back; as the real one, it waits for the device."""
        self.forbid_in_capture("free")
        if address in self.allocations:
            self.schedule.run_all()
        allocation = self.give_up(address, ("device",), "free")
        self.contexts[allocation.ordinal].used -= allocation.nbytes

    # -- addresses with memory behind them --

    def granularity(self, ordinal: int) -> int:
        """Physical memory comes in multiples of this."""
        self.check_ordinal(ordinal, "granularity")
        return GRANULARITY

    @driver_call
    def reserve(self, nbytes: int) -> int:
        """A range of addresses with no memory behind it."""
        if nbytes % GRANULARITY:
            raise DriverError("reserve", "INVALID_VALUE",
                              f"{nbytes} is no multiple of {GRANULARITY}")
        return self.obtain(nbytes, HOST - 1, "reserved", "reserve").start

    @driver_call
    def release(self, address: int, nbytes: int) -> None:
        """Give back a range of addresses."""
        allocation = self.allocations.get(address)
        if allocation is None or allocation.nbytes != nbytes:
            raise DriverError("release", "INVALID_VALUE", f"no such range at {address:#x}")
        if any(address <= start < address + nbytes for start in self.mappings):
            raise DriverError("release", "INVALID_VALUE", "memory is still mapped there")
        self.give_up(address, ("reserved",), "release")

    def file(self, ordinal: int) -> tuple[int, AddressSpace]:
        """The file that stands for a card's physical memory, and which parts of it are free."""
        if ordinal not in self.files:
            size = -(-self.options.memory // GRANULARITY) * GRANULARITY
            file = memory_file(size)
            weakref.finalize(self, os.close, file)
            # Places in the file are counted from 1: 0 says that there is none.
            self.files[ordinal] = (file, AddressSpace(GRANULARITY, GRANULARITY + size))
        return self.files[ordinal]

    @driver_call
    def create_physical(self, nbytes: int, ordinal: int) -> int:
        """Physical memory of a card, without an address."""
        self.context_of(ordinal, "create_physical")
        if nbytes <= 0 or nbytes % GRANULARITY:
            raise DriverError("create_physical", "INVALID_VALUE",
                              f"{nbytes} is no multiple of {GRANULARITY}")
        context = self.context_of(ordinal, "create_physical")
        self.take_bytes(context, nbytes, "create_physical")
        _, space = self.file(ordinal)
        offset = space.take(nbytes, GRANULARITY)
        if not offset:
            context.used -= nbytes
            raise DriverError("create_physical", "OUT_OF_MEMORY", "memory is in pieces")
        self.counts["allocations"] += 1
        return self.add(Physical(ordinal, nbytes, offset))

    def context_of(self, ordinal: int, call: str) -> Context:
        """A card's context, which must have been made."""
        self.check_ordinal(ordinal, call)
        if ordinal not in self.contexts:
            raise DriverError(call, "INVALID_CONTEXT", f"device {ordinal} has no context yet")
        return self.contexts[ordinal]

    @driver_call
    def destroy_physical(self, handle: int) -> None:
        """Give back physical memory; it stays while it is mapped."""
        physical = self.remove(Physical, handle, "destroy_physical")
        physical.alive = False
        self.drop(physical)

    def drop(self, physical: Physical) -> None:
        """Take physical memory back when nothing holds it any longer."""
        if not physical.alive and not physical.mapped:
            self.contexts[physical.ordinal].used -= physical.nbytes
            self.files[physical.ordinal][1].give(physical.offset, physical.nbytes)

    @driver_call
    def map(self, address: int, nbytes: int, handle: int, ordinal: int) -> None:
        """Put physical memory behind a part of a reserved range."""
        physical = self.find(Physical, handle, "map")
        fits = physical.nbytes == nbytes and physical.ordinal == ordinal
        if not fits or not self.is_reserved(address, nbytes) or address % GRANULARITY:
            raise DriverError("map", "INVALID_VALUE", f"{nbytes} bytes at {address:#x}")
        if any(start < address + nbytes and address < start + size
               for start, (size, _) in self.mappings.items()):
            raise DriverError("map", "INVALID_VALUE", f"memory is mapped at {address:#x}")
        file, _ = self.file(ordinal)
        if self.engine.memory_map(address, nbytes, file, physical.offset - GRANULARITY):
            raise DriverError("map", "OUT_OF_MEMORY", "the host refuses to map it")
        self.mappings[address] = (nbytes, physical)
        physical.mapped += 1
        self.engine.part_add_on(self.world, address, nbytes, ordinal)

    def is_reserved(self, address: int, nbytes: int) -> bool:
        """Whether a range lies in one that was reserved."""
        return any(each.kind == "reserved" and each.start <= address
                   and address + nbytes <= each.start + each.nbytes
                   for each in self.allocations.values())

    @driver_call
    def unmap(self, address: int, nbytes: int) -> None:
        """Take the memory away from behind addresses."""
        inside = {start: size for start, (size, _) in self.mappings.items()
                  if address <= start < address + nbytes}
        if sum(inside.values()) != nbytes:
            raise DriverError("unmap", "INVALID_VALUE", f"{nbytes} bytes at {address:#x}")
        self.engine.memory_unmap(address, nbytes)
        self.engine.part_remove(self.world, address, nbytes)
        for start in inside:
            _, physical = self.mappings.pop(start)
            physical.mapped -= 1
            self.drop(physical)

    # -- the host's memory --

    @driver_call
    def allocate_host(self, nbytes: int, mapped: bool = False) -> int:
        """Pinned host memory."""
        self.current("allocate_host")
        self.forbid_in_capture("allocate_host")
        kind = "host mapped" if mapped else "host"
        return self.obtain(nbytes, HOST, kind, "allocate_host").start

    @driver_call
    def free_host(self, address: int) -> None:
        """Give back pinned memory; it waits for work that may use it."""
        self.forbid_in_capture("free_host")
        if address in self.allocations:
            self.schedule.run_all()
        self.give_up(address, ("host", "host mapped"), "free_host")

    @driver_call
    def device_address(self, address: int) -> int:
        """Where kernels find mapped host memory."""
        for each in self.allocations.values():
            if each.start <= address < each.start + each.nbytes and each.kind == "host mapped":
                return address
        raise DriverError("device_address", "INVALID_VALUE", f"{address:#x} is not mapped")

    # -- what the allocator and the host tell --

    def handed_out(self, address: int, nbytes: int, requested: int) -> None:
        """A block of which ``requested`` bytes may be touched."""
        with LOCK:
            identity = self.engine.handed_out(self.world, address, nbytes, requested)
            self.block_sizes[address] = nbytes
            self.moment += bool(identity)
            self.desk.blocks[identity] = [self.site, None]

    def taken_back(self, address: int, nbytes: int) -> None:
        """Touching a block is an error from here."""
        with LOCK:
            # Who gives a block back may know only what was asked for.
            size = self.block_sizes.pop(address, nbytes)
            identity = self.engine.taken_back(self.world, address, size)
            if not identity:
                raise DriverError("taken_back", "INVALID_VALUE",
                                  f"no block of {nbytes} bytes lives at {address:#x}")
            self.moment += 1
            self.desk.blocks[identity][1] = self.site
            self.past.append(identity)
            if len(self.past) > 4 * PAST:
                del self.desk.blocks[self.past.popleft()]
            if self.moment - self.forgotten >= PAST:
                self.forget()

    def forget(self) -> None:
        """Forget blocks that died before all the work that is still to run."""
        self.forgotten = self.moment
        oldest = min(self.moments_needed(), self.moment - RECENT)
        self.engine.forget_dead(self.world, oldest)

    def host_touch(self, address: int, nbytes: int, write: bool) -> None:
        """The host reads or writes memory that pending work may use."""
        if not self.options.race:
            return
        with LOCK:
            clock = self.schedule.host.touch()
            ticket = Ticket(self.site, self.moment, HOST, 0, clock)
            label = ("the host", self.site)
            self.desk.begin(label, ticket, ANY_DEVICE)
            self.desk.touch(address, nbytes, WRITE if write else READ)
            self.desk.collect(label)

    def forbid_in_capture(self, call: str) -> None:
        """Raise DriverError where the calling thread captures; the capture is lost."""


def memory_file(nbytes: int) -> int:
    """The descriptor of a file that lies in memory, where the system has such files."""
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("slipstream-card")
    else:
        with tempfile.TemporaryFile() as temporary:
            file = os.dup(temporary.fileno())
    os.ftruncate(file, nbytes)
    return file

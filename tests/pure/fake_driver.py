"""A driver without a card: it keeps account of memory, checks every call and can fail one."""

from __future__ import annotations

from slipstream.core.native.driver import DeviceProperties, Driver, DriverError

UNIT = 1 << 21


class FakeDriver(Driver):
    """Memory calls only.  ``fail``: number of the call, from now on, that fails; 0 for none."""

    name = "fake"

    def __init__(self, capacity=1 << 40, virtual=True):
        self.capacity = capacity
        self.virtual = virtual
        self.next = 1 << 44
        self.plain = {}
        self.ranges = {}
        self.handles = {}
        self.maps = {}
        self.host = {}
        self.events = {}
        self.calls = []
        self.fail = 0
        self.marks = []

    def called(self, name):
        self.calls.append(name)
        if self.fail:
            self.fail -= 1
            if self.fail == 0:
                raise DriverError(name, "LAUNCH_FAILED")

    def taken(self):
        """Bytes of physical memory in use."""
        mapped = {handle for _, handle in self.maps.values()}
        held = {handle for handle, (_, alive) in self.handles.items() if alive}
        sizes = [self.handles[handle][0] for handle in mapped | held]
        return sum(sizes) + sum(self.plain.values())

    def properties(self, ordinal):
        return DeviceProperties("fake", self.capacity, 9, 0, 132, 49152, 232448, 65536, 1024, 2048,
                                32, 1 << 20, 2, self.virtual)

    def context(self, ordinal):
        return 1 + ordinal

    def use(self, context):
        self.used = context

    def granularity(self, ordinal):
        return UNIT

    def memory_info(self):
        return self.capacity - self.taken(), self.capacity

    def room(self, name, nbytes):
        self.called(name)
        if self.taken() + nbytes > self.capacity:
            raise DriverError(name, "OUT_OF_MEMORY")

    def addresses(self, nbytes):
        found = self.next
        self.next += -(-nbytes // UNIT) * UNIT + UNIT
        return found

    def allocate(self, nbytes):
        self.room("allocate", nbytes)
        address = self.addresses(nbytes)
        self.plain[address] = nbytes
        return address

    def free(self, address):
        self.called("free")
        del self.plain[address]

    def reserve(self, nbytes):
        self.called("reserve")
        assert nbytes % UNIT == 0
        address = self.addresses(nbytes)
        self.ranges[address] = nbytes
        return address

    def release(self, address, nbytes):
        self.called("release")
        assert not any(address <= place < address + nbytes for place in self.maps)
        assert self.ranges.pop(address) == nbytes

    def create_physical(self, nbytes, ordinal):
        self.room("create_physical", nbytes)
        assert nbytes > 0
        assert nbytes % UNIT == 0
        handle = 1 + len(self.handles)
        self.handles[handle] = (nbytes, True)
        return handle

    def destroy_physical(self, handle):
        self.called("destroy_physical")
        nbytes, alive = self.handles[handle]
        assert alive
        self.handles[handle] = (nbytes, False)

    def map(self, address, nbytes, handle, ordinal):
        self.called("map")
        assert self.handles[handle] == (nbytes, True)
        assert any(base <= address and address + nbytes <= base + size
                   for base, size in self.ranges.items())
        assert not any(place < address + nbytes and address < place + size
                       for place, (size, _) in self.maps.items())
        self.maps[address] = (nbytes, handle)

    def unmap(self, address, nbytes):
        self.called("unmap")
        assert self.maps.pop(address)[0] == nbytes

    def is_backed(self, start, end):
        """Whether there is memory behind every byte from ``start`` to ``end``."""
        spans = [(place, place + size) for place, (size, _) in self.maps.items()]
        spans += [(place, place + size) for place, size in self.plain.items()]
        for low, high in sorted(spans):
            if low <= start < high:
                start = high
        return start >= end

    def allocate_host(self, nbytes, mapped=False):
        self.called("allocate_host")
        if sum(self.host.values()) + nbytes > self.capacity:
            raise DriverError("allocate_host", "OUT_OF_MEMORY")
        address = self.addresses(nbytes)
        self.host[address] = nbytes
        return address

    def free_host(self, address):
        self.called("free_host")
        del self.host[address]

    def create_event(self, timing=False, blocking=False):
        self.events[1 + len(self.events)] = False
        return len(self.events)

    def record_event(self, event, stream):
        self.events[event] = False

    def query_event(self, event):
        return self.events[event]

    def destroy_event(self, event):
        del self.events[event]

    def handed_out(self, address, nbytes, requested):
        self.marks.append(("handed_out", address, nbytes, requested))

    def taken_back(self, address, nbytes):
        self.marks.append(("taken_back", address, nbytes))

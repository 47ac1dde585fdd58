"""Copies between pinned host memory and the device, which the host does not wait for.

A host storage that a pending copy fills or reads carries its event: what the host does with it
next waits for it, in the door and where its elements are read.
"""

from __future__ import annotations

from typing import Any

from slipstream.core.launch.cuda.queue import Queue
from slipstream.core.launch.door import door
from slipstream.core.launch.waiting import host_waits
from slipstream.core.memory.pinned import PinnedAllocator
from slipstream.core.native.driver import TO_DEVICE, TO_HOST
from slipstream.core.vocab.modes import modes
from slipstream.core.vocab.records import Storage, owners


class Pending:
    """A copy that may not be done yet; ``counted``: for how many storages the door knows of it."""

    def __init__(self, backend: Any, event: int, place: Any) -> None:
        self.backend = backend
        self.event = event
        self.place = place
        self.counted = 0

    def wait(self) -> None:
        """Return when the copy is done."""
        backend = self.backend
        host_waits(backend.device, "pinned copy", backend.edges.wait_event, self.event, self.place)

    def covers(self, other: Pending) -> bool:
        """Whether this copy is done only after another one."""
        number, known = other.place
        return (other.backend is self.backend
                and self.place[1].get(number, -1) >= known[number])

    def done(self) -> bool:
        """Whether the copy is done; does not wait."""
        found: bool = self.backend.driver.query_event(self.event)
        return found

    def __del__(self) -> None:
        # Those storages are gone that nobody looked at again.
        door.pending -= self.counted
        self.backend.edges.forget_event(self.event)


class Several:
    """Copies of several streams that use a storage at once, none known to come after another.

    It stands in the storage for all of them; ``counted`` as in `Pending`.
    """

    def __init__(self, copies: tuple[Pending, ...]) -> None:
        self.copies = copies
        self.counted = 0

    def wait(self) -> None:
        """Return when all of them are done."""
        for each in self.copies:
            each.wait()

    def __del__(self) -> None:
        door.pending -= self.counted


def copies_of(found: Any) -> tuple[Pending, ...]:
    """The copies that what a storage carries stands for."""
    if isinstance(found, Several):
        return found.copies
    return () if found is None else (found,)


def carry(storage: Storage, pending: Pending) -> None:
    """Let a storage carry one more copy, and those before that it does not come after.

    Other threads may add theirs, or take off what they waited for, at the same time.
    """
    while True:
        before = storage.pending
        left = [each for each in copies_of(before) if not pending.covers(each)]
        now = Several((*left, pending)) if left else pending
        if storage.pending is not before:
            continue
        # No call comes between this look and the last count, so that no other thread does.
        storage.pending = now
        now.counted += 1
        if before is None:
            door.pending += 1
        else:
            before.counted -= 1
        return


class Pinning:
    """A device's pinned memory and the copies to and from it."""

    def __init__(self, backend: Any) -> None:
        self.backend = backend
        self.allocator = PinnedAllocator(backend.driver, backend.enter)
        self.owner = len(owners)
        owners.append(self.allocator)

    def to_device(self, target: int, storage: Storage, source: int, nbytes: int) -> None:
        """Copy from pinned memory in the order of the current stream."""
        self.copy(target, source, nbytes, TO_DEVICE, storage)

    def to_host(self, storage: Storage, target: int, source: int, nbytes: int) -> None:
        """Copy into pinned memory in the order of the current stream.

        The host waits where other code has the memory: it would not know of the copy.
        """
        self.copy(target, source, nbytes, TO_HOST, storage)
        if storage.exported:
            door.settle_storage(storage)

    def copy(self, target: int, source: int, nbytes: int, kind: str, storage: Storage) -> None:
        """Submit a copy; ``storage`` is the host's side."""
        backend = self.backend
        queue = backend.queue()
        if queue.capture is not None:
            queue.capture.copy(queue, (target, source, nbytes, kind), storage)
            return
        self.follow(queue, storage)
        queue.send("copy")
        backend.enter()
        if modes.ring is None:
            backend.driver.copy(target, source, nbytes, kind, queue.stream)
        else:
            modes.ring.timer.copy(backend.driver, target, source, nbytes, kind, queue.stream)
        queue.sequence += 1
        self.note(queue, [storage])

    def note(self, queue: Queue, storages: list[Storage]) -> None:
        """Let host storages know that the last copies of a stream use them."""
        event, place = self.backend.edges.record_event(queue, 0, False, False)
        pending = Pending(self.backend, event, place)
        # The allocator hears of it first: asking the driver may fail.
        for storage in storages:
            # Another card's allocator may have pinned it.
            owner: Any = owners[storage.owner] if storage.owner >= 0 else None
            known = owner if isinstance(owner, PinnedAllocator) else self.allocator
            known.used(storage.address, pending.done)
        for storage in storages:
            carry(storage, pending)

    def follow(self, queue: Queue, storage: Storage) -> None:
        """Let the next copy of a stream come after those that still use a host storage.

        The stream waits for them; the host has to where a copy is another device's.  The storage
        carries them on until `note`: another thread may look before the next copy stands there.
        """
        for before in copies_of(storage.pending):
            if before.backend is not self.backend:
                door.settle_storage(storage)
                return
            if before.place[0] != queue.number:
                self.backend.edges.order_after(queue, before.event, before.place)

"""Pinned host memory: reused at once when nothing copies, and not before copies are done."""

from __future__ import annotations

import pytest
from fake_driver import FakeDriver

from slipstream.core.memory.pinned import PinnedAllocator
from slipstream.core.memory.statistics import memory_stats
from slipstream.core.native.driver import DriverError
from slipstream.core.vocab.errors import OutOfMemoryError

MEGA = 1 << 20


class Copy:
    """A copy that is done when the test says so."""

    def __init__(self):
        self.over = False

    def done(self):
        return self.over


@pytest.mark.parametrize("nbytes", [1000, 3 * MEGA])
def test_blocks_are_used_again_when_their_copies_are_done(nbytes):
    driver = FakeDriver()
    allocator = PinnedAllocator(driver)
    first = allocator.allocate(nbytes)
    assert allocator.owns(first)
    assert allocator.owns(first + nbytes - 1)
    assert not allocator.owns(5)
    copies = [Copy(), Copy()]
    for copy in copies:
        allocator.used(first, copy.done)
    allocator.free(first, nbytes)
    second = allocator.allocate(nbytes)
    assert second != first
    copies[0].over = True
    third = allocator.allocate(nbytes)
    assert third != first
    copies[1].over = True
    assert allocator.allocate(nbytes) == first
    allocator.free(first, nbytes)
    assert allocator.allocate(nbytes) == first
    assert memory_stats(allocator)["allocation.all.current"] == 3


def test_a_block_copied_many_times_remembers_what_runs():
    allocator = PinnedAllocator(FakeDriver())
    address = allocator.allocate(1000)
    for _ in range(100):
        copy = Copy()
        allocator.used(address, copy.done)
        copy.over = True
    assert len(allocator.copies[address]) == 1


def test_memory_goes_back():
    driver = FakeDriver()
    allocator = PinnedAllocator(driver)
    held = [(allocator.allocate(n), n) for n in (100, 5000, MEGA, 3 * MEGA)]
    copy = Copy()
    allocator.used(held[-1][0], copy.done)
    for block in held:
        allocator.free(*block)
    allocator.empty_cache()
    assert list(driver.host.values()) == [4 * MEGA]
    copy.over = True
    allocator.empty_cache()
    assert not driver.host


def test_waiting_brings_blocks_back_before_the_error():
    driver = FakeDriver(8 * MEGA)
    allocator = PinnedAllocator(driver)
    address, copy = allocator.allocate(5 * MEGA), Copy()
    allocator.used(address, copy.done)
    allocator.free(address, 5 * MEGA)
    with pytest.raises(OutOfMemoryError, match="no pinned host memory"):
        allocator.allocate(5 * MEGA)

    def drain():
        copy.over = True

    allocator.drain = drain
    assert allocator.allocate(5 * MEGA) == address


def test_errors_of_the_driver_are_raised():
    driver = FakeDriver()
    driver.fail = 1
    allocator = PinnedAllocator(driver)
    with pytest.raises(DriverError):
        allocator.allocate(100)
    assert allocator.allocate(100)

"""The allocator of a device over a driver that keeps account: pieces, ladder, limits, errors."""

from __future__ import annotations

import pytest
from fake_driver import FakeDriver

from slipstream.core.memory.device import DeviceAllocator
from slipstream.core.memory.statistics import memory_stats
from slipstream.core.native.driver import DriverError
from slipstream.core.vocab.errors import OutOfMemoryError
from slipstream.core.vocab.modes import modes

MEGA = 1 << 20
SIZES = (1, 512, 513, 5000, 100_000, MEGA, MEGA + 1, 3 * MEGA, 20 * MEGA)


def make(capacity=1 << 40, virtual=True):
    driver = FakeDriver(capacity, virtual)
    return driver, DeviceAllocator(driver, 0)


@pytest.mark.parametrize("virtual", [True, False])
def test_reserved_is_what_was_taken_from_the_card(virtual):
    driver, allocator = make(virtual=virtual)
    held = [(allocator.allocate(n), n) for n in SIZES * 3]
    for address, nbytes in held:
        assert address % 512 == 0
        assert driver.is_backed(address, address + nbytes)
    stats = memory_stats(allocator)
    assert stats["reserved_bytes.all.current"] == driver.taken()
    assert stats["reserved_bytes.small_pool.current"] % (2 * MEGA) == 0
    assert stats["requested_bytes.all.current"] == 3 * sum(SIZES)
    for block in held:
        allocator.free(*block)
    assert driver.taken() == memory_stats(allocator)["reserved_bytes.all.current"]
    allocator.empty_cache()
    assert driver.taken() == 0
    assert not driver.ranges
    stats = memory_stats(allocator)
    assert stats["reserved_bytes.all.current"] == stats["segment.all.current"] == 0


def test_rarely_used_classes_share_two_mebibytes():
    driver, allocator = make()
    for nbytes in range(512, 20_000, 512):
        allocator.allocate(nbytes)
    assert driver.taken() == 2 * MEGA


def test_repeated_requests_make_no_driver_calls():
    driver, allocator = make()
    calls = None
    for _ in range(3):
        held = [(allocator.allocate(n), n) for n in SIZES]
        for block in held:
            allocator.free(*block)
        allocator.allocate(1 << 10)
        assert calls in (None, len(driver.calls))
        calls = len(driver.calls)


@pytest.mark.parametrize("virtual", [True, False])
def test_memory_is_given_back_for_a_larger_request(virtual):
    driver, allocator = make(64 * MEGA, virtual)
    for nbytes in (20 * MEGA, 20 * MEGA, MEGA):
        allocator.free(allocator.allocate(nbytes), nbytes)
    assert allocator.allocate(56 * MEGA)
    assert driver.taken() <= 64 * MEGA


def test_what_is_recorded_is_waited_for_before_memory_goes_back():
    driver, allocator = make()
    drains = []
    allocator.drain = lambda: drains.append(len(driver.calls))
    held = [(allocator.allocate(n), n) for n in (1000, 3 * MEGA)]
    for block in held:
        allocator.free(*block)
    calls = len(driver.calls)
    allocator.empty_cache()
    first = next(i for i in range(calls, len(driver.calls)) if driver.calls[i] == "unmap")
    assert any(drain <= first for drain in drains)
    assert driver.taken() == 0


def test_an_error_while_waiting_loses_no_memory():
    driver, allocator = make()
    held = [(allocator.allocate(n), n) for n in (1000, 3 * MEGA, 5 * MEGA)]
    reserved = driver.taken()
    for block in held[:2]:
        allocator.free(*block)

    def fail():
        raise IndexError("from a kernel")

    allocator.drain = fail
    with pytest.raises(IndexError):
        allocator.empty_cache()
    with pytest.raises(IndexError):
        allocator.allocate(1 << 50)
    assert driver.taken() == memory_stats(allocator)["reserved_bytes.all.current"] == reserved
    allocator.drain = None
    assert allocator.allocate(3 * MEGA) == held[1][0]
    assert allocator.allocate(1000) == held[0][0]


def attempt(allocator, blocks):
    """Some requests, and their end."""
    for nbytes in (1000, 3 * MEGA, 50 * MEGA):
        blocks.append((allocator.allocate(nbytes), nbytes))
    while blocks:
        allocator.free(*blocks.pop())
    allocator.empty_cache()


@pytest.mark.parametrize("virtual", [True, False])
def test_every_driver_call_fails_once(virtual):
    driver, allocator = make(virtual=virtual)
    attempt(allocator, [])
    for number in range(1, len(driver.calls) + 1):
        driver, allocator = make(virtual=virtual)
        blocks = []
        driver.fail = number
        try:
            with pytest.raises(DriverError):
                attempt(allocator, blocks)
        finally:
            driver.fail = 0
        while blocks:
            allocator.free(*blocks.pop())
        attempt(allocator, [])
        assert driver.taken() == 0
        assert not driver.ranges


def test_fraction_of_the_card():
    driver, allocator = make(100 * MEGA)
    allocator.set_limit(40 * MEGA)
    allocator.allocate(30 * MEGA)
    with pytest.raises(OutOfMemoryError, match=r"limit 40\.00 MiB"):
        allocator.allocate(12 * MEGA)
    assert allocator.allocate(10 * MEGA)
    assert driver.taken() == 40 * MEGA


def test_free_memory_above_a_threshold_is_given_back_first():
    driver, allocator = make()
    allocator.free(allocator.allocate(20 * MEGA), 20 * MEGA)
    allocator.collect_above = 30 * MEGA
    allocator.allocate(25 * MEGA)
    assert driver.taken() == 26 * MEGA


def test_the_error_ranks_the_lines_that_hold_memory():
    _, allocator = make(64 * MEGA)
    held, sites = [], []
    for nbytes, count in ((4 * MEGA, 3), (1 << 19, 8), (30 * MEGA, 1)):
        code = compile("\n" * count + "x = 1", f"/user/{count}.py", "exec")
        modes.current().code, modes.current().instruction = code, 2
        held += [(allocator.allocate(nbytes), nbytes) for _ in range(count)]
        sites.append(f"/user/{count}.py:{count + 1}")
    with pytest.raises(OutOfMemoryError) as caught:
        allocator.allocate(40 * MEGA)
    text = str(caught.value)
    assert "CUDA out of memory. Tried to allocate 40.00 MiB" in text
    assert "GPU 0 has a total capacity of 64.00 MiB" in text
    listing = text[text.index("Memory in use"):].splitlines()[1:]
    assert listing.pop().startswith("  mend: let go (del) of what a line above holds")
    assert "Python's collector, asked for more, freed 0 B" in text
    assert listing == [
        f"  30.00 MiB in 1 block: {sites[2]}",
        f"  12.00 MiB in 3 blocks: {sites[0]}",
        f"  4.00 MiB in 8 blocks: {sites[1]}",
    ]
    for block in held:
        allocator.free(*block)
    assert allocator.allocate(40 * MEGA)


def test_a_smaller_batch_goes_on_inside_the_except_block():
    _, allocator = make(64 * MEGA)

    class Block:
        def __init__(self, nbytes):
            self.nbytes, self.address = nbytes, 0
            self.address = allocator.allocate(nbytes)

        def __del__(self):
            allocator.free(self.address, self.nbytes)

    def step(batch):
        held = [Block(batch * MEGA) for _ in range(5)]
        return len(held)

    try:
        step(16)
    except OutOfMemoryError:
        assert step(12) == 5
    else:
        raise AssertionError


def test_the_ledger_stays_small():
    _, allocator = make()
    for step in range(3000):
        nbytes = 2 * MEGA + 4096 * step
        allocator.free(allocator.allocate(nbytes), nbytes)
        if step % 100 == 0:
            # New addresses.
            allocator.empty_cache()
    keep = allocator.allocate(5000)
    for _ in range(1500):
        allocator.allocate(600)
    assert allocator.ledger.site(keep)[2] == 5000
    assert len(allocator.ledger) < 2500


def test_the_simulated_driver_is_told():
    driver = FakeDriver()
    driver.told = True
    allocator = DeviceAllocator(driver, 0)
    address = allocator.allocate(700)
    allocator.free(address, 700)
    allocator.allocate(3 * MEGA)
    assert driver.marks[0] == ("handed_out", address, 1024, 700)
    assert driver.marks[1][:2] == ("taken_back", address)
    assert driver.marks[2][2:] == (3 * MEGA, 3 * MEGA)

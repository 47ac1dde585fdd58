"""Holes give their memory back where no hole is large enough: the total decides."""

from __future__ import annotations

import random

import pytest
from fake_driver import FakeDriver

from slipstream.core.memory.device import DeviceAllocator
from slipstream.core.memory.history import Map
from slipstream.core.memory.statistics import memory_stats
from slipstream.core.native.driver import DriverError
from slipstream.core.vocab.errors import OutOfMemoryError

MEGA = 1 << 20


def make(capacity=64 * MEGA):
    driver = FakeDriver(capacity)
    return driver, DeviceAllocator(driver, 0)


def fragmented(allocator, count=16, nbytes=4 * MEGA):
    """Blocks that fill the card, every other one let go of."""
    held = [allocator.allocate(nbytes) for _ in range(count)]
    for address in held[::2]:
        allocator.free(address, nbytes)
    return held[1::2]


def check(driver, allocator, live):
    """Live blocks have memory behind them and apart; what is counted was taken from the card."""
    end = 0
    for address, nbytes in sorted(live.items()):
        assert address >= end
        end = address + nbytes
        assert driver.is_backed(address, end)
    assert memory_stats(allocator)["reserved_bytes.all.current"] == driver.taken()
    segments = Map(allocator).segments()
    assert sum(segment["total_size"] for segment in segments) == driver.taken()
    found = {block["address"]: block["requested_size"] for segment in segments
             for block in segment["blocks"] if block["state"] == "active_allocated"}
    assert found == live


def test_a_request_larger_than_any_hole():
    driver, allocator = make()
    drains = []
    allocator.drain = lambda: drains.append(len(driver.calls))
    live = dict.fromkeys(fragmented(allocator), 4 * MEGA)
    live[allocator.allocate(30 * MEGA)] = 30 * MEGA
    check(driver, allocator, live)
    assert drains
    with pytest.raises(OutOfMemoryError):
        allocator.allocate(4 * MEGA)
    for address, nbytes in live.items():
        allocator.free(address, nbytes)
    allocator.empty_cache()
    assert driver.taken() == 0
    assert not driver.ranges


def test_gaps_are_filled_again():
    driver, allocator = make()
    live = dict.fromkeys(fragmented(allocator), 4 * MEGA)
    big = allocator.allocate(30 * MEGA)
    allocator.free(big, 30 * MEGA)
    allocator.empty_cache()
    assert driver.taken() == 32 * MEGA
    before = max(live)
    for _ in range(8):
        address = allocator.allocate(4 * MEGA)
        live[address] = 4 * MEGA
        assert address < before
    check(driver, allocator, live)
    # Neighbours on both sides of a filled gap are one hole again.
    for address, nbytes in live.items():
        allocator.free(address, nbytes)
    allocator.settled()
    assert len(allocator.large.holes) == 1
    allocator.empty_cache()
    assert driver.taken() == 0


def test_slabs_in_the_middle_of_the_arena_give_back_too():
    driver, allocator = make()
    small = [allocator.allocate(MEGA // 2) for _ in range(100)]
    keep = small[-1]
    for address in small[:-1]:
        allocator.free(address, MEGA // 2)
    live = {keep: MEGA // 2, allocator.allocate(52 * MEGA): 52 * MEGA}
    check(driver, allocator, live)


@pytest.mark.parametrize("call", range(1, 12))
def test_a_failing_driver_call_loses_nothing(call):
    driver, allocator = make()
    live = dict.fromkeys(fragmented(allocator), 4 * MEGA)
    driver.fail = call
    try:
        live[allocator.allocate(30 * MEGA)] = 30 * MEGA
    except DriverError:
        driver.fail = 0
        live[allocator.allocate(30 * MEGA)] = 30 * MEGA
    driver.fail = 0
    check(driver, allocator, live)
    for address, nbytes in live.items():
        allocator.free(address, nbytes)
    allocator.empty_cache()
    assert driver.taken() == 0
    assert not driver.ranges


@pytest.mark.parametrize("seed", range(15))
def test_any_sequence_near_the_limit(seed):
    driver, allocator = make(96 * MEGA)
    generator, live, failed = random.Random(seed), {}, 0
    for _ in range(400):
        if live and generator.random() < 0.44:
            address = generator.choice(list(live))
            allocator.free(address, live.pop(address))
            continue
        nbytes = int(2 ** generator.uniform(10, 25))
        # What cannot be used: half a class in slabs, parts of 2 MiB around blocks.
        needed = sum(live.values()) + nbytes
        try:
            live[allocator.allocate(nbytes)] = nbytes
        except OutOfMemoryError:
            failed += 1
            assert needed + 6 * MEGA * len(live) > 96 * MEGA - 8 * MEGA
        if generator.random() < 0.1:
            check(driver, allocator, live)
    assert failed
    check(driver, allocator, live)
    for address, nbytes in live.items():
        allocator.free(address, nbytes)
    allocator.empty_cache()
    assert driver.taken() == 0
    assert not driver.ranges

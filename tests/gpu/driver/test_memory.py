"""Memory of the simulated cards: capacity, virtual memory management, pinned host memory."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstream.core.native.driver import DriverError
from slipstream.core.native.simulated import SimulatedFault
from slipstream.core.native.simulated.addresses import AddressSpace, free_spaces

MIB = 1 << 20
COPY = """
extern "C" __global__ void kernel(int* out, const int* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i];
}
"""


def test_capacity(make_card):
    card = make_card(memory=64 * MIB)
    driver = card.driver
    assert driver.properties(0).total_memory == 64 * MIB
    assert driver.memory_info() == (64 * MIB, 64 * MIB)
    first = driver.allocate(40 * MIB)
    with pytest.raises(DriverError) as caught:
        driver.allocate(30 * MIB)
    assert caught.value.code == "OUT_OF_MEMORY"
    assert driver.memory_info() == (24 * MIB, 64 * MIB)
    driver.use(driver.context(1))
    second = driver.allocate(60 * MIB)
    driver.use(driver.context(0))
    driver.free(first)
    driver.allocate(64 * MIB)
    assert driver.memory_info()[0] == 0
    driver.free(second)


def test_addresses_repeat(make_card):
    def addresses() -> list[int]:
        driver = make_card().driver
        found = [driver.allocate(size) for size in (100, 3 * MIB, 5000)]
        driver.free(found[0])
        found += [driver.allocate(64), driver.allocate(70 * MIB), driver.allocate(8)]
        return [each - found[1] for each in found]

    assert addresses() == addresses()
    aligned = make_card().driver
    assert aligned.allocate(3) % 256 == 0
    assert aligned.allocate(3 * MIB) % (2 * MIB) == 0


def test_devices_have_ranges_of_their_own(card):
    driver = card.driver
    mine = [driver.allocate(MIB) for _ in range(3)]
    driver.use(driver.context(1))
    theirs = [driver.allocate(MIB) for _ in range(3)]
    assert max(mine) < min(theirs) or max(theirs) < min(mine)


def test_what_cannot_be_freed(card):
    driver = card.driver
    x, pinned = driver.allocate(64), driver.allocate_host(64)
    for call, address in ((driver.free, x + 16), (driver.free, pinned), (driver.free_host, x),
                          (driver.free, 0)):
        with pytest.raises(DriverError, match="INVALID_VALUE"):
            call(address)
    driver.free(x)
    with pytest.raises(DriverError, match="INVALID_VALUE"):
        driver.free(x)
    driver.free_host(pinned)
    for nbytes in (0, -5):
        with pytest.raises(DriverError, match="INVALID_VALUE"):
            driver.allocate(nbytes)


def test_a_thread_without_context(make_card):
    driver = make_card().driver
    del driver.thread.context
    for call in (lambda: driver.allocate(8), driver.create_stream, driver.memory_info,
                 driver.create_event, driver.synchronize):
        with pytest.raises(DriverError, match="INVALID_CONTEXT"):
            call()


def test_virtual_memory(card):
    driver, size = card.driver, card.driver.granularity(0)
    base = driver.reserve(8 * size)
    parts = [driver.create_physical(size, 0) for _ in range(2)]
    assert driver.memory_info()[0] == driver.options.memory - 2 * size
    driver.map(base, size, parts[0], 0)
    driver.map(base + size, size, parts[1], 0)
    values = np.arange(2 * size // 4, dtype=np.int32)
    driver.copy(base, values.ctypes.data, values.nbytes, "to_device", card.stream)
    kernel, out = card.kernel(COPY), card.room(64, np.int32)
    across = size // 4 - 32
    card.launch(kernel, 1, 64, "QQi", out, base + 4 * across, 64)
    np.testing.assert_array_equal(card.fetch(out, 64, np.int32), values[across : across + 64])
    driver.unmap(base, size)
    card.launch(kernel, 1, 64, "QQi", out, base + 4 * across, 64)
    with pytest.raises(SimulatedFault):
        card.wait()
    # What was written stays with the physical memory, wherever it is mapped next.
    driver.map(base + 4 * size, size, parts[0], 0)
    np.testing.assert_array_equal(card.fetch(base + 4 * size, 64, np.int32), values[:64])


def test_memory_unmapped_under_pending_work(card):
    driver, size = card.driver, card.driver.granularity(0)
    base, part = driver.reserve(size), driver.create_physical(size, 0)
    driver.map(base, size, part, 0)
    driver.handed_out(base, 512, 512)
    card.launch(card.kernel(COPY), 1, 8, "QQi", card.room(8), base, 8)
    driver.unmap(base, size)
    with pytest.raises(SimulatedFault, match="unmapped while work that uses it was pending"):
        card.wait()


def test_physical_memory_stays_while_it_is_mapped(card):
    driver, size = card.driver, card.driver.granularity(0)
    base, part = driver.reserve(2 * size), driver.create_physical(size, 0)
    total = driver.options.memory
    driver.map(base, size, part, 0)
    driver.destroy_physical(part)
    assert driver.memory_info()[0] == total - size
    assert card.fetch(base, 4).size == 4
    with pytest.raises(DriverError, match="still mapped"):
        driver.release(base, 2 * size)
    driver.unmap(base, size)
    assert driver.memory_info()[0] == total
    driver.release(base, 2 * size)


def test_mappings_that_cannot_be(card):
    driver, size = card.driver, card.driver.granularity(0)
    base, part = driver.reserve(4 * size), driver.create_physical(size, 0)
    driver.map(base, size, part, 0)
    bad = [
        lambda: driver.map(base, size, part, 0),
        lambda: driver.map(base + 512, size, part, 0),
        lambda: driver.map(base + 4 * size, size, part, 0),
        lambda: driver.map(base + size, 2 * size, part, 0),
        lambda: driver.map(base + size, size, part, 1),
        lambda: driver.unmap(base + size, size),
        lambda: driver.unmap(base, 2 * size),
        lambda: driver.reserve(100),
        lambda: driver.create_physical(100, 0),
        lambda: driver.release(base, size),
    ]
    for call in bad:
        with pytest.raises(DriverError, match="INVALID_VALUE"):
            call()
    with pytest.raises(DriverError, match="INVALID_HANDLE"):
        driver.map(base + size, size, 17, 0)
    with pytest.raises(DriverError, match="INVALID_CONTEXT"):
        driver.create_physical(size, 1)


def test_physical_memory_runs_out(make_card):
    driver = make_card(memory=8 * MIB).driver
    size = driver.granularity(0)
    parts = [driver.create_physical(size, 0) for _ in range(4)]
    with pytest.raises(DriverError, match="OUT_OF_MEMORY"):
        driver.create_physical(size, 0)
    driver.destroy_physical(parts[1])
    driver.create_physical(size, 0)


def test_a_driver_gives_everything_back(make_card):
    gc.collect()
    before = len(free_spaces)
    card = make_card()
    card.driver.allocate(MIB)
    card.driver.allocate_host(MIB)
    assert len(free_spaces) == before - 2
    del card
    gc.collect()
    assert len(free_spaces) == before


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 40), st.sampled_from([1, 4, 16])), max_size=40),
       st.randoms(use_true_random=False))
def test_ranges_never_overlap(requests, draw):
    space = AddressSpace(64, 64 + 512)
    live: dict[int, int] = {}
    for nbytes, alignment in requests:
        if live and draw.random() < 0.4:
            start = draw.choice(sorted(live))
            space.give(start, live.pop(start))
        start = space.take(nbytes, alignment)
        if start:
            assert start % alignment == 0
            assert all(start + nbytes <= other or other + size <= start
                       for other, size in live.items())
            live[start] = nbytes
    for start, nbytes in live.items():
        space.give(start, nbytes)
    assert space.holes == [(64, 64 + 512)]

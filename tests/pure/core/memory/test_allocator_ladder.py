"""What happens when no free block fits: callbacks, growth, release, collection, the error."""

from __future__ import annotations

import gc

import pytest
from fake_memory import COMPILED, FakeMemory, GrowingMemory

from slipstream.core.memory.blocks import Allocator
from slipstream.core.memory.statistics import memory_stats, snapshot
from slipstream.core.vocab.errors import OutOfMemoryError

MEGA = 1 << 20
PROVIDERS = [FakeMemory, GrowingMemory]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_failed_request_changes_nothing(provider):
    allocator = Allocator(provider(capacity=32 * MEGA))
    held = [(allocator.allocate(n), n) for n in (100, 70_000, 5 * MEGA, 9 * MEGA)]
    before = snapshot(allocator)
    for nbytes in (33 * MEGA, 1 << 50):
        with pytest.raises(OutOfMemoryError, match=r"no memory for .*in use, .*reserved"):
            allocator.allocate(nbytes)
    live = [b for p in before for b in p["blocks"] if b["state"] != "inactive"]
    after = [b for p in snapshot(allocator) for b in p["blocks"] if b["state"] != "inactive"]
    assert live == after
    stats = memory_stats(allocator)
    assert stats["num_ooms"] == 2
    assert stats["requested_bytes.all.current"] == sum(n for _, n in held)
    allocator.allocate(4 * MEGA)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_free_pieces_are_released_for_a_larger_request(provider):
    allocator = Allocator(provider(capacity=40 * MEGA))
    held = [(allocator.allocate(n * MEGA), n * MEGA) for n in (10, 10, 10)]
    for block in held:
        allocator.free(*block)
    assert allocator.allocate(38 * MEGA)
    assert memory_stats(allocator)["num_ooms"] == 0


@pytest.mark.parametrize("provider", PROVIDERS)
def test_release_is_just_enough(provider):
    allocator = Allocator(provider(capacity=40 * MEGA))
    small = [allocator.allocate(MEGA) for _ in range(20)]
    for address in small:
        allocator.free(address, MEGA)
    assert allocator.allocate(25 * MEGA)
    stats = memory_stats(allocator)
    assert stats["num_alloc_retries"] == 1
    assert stats["reserved_bytes.small_pool.current"] >= 8 * MEGA


def test_cycles_are_collected_before_giving_up():
    allocator = Allocator(FakeMemory(capacity=100 * MEGA))

    class Holder:
        def __init__(self):
            self.address = allocator.allocate(40 * MEGA)
            self.itself = self

        def __del__(self):
            allocator.free(self.address, 40 * MEGA)

    gc.disable()
    try:
        for _ in range(20):
            Holder()
    finally:
        gc.enable()
    assert memory_stats(allocator)["num_ooms"] == 0
    gc.collect()


def test_callbacks_come_before_the_provider_and_drain_before_the_error():
    provider = FakeMemory(capacity=24 * MEGA)
    allocator = Allocator(provider)
    held = [(allocator.allocate(8 * MEGA), 8 * MEGA) for _ in range(2)]
    asked = []

    def give_one_back(nbytes):
        asked.append(nbytes)
        if len(asked) == 1:
            allocator.free(*held.pop())

    allocator.callbacks.append(give_one_back)
    calls = provider.calls
    held.append((allocator.allocate(8 * MEGA), 8 * MEGA))
    assert (asked, provider.calls) == ([8 * MEGA], calls)
    drained = []

    def drain():
        drained.append(True)
        while held:
            allocator.free(*held.pop())

    allocator.drain = drain
    assert allocator.allocate(20 * MEGA)
    assert drained == [True]


def test_the_error_is_made_by_a_function():
    allocator = Allocator(FakeMemory(capacity=0))
    allocator.error = lambda who, nbytes: MemoryError(who is allocator, nbytes)
    with pytest.raises(MemoryError) as caught:
        allocator.allocate(10)
    assert caught.value.args == (True, 10)


def test_a_limit():
    allocator = Allocator(GrowingMemory())
    allocator.set_limit(8 * MEGA)
    first, hole, last = (allocator.allocate(n * MEGA) for n in (3, 2, 3))
    allocator.free(hole, 2 * MEGA)
    with pytest.raises(OutOfMemoryError, match=r"limit 8\.00 MiB, largest hole 2\.00 MiB"):
        allocator.allocate(3 * MEGA)
    # All is reserved and there is no slab: small blocks come from the hole.
    small = [allocator.allocate(1000) for _ in range(2)]
    assert small == [hole, hole + 4096]
    allocator.set_limit(0)
    small.append(allocator.allocate(2000))
    assert not first <= small[2] < last
    for address, nbytes in zip(small, (1000, 1000, 2000), strict=True):
        allocator.free(address, nbytes)
    assert allocator.allocate(2 * MEGA) == hole
    for address, n in ((first, 3), (hole, 2), (last, 3)):
        allocator.free(address, n * MEGA)
    allocator.empty_cache()
    assert memory_stats(allocator)["reserved_bytes.all.current"] == 0
    assert memory_stats(allocator)["allocation.all.current"] == 0


def test_a_provider_that_raises_leaves_the_pools_alone():
    provider = FakeMemory()
    allocator = Allocator(provider)
    address = allocator.allocate(3 * MEGA)
    provider.reserve = lambda nbytes: 1 // 0
    with pytest.raises(ZeroDivisionError):
        allocator.allocate(3 * MEGA)
    allocator.free(address, 3 * MEGA)
    assert allocator.allocate(3 * MEGA) == address


def test_blocks_freed_twice_are_noticed():
    allocator = Allocator(FakeMemory())
    address = allocator.allocate(3 * MEGA)
    allocator.free(address, 3 * MEGA)
    allocator.free(address, 3 * MEGA)
    with pytest.raises(RuntimeError, match="freed twice"):
        allocator.allocate(2 * MEGA)
    assert allocator.allocate(3 * MEGA) == address
    if COMPILED:
        address = allocator.allocate(100)
        allocator.free(address, 100)
        allocator.free(address, 100)
        with pytest.raises(RuntimeError, match="freed twice"):
            allocator.allocate(100)


def test_negative_sizes():
    with pytest.raises(RuntimeError, match="cannot allocate -1 bytes"):
        Allocator(FakeMemory()).allocate(-1)


def test_without_windows_segments_are_separate():
    provider = GrowingMemory()
    provider.reserve_growing = lambda nbytes: 0
    allocator = Allocator(provider)
    blocks = [(allocator.allocate(3 * MEGA), 3 * MEGA) for _ in range(3)]
    assert sorted(provider.pieces.values()) == [4 * MEGA] * 3
    for block in blocks:
        allocator.free(*block)
    allocator.empty_cache()
    assert not provider.pieces


def test_a_full_window_is_followed_by_another():
    provider = GrowingMemory()
    provider.extend = lambda address, nbytes: False
    allocator = Allocator(provider)
    blocks = [(allocator.allocate(3 * MEGA), 3 * MEGA) for _ in range(3)]
    assert provider.windows == 3
    for block in blocks:
        allocator.free(*block)
    allocator.empty_cache()
    assert not provider.pieces

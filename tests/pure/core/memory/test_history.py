"""Maps and histories of a device's memory, in the form that PyTorch's viewer reads."""

from __future__ import annotations

import pickle

import pytest
from fake_driver import FakeDriver

from slipstream.core.memory.device import DeviceAllocator
from slipstream.core.memory.history import Map, recorder, snapshot
from slipstream.core.memory.pools import Pool, routes_of
from slipstream.core.memory.statistics import memory_stats
from slipstream.core.vocab.errors import OutOfMemoryError

MEGA = 1 << 20
SIZES = (1, 512, 513, 5000, 100_000, MEGA, MEGA + 1, 3 * MEGA, 20 * MEGA)


@pytest.fixture
def recording():
    recorder.start(1000, True, True)
    yield
    recorder.stop()


def make(capacity=1 << 40, virtual=True):
    return DeviceAllocator(FakeDriver(capacity, virtual), 0)


@pytest.mark.parametrize("virtual", [True, False])
def test_blocks_fill_their_segments(virtual):
    allocator = make(virtual=virtual)
    held = [(allocator.allocate(n), n) for n in SIZES * 2]
    for block in held[::3]:
        allocator.free(*block)
    live = {address: nbytes for i, (address, nbytes) in enumerate(held) if i % 3}
    found, total = {}, 0
    for segment in Map(allocator).segments():
        end = segment["address"]
        for block in segment["blocks"]:
            assert block["address"] == end
            end += block["size"]
            if block["state"] == "active_allocated":
                found[block["address"]] = block["requested_size"]
        assert end == segment["address"] + segment["total_size"]
        total += segment["total_size"]
    assert found == live
    assert total == memory_stats(allocator)["reserved_bytes.all.current"]


def test_events(recording):
    allocator = make(64 * MEGA)
    address = allocator.allocate(3 * MEGA)
    allocator.free(address, 3 * MEGA)
    allocator.allocate(100)
    with pytest.raises(OutOfMemoryError):
        allocator.allocate(80 * MEGA)
    found = pickle.loads(pickle.dumps(snapshot([allocator])))
    events = found["device_traces"][0]
    actions = [event["action"] for event in events]
    assert actions == ["segment_map", "alloc", "free_requested", "free_completed",
                       "segment_map", "alloc", "segment_unmap", "oom"]
    assert events[1]["addr"] == address
    assert events[1]["size"] == 3 * MEGA
    assert events[1]["frames"][0]["name"] == "test_events"
    assert events[1]["frames"][0]["filename"] == __file__
    live = [block for segment in found["segments"] for block in segment["blocks"]
            if block["state"] == "active_allocated"]
    assert [block["frames"][0]["name"] for block in live] == ["test_events"]


def test_recording_ends(recording):
    allocator = make()
    recorder.stop()
    allocator.allocate(100)
    assert snapshot([allocator])["device_traces"] == [[]]
    assert not allocator.watchers


def test_pools_have_segments_of_their_own():
    allocator, pool = make(), Pool()
    inside = routes_of(allocator)
    outside = allocator.allocate(3 * MEGA)
    entered = inside.enter(pool)
    blocks = [(allocator.allocate(n), n) for n in (100, 3 * MEGA)]
    inside.leave(entered)
    after = allocator.allocate(100)
    segments = snapshot([allocator])["segments"]
    owners = {block["address"]: segment["segment_pool_id"] for segment in segments
              for block in segment["blocks"] if block["state"] == "active_allocated"}
    assert owners[outside] == owners[after] == (0, 0)
    assert {owners[address] for address, _ in blocks} == {(0, pool.number)}
    assert memory_stats(allocator)["allocation.all.current"] == 4
    for block in blocks:
        allocator.free(*block)
    allocator.settled()
    assert memory_stats(allocator)["allocation.all.current"] == 2
    # What the pool holds is not given out to others, until the pool is gone and memory is short.
    assert allocator.allocate(3 * MEGA) not in dict(blocks)
    assert pool.on(allocator).pieces.held() == 6 * MEGA
    pool.let_go()
    allocator.empty_cache()
    assert pool.on(allocator).pieces.held() == 0

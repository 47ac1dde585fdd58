"""Statistics under PyTorch's keys, their resets, the summary, the count of allocations."""

from __future__ import annotations

from fake_memory import FakeMemory, GrowingMemory

from slipstream.core.memory.blocks import Allocator
from slipstream.core.memory.statistics import (
    MemoryStatistics,
    count_allocations,
    format_bytes,
    largest_hole,
    memory_stats,
    memory_summary,
    reset_peak,
    reset_totals,
    snapshot,
)

MEGA = 1 << 20
KEYS = [
    "allocation.all.current", "allocated_bytes.all.peak", "allocated_bytes.small_pool.freed",
    "reserved_bytes.all.peak", "reserved_bytes.large_pool.current", "active_bytes.all.current",
    "segment.all.allocated", "requested_bytes.all.current", "num_alloc_retries", "num_ooms",
]


def test_keys():
    stats = memory_stats(Allocator(FakeMemory()))
    assert set(KEYS) <= set(stats)
    assert not any(stats.values())


def test_peak_and_totals_begin_again():
    allocator = Allocator(GrowingMemory())
    blocks = [(allocator.allocate(n), n) for n in (1000, 100_000, 4 * MEGA)]
    for block in blocks[1:]:
        allocator.free(*block)
    allocator.empty_cache()
    reset_peak(allocator)
    stats = memory_stats(allocator)
    assert stats["allocated_bytes.all.peak"] == stats["allocated_bytes.all.current"] == 1024
    assert stats["reserved_bytes.all.peak"] == stats["reserved_bytes.all.current"]
    assert stats["allocation.all.freed"] == 2
    reset_totals(allocator)
    stats = memory_stats(allocator)
    assert stats["allocation.all.freed"] == stats["reserved_bytes.all.freed"] == 0
    assert stats["allocated_bytes.all.allocated"] == 1024
    assert stats["requested_bytes.all.allocated"] == 1000


def test_count_allocations():
    allocator = Allocator(FakeMemory())
    block = allocator.allocate(500)
    with count_allocations(allocator) as count:
        allocator.allocate(0)
        allocator.free(block, 500)
    assert (count.blocks, count.bytes) == (0, 0)
    with count_allocations(allocator) as count:
        allocator.allocate(500)
        allocator.allocate(3 * MEGA)
    assert (count.blocks, count.bytes) == (2, 500 + 3 * MEGA)


def test_largest_hole():
    allocator = Allocator(FakeMemory())
    assert largest_hole(allocator) == 0
    allocator.allocate(100)
    assert largest_hole(allocator) == 128
    allocator.free(allocator.allocate(5 * MEGA), 5 * MEGA)
    assert largest_hole(allocator) == MemoryStatistics(allocator).counts["largest_hole"] == 6 * MEGA


def test_summary():
    allocator = Allocator(FakeMemory())
    allocator.allocate(3 * MEGA)
    text = memory_summary(allocator)
    assert "Allocated memory" in text
    assert "3.00 MiB" in text
    assert len({len(line) for line in text.splitlines()[:-1]}) == 1


def test_format_bytes():
    assert [format_bytes(n) for n in (0, 1023, 1536, 5 << 30, 1 << 52)] == [
        "0 B", "1023 B", "1.50 KiB", "5.00 GiB", "4096.00 TiB"]


def test_snapshot_is_sorted_and_names_states():
    allocator = Allocator(GrowingMemory())
    allocator.allocate(3 * MEGA)
    allocator.allocate(100)
    pieces = snapshot(allocator)
    assert [p["address"] for p in pieces] == sorted(p["address"] for p in pieces)
    small, large = sorted(pieces, key=lambda p: p["segment_type"], reverse=True)
    assert small["blocks"][0]["state"] == "active_allocated"
    assert small["blocks"][1]["state"] == "inactive"
    assert (large["total_size"], large["allocated_size"]) == (4 * MEGA, 3 * MEGA)

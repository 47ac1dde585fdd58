"""Any sequence of requests: no overlap, exact counts, nothing lost in splits and merges."""

from __future__ import annotations

import pytest
from fake_memory import FakeMemory, GrowingMemory, block_size
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from slipstream.core.memory.blocks import Allocator
from slipstream.core.memory.statistics import memory_stats, snapshot

SIZES = st.one_of(
    st.integers(1, 2000),
    st.sampled_from([64, 65, 1 << 20, (1 << 20) + 1, 1 << 21]),
    st.integers(1 << 16, 1 << 22),
    st.integers(1 << 20, 40 << 20),
)


class Machine(RuleBasedStateMachine):
    blocks = Bundle("blocks")
    provider_class = FakeMemory

    def __init__(self):
        super().__init__()
        self.provider = self.provider_class()
        self.allocator = Allocator(self.provider)
        self.live = {}
        self.peak = self.total = self.requested = self.count = 0

    @rule(target=blocks, nbytes=SIZES)
    def allocate(self, nbytes):
        address = self.allocator.allocate(nbytes)
        assert address % 64 == 0
        assert address not in self.live
        self.live[address] = nbytes
        self.count += 1
        self.requested += nbytes
        self.total += block_size(nbytes)
        self.peak = max(self.peak, sum(map(block_size, self.live.values())))
        return address

    @rule(address=consumes(blocks))
    def free(self, address):
        self.allocator.free(address, self.live.pop(address))

    @rule()
    def empty_cache(self):
        self.allocator.empty_cache()
        for piece in snapshot(self.allocator):
            assert piece["allocated_size"] > 0
            last = piece["blocks"][-1]
            growing = piece["address"] > 1 << 45
            assert not growing or last["state"] == "active_allocated"

    @rule()
    def ask_for_nothing(self):
        assert self.allocator.allocate(0) == 0
        self.allocator.free(0, 0)

    @invariant()
    def blocks_lie_in_pieces_without_overlap(self):
        end = 0
        pieces = sorted(self.provider.pieces.items())
        for address, nbytes in sorted(self.live.items()):
            assert address >= end
            end = address + block_size(nbytes)
            assert any(base <= address and end <= base + size for base, size in pieces)

    @invariant()
    def counts_are_exact(self):
        stats = memory_stats(self.allocator)
        sizes = {address: block_size(nbytes) for address, nbytes in self.live.items()}
        assert stats["allocation.all.current"] == len(self.live)
        assert stats["allocation.all.allocated"] == self.count
        assert stats["allocated_bytes.all.current"] == sum(sizes.values())
        assert stats["allocated_bytes.all.allocated"] == self.total
        assert stats["allocated_bytes.all.peak"] == self.peak
        assert stats["requested_bytes.all.current"] == sum(self.live.values())
        assert stats["requested_bytes.all.allocated"] == self.requested
        assert stats["reserved_bytes.all.current"] == sum(self.provider.pieces.values())
        assert stats["segment.all.current"] == len(self.provider.pieces)
        small = sum(size for size in sizes.values() if size <= 1 << 20)
        assert stats["allocated_bytes.small_pool.current"] == small

    @invariant()
    def the_map_covers_every_piece(self):
        pieces = snapshot(self.allocator)
        assert {p["address"]: p["total_size"] for p in pieces} == self.provider.pieces
        live = {}
        for piece in pieces:
            end, before = piece["address"], ""
            for block in piece["blocks"]:
                assert block["address"] == end
                end += block["size"]
                # Free neighbours in a segment are always merged.
                assert piece["segment_type"] == "small" or (before, block["state"]) != (
                    "inactive", "inactive")
                before = block["state"]
                if before == "active_allocated":
                    live[block["address"]] = block["size"]
            assert end <= piece["address"] + piece["total_size"]
            assert piece["segment_type"] == "small" or end == piece["address"] + piece["total_size"]
        assert live == {address: block_size(n) for address, n in self.live.items()}

    def teardown(self):
        for address, nbytes in self.live.items():
            self.allocator.free(address, nbytes)
        self.allocator.empty_cache()
        assert not self.provider.pieces
        assert memory_stats(self.allocator)["reserved_bytes.all.current"] == 0


class GrowingMachine(Machine):
    provider_class = GrowingMemory


@pytest.mark.parametrize("machine", [Machine, GrowingMachine])
def test_any_sequence(machine):
    case = machine.TestCase
    case.settings = settings(deadline=None, max_examples=30, stateful_step_count=30)
    case("runTest").runTest()

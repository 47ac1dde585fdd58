"""The choice of a block depends on the set of free blocks alone."""

from __future__ import annotations

import random

import pytest
from fake_memory import COMPILED, FakeMemory, GrowingMemory, block_size
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstream.core.memory.blocks import Allocator
from slipstream.core.memory.heaps import HeapShelf
from slipstream.core.memory.slabs import Shelf, Slab
from slipstream.core.memory.statistics import memory_stats, snapshot

PROVIDERS = [FakeMemory, GrowingMemory]
SIZES = st.lists(
    st.one_of(st.integers(1, 5000), st.integers(1, 8 << 20)), min_size=1, max_size=40
)


def log_uniform(generator, low, high):
    """A size between two powers of two, each magnitude as likely."""
    return int(2 ** generator.uniform(low, high))


@pytest.mark.parametrize("provider", PROVIDERS)
@given(SIZES, st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=40)
def test_order_of_frees_does_not_matter(provider, sizes, order):
    addresses = []
    for shuffled in (False, True):
        allocator = Allocator(provider())
        held = [(allocator.allocate(n), n) for n in sizes * 2]
        back = held[::2]
        if shuffled:
            order.shuffle(back)
        for address, nbytes in back:
            allocator.free(address, nbytes)
            # A request of nothing may or may not settle what came back so far.
            allocator.allocate(0)
        addresses.append([allocator.allocate(n) for n in reversed(sizes)])
    assert addresses[0] == addresses[1]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_program_that_repeats_itself_meets_the_same_addresses(provider):
    allocator = Allocator(provider())
    weights = [allocator.allocate(n) for n in (400, 3 << 20, 70_000)]
    runs = []
    for repeat in range(4):
        generator, order, held, seen = random.Random(5), random.Random(repeat), [], []
        for _ in range(300):
            nbytes = log_uniform(generator, 4, 24)
            address = allocator.allocate(nbytes)
            seen.append(address)
            held.append((address, nbytes))
            if generator.random() < 0.4:
                gone = [held.pop(generator.randrange(len(held))) for _ in range(len(held) // 3)]
                order.shuffle(gone)
                for block in gone:
                    allocator.free(*block)
        order.shuffle(held)
        for block in held:
            allocator.free(*block)
        runs.append(seen)
    assert runs[1] == runs[2] == runs[3]
    assert not set(weights) & set(runs[3])


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_block_kept_alive_disturbs_its_class_only(provider):
    sizes = [64, 100, 200, 1000, 5000, 60_000, 1 << 20, 2 << 20, 5 << 20]

    def second_round(keep):
        allocator = Allocator(provider())
        for kept in (keep, None):
            held = [(n, allocator.allocate(n)) for n in sizes * 3]
            seen = {(i, n): a for i, (n, a) in enumerate(held)}
            for nbytes, address in held:
                if nbytes == kept:
                    kept = None
                else:
                    allocator.free(address, nbytes)
        return seen

    plain = second_round(None)
    for size in (100, 60_000, 1 << 20):
        moved = {n for (i, n), a in second_round(size).items() if plain[i, n] != a}
        assert moved <= {size}


@pytest.mark.parametrize("provider", PROVIDERS)
def test_small_blocks_take_the_lowest_free_address(provider):
    allocator = Allocator(provider())
    held = [allocator.allocate(192) for _ in range(3000)]
    for address in random.Random(0).sample(held, 500):
        allocator.free(address, 192)
    blocks = [block for piece in snapshot(allocator) for block in piece["blocks"]]
    free = sorted(block["address"] for block in blocks if block["state"] == "inactive")
    assert [allocator.allocate(150) for _ in free] == free


def test_large_blocks_take_the_smallest_hole_and_of_equal_ones_the_lowest():
    allocator = Allocator(GrowingMemory())
    mega = 1 << 20
    held = [(allocator.allocate(n * mega), n) for n in (4, 2, 6, 2, 4, 2, 9)]
    for address, n in (held[0], held[2], held[4]):
        allocator.free(address, n * mega)
    assert allocator.allocate(5 * mega) == held[2][0]
    assert allocator.allocate(3 * mega) == held[0][0]
    assert allocator.allocate(4 * mega) == held[4][0]


@given(st.integers(1, 5 << 20))
@settings(deadline=None, max_examples=200)
def test_sizes_of_classes(nbytes):
    allocator = Allocator(FakeMemory())
    allocator.allocate(nbytes)
    assert memory_stats(allocator)["allocated_bytes.all.current"] == block_size(nbytes)
    waste = block_size(nbytes) - nbytes
    assert waste < max(64, nbytes / 4)


def test_a_larger_minimum():
    provider = FakeMemory()
    provider.minimum, provider.granularity = 512, 1 << 21
    allocator = Allocator(provider)
    addresses = [allocator.allocate(n) for n in (1, 512, 513, 2049, 1 << 20, 3 << 20)]
    assert all(address % 512 == 0 for address in addresses)
    assert addresses[1] == addresses[0] + 512
    assert all(nbytes % (1 << 21) == 0 for nbytes in provider.pieces.values())


@pytest.mark.skipif(COMPILED, reason="a compiled shelf is not seen from Python")
def test_heaps_choose_as_bitmaps_do():
    generator = random.Random(2)
    shelves, live, base = (Shelf(320), HeapShelf(320)), [], 1 << 30
    for step in range(4000):
        # Demand swells and ebbs, so that slabs come and go.
        if live and generator.random() < (0.3 if step // 400 % 2 == 0 else 0.7):
            address = live.pop(generator.randrange(len(live)))
            assert all(shelf.give(address) for shelf in shelves)
        else:
            address, same = (shelf.take() for shelf in shelves)
            assert address == same
            if address == 0:
                base += 1 << 14
                place = generator.choice([base, -base]) + (1 << 40)
                for shelf in shelves:
                    shelf.add(Slab(place, 8192, 320))
                continue
            live.append(address)
        assert shelves[0].free_slots() == shelves[1].free_slots()
        if step % 97 == 0:
            assert shelves[0].free_addresses() == shelves[1].free_addresses()
            gone = [shelf.drop() for shelf in shelves]
            assert len({slab and slab.base for slab in gone}) == 1

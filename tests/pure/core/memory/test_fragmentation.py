"""How much more is reserved than is in use, over traces of requests."""

from __future__ import annotations

import heapq
import random

import pytest
from fake_memory import FakeMemory, GrowingMemory

from slipstream.core.memory.blocks import Allocator
from slipstream.core.memory.statistics import memory_stats

STEPS = 5000


class Trace:
    """An allocator under a trace, and the peak of the bytes that were asked for."""

    def __init__(self, provider):
        self.allocator = Allocator(provider())
        self.live = self.peak = 0

    def take(self, nbytes):
        """Ask for a block."""
        self.live += nbytes
        self.peak = max(self.peak, self.live)
        return self.allocator.allocate(nbytes), nbytes

    def give(self, block):
        """Let go of a block."""
        self.live -= block[1]
        self.allocator.free(*block)

    def ratio(self):
        """Peak of the reserved bytes over peak of the requested ones."""
        return memory_stats(self.allocator)["reserved_bytes.all.peak"] / self.peak


def log_uniform(trace, seed, high=26):
    """Sizes from 64 bytes to 2**high, lives of random length, one in twenty long."""
    generator, ends = random.Random(seed), []
    for step in range(STEPS):
        while ends and ends[0][0] <= step:
            trace.give(heapq.heappop(ends)[1])
        block = trace.take(int(2 ** generator.uniform(6, high)))
        life = 4000 if generator.random() < 0.05 else generator.expovariate(1 / 200)
        heapq.heappush(ends, (step + 1 + int(life), block))


def training(trace, seed):
    """Weights that stay; steps of random length whose results are freed in backward order."""
    generator, count = random.Random(seed), 0
    for _ in range(36):
        trace.take(4 << 20)
    while count < STEPS:
        length, saved = generator.randrange(64, 1024), []
        for _ in range(12):
            for nbytes in (length << 14, length << 7, 128 * length**2, length << 16, length << 5):
                saved.append(trace.take(nbytes))
                trace.give(trace.take(nbytes))
                count += 2
        while saved:
            gradient = trace.take(saved[-1][1])
            trace.give(gradient)
            trace.give(saved.pop())


@pytest.mark.parametrize("seed", range(3))
def test_steps_of_random_length(seed):
    trace = Trace(GrowingMemory)
    training(trace, seed)
    ratio = trace.ratio()
    print(f"training, lengths 64-1024: reserved / live {ratio:.3f}")
    assert ratio <= 1.05


@pytest.mark.parametrize("seed", range(3))
def test_log_uniform_sizes(seed):
    trace = Trace(GrowingMemory)
    log_uniform(trace, seed)
    ratio = trace.ratio()
    print(f"log-uniform 64 B - 64 MiB: reserved / live {ratio:.3f}")
    assert ratio <= 1.25


def test_growing_segments_beat_separate_ones():
    ratios = []
    for provider in (FakeMemory, GrowingMemory):
        trace = Trace(provider)
        training(trace, 0)
        ratios.append(trace.ratio())
    print(f"training: separate segments {ratios[0]:.2f}, one that grows {ratios[1]:.2f}")
    assert ratios[1] < ratios[0]


def test_repeated_steps_reserve_nothing_more():
    trace = Trace(GrowingMemory)
    reserved = set()
    for _ in range(4):
        held = [trace.take(int(2 ** random.Random(i).uniform(6, 24))) for i in range(300)]
        random.Random(0).shuffle(held)
        for block in held:
            trace.give(block)
        reserved.add(memory_stats(trace.allocator)["reserved_bytes.all.current"])
    assert len(reserved) == 1

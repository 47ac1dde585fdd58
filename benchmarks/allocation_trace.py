"""Replays the allocations of a language model's training; prints peak reserved / peak live.

The trace is made here: 5,000 steps whose lengths are log-uniform from 16 to 4,096, parameters,
gradients that come and go, optimizer state from the first step on, activations that the backward
pass lets go of in reverse, and one block a step that stays, asked for in the middle of the step.
Ours runs over a driver that only counts; ``--torch`` runs the same trace on PyTorch with
expandable segments, on a card.
Usage: python benchmarks/allocation_trace.py [--steps N] [--seed N] [--torch] [--bar RATIO]
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import random
import sys
import time
from collections.abc import Iterator
from typing import Any

from slipstream.core.memory.device import DeviceAllocator
from slipstream.core.memory.statistics import memory_stats
from slipstream.core.native.driver import DeviceProperties, Driver, DriverError

STEPS = 5_000
LAYERS, WIDTH, HEADS, VOCABULARY = 12, 768, 12, 32_000
SHORTEST, LONGEST = 16, 4_096
CAPACITY = 80 << 30
# One event: take (True) or give (False), the block's number, its bytes.
Event = tuple[bool, int, int]


class Trace:
    """Makes the events of a training run; a generator of steps."""

    def __init__(self, seed: int, steps: int) -> None:
        self.random = random.Random(seed)
        self.steps = steps
        self.count = 0
        self.sizes: dict[int, int] = {}

    def take(self, nbytes: int) -> Event:
        """Ask for a block."""
        self.count += 1
        self.sizes[self.count] = nbytes
        return True, self.count, nbytes

    def give(self, block: int) -> Event:
        """Let go of a block."""
        return False, block, self.sizes.pop(block)

    def between(self, low: float, high: float) -> int:
        """A whole number, log-uniform."""
        return int(low * (high / low) ** self.random.random())

    def parameters(self) -> list[int]:
        """Bytes of each parameter."""
        layer = [4 * WIDTH * n * WIDTH for n in (3, 1, 4, 4)]
        biases = [4 * WIDTH * n for n in (3, 1, 4, 1, 1, 1, 1, 1)]
        return [4 * VOCABULARY * WIDTH, *(layer + biases) * LAYERS, 4 * WIDTH, 4 * WIDTH]

    def events(self) -> Iterator[Event]:
        """The whole run."""
        sizes = self.parameters()
        for nbytes in sizes:
            yield self.take(nbytes)
        for step in range(self.steps):
            yield from self.step(self.between(SHORTEST, LONGEST), sizes, step == 0)

    def step(self, length: int, sizes: list[int], first: bool) -> Iterator[Event]:
        """One step at a length: forward, backward, optimizer."""
        saved: list[int] = []
        yield from self.keep(saved, 8 * length, 4 * length * WIDTH)
        middle = self.random.randrange(LAYERS)
        for layer in range(LAYERS):
            yield from self.layer(length, saved)
            if layer == middle:
                # It outlives the step.
                yield self.take(self.between(1 << 10, 4 << 20))
        yield from self.keep(saved, 4 * length * VOCABULARY, 4 * length * VOCABULARY, 4)
        gradients: list[int] = []
        yield from self.backward(length, saved, sizes, gradients)
        if first:
            for nbytes in sizes:
                yield self.take(nbytes)
                yield self.take(nbytes)
        for block in gradients:
            yield self.give(block)

    def keep(self, saved: list[int], *sizes: int) -> Iterator[Event]:
        """Ask for results that the backward pass will need."""
        for nbytes in sizes:
            event = self.take(nbytes)
            saved.append(event[1])
            yield event

    def passing(self, *sizes: int) -> Iterator[Event]:
        """Ask for results that nobody keeps."""
        events = [self.take(nbytes) for nbytes in sizes]
        yield from events
        for _, block, _ in events:
            yield self.give(block)

    def layer(self, length: int, saved: list[int]) -> Iterator[Event]:
        """The forward pass of one layer."""
        row = 4 * length * WIDTH
        yield from self.keep(saved, row, 4 * length, 4 * length, 3 * row)
        yield from self.passing(4 * HEADS * length * length, 4 * HEADS * length)
        yield from self.keep(saved, row)
        yield from self.passing(row)
        yield from self.keep(saved, row, row, 4 * length, 4 * length, 4 * row, 4 * row)
        yield from self.passing(row)
        yield from self.keep(saved, row)

    def backward(self, length: int, saved: list[int], sizes: list[int],
                 gradients: list[int]) -> Iterator[Event]:
        """Gradients of activations, let go of one behind the other; of parameters, kept."""
        left = list(reversed(sizes))
        share = max(1, len(left) // len(saved))
        running = self.take(4 * length * WIDTH)
        yield running
        while saved:
            block = saved.pop()
            following = self.take(self.sizes[block])
            yield following
            yield self.give(running[1])
            yield self.give(block)
            running = following
            for nbytes in left[:share]:
                yield from self.keep(gradients, nbytes)
            del left[:share]
        for nbytes in left:
            yield from self.keep(gradients, nbytes)
        yield self.give(running[1])


class CountingDriver(Driver):
    """Addresses without memory: a card of 80 GiB with virtual memory."""

    name = "counting"

    def __init__(self) -> None:
        self.next = 1 << 44
        self.taken = 0
        self.calls = 0

    def properties(self, ordinal: int) -> DeviceProperties:
        """A large card."""
        return DeviceProperties("counting", CAPACITY, 9, 0, 132, 49_152, 232_448, 65_536, 1_024,
                                2_048, 32, 50 << 20, 2, True)

    def context(self, ordinal: int) -> int:
        """Any number."""
        return 1

    def use(self, context: int) -> None:
        """Nothing to do."""

    def granularity(self, ordinal: int) -> int:
        """What cards have."""
        return 1 << 21

    def reserve(self, nbytes: int) -> int:
        """Addresses never used before."""
        address = self.next
        self.next += nbytes
        return address

    def release(self, address: int, nbytes: int) -> None:
        """Nothing to do."""

    def create_physical(self, nbytes: int, ordinal: int) -> int:
        """Count the memory."""
        self.calls += 1
        if self.taken + nbytes > CAPACITY:
            raise DriverError("create_physical", "OUT_OF_MEMORY")
        self.taken += nbytes
        return 1

    def destroy_physical(self, handle: int) -> None:
        """It stays while it is mapped."""

    def map(self, address: int, nbytes: int, handle: int, ordinal: int) -> None:
        """Nothing to do."""

    def unmap(self, address: int, nbytes: int) -> None:
        """Count the memory."""
        self.taken -= nbytes


def run_ours(trace: Trace) -> dict[str, Any]:
    """The trace on our allocator."""
    driver = CountingDriver()
    allocator = DeviceAllocator(driver, 0)
    addresses: dict[int, int] = {}
    live = peak = count = calls = 0
    for taken, block, nbytes in trace.events():
        count += 1
        if taken:
            addresses[block] = allocator.allocate(nbytes)
            live += nbytes
            peak = max(peak, live)
        else:
            allocator.free(addresses.pop(block), nbytes)
            live -= nbytes
        calls = driver.calls if 2 * count < len(addresses) else calls
    reserved = memory_stats(allocator)["reserved_bytes.all.peak"]
    return {"peak_reserved": reserved, "peak_live": peak, "events": count,
            "driver_allocations": driver.calls}


def run_torch(trace: Trace) -> dict[str, Any]:
    """The trace on PyTorch's allocator, on the first card."""
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    torch = importlib.import_module("torch")
    blocks: dict[int, Any] = {}
    live = peak = count = 0
    for taken, block, nbytes in trace.events():
        count += 1
        if taken:
            blocks[block] = torch.empty(nbytes, dtype=torch.uint8, device="cuda")
            live += nbytes
            peak = max(peak, live)
        else:
            del blocks[block]
            live -= nbytes
    stats = torch.cuda.memory_stats()
    return {"peak_reserved": stats["reserved_bytes.all.peak"], "peak_live": peak,
            "events": count, "driver_allocations": stats["num_device_alloc"],
            "version": torch.__version__}


def main() -> int:
    """Run the trace, print the figures as JSON; 1 where the ratio is above the bar."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--torch", action="store_true")
    parser.add_argument("--bar", type=float, default=0.0)
    options = parser.parse_args()
    trace = Trace(options.seed, options.steps)
    start = time.perf_counter()
    found = run_torch(trace) if options.torch else run_ours(trace)
    found["ratio"] = round(found["peak_reserved"] / found["peak_live"], 4)
    found["microseconds_per_event"] = 1e6 * (time.perf_counter() - start) / found["events"]
    print(json.dumps({"steps": options.steps, "seed": options.seed} | found))
    return int(0 < options.bar < found["ratio"])


if __name__ == "__main__":
    sys.exit(main())

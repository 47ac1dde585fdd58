"""Threads, collectors and children: whoever allocates or frees, the pools stay whole."""

from __future__ import annotations

import gc
import os
import random
import sys
import threading

import pytest
from fake_memory import COMPILED, FakeMemory, GrowingMemory, block_size

from slipstream.core.memory.blocks import Allocator
from slipstream.core.memory.statistics import memory_stats
from slipstream.core.native.host import HostMemory


def churn(allocator, seed, steps, faults, shared):
    """Allocate and free at random; blocks also change hands through ``shared``."""
    generator, held = random.Random(seed), []
    try:
        for _ in range(steps):
            if held and generator.random() < 0.5:
                shared.append(held.pop(generator.randrange(len(held))))
            nbytes = int(2 ** generator.uniform(5, 23))
            held.append((allocator.allocate(nbytes), nbytes))
            if len(shared) > 5:
                allocator.free(*shared.pop())
            if generator.random() < 0.01:
                allocator.empty_cache()
        shared.extend(held)
    except BaseException as error:
        faults.append(error)


@pytest.mark.parametrize("provider", [FakeMemory, GrowingMemory])
def test_two_threads(provider):
    allocator, faults, shared = Allocator(provider()), [], []
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [
            threading.Thread(target=churn, args=(allocator, seed, 1500, faults, shared))
            for seed in range(2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not faults
    end = 0
    for address, nbytes in sorted(shared):
        assert address >= end
        end = address + block_size(nbytes)
    stats = memory_stats(allocator)
    assert stats["allocation.all.current"] == len(shared)
    assert stats["allocated_bytes.all.current"] == sum(block_size(n) for _, n in shared)
    for block in shared:
        allocator.free(*block)
    allocator.empty_cache()
    assert memory_stats(allocator)["reserved_bytes.all.current"] == 0


def test_the_collector_may_allocate_and_free_inside_a_request():
    allocator = Allocator(GrowingMemory())
    held = []

    class Cycle:
        def __init__(self):
            self.itself = self
            self.block = (allocator.allocate(3 << 20), 3 << 20)

        def __del__(self):
            allocator.free(*self.block)
            held.append((allocator.allocate(2 << 20), 2 << 20))

    threshold = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for _ in range(60):
            Cycle()
            held.append((allocator.allocate(5 << 20), 5 << 20))
    finally:
        gc.set_threshold(*threshold)
    gc.collect()
    end = 0
    for address, nbytes in sorted(held):
        assert address >= end
        end = address + nbytes
    for block in held:
        allocator.free(*block)
    allocator.empty_cache()
    assert memory_stats(allocator)["allocation.all.current"] == 0
    assert memory_stats(allocator)["reserved_bytes.all.current"] == 0


@pytest.mark.skipif(COMPILED, reason="compiled, nothing can come between")
@pytest.mark.parametrize("nbytes", [100, 3 << 20])
def test_a_request_in_the_middle_of_another_one(nbytes):
    allocator = Allocator(FakeMemory())
    first = allocator.allocate(nbytes)
    allocator.busy = True
    allocator.empty_cache()
    inner = [allocator.allocate(nbytes) for _ in range(2000 if nbytes == 100 else 3)]
    allocator.busy = False
    assert len({first, *inner}) == len(inner) + 1
    for address in (*inner, first):
        allocator.free(address, nbytes)
    allocator.empty_cache()
    assert memory_stats(allocator)["allocation.all.current"] == 0
    assert memory_stats(allocator)["reserved_bytes.all.current"] == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_goes_on_by_itself():
    host = Allocator(HostMemory())
    kept = host.allocate(1000)
    stop = threading.Event()

    def keep_busy():
        while not stop.is_set():
            host.free(host.allocate(3 << 20), 3 << 20)

    thread = threading.Thread(target=keep_busy)
    thread.start()
    try:
        child = os.fork()
        if child == 0:
            other = [host.allocate(n) for n in (1000, 5 << 20, 100)]
            os._exit(0 if kept not in other and all(other) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        stop.set()
        thread.join()
        host.free(kept, 1000)


def test_a_listener_sees_every_block():
    allocator, seen = Allocator(FakeMemory()), []
    allocator.listen(lambda *event: seen.append(event))
    sizes = (100, 3 << 20)
    blocks = [(allocator.allocate(n), n) for n in sizes]
    for block in blocks:
        allocator.free(*block)
    memory_stats(allocator)
    assert seen[:2] == [("allocate", *block) for block in blocks]
    assert sorted(seen[2:]) == sorted(("free", *block) for block in blocks)
    allocator.listen(None)
    allocator.free(allocator.allocate(100), 100)
    assert len(seen) == 4

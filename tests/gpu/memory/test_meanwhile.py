"""Memory that is given back while other threads work: what came since the wait is in use."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import slipstream as ss
from slipstream.core.launch.door import backend_of

MEGA = 1 << 20


@pytest.fixture
def meanwhile() -> Iterator[Callable[[Callable[[], None], int], None]]:
    """Let ``work()`` run as another thread would, right after the next waits of the allocator."""
    ss.cuda.synchronize()
    ss.cuda.empty_cache()
    memory: Any = backend_of(ss.device("cuda", 0)).memory  # type: ignore[attr-defined]
    plainly = memory.drain
    left = 0

    def arrange(work: Callable[[], None], times: int) -> None:
        nonlocal left
        left = times

        def drain() -> None:
            nonlocal left
            plainly()
            if left:
                left -= 1
                work()

        memory.drain = drain

    yield arrange
    memory.drain = plainly


def test_uses_since_the_wait_are_kept(meanwhile: Any) -> None:
    first, second, found = ss.cuda.Stream(), ss.cuda.Stream(), []

    def work() -> None:
        with ss.cuda.stream(first):
            y = ss.full((3000,), 1.0, device="cuda") + 1
            found.append(y * 1)

    x = [ss.full((3000,), 3.0, device="cuda") for _ in range(4)]
    del x
    meanwhile(work, 100)
    ss.cuda.empty_cache()
    assert found
    with ss.cuda.stream(second):
        others = [ss.full((3000,), 9.0, device="cuda") for _ in range(4)]
    ss.cuda.synchronize()
    assert [each.sum().item() for each in found] == [6000.0] * len(found)
    assert [each.sum().item() for each in others] == [27000.0] * 4


def test_memory_without_a_cache_is_released_once_its_launches_are_done(meanwhile: Any) -> None:
    x, found = ss.ones(64, device="cuda"), []

    def work() -> None:
        found.append((x * 2 + 1) * 3)

    ss.cuda.caching_allocator_enable(False)
    try:
        y = x * 2
        del y
        meanwhile(work, 1)
        y = x * 4
        assert len(found) == 1
        assert (found[0].tolist(), y.tolist()) == ([9.0] * 64, [4.0] * 64)
        del y
        found.clear()
        ss.cuda.synchronize()
    finally:
        ss.cuda.caching_allocator_enable(True)


def test_two_threads_give_back_the_memory_of_one_pool(meanwhile: Any) -> None:
    memory: Any = backend_of(ss.device("cuda", 0)).memory  # type: ignore[attr-defined]
    meanwhile(memory.release_abandoned, 1)
    pool = ss.cuda.MemPool()
    with ss.cuda.use_mem_pool(pool):
        x = ss.ones(1000, device="cuda")
    del x, pool
    memory.settled()
    assert any(each.abandoned for each in memory.beside())
    memory.release_abandoned()
    assert not any(each.abandoned for each in memory.beside())


@pytest.mark.parametrize("where", ["own", "pool", "capture"])
def test_callbacks_are_asked_wherever_memory_is_missing(where: str) -> None:
    ss.cuda.synchronize()
    ss.cuda.empty_cache()
    total = ss.cuda.mem_get_info()[1]
    x = ss.ones(4, device="cuda")
    ss.cuda.set_per_process_memory_fraction(
        (ss.cuda.memory_reserved() + 64 * MEGA + 1) / total)
    held = [ss.empty(8 * MEGA, dtype=ss.uint8, device="cuda") for _ in range(6)]
    asked: list[int] = []

    def give(nbytes: int) -> None:
        asked.append(nbytes)
        held.clear()

    handle = ss.cuda.register_free_memory_callback(give)
    graph, pool = ss.cuda.CUDAGraph(), ss.cuda.MemPool()
    try:
        if where == "own":
            y = ss.empty(30 * MEGA, dtype=ss.uint8, device="cuda")
        elif where == "pool":
            with ss.cuda.use_mem_pool(pool):
                y = ss.empty(30 * MEGA, dtype=ss.uint8, device="cuda")
        else:
            with ss.cuda.graph(graph):
                y = ss.empty(30 * MEGA, dtype=ss.uint8, device="cuda")
                x + 1
        assert y.numel() == 30 * MEGA
        assert asked
    finally:
        handle.remove()
        ss.cuda.set_per_process_memory_fraction(1.0)
        held.clear()
        del graph, pool
        ss.cuda.empty_cache()


@pytest.mark.parametrize("threshold", [0, 3])
def test_many_blocks_come_and_go_before_a_window_is_sent(threshold: int) -> None:
    """A launch that is recorded may touch what it was recorded with, however long it waits."""
    seen = 0

    class Cycle:
        pass

    def collected(phase: str, info: Any) -> None:
        nonlocal seen
        if phase == "stop" and not seen % 2:
            seen += 1
            held: Any = Cycle()
            held.itself, held.tensor = held, ss.empty(3, device="cuda")
            seen += 1

    before = gc.get_threshold()
    x = ss.full((1000,), 2.0, device="cuda")
    y = x + 1
    gc.callbacks.append(collected)
    try:
        if threshold:
            gc.set_threshold(threshold, 1, 1)
        del x
        for _ in range(9000 if not threshold else 500):
            # Enough new objects for a collection.
            beside = [[] for _ in range(8)]
            ss.empty(len(beside), device="cuda")
        result = (y * 1).sum()
    finally:
        gc.callbacks.remove(collected)
        gc.set_threshold(*before)
    assert result.item() == 3000.0
    assert seen > 500 or not threshold

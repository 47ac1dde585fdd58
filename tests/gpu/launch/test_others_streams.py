"""Streams that others made, and threads and collectors that come in between."""

from __future__ import annotations

import gc
import sys
import threading
from typing import Any

import pytest

import slipstream as ss
from slipstream.core.launch.door import backend_of, door
from slipstream.core.native.drivers import drivers

NARROW = pytest.mark.skipif(sys.version_info >= (3, 12),
                            reason="collects between bytecodes only, where no call is half done")


def run_in_a_thread(work: Any) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_a_stream_that_its_owner_destroyed_stops_nothing() -> None:
    x = ss.ones(1000, device="cuda")
    ss.cuda.synchronize()
    driver = drivers.current()
    handle = driver.create_stream()
    with ss.cuda.stream(ss.cuda.ExternalStream(handle)):
        y = x + 1
    ss.cuda.current_stream().wait_stream(ss.cuda.ExternalStream(handle))
    driver.destroy_stream(handle)
    ss.cuda.synchronize()
    ss.cuda.empty_cache()
    assert y.tolist() == [2.0] * 1000


def test_a_handle_that_is_used_again_is_another_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = drivers.current()
    handle = driver.create_stream()
    first = ss.cuda.ExternalStream(handle)
    assert ss.cuda.ExternalStream(handle) == first
    mine = ss.cuda.Stream()
    assert ss.cuda.ExternalStream(mine.cuda_stream) == mine
    plainly = driver.stream_number
    monkeypatch.setattr(driver, "stream_number", lambda stream: plainly(stream) + (1 << 40))
    assert ss.cuda.ExternalStream(handle) != first
    first.synchronize()
    driver.destroy_stream(handle)


def test_another_thread_may_end_a_capture() -> None:
    x = ss.ones(4, device="cuda")
    ss.cuda.manual_seed(5)
    graph, made = ss.cuda.CUDAGraph(), []
    side = ss.cuda.Stream()
    ss.cuda.synchronize()

    def end() -> None:
        with ss.cuda.stream(side):
            graph.capture_end()

    with ss.cuda.stream(side):
        graph.capture_begin()
        made.append(x + 1)
        run_in_a_thread(end)
    assert ss.cuda.initial_seed() == 5
    allocator: Any = backend_of(ss.device("cuda")).memory  # type: ignore[attr-defined]
    assert ss.ones(4, device="cuda").storage.address not in allocator.elsewhere
    graph.replay()
    assert made[0].tolist() == [2.0] * 4


def test_a_capture_whose_thread_is_gone_leaves_nothing_behind() -> None:
    ss.ones(4, device="cuda")
    ss.cuda.manual_seed(5)
    ss.cuda.synchronize()
    graphs = [ss.cuda.CUDAGraph()]
    run_in_a_thread(lambda: graphs[0].capture_begin())
    graphs.clear()
    gc.collect()
    assert ss.cuda.initial_seed() == 5
    assert not ss.cuda.is_current_stream_capturing()
    allocator: Any = backend_of(ss.device("cuda")).memory  # type: ignore[attr-defined]
    assert ss.ones(4, device="cuda").storage.address not in allocator.elsewhere


def test_memory_of_a_pool_waits_for_replays_of_a_graph_that_is_gone(restart: Any) -> None:
    for seed in range(6):
        restart(seed=seed)
        side, pool = ss.cuda.Stream(), ss.cuda.MemPool()
        x = ss.ones(100_000, device="cuda")
        ss.cuda.synchronize()
        graph = ss.cuda.CUDAGraph()
        with ss.cuda.graph(graph, pool=pool):
            y = x + 1
            z = y * 2
        places = (y.storage.address, z.storage.address)
        side.wait_stream(ss.cuda.current_stream())
        with ss.cuda.stream(side):
            graph.replay()
        del y, z
        graph.reset()
        with ss.cuda.use_mem_pool(pool):
            z = ss.full((100_000,), 7.0, device="cuda")
        assert z.storage.address in places
        assert z.sum().item() == 700_000


@pytest.mark.parametrize("work", [
    lambda x: ss.cuda.driver.memset(x.storage.address, 0, 16),
    lambda x: ss.cuda.driver.memset(x.storage.address, 0, 16,
                                    ss.cuda.current_stream().queue.stream)])
def test_raw_calls_on_a_stream_that_captures_are_refused(work: Any) -> None:
    x = ss.ones(4, device="cuda")
    ss.cuda.synchronize()
    with pytest.raises(RuntimeError, match="runs at once"), ss.cuda.graph(ss.cuda.CUDAGraph()):
        work(x)
    assert x.tolist() == [1.0] * 4


@NARROW
@pytest.mark.parametrize("threshold", range(4))
def test_a_collector_that_records_in_the_middle_of_a_record(threshold: int) -> None:
    """With several streams uses are noted, which may collect, before a launch has any word."""
    total = ss.zeros(4, device="cuda")
    given = [ss.full((4,), float(i), device="cuda") for i in range(24)]
    made = [ss.zeros(4, device="cuda") for _ in given]
    side, fired, armed = ss.cuda.Stream(), [], [False]
    ss.cuda.synchronize()

    def comes(phase: str, _: Any) -> None:
        if phase == "start" and armed[0]:
            armed[0] = False
            fired.append(total.add_(1))

    before = gc.get_threshold()
    gc.callbacks.append(comes)
    gc.disable()
    try:
        with ss.cuda.stream(side):
            for x, y in zip(given, made, strict=True):
                armed[0] = True
                gc.set_threshold(gc.get_count()[0] + threshold, 1000, 1000)
                gc.enable()
                ss.mul(x, 2.0, out=y)
                gc.disable()
                armed[0] = False
    finally:
        gc.callbacks.remove(comes)
        gc.set_threshold(*before)
        gc.enable()
    ss.cuda.synchronize()
    assert [y.tolist() for y in made] == [[2.0 * i] * 4 for i in range(len(given))]
    assert total.tolist() == [float(len(fired))] * 4
    assert fired or threshold


def test_copies_whose_memory_is_gone_are_not_waited_for() -> None:
    gc.collect()
    before = door.pending
    for _ in range(5):
        ss.ones(100).pin_memory().to("cuda", non_blocking=True)
    ss.cuda.synchronize()
    # What is done is let go where the next block is asked for.
    kept = ss.ones(100).pin_memory()
    gc.collect()
    assert kept.is_pinned()
    assert door.pending == before

"""Copies between pinned memory and the card: the host goes on, and waits where it must."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

import slipstream as ss
from slipstream.core.launch.cuda.pinning import Pending
from slipstream.core.launch.door import door

# Elements of what takes a while to copy: it is still under way when the driver is asked next.
COUNT = 1 << 18


def test_a_pinned_tensor_says_so() -> None:
    pinned = ss.arange(10.0).pin_memory()
    assert pinned.is_pinned()
    assert pinned.pin_memory() is pinned
    assert not ss.arange(10.0).is_pinned()
    with pytest.raises(RuntimeError, match="only dense CPU tensors"):
        ss.arange(3, device="cuda").pin_memory()


def test_writing_waits_for_the_copy_that_reads() -> None:
    pinned = ss.arange(1000.0).pin_memory()
    copy = pinned.to("cuda", non_blocking=True)
    pinned.add_(1)
    assert copy.tolist() == list(range(1000))
    assert pinned[0] == 1


def test_reading_waits_for_the_copy_that_fills() -> None:
    source = ss.arange(1000.0).cuda()
    for read in (lambda t: t.tolist(), lambda t: t.numpy().tolist(), lambda t: (t + 0).tolist()):
        target = ss.zeros(1000).pin_memory()
        target.copy_(source * 3, non_blocking=True)
        assert read(target) == [3.0 * i for i in range(1000)]


def test_a_block_is_not_given_out_while_a_copy_reads_it() -> None:
    first = ss.full((1000,), 1.0).pin_memory()
    copy = first.to("cuda", non_blocking=True)
    address = first.storage.address
    del first
    second = ss.full((1000,), 2.0).pin_memory()
    assert second.storage.address != address or copy.sum() == 1000
    assert copy.sum() == 1000


@pytest.mark.parametrize("make", [
    lambda **more: ss.empty(3, 4, **more), lambda **more: ss.zeros((3, 4), **more),
    lambda **more: ss.ones(5, dtype=ss.int64, **more), lambda **more: ss.full((2,), 7, **more),
    lambda **more: ss.arange(6, **more), lambda **more: ss.eye(3, **more),
    lambda **more: ss.linspace(0, 1, 5, **more), lambda **more: ss.rand(4, **more),
    lambda **more: ss.randn((2, 3), **more), lambda **more: ss.randint(0, 5, (4,), **more),
    lambda **more: ss.randperm(9, **more), lambda **more: ss.tensor([1.0, 2.0], **more),
    lambda **more: ss.zeros_like(ss.ones(3), **more),
    lambda **more: ss.ones(2).new_zeros(3, **more),
    lambda **more: ss.empty_strided((2, 3), (1, 2), **more),
    lambda **more: ss.normal(0.0, 1.0, (3,), **more)])
def test_factories_pin(make: Any) -> None:
    ss.manual_seed(1)
    plain = make()
    assert not plain.is_pinned()
    ss.manual_seed(1)
    pinned = make(pin_memory=True, requires_grad=plain.is_floating_point())
    assert pinned.is_pinned()
    assert pinned.requires_grad == plain.is_floating_point()
    assert pinned.is_leaf
    assert (pinned.shape, pinned.dtype, pinned.stride()) == (
        plain.shape, plain.dtype, plain.stride())
    if plain.shape != (3, 4) and plain.stride() != (1, 2):
        assert pinned.tolist() == plain.tolist()


def test_only_the_cpus_tensors_are_pinned() -> None:
    with pytest.raises(RuntimeError, match="only dense CPU tensors"):
        ss.zeros(3, device="cuda", pin_memory=True)


def test_a_copy_to_the_cpu_in_a_hurry_is_pinned(restart: Any) -> None:
    driver = restart()
    x = ss.arange(1000.0, device="cuda")
    before = driver.statistics()["synchronizations"]
    y = x.to("cpu", non_blocking=True)
    z = (x * 2).to("cpu", non_blocking=True)
    assert driver.statistics()["synchronizations"] == before
    assert y.is_pinned()
    assert (y + z).tolist() == [3.0 * i for i in range(1000)]
    w = x.requires_grad_().to("cpu", non_blocking=True)
    w.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [1.0] * 1000


def in_a_thread(act: Callable[[], Any]) -> None:
    """Call a function in another thread, to its end."""
    thread = threading.Thread(target=act)
    thread.start()
    thread.join()


def once_within(monkeypatch: Any, driver: Any, name: str, act: Callable[[], Any],
                before: bool = False) -> None:
    """Let another thread act within the next call of a driver: after it, or ``before`` it."""
    plain, left = getattr(driver, name), [act]

    def call(*arguments: Any) -> Any:
        now = left.pop() if left else None
        if now is not None and before:
            in_a_thread(now)
        result = plain(*arguments)
        if now is not None and not before:
            in_a_thread(now)
        return result

    monkeypatch.setattr(driver, name, call)


class Streamed:
    """Copies of a pinned tensor of ones, on streams of their own."""

    def __init__(self) -> None:
        # What earlier drivers left to the collector counts no more.
        gc.collect()
        ss.ones(1000, device="cuda").sum().item()
        self.host = ss.ones(COUNT, pin_memory=True)
        self.made: list[tuple[Any, Any]] = []

    def copy(self, times: int = 1) -> None:
        stream = ss.cuda.Stream()
        with ss.cuda.stream(stream):
            for _ in range(times):
                self.made.append((stream, self.host.to("cuda", non_blocking=True)))

    def sums(self) -> list[float]:
        found = []
        for stream, copy in self.made:
            with ss.cuda.stream(stream):
                found.append(copy.sum().item())
        return found


@pytest.mark.parametrize("seed", range(4))
def test_a_block_remembers_a_copy_of_another_thread(restart: Any, monkeypatch: Any,
                                                    seed: int) -> None:
    driver, copies = restart(seed=seed), Streamed()
    copies.copy()
    first = copies.made[0][0]
    # While the driver is asked whether the first copy is done, another thread makes more.
    once_within(monkeypatch, driver, "query_event", lambda: copies.copy(4))
    copies.copy()
    assert len(copies.made) == 6
    second = copies.made[-1][0]
    address = copies.host.storage.address
    del copies.host
    first.synchronize()
    second.synchronize()
    ss.empty(COUNT, pin_memory=True).fill_(99.0)
    assert copies.sums() == [COUNT] * 6
    assert ss.empty(COUNT, pin_memory=True).storage.address == address


@pytest.mark.parametrize("seed", range(4))
def test_writing_waits_for_the_copies_of_all_threads(restart: Any, monkeypatch: Any,
                                                     seed: int) -> None:
    driver, copies = restart(seed=seed), Streamed()
    before = door.pending
    once_within(monkeypatch, driver, "copy", lambda: copies.copy(4))
    copies.copy()
    copies.host.fill_(99.0)
    assert copies.sums() == [COUNT] * 5
    assert copies.host.storage.pending is None
    assert door.pending == before


def test_writing_waits_while_another_thread_begins_a_copy(restart: Any, monkeypatch: Any) -> None:
    driver, copies = restart(), Streamed()
    copies.copy()
    once_within(monkeypatch, driver, "copy", lambda: copies.host.fill_(99.0), before=True)
    copies.copy()
    assert copies.sums() == [COUNT, 99.0 * COUNT]


def test_copies_that_follow_each_other_are_carried_as_one(restart: Any) -> None:
    restart()
    copies, before = Streamed(), door.pending
    for _ in range(20):
        copies.copy()
    assert isinstance(copies.host.storage.pending, Pending)
    assert door.pending == before + 1
    del copies.host
    copies.sums()
    # The allocator lets go of the last copy when it looks again.
    ss.empty(COUNT, pin_memory=True)
    assert door.pending == before


@pytest.mark.parametrize("count", [20, 1 << 12])
def test_a_pinned_tensor_that_grows_stays_pinned(count: int) -> None:
    source = ss.arange(16.0, device="cuda") + 1
    pinned = ss.full((16,), -7.0).pin_memory()
    pinned.copy_(source, non_blocking=True)
    pinned.resize_(count)
    assert pinned[:16].tolist() == [1.0 + i for i in range(16)]
    assert pinned.is_pinned()
    out = ss.zeros(2).pin_memory()
    ss.add(ss.ones(count), 1, out=out.resize_(0))
    assert out.tolist() == [2.0] * count
    del pinned, out
    # Their memory went back to where it came from: it is given out again.
    others = [ss.full((size,), 3.0).pin_memory() for size in (16, 2, count, count)]
    assert all(each.is_pinned() and (each == 3).all() for each in others)


def test_a_graph_keeps_the_block_of_what_grew() -> None:
    x, pinned = ss.full((60000,), 2.0, device="cuda"), ss.full((1000,), 2.0).pin_memory()
    target, graph = ss.zeros(1000, device="cuda"), ss.cuda.CUDAGraph()
    with ss.cuda.graph(graph):
        y = x * 3
        target.copy_(pinned, non_blocking=True)
    x.resize_(300000)
    pinned.resize_(50000)
    others = [ss.full((60000,), 9.0, device="cuda") for _ in range(3)]
    beside = [ss.full((1000,), -3.0).pin_memory() for _ in range(3)]
    graph.replay()
    assert (y == 6).all().item()
    assert (target == 2).all().item()
    graph.reset()
    del graph, y
    assert all((each == 9).all().item() for each in others)
    assert all((each == -3).all() for each in beside)


def test_a_graph_keeps_no_block_but_its_own() -> None:
    x, pinned = ss.full((1000,), 2.0, device="cuda"), ss.full((1000,), 3.0).pin_memory()
    y, graph = ss.zeros(1000, device="cuda"), ss.cuda.CUDAGraph()
    with ss.cuda.graph(graph):
        y.copy_(pinned, non_blocking=True)
        y.add_(x * 2)
    before = ss.cuda.memory_allocated()
    for count in range(2000, 40000, 1000):
        x.resize_(count)
        pinned.resize_(count)
    ss.cuda.synchronize()
    assert ss.cuda.memory_allocated() - before < 200_000
    graph.replay()
    assert (y == 7).all().item()


def test_tensors_grow_while_another_thread_makes_graphs() -> None:
    done = threading.Event()

    def make() -> None:
        while not done.is_set():
            kept.append(ss.cuda.CUDAGraph())
            with ss.cuda.graph(kept[-1]):
                ss.zeros(4, device="cuda")
            del kept[:-3]

    kept: list[Any] = []
    x, interval = ss.ones(4, device="cuda"), sys.getswitchinterval()
    thread = threading.Thread(target=make)
    sys.setswitchinterval(1e-6)
    thread.start()
    try:
        for count in range(5, 600):
            x.resize_(count)
    finally:
        done.set()
        thread.join()
        sys.setswitchinterval(interval)
    assert x[:4].tolist() == [1.0] * 4

"""Graphs and captures of the simulated driver, with CUDA's rules."""

from __future__ import annotations

import random
import struct

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slipstream.core.native.driver import DriverError
from slipstream.core.native.simulated import SimulatedFault
from slipstream.core.native.simulated.schedule import Stream

MOVE = """
extern "C" __global__ void kernel(int* out, const int* x, int add) {
    out[threadIdx.x] = x[threadIdx.x] * 3 + add;
}
extern "C" __global__ void other(int* out, const int* x, int add) { out[0] = x[0] + add; }
"""
ONE, BLOCK = (1, 1, 1), (8, 1, 1)
NBYTES = 32


class Lab:
    """Kernels and buffers for graphs of moves."""

    def __init__(self, card) -> None:
        self.card, self.driver, self.stream = card, card.driver, card.stream
        self.module = card.driver.load_module(
            card.driver.compile(MOVE, "kernel", (), "sm_90"))
        self.kernel = self.driver.function(self.module, "kernel")
        self.other = self.driver.function(self.module, "other")
        self.buffers = [card.put(np.full(8, k, np.int32)) for k in range(4)]
        card.wait()

    def parameters(self, out: int, x: int, add: int) -> bytes:
        return struct.pack("QQi", self.buffers[out], self.buffers[x], add)

    def move(self, out: int, x: int, add: int, stream: int = 0) -> None:
        self.driver.launch(self.kernel, ONE, BLOCK, 0, stream or self.stream,
                           self.parameters(out, x, add))

    def node(self, graph: int, after: tuple, out: int, x: int, add: int) -> int:
        return self.driver.add_kernel_node(graph, after, self.kernel, (ONE, BLOCK, 0),
                                           self.parameters(out, x, add))

    def set(self, executable: int, node: int, *values: int) -> None:
        self.driver.set_kernel_node(executable, node, self.kernel, (ONE, BLOCK, 0),
                                    self.parameters(*values))

    def seen(self) -> list[int]:
        """The first element of every buffer."""
        return [int(self.card.fetch(each, 1, np.int32)[0]) for each in self.buffers]

    def chain(self) -> tuple[int, int]:
        """A captured chain of three moves, and its executable."""
        self.driver.begin_capture(self.stream)
        self.move(1, 0, 1)
        self.move(2, 1, 2)
        self.move(0, 2, 3)
        graph = self.driver.end_capture(self.stream)
        return graph, self.driver.instantiate(graph)


@pytest.fixture
def lab(card):
    return Lab(card)


def test_a_queue_is_as_deep_as_its_graphs_have_nodes(lab):
    _, executable = lab.chain()
    schedule, deepest = lab.driver.schedule, 0
    for _ in range(500):
        lab.driver.launch_graph(executable, lab.stream)
        waiting = sum(len(work.actions) for work in lab.driver.find(
            Stream, lab.stream, "test").queue)
        assert waiting == schedule.pending <= 1024
        deepest = max(deepest, waiting)
    assert deepest > 1000, "what has room is late"
    lab.card.wait()
    assert not schedule.pending


def test_a_graph_that_is_larger_than_the_queue_is_late_too(lab):
    graph, after = lab.driver.create_graph(), ()
    for place in range(1100):
        after = (lab.node(graph, after, 1, 0, place),)
    executable = lab.driver.instantiate(graph)
    lab.move(2, 1, 5)
    lab.driver.launch_graph(executable, lab.stream)
    assert lab.driver.schedule.pending == 1100
    lab.move(3, 1, 0)
    assert lab.driver.schedule.pending == 1
    assert lab.seen() == [0, 1099, 8, 3297]


def test_a_captured_chain(lab):
    graph, executable = lab.chain()
    assert lab.seen() == [0, 1, 2, 3]
    assert lab.driver.captured_kernels(graph) == [
        (lab.kernel, (ONE, BLOCK, 0), lab.parameters(*each))
        for each in ((1, 0, 1), (2, 1, 2), (0, 2, 3))]
    lab.driver.launch_graph(executable, lab.stream)
    assert lab.seen() == [18, 1, 5, 3]
    lab.driver.launch_graph(executable, lab.stream)
    lab.driver.launch_graph(executable, lab.stream)
    assert lab.seen()[0] == ((((18 * 3 + 1) * 3 + 2) * 3 + 3) * 3 + 1) * 9 + 2 * 3 + 3
    counts = lab.driver.statistics()
    wanted = {"captures": 1, "graph_launches": 3, "graph_kernel_nodes": 9, "kernel_launches": 0}
    assert {name: counts[name] for name in wanted} == wanted


def test_an_executable_is_a_copy(lab):
    graph, executable = lab.chain()
    lab.node(graph, (), 3, 0, 100)
    lab.driver.destroy_graph(graph)
    lab.driver.launch_graph(executable, lab.stream)
    lab.driver.destroy_executable(executable)
    assert lab.seen() == [18, 1, 5, 3]
    with pytest.raises(DriverError, match="INVALID_HANDLE"):
        lab.driver.launch_graph(executable, lab.stream)


def test_changes_reach_later_launches_only(lab):
    graph, executable = lab.chain()
    lab.driver.launch_graph(executable, lab.stream)
    lab.set(executable, lab.driver.nodes(graph)[2], 3, 2, 1000)
    assert lab.driver.statistics()["node_updates"] == 1
    lab.driver.wait_stream(lab.stream)
    assert lab.seen() == [18, 1, 5, 3]
    lab.driver.launch_graph(executable, lab.stream)
    assert lab.seen() == [18, 55, 167, 1501]


def test_nodes_run_in_any_order_that_edges_allow(make_card):
    results = set()
    for seed in range(12):
        lab = Lab(make_card(seed=seed, race=False))
        graph = lab.driver.create_graph()
        first = lab.node(graph, (), 0, 3, 0)
        lab.node(graph, (first,), 1, 0, 1)
        lab.node(graph, (first,), 1, 0, 2)  # nothing orders it with the one before
        lab.driver.launch_graph(lab.driver.instantiate(graph), lab.stream)
        results.add(tuple(lab.seen()))
    assert results == {(9, 28, 2, 3), (9, 29, 2, 3)}


def test_nodes_that_nothing_orders_race(lab):
    graph = lab.driver.create_graph()
    first = lab.node(graph, (), 0, 3, 0)
    left = lab.node(graph, (first,), 1, 0, 1)
    right = lab.node(graph, (first,), 2, 0, 1)
    lab.node(graph, (left, right), 3, 1, 0)
    executable = lab.driver.instantiate(graph)
    for _ in range(3):
        lab.driver.launch_graph(executable, lab.stream)
    lab.card.wait()
    lab.set(executable, right, 2, 1, 1)
    lab.driver.launch_graph(executable, lab.stream)
    with pytest.raises(SimulatedFault, match="race"):
        lab.card.wait()


def test_stamps_go_with_the_nodes(lab):
    def first() -> None: ...
    def second() -> None: ...
    def third() -> None: ...

    _, executable = lab.chain()
    sites = [(each.__code__, 0) for each in (first, second, third)]
    lab.driver.stamps = [(site, 0) for site in sites]
    lab.driver.launch_graph(executable, lab.stream)
    other = lab.driver.create_stream()
    lab.driver.fill(lab.buffers[2], 0, 4, 1, other)
    with pytest.raises(SimulatedFault) as caught:
        lab.card.wait()
    known = {caught.value.site, caught.value.other_site}
    assert known & set(sites[1:])
    assert lab.driver.stamps is None
    lab.driver.stamps = [(None, 0)]
    with pytest.raises(DriverError, match="1 stamps for 3 nodes"):
        lab.driver.launch_graph(executable, lab.stream)


def test_the_same_graph_does_not_run_beside_itself(make_card):
    for seed in range(4):
        lab = Lab(make_card(seed=seed))
        _, executable = lab.chain()
        other = lab.driver.create_stream()
        lab.driver.launch_graph(executable, lab.stream)
        lab.driver.launch_graph(executable, other)
        lab.card.wait()
        assert lab.seen()[0] == ((18 * 3 + 1) * 3 + 2) * 3 + 3


def test_capture_across_streams(lab):
    driver, other = lab.driver, lab.driver.create_stream()
    fork, join = driver.create_event(), driver.create_event()
    driver.begin_capture(lab.stream)
    lab.move(0, 3, 0)
    driver.record_event(fork, lab.stream)
    driver.stream_wait_event(other, fork)
    lab.move(1, 0, 1, other)
    lab.move(2, 0, 2)
    driver.record_event(join, other)
    driver.stream_wait_event(lab.stream, join)
    driver.copy(lab.buffers[3], lab.buffers[1], NBYTES, "within", lab.stream)
    driver.fill(lab.buffers[1], 7, 4, 8, lab.stream)
    graph = driver.end_capture(lab.stream)
    assert len(driver.nodes(graph)) == 5
    assert driver.captured_kernels(graph) is None
    driver.launch_graph(driver.instantiate(graph), lab.stream)
    assert lab.seen() == [9, 7, 29, 28]
    lab.move(0, 0, 0, other)  # both streams run again
    lab.card.wait()


def test_captures_that_go_wrong(lab):
    driver, other = lab.driver, lab.driver.create_stream()
    event = driver.create_event()
    with pytest.raises(DriverError, match="ILLEGAL_STATE"):
        driver.end_capture(lab.stream)
    driver.begin_capture(lab.stream)
    with pytest.raises(DriverError, match="ILLEGAL_STATE"):
        driver.begin_capture(lab.stream)
    driver.record_event(event, lab.stream)
    driver.stream_wait_event(other, event)
    lab.move(1, 0, 1, other)
    with pytest.raises(DriverError, match="CAPTURED_EVENT"):
        driver.wait_event(event)
    with pytest.raises(DriverError, match="UNJOINED"):
        driver.end_capture(lab.stream)
    driver.record_event(event, other)
    driver.begin_capture(lab.stream)
    with pytest.raises(DriverError, match="ISOLATION"):
        driver.stream_wait_event(lab.stream, event)
    with pytest.raises(DriverError, match="INVALIDATED"):
        driver.end_capture(lab.stream)
    lab.move(1, 0, 1)
    lab.card.wait()


@pytest.mark.parametrize("call", [
    "wait_stream", "query_stream", "synchronize", "allocate", "free", "allocate_host", "copy"])
def test_calls_that_a_capture_does_not_allow(lab, call):
    driver, host = lab.driver, np.zeros(8, np.int32)
    calls = {
        "wait_stream": lambda: driver.wait_stream(lab.stream),
        "query_stream": lambda: driver.query_stream(lab.stream),
        "synchronize": driver.synchronize, "allocate": lambda: driver.allocate(8),
        "free": lambda: driver.free(lab.buffers[0]),
        "allocate_host": lambda: driver.allocate_host(8),
        "copy": lambda: driver.copy(host.ctypes.data, lab.buffers[0], 32, "to_host", lab.stream),
    }
    driver.begin_capture(lab.stream)
    with pytest.raises(DriverError, match="STREAM_CAPTURE_UNSUPPORTED"):
        calls[call]()
    with pytest.raises(DriverError, match="INVALIDATED"):
        driver.end_capture(lab.stream)
    calls[call]()


def test_children(lab):
    driver = lab.driver
    inner = driver.create_graph()
    lab.node(inner, (lab.node(inner, (), 1, 0, 1),), 2, 1, 2)
    graph = driver.create_graph()
    first = lab.node(graph, (), 0, 3, 0)
    child = driver.add_child_node(graph, (first,), inner)
    again = driver.add_child_node(graph, (child,), inner)
    driver.add_copy_node(graph, (again,), lab.buffers[3], lab.buffers[2], NBYTES, "within")
    lab.node(inner, (), 0, 0, 0)  # the child is a copy
    executable = driver.instantiate(graph)
    driver.launch_graph(executable, lab.stream)
    assert lab.seen() == [9, 28, 86, 86]
    assert driver.statistics()["graph_kernel_nodes"] == 5
    changed = driver.create_graph()
    lab.node(changed, (lab.node(changed, (), 1, 0, 5),), 2, 1, 5)
    driver.set_child_node(executable, again, changed)
    driver.launch_graph(executable, lab.stream)
    assert lab.seen()[1] == 86 * 9 + 5


def test_children_keep_their_topology(lab):
    driver = lab.driver
    inner = driver.create_graph()
    lab.node(inner, (lab.node(inner, (), 1, 0, 1),), 2, 1, 2)
    graph = driver.create_graph()
    child = driver.add_child_node(graph, (), inner)
    executable = driver.instantiate(graph)
    longer, loose, kinds, functions = (driver.create_graph() for _ in range(4))
    for _ in range(3):
        lab.node(longer, (), 1, 0, 1)
    for _ in range(2):
        lab.node(loose, (), 1, 0, 1)
    driver.add_fill_node(kinds, (lab.node(kinds, (), 1, 0, 1),), lab.buffers[0], 0, 4, 1)
    before = lab.node(functions, (), 1, 0, 1)
    driver.add_kernel_node(functions, (before,), lab.other, (ONE, BLOCK, 0),
                           lab.parameters(2, 1, 2))
    for each in (longer, loose, kinds, functions):
        with pytest.raises(DriverError, match="GRAPH_EXEC_UPDATE_FAILURE"):
            driver.set_child_node(executable, child, each)
    assert driver.statistics()["node_updates"] == 0


def test_a_graph_within_a_capture(lab):
    _, executable = lab.chain()
    lab.driver.begin_capture(lab.stream)
    lab.move(3, 3, 0)
    lab.driver.launch_graph(executable, lab.stream)
    graph = lab.driver.end_capture(lab.stream)
    lab.driver.launch_graph(lab.driver.instantiate(graph), lab.stream)
    assert lab.seen() == [18, 1, 5, 9]


def test_stand_ins_are_captured_as_children(lab):
    driver, ran = lab.driver, []
    driver.begin_capture(lab.stream)
    driver.matmul_stand_in(lab.stream, lambda: ran.append(1))
    inner = driver.end_capture(lab.stream)
    graph = driver.create_graph()
    child = driver.add_child_node(graph, (), inner)
    executable = driver.instantiate(graph)
    driver.begin_capture(lab.stream)
    driver.matmul_stand_in(lab.stream, lambda: ran.append(2))
    changed = driver.end_capture(lab.stream)
    driver.launch_graph(executable, lab.stream)
    driver.set_child_node(executable, child, changed)
    driver.launch_graph(executable, lab.stream)
    assert ran == []
    lab.card.wait()
    assert ran == [1, 2]


def test_changes_that_cannot_be(lab):
    driver = lab.driver
    graph = driver.create_graph()
    kernel = lab.node(graph, (), 1, 0, 1)
    copy = driver.add_copy_node(graph, (), lab.buffers[3], lab.buffers[2], NBYTES, "within")
    fill = driver.add_fill_node(graph, (), lab.buffers[2], 1, 4, 8)
    executable = driver.instantiate(graph)
    pinned, host = driver.allocate_host(64), np.zeros(8, np.int32)
    good = lab.parameters(1, 0, 1)
    bad = [
        lambda: driver.set_kernel_node(executable, kernel, lab.other, (ONE, BLOCK, 0), good),
        lambda: driver.set_kernel_node(executable, copy, lab.kernel, (ONE, BLOCK, 0), good),
        lambda: driver.set_kernel_node(executable, kernel, lab.kernel, (ONE, BLOCK, 0), good[:-8]),
        lambda: driver.set_kernel_node(executable, kernel, lab.kernel, ((0, 1, 1), BLOCK, 0), good),
        lambda: driver.set_copy_node(executable, copy, pinned, lab.buffers[2], 32, "to_host"),
        lambda: driver.set_copy_node(
            executable, copy, host.ctypes.data, lab.buffers[2], 32, "to_host"),
        lambda: driver.set_fill_node(executable, fill, lab.buffers[2], 1, 3, 8),
        lambda: driver.set_child_node(executable, fill, graph),
        lambda: driver.add_fill_node(graph, (kernel + 1,), lab.buffers[2], 1, 4, 8),
        lambda: driver.add_copy_node(graph, (), host.ctypes.data, lab.buffers[2], 32, "to_host"),
    ]
    for call in bad:
        with pytest.raises(DriverError, match="INVALID_VALUE"):
            call()
    assert driver.statistics()["node_updates"] == 0
    driver.set_copy_node(executable, copy, lab.buffers[3], lab.buffers[0], 16, "within")
    driver.set_fill_node(executable, fill, lab.buffers[2] + 16, 5, 2, 8)
    driver.launch_graph(executable, lab.stream)
    assert lab.seen() == [0, 1, 2, 0]
    assert driver.statistics()["node_updates"] == 2


def test_an_empty_graph(lab):
    graph = lab.driver.create_graph()
    lab.driver.add_child_node(graph, (), lab.driver.create_graph())
    for each in (graph, lab.driver.create_graph()):
        lab.driver.launch_graph(lab.driver.instantiate(each), lab.stream)
    lab.card.wait()


@settings(max_examples=20, deadline=None,
          suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_graphs_with_all_edges_give_one_result(make_card, program, seed):
    draw, lab = random.Random(program), Lab(make_card(seed=seed))
    graph, values = lab.driver.create_graph(), [0, 1, 2, 3]
    writer: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    for add in range(draw.randrange(1, 16)):
        out, x = draw.randrange(4), draw.randrange(4)
        needed = {writer.get(x), writer.get(out), *readers.get(out, [])} - {None}
        if draw.random() < 0.3:  # a child graph of one node
            inner = lab.driver.create_graph()
            lab.node(inner, (), out, x, add)
            node = lab.driver.add_child_node(graph, tuple(needed), inner)
        else:
            node = lab.node(graph, tuple(needed), out, x, add)
        values[out] = values[x] * 3 + add
        writer[out], readers[out] = node, []
        readers.setdefault(x, []).append(node)
    lab.driver.launch_graph(lab.driver.instantiate(graph), lab.stream)
    lab.card.wait()
    assert lab.seen() == [np.int32(each) for each in values]

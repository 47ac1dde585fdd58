"""Whose a kernel is where one line launches it for operands of several sizes."""

from __future__ import annotations

from typing import Any

import pytest

import slipstream as ss
from gpu.conftest import REAL
from slipstream.core.api.profiling import Session

SIZES = ((64, 256), (256, 32), (32, 8))
WANTED = [((16, each), (other, each)) for each, other in SIZES]


@pytest.fixture(autouse=True)
def driver_of_its_own(request: pytest.FixtureRequest) -> None:
    """A profile begins with nothing under way."""
    if not REAL:
        request.getfixturevalue("restart")(race=False)


def layers() -> Any:
    """A net whose layers are all called in one line."""
    return ss.nn.Sequential(*(ss.nn.Linear(*each) for each in SIZES)).cuda()


def operands_of(step: Any, count: int, by_events: bool) -> list[Any]:
    """The shapes of input and weight of each layer's kernels, as a profile tells them."""
    session = Session(by_events=by_events)
    session.start()
    for _ in range(count):
        step()
    ss.cuda.synchronize()
    recording = session.stop()
    return [recording.plans[event.plan].shapes[:2] for event in recording.of("kernel")
            if event.op == "linear"]


@pytest.mark.parametrize("by_events", [False, True])
@pytest.mark.parametrize("memo", [False, True])
def test_a_kernel_has_the_operands_of_its_own_call(by_events: bool, memo: bool) -> None:
    net, x = layers(), ss.randn(16, 64, device="cuda")
    with ss.no_grad():
        for _ in range(2):
            net(x)
        if memo:
            found = operands_of(lambda: net(x), 30, by_events)
        else:
            with ss.cuda.immediate():
                found = operands_of(lambda: net(x), 30, by_events)
    assert found == 30 * WANTED


@pytest.mark.parametrize("by_events", [False, True])
def test_kernels_of_a_captured_graph_have_their_own_operands(by_events: bool) -> None:
    net, x = layers(), ss.randn(16, 64, device="cuda")
    graph = ss.cuda.CUDAGraph()
    with ss.no_grad():
        net(x)
        with ss.cuda.graph(graph):
            net(x)
        assert operands_of(graph.replay, 2, by_events) == 2 * WANTED


def test_streams_that_run_one_line_keep_their_calls_apart() -> None:
    sizes, streams = (1000, 300), [ss.cuda.Stream() for _ in range(2)]
    tensors = [ss.ones(size, device="cuda") for size in sizes]
    ss.cuda.synchronize()
    session = Session()
    session.start()
    for _ in range(20):
        for stream, tensor in zip(streams, tensors, strict=True):
            with ss.cuda.stream(stream):
                tensor.exp()
    ss.cuda.synchronize()
    recording = session.stop()
    seen: dict[int, set[Any]] = {}
    for event in recording.of("kernel"):
        seen.setdefault(event.stream, set()).update(recording.plans[event.plan].shapes)
    assert sorted(map(sorted, seen.values())) == [[(300,)], [(1000,)]]

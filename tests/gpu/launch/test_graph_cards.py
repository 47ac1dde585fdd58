"""Graphs where there are several cards: a graph is captured on one of them."""

from __future__ import annotations

from typing import Any

import pytest

import slipstream as ss

REFUSED = r"stream of cuda:1 waits for one of cuda:0, .* on one device\n  mend: capture a graph on"


@pytest.fixture
def two(restart: Any) -> Any:
    """A stream and a tensor of zeros on each of two cards."""
    restart(devices=2)
    tensors = [ss.zeros(4, device=f"cuda:{index}") for index in (0, 1)]
    for index in (0, 1):
        ss.cuda.synchronize(index)
    return [ss.cuda.Stream(device=index) for index in (0, 1)], tensors


def test_a_stream_of_another_card_does_not_join(two: Any) -> None:
    (s0, s1), (a, b) = two

    def work() -> None:
        with ss.cuda.graph(ss.cuda.CUDAGraph(), stream=s0):
            a.add_(1)
            s1.wait_stream(s0)

    with pytest.raises(RuntimeError, match=REFUSED):
        work()
    for stream, tensor in ((s0, a), (s1, b)):
        with ss.cuda.stream(stream):
            assert not ss.cuda.is_current_stream_capturing()
            tensor.add_(2)
        stream.synchronize()
        assert tensor.tolist() == [2.0] * 4


def test_a_capture_goes_on_after_the_refusal(two: Any) -> None:
    (s0, s1), (a, b) = two
    graph = ss.cuda.CUDAGraph()
    with ss.cuda.graph(graph, stream=s0):
        a.add_(1)
        with pytest.raises(RuntimeError, match=REFUSED):
            s1.wait_stream(s0)
        with ss.cuda.stream(s1):
            # What was refused did not let the stream in: this runs at once.
            b.add_(1)
        s1.synchronize()
        a.add_(1)
    graph.replay()
    graph.replay()
    assert (a.tolist(), b.tolist()) == ([4.0] * 4, [1.0] * 4)


def test_captures_of_two_cards_do_not_join(two: Any) -> None:
    (s0, s1), (a, b) = two
    graphs = ss.cuda.CUDAGraph(), ss.cuda.CUDAGraph()
    with ss.cuda.graph(graphs[0], stream=s0):
        a.add_(1)
        with ss.cuda.device(1), ss.cuda.graph(graphs[1], stream=s1):
            b.add_(1)
            with pytest.raises(RuntimeError, match=REFUSED):
                s1.wait_stream(s0)
    # As the refusal says: between the replays streams wait for each other.
    with ss.cuda.stream(s0):
        graphs[0].replay()
    s1.wait_stream(s0)
    with ss.cuda.stream(s1):
        graphs[1].replay()
    s1.synchronize()
    assert (a.tolist(), b.tolist()) == ([1.0] * 4, [1.0] * 4)


def test_a_graph_of_another_cards_work_warns(two: Any) -> None:
    _, (_, b) = two
    graph = ss.cuda.CUDAGraph()
    with pytest.warns(UserWarning, match="The CUDA Graph is empty"), ss.cuda.graph(graph):
        y = b + 1
    graph.replay()
    assert y.tolist() == [1.0] * 4

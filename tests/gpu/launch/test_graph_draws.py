"""Generators while graphs are captured: other captures, other threads, seeds, the collector."""

from __future__ import annotations

import gc
import threading
from typing import Any

import pytest

import slipstream as ss
from slipstream.core.vocab.generators import defaults

dropout = ss.nn.functional.dropout


def in_thread(work: Any) -> Any:
    """What some work returns on another thread, which has finished."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(work())
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found[0]


def drawn() -> list[float]:
    """The next numbers of the card's default generator."""
    return ss.rand(3, device="cuda").tolist()


def two_streams() -> tuple[Any, Any]:
    """Two streams that nothing before has to be waited for on."""
    ss.cuda.synchronize()
    return ss.cuda.Stream(), ss.cuda.Stream()


# -- several captures -----------------------------------------------------------------------------
@pytest.mark.parametrize("first", [0, 1])
def test_two_captures_at_once_leave_the_generator_alone(first: int) -> None:
    x = ss.ones(8, device="cuda")
    ss.cuda.manual_seed(7)
    expected = drawn()
    ss.cuda.manual_seed(7)
    pairs = list(zip((ss.cuda.CUDAGraph(), ss.cuda.CUDAGraph()), two_streams(), strict=True))
    for graph, stream in pairs:
        with ss.cuda.stream(stream):
            graph.capture_begin()
            x * 2
    for graph, stream in (pairs[first], pairs[1 - first]):
        with ss.cuda.stream(stream):
            graph.capture_end()
    assert ss.cuda.initial_seed() == 7
    assert drawn() == expected


def test_two_captures_at_once_draw_each_its_own() -> None:
    x = ss.ones(64, device="cuda")
    one, two = two_streams()
    g, h = ss.cuda.CUDAGraph(), ss.cuda.CUDAGraph()
    with ss.cuda.stream(one):
        g.capture_begin()
        results = [dropout(x, 0.5)]
    with ss.cuda.stream(two):
        h.capture_begin()
        others = [dropout(x, 0.5)]
    with ss.cuda.stream(one):
        results.append(dropout(x, 0.5))
        g.capture_end()
    with ss.cuda.stream(two):
        others.append(dropout(x, 0.5))
        h.capture_end()
    ss.cuda.manual_seed(3)
    found = []
    for _ in range(2):
        for graph, made in ((g, results), (h, others)):
            graph.replay()
            found += [each.tolist() for each in made]
    ss.cuda.manual_seed(3)
    assert found == [dropout(x, 0.5).tolist() for _ in range(8)]


def test_an_own_generator_may_be_in_two_captures() -> None:
    own = ss.Generator("cuda").manual_seed(4)
    streams = two_streams()
    graphs = ss.cuda.CUDAGraph(), ss.cuda.CUDAGraph()
    made = []
    for graph, stream in zip(graphs, streams, strict=True):
        graph.register_generator_state(own)
        with ss.cuda.stream(stream):
            graph.capture_begin()
            made.append(ss.rand(4, device="cuda", generator=own))
    for graph, stream in zip(graphs, streams, strict=True):
        with ss.cuda.stream(stream):
            graph.capture_end()
    assert (own.initial_seed(), own.get_offset()) == (4, 0)
    for graph in graphs:
        graph.replay()
    own.manual_seed(4)
    eager = [ss.rand(4, device="cuda", generator=own).tolist() for _ in range(2)]
    assert [each.tolist() for each in made] == eager


# -- other threads, other streams -----------------------------------------------------------------
def test_a_thread_draws_as_if_no_other_captured() -> None:
    ss.cuda.manual_seed(7)
    expected = [drawn() for _ in range(4)]
    ss.cuda.manual_seed(7)
    graph = ss.cuda.CUDAGraph()
    found = [drawn()]
    with ss.cuda.graph(graph):
        captured = ss.rand(3, device="cuda")
        found.append(in_thread(drawn))
        ss.rand(3, device="cuda")
        found.append(in_thread(drawn))
    found.append(drawn())
    assert found == expected
    ss.cuda.manual_seed(7)
    graph.replay()
    assert captured.tolist() == expected[0]


def test_a_stream_outside_of_the_capture_draws_as_if_there_was_none() -> None:
    ss.cuda.manual_seed(7)
    expected = drawn(), drawn()
    ss.cuda.manual_seed(7)
    outside, _ = two_streams()
    with ss.cuda.graph(ss.cuda.CUDAGraph()):
        ss.rand(3, device="cuda")
        with ss.cuda.stream(outside):
            found = drawn()
    assert (found, drawn()) == expected


def test_a_seed_of_another_thread_outlasts_a_capture() -> None:
    ss.cuda.manual_seed(11)
    expected = drawn()
    ss.cuda.manual_seed(7)
    graph = ss.cuda.CUDAGraph()
    with ss.cuda.graph(graph):
        made = ss.rand(3, device="cuda")
        in_thread(lambda: ss.manual_seed(11))
    assert ss.cuda.initial_seed() == 11
    assert drawn() == expected
    ss.cuda.manual_seed(11)
    graph.replay()
    assert made.tolist() == expected


def test_a_state_of_another_thread_outlasts_a_capture() -> None:
    ss.cuda.manual_seed(11)
    state = ss.cuda.get_rng_state()
    expected = drawn()
    ss.cuda.manual_seed(7)
    seven = ss.cuda.get_rng_state().tolist()
    with ss.cuda.graph(ss.cuda.CUDAGraph()):
        ss.rand(3, device="cuda")
        assert in_thread(lambda: ss.cuda.get_rng_state().tolist()) == seven
        in_thread(lambda: ss.cuda.set_rng_state(state))
    assert drawn() == expected


# -- inside ---------------------------------------------------------------------------------------
def test_seeding_inside_a_capture_is_refused() -> None:
    ss.manual_seed(7)
    kept = ss.get_rng_state().tolist()
    for seeding in (ss.manual_seed, ss.cuda.manual_seed, ss.cuda.manual_seed_all):
        with (pytest.raises(RuntimeError, match="seeded inside the capture"),
              ss.cuda.graph(ss.cuda.CUDAGraph())):
            seeding(5)
    assert ss.cuda.initial_seed() == ss.initial_seed() == 7
    assert ss.get_rng_state().tolist() == kept


def test_a_state_kept_and_set_inside_draws_the_same_again() -> None:
    graph = ss.cuda.CUDAGraph()
    with ss.cuda.graph(graph):
        assert ss.cuda.initial_seed() == in_thread(ss.cuda.initial_seed)
        state = ss.cuda.get_rng_state()
        first = ss.rand(5, device="cuda")
        with ss.random.fork_rng():
            ss.cuda.set_rng_state(state)
            again = ss.rand(5, device="cuda")
        other = ss.rand(5, device="cuda")
    ss.cuda.manual_seed(2)
    graph.replay()
    graph.replay()
    assert first.tolist() == again.tolist() != other.tolist()
    ss.cuda.manual_seed(2)
    eager = [ss.rand(5, device="cuda").tolist() for _ in range(4)]
    assert [first.tolist(), other.tolist()] == eager[2:]


def test_a_state_from_outside_is_refused_inside() -> None:
    ss.cuda.manual_seed(7)
    outside = ss.cuda.get_rng_state()
    x = ss.ones(4, device="cuda")
    graph = ss.cuda.CUDAGraph()
    with ss.cuda.graph(graph):
        x.add_(1)
        with pytest.raises(RuntimeError, match=r"state from outside .*\n  mend: set it outside"):
            ss.cuda.set_rng_state(outside)
        made = ss.rand(3, device="cuda")
    # Nothing was set: replays take from the generator what they draw, and no more.
    assert ss.cuda.get_rng_state().tolist() == outside.tolist()
    graph.replay()
    after = drawn()
    ss.cuda.set_rng_state(outside)
    assert made.tolist() == drawn()
    assert after == drawn()


def test_a_state_of_another_graph_is_set_inside() -> None:
    first, second = ss.cuda.CUDAGraph(), ss.cuda.CUDAGraph()
    with ss.cuda.graph(first):
        state = ss.cuda.get_rng_state()
        one = ss.rand(3, device="cuda")
    with ss.cuda.graph(second):
        ss.cuda.set_rng_state(state)
        again = ss.rand(3, device="cuda")
    first.replay()
    second.replay()
    assert one.tolist() == again.tolist()


def test_a_captured_gradient_of_a_checkpoint_that_draws_nothing() -> None:
    w = ss.full((4,), 2.0, device="cuda", requires_grad=True)

    def forward() -> Any:
        return ss.utils.checkpoint.checkpoint(lambda x: (x * x).exp(), w, use_reentrant=False)

    expected = ss.autograd.grad(forward().sum(), w)[0].tolist()
    stream, _ = two_streams()
    with ss.cuda.stream(stream):
        # The state that the recomputation sets may be older than the card's generator.
        kept = defaults.kept()
        kept[1].pop(ss.device("cuda", 0), None)
        total = forward().sum()
        stream.synchronize()
        graph = ss.cuda.CUDAGraph()
        graph.capture_begin()
        defaults.put_back(kept)
        gradient = ss.autograd.grad(total, w)[0]
        graph.capture_end()
        graph.replay()
        assert gradient.tolist() == expected


def test_a_generator_of_the_host_draws_at_once() -> None:
    own = ss.Generator().manual_seed(6)
    expected = ss.rand(3, generator=own).tolist()
    own.manual_seed(6)
    graph = ss.cuda.CUDAGraph()
    graph.register_generator_state(own)
    x = ss.ones(3, device="cuda")
    with ss.cuda.graph(graph):
        x.add_(1)
        found = ss.rand(3, generator=own).tolist()
    assert found == expected


# -- how a capture ends ---------------------------------------------------------------------------
def begun(stream: Any) -> ss.cuda.CUDAGraph:
    """A graph whose capture, which draws, goes on."""
    graph = ss.cuda.CUDAGraph()
    with ss.cuda.stream(stream):
        graph.capture_begin()
        ss.rand(3, device="cuda")
    return graph


@pytest.mark.parametrize("how", ["thread", "collector", "reset"])
def test_the_generator_goes_on_however_a_capture_ends(how: str) -> None:
    ss.cuda.manual_seed(7)
    expected = drawn()
    ss.cuda.manual_seed(7)
    stream, _ = two_streams()
    graph: Any = begun(stream)

    def end() -> None:
        with ss.cuda.stream(stream):
            graph.capture_end()

    if how == "thread":
        assert in_thread(end) is None
    elif how == "reset":
        graph.reset()
    graph = None
    gc.collect()
    with ss.cuda.stream(stream):
        assert not ss.cuda.is_current_stream_capturing()
        assert drawn() == expected


def test_a_captures_own_state_is_set_again_after_anothers() -> None:
    first, second = (ss.zeros(4, device="cuda") for _ in range(2))
    one, two = ss.cuda.CUDAGraph(), ss.cuda.CUDAGraph()
    with ss.cuda.graph(one):
        state = ss.cuda.get_rng_state()
        first.copy_(ss.rand(4, device="cuda"))
    with ss.cuda.graph(two):
        own = ss.cuda.get_rng_state()
        ss.cuda.set_rng_state(state)
        second.copy_(ss.rand(4, device="cuda"))
        ss.cuda.set_rng_state(own)
    one.replay()
    two.replay()
    assert first.tolist() == second.tolist()
    assert first.tolist() != [0.0] * 4

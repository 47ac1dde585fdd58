"""Backward on another stream than the forward's: it comes after what it reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import slipstream as ss
from slipstream.core.launch.door import backend_of
from slipstream.utils.checkpoint import checkpoint

VALUES = np.random.default_rng(0).standard_normal((64, 64)).astype("f4")


def loss(weight: ss.Tensor) -> ss.Tensor:
    return ((weight * 2).relu() @ weight).square().sum()


def checkpointed(weight: ss.Tensor) -> ss.Tensor:
    made: ss.Tensor = checkpoint(lambda w: (w * 2).relu(), weight, use_reentrant=False)
    return (made @ weight).square().sum()


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The waits of one stream for another, as they come."""
    edges: Any = backend_of(ss.device("cuda", 0)).edges  # type: ignore[attr-defined]
    plainly, found = edges.follow, []

    def follow(later: Any, earlier: Any) -> None:
        found.append((later.number, earlier.number))
        plainly(later, earlier)

    monkeypatch.setattr(edges, "follow", follow)
    return found


def reference(function: Callable[[ss.Tensor], ss.Tensor]) -> ss.Tensor:
    weight = ss.tensor(VALUES, requires_grad=True)
    function(weight).backward()
    assert weight.grad is not None
    return weight.grad


@pytest.mark.parametrize("function", [loss, checkpointed])
@pytest.mark.parametrize("inside", [False, True])
def test_backward_comes_after_its_forward(function: Any, inside: bool) -> None:
    expected, side, other = reference(function), ss.cuda.Stream(), ss.cuda.Stream()
    weight = ss.tensor(VALUES, device="cuda", requires_grad=True)
    for _ in range(6):
        weight.grad = None
        side.wait_stream(ss.cuda.current_stream())
        with ss.cuda.stream(side):
            made = function(weight)
        if inside:
            with ss.cuda.stream(other):
                made.backward()
            ss.cuda.current_stream().wait_stream(other)
        else:
            made.backward()
        assert ss.allclose(weight.grad.cpu(), expected, rtol=1e-4, atol=1e-3)


def test_backward_of_work_of_the_default_stream_on_another(waits: list[Any]) -> None:
    weight = ss.tensor(VALUES, device="cuda", requires_grad=True)
    side = ss.cuda.Stream()
    side.wait_stream(ss.cuda.current_stream())
    made = loss(weight)
    waits.clear()
    with ss.cuda.stream(side):
        gradient, = ss.autograd.grad(made, weight)
        found = gradient.cpu()
    assert waits == [(side.queue.number, 0)]
    assert ss.allclose(found, reference(loss), rtol=1e-4, atol=1e-3)


def test_no_wait_where_order_is_there_already(waits: list[Any]) -> None:
    weight = ss.tensor(VALUES, device="cuda", requires_grad=True)
    side, here = ss.cuda.Stream(), ss.cuda.current_stream()
    side.wait_stream(here)
    waits.clear()
    with ss.cuda.stream(side):
        loss(weight).backward()
    with ss.cuda.stream(side):
        made = loss(weight)
    with ss.cuda.stream(side):
        made.backward()
        made = loss(weight)
    assert waits == []
    here.wait_stream(side)
    waits.clear()
    made.backward()
    loss(weight).backward()
    ss.ones(3, requires_grad=True).sum().backward()
    assert waits == []


def test_streams_of_a_forward_that_is_over_are_taken_again() -> None:
    weight = ss.tensor(VALUES, device="cuda", requires_grad=True)
    kept = []
    here = ss.cuda.current_stream()
    for _ in range(50):
        side = ss.cuda.Stream()
        side.wait_stream(here)
        with ss.cuda.stream(side):
            kept.append(loss(weight))
            kept[-1].backward()
        here.wait_stream(side)
    backend: Any = backend_of(ss.device("cuda", 0))  # type: ignore[arg-type]
    assert len(backend.queues) < 50


def test_backward_comes_after_what_others_launch_on_a_handle(waits: list[Any]) -> None:
    weight = ss.tensor(VALUES, device="cuda", requires_grad=True)
    side, here = ss.cuda.Stream(), ss.cuda.current_stream()
    assert side.cuda_stream
    side.wait_stream(here)
    with ss.cuda.stream(side):
        made = loss(weight)
    here.wait_stream(side)
    waits.clear()
    # On its own handle another library may have gone on since.
    made.backward()
    assert waits == [(here.queue.number, side.queue.number)]


def test_inside_a_capture_backward_comes_after_a_branch() -> None:
    weight = ss.tensor(VALUES, device="cuda", requires_grad=True)
    graph, side = ss.cuda.CUDAGraph(), ss.cuda.Stream()
    ss.cuda.synchronize()
    with ss.cuda.graph(graph):
        here = ss.cuda.current_stream()
        side.wait_stream(here)
        with ss.cuda.stream(side):
            made = loss(weight)
        gradient, = ss.autograd.grad(made, weight)
    for _ in range(3):
        graph.replay()
        assert ss.allclose(gradient.cpu(), reference(loss), rtol=1e-4, atol=1e-3)

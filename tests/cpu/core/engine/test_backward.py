"""The backward walk: accumulation, retained graphs, chosen inputs, errors."""

from __future__ import annotations

import os
import signal
import threading

import pytest

import slipstream as ss


def test_gradients_of_two_inputs_do_not_share_memory() -> None:
    a, b = ss.ones(2, requires_grad=True), ss.ones(2, requires_grad=True)
    (a + b).sum().backward()
    a.grad.zero_()
    assert b.grad.tolist() == [1.0, 1.0]
    (a + b).sum().backward()
    assert a.grad.tolist() == [1.0, 1.0]
    assert b.grad.tolist() == [2.0, 2.0]


def test_a_gradient_that_the_caller_or_a_hook_holds_is_copied() -> None:
    x = ss.ones(2, requires_grad=True)
    start = ss.ones(2)
    seen = []
    x.register_hook(seen.append)
    x.backward(start)
    x.backward(start)
    assert start.tolist() == [1.0, 1.0]
    assert seen[0].tolist() == [1.0, 1.0]
    assert x.grad.tolist() == [2.0, 2.0]


def test_expanded_gradients_become_whole() -> None:
    x = ss.ones(2, 3, requires_grad=True)
    x.sum().backward()
    assert x.grad.is_contiguous()
    x.sum().backward()
    assert x.grad.tolist() == [[2.0] * 3] * 2


def test_a_second_backward() -> None:
    x = ss.ones(2, requires_grad=True)
    y = (x + 1).sum()
    y.backward()
    y.backward()
    assert x.grad.tolist() == [2.0, 2.0]
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()


def test_create_graph_adds_to_a_gradient_with_history() -> None:
    x = ss.tensor([3.0], requires_grad=True)
    (x * x * x).sum().backward(create_graph=True)
    first = x.grad
    x.grad = None
    first.sum().backward()
    assert x.grad.tolist() == [18.0]


def test_chosen_inputs() -> None:
    x = ss.ones(2, requires_grad=True)
    w = ss.ones(2, requires_grad=True)
    y = x * 2
    z = (y * y * w).sum()
    z.backward(inputs=[y, w], retain_graph=True)
    assert y.grad.tolist() == [4.0, 4.0]
    assert w.grad.tolist() == [4.0, 4.0]
    assert x.grad is None
    z.backward(inputs=x)
    assert x.grad.tolist() == [8.0, 8.0]
    with pytest.raises(RuntimeError, match="cannot be empty"):
        z.backward(inputs=[])


def test_a_middle_input_is_not_run_through() -> None:
    x = ss.ones(2, requires_grad=True)
    y = x * x
    z = (y * 3).sum()
    (g,) = ss.autograd.grad(z, y)
    assert g.tolist() == [3.0, 3.0]
    # The node that made y kept what it saved.
    y.sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]


def test_errors_of_the_start() -> None:
    x = ss.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="implicitly created only for scalar"):
        (x * 2).backward()
    with pytest.raises(RuntimeError, match="Mismatch in shape"):
        (x * 2).backward(ss.ones(3))
    with pytest.raises(RuntimeError, match="does not require grad"):
        ss.ones(1).backward()
    with pytest.raises(TypeError, match="Tensors or None"):
        (x * 2).backward(1.0)
    with pytest.raises(RuntimeError, match="only Tensors of floating point"):
        ss.ones(2, dtype=ss.int64).requires_grad_()


def test_an_error_in_a_hook_leaves_the_modes_clean() -> None:
    x = ss.ones(2, requires_grad=True)
    y = x * 2

    def fail(grad: ss.Tensor) -> None:
        raise KeyError("mine")

    handle = y.register_hook(fail)
    with pytest.raises(KeyError):
        y.sum().backward()
    assert ss.is_grad_enabled()
    handle.remove()
    (x * 2).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]


def test_the_delay_device_gives_the_same_gradients() -> None:
    x = ss.ones(3, device="delay", requires_grad=True)
    y = x * 2
    y[0].mul_(5.0)
    (y * y).sum().backward()
    assert x.grad.cpu().tolist() == [200.0, 8.0, 8.0]


def test_walks_inside_and_beside_each_other() -> None:
    x = ss.full((2,), 3.0, requires_grad=True)
    shared = x * x
    total = shared.sum()
    inner: list[list[float]] = []

    def again(grad: ss.Tensor) -> None:
        # The same nodes and the same leaf, while the outer walk is among them.
        found, = ss.autograd.grad(total, x, retain_graph=True)
        inner.append(found.tolist())

    out = shared * 2
    out.register_hook(again)
    (out + shared).sum().backward()
    assert inner == [[6.0, 6.0]]
    assert x.grad.tolist() == [18.0, 18.0]


def test_nodes_forget_a_walk_that_failed() -> None:
    x = ss.ones(2, requires_grad=True)
    middle = x * 3
    out = (middle * 2).sum()

    def stop(grad: ss.Tensor) -> None:
        raise ZeroDivisionError

    handle = middle.register_hook(stop)
    with pytest.raises(ZeroDivisionError):
        out.backward(retain_graph=True)
    handle.remove()
    assert middle.grad_fn.visit is None
    assert out.grad_fn.visit is None
    out.backward()
    assert x.grad.tolist() == [6.0, 6.0]


def test_walks_of_several_threads_over_the_same_leaf() -> None:
    x = ss.ones(3, requires_grad=True)
    barrier = threading.Barrier(2)
    found: list[list[float]] = []

    def meet(grad: ss.Tensor) -> None:
        barrier.wait(20)

    def work(factor: float) -> None:
        y = x * factor
        y.register_hook(meet)
        grad, = ss.autograd.grad((y * 2).sum(), x)
        found.append(grad.tolist())

    threads = [threading.Thread(target=work, args=(factor,)) for factor in (2.0, 5.0)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(found) == [[4.0] * 3, [10.0] * 3]


def test_a_leaf_whose_flag_was_turned_off_gets_no_gradient() -> None:
    x, w = ss.ones(3, requires_grad=True), ss.ones(3, requires_grad=True)
    y = (x * w).sum()
    x.requires_grad_(False)
    y.backward()
    assert x.grad is None
    assert w.grad.tolist() == [1.0] * 3


@pytest.mark.parametrize("graph", [False, True])
def test_a_gradient_is_laid_out_as_its_leaf(graph: bool) -> None:
    weight = ss.ones(2, 3, requires_grad=True)
    (ss.ones(4, 3) @ weight.t()).sum().backward(create_graph=graph)
    assert weight.grad.stride() == (3, 1)
    assert weight.grad.view(-1).tolist() == [4.0] * 6
    turned = ss.arange(6.0).reshape(3, 2).t().requires_grad_()
    assert turned.is_leaf
    (turned * ss.ones(2, 3)).sum().backward(create_graph=graph)
    assert turned.grad.stride() == (1, 2)
    # Strides that leave gaps, or show elements twice, are no gradient's.
    sparse = ss.zeros(2, 6)[:, ::2].requires_grad_()
    (sparse * ss.ones(3, 2).t()).sum().backward(create_graph=graph)
    assert sparse.grad.stride() == (3, 1)


def test_a_gradient_with_history_that_is_laid_out_anew_keeps_it() -> None:
    weight = ss.ones(2, 3, dtype=ss.float64, requires_grad=True)
    out = ss.ones(4, 3, dtype=ss.float64) @ weight.t()
    (out * out * out).sum().backward(create_graph=True)
    grad = weight.grad
    assert grad.stride() == (3, 1)
    (second,) = ss.autograd.grad(grad.sum(), weight)
    # d/dw of 4 * 3 (w0 + w1 + w2)^2, three times.
    assert second.tolist() == [[4 * 6.0 * 3 * 3] * 3] * 2


@pytest.mark.parametrize("graph", [False, True])
def test_backwards_of_threads_into_one_leaf_lose_nothing(graph: bool) -> None:
    # So many that the kernel which adds them lets other threads run.
    size, threads, rounds = 2_000_000, 4, 10
    x = ss.zeros(size, requires_grad=True)
    barrier = threading.Barrier(threads)
    scale = ss.ones(size)

    def work() -> None:
        barrier.wait()
        for _ in range(rounds):
            (x * scale).sum().backward(create_graph=graph)

    running = [threading.Thread(target=work) for _ in range(threads)]
    for each in running:
        each.start()
    for each in running:
        each.join()
    assert x.grad.min().item() == x.grad.max().item() == threads * rounds


def test_a_gradient_is_laid_out_as_its_leaf_is_by_then() -> None:
    layer = ss.nn.Conv2d(3, 4, 3)
    x = ss.ones(1, 3, 5, 5)
    layer(x).sum().backward()
    layer.zero_grad()
    layer.to(memory_format=ss.channels_last)
    layer(x).sum().backward()
    assert layer.weight.grad.stride() == layer.weight.stride() == (27, 1, 9, 3)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_fork_while_another_thread_adds_leaves_the_turn_to_no_one() -> None:
    """The child has no thread that could end a turn which was another one's."""
    w = ss.zeros(1 << 20, requires_grad=True)
    given = ss.ones(1 << 20)
    stop = threading.Event()

    def add() -> None:
        while not stop.is_set():
            (w * 1).backward(given)

    adds = threading.Thread(target=add)
    adds.start()
    try:
        for _ in range(5):
            child = os.fork()
            if not child:
                leaf = ss.ones(2, requires_grad=True)
                signal.alarm(20)
                (leaf * 2).sum().backward()
                (leaf * 2).sum().backward()
                os._exit(leaf.grad.tolist() != [4.0, 4.0])
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        adds.join()

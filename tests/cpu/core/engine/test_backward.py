"""The backward walk: accumulation, retained graphs, chosen inputs, errors."""

from __future__ import annotations

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

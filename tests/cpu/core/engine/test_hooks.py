"""Hooks of tensors, leaves and nodes."""

from __future__ import annotations

import pytest

import slipstream as ss


def test_order_of_hooks_and_retained_gradients() -> None:
    x = ss.ones(2, requires_grad=True)
    y = x * 2
    calls = []
    y.retain_grad()
    y.register_hook(lambda g: calls.append("first"))
    y.register_hook(lambda g: g * 10)
    y.grad_fn.register_prehook(lambda grads: calls.append("pre"))
    y.grad_fn.register_hook(lambda ins, outs: calls.append("post"))
    x.register_hook(lambda g: calls.append("leaf"))
    x.register_post_accumulate_grad_hook(lambda t: calls.append(t.grad.tolist()))
    y.sum().backward()
    # retain_grad sees what the tensor hooks made, whenever it was asked for.
    assert y.grad.tolist() == [10.0, 10.0]
    assert calls == ["first", "pre", "post", "leaf", [20.0, 20.0]]


def test_node_hooks_replace_gradients() -> None:
    x = ss.ones(2, requires_grad=True)
    y = x * 2
    y.grad_fn.register_prehook(lambda grads: (grads[0] * 3,))
    y.grad_fn.register_hook(lambda ins, outs: (ins[0] + outs[0],))
    y.sum().backward()
    assert x.grad.tolist() == [9.0, 9.0]


def test_removed_hooks_do_not_run() -> None:
    x = ss.ones(2, requires_grad=True)
    with x.register_hook(lambda g: g * 5):
        x.sum().backward()
    x.sum().backward()
    assert x.grad.tolist() == [6.0, 6.0]


def test_leaf_hooks_act_on_gradients_as_results() -> None:
    x = ss.ones(2, requires_grad=True)
    x.register_hook(lambda g: g * 5)
    (g,) = ss.autograd.grad((x * 2).sum(), x)
    assert g.tolist() == [10.0, 10.0]


def test_wrong_results_of_hooks() -> None:
    x = ss.ones(2, requires_grad=True)
    handle = x.register_hook(lambda g: 3)
    with pytest.raises(TypeError, match="expected Variable, but hook returned 'int'"):
        x.sum().backward()
    handle.remove()
    x.register_hook(lambda g: g.sum())
    with pytest.raises(RuntimeError, match="changed the size"):
        x.sum().backward()
    with pytest.raises(RuntimeError, match="doesn't require gradient"):
        ss.ones(1).register_hook(print)


def test_retained_gradients_follow_in_place_writes() -> None:
    x = ss.ones(2, requires_grad=True)
    y = x * 2
    y.retain_grad()
    y.mul_(3)
    (y * y).sum().backward()
    assert y.grad.tolist() == [12.0, 12.0]
    assert y.retains_grad


def test_saved_tensor_hooks_hold_what_they_like() -> None:
    events = []

    def pack(tensor: ss.Tensor) -> object:
        events.append("pack")
        return tensor.tolist()

    def unpack(kept: object) -> ss.Tensor:
        events.append("unpack")
        return ss.tensor(kept)

    x = ss.tensor([2.0, 3.0], requires_grad=True)
    with ss.autograd.graph.saved_tensors_hooks(pack, unpack):
        y = (x * x).exp()
    (g,) = ss.autograd.grad((y * 0.001).sum(), x, create_graph=True)
    assert events.count("pack") == 3
    # The history of what was packed is still known.
    g.sum().backward()
    assert x.grad is not None
    hooks = ss.autograd.graph.saved_tensors_hooks(pack, unpack)
    with (ss.autograd.graph.disable_saved_tensors_hooks("not here"),
          pytest.raises(RuntimeError, match="not here"), hooks):
        pass

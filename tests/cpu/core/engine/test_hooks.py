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


def test_retained_gradients_add_up_in_memory_of_their_own() -> None:
    x = ss.tensor([3.0, 4.0], requires_grad=True)
    y = x * 2
    z = y + 0
    flat = z.view(2)
    for each in (y, z, flat):
        each.retain_grad()
    total = flat.sum()
    total.backward(retain_graph=True)
    # The gradient of a sum is one number, expanded.
    assert flat.grad.stride() == (1,)
    y.grad.mul_(100)
    assert z.grad.tolist() == flat.grad.tolist() == [1.0, 1.0]
    assert x.grad.tolist() == [2.0, 2.0]
    total.backward()
    assert y.grad.tolist() == [101.0, 101.0]
    assert z.grad.tolist() == [2.0, 2.0]


def test_gradients_of_chosen_inputs_that_are_no_leaves_add_up() -> None:
    x = ss.tensor([3.0], requires_grad=True)
    y = x * 2
    z = (y * 5).sum()
    z.backward(retain_graph=True, inputs=[y])
    z.backward(inputs=[y])
    assert y.grad.tolist() == [10.0]
    assert x.grad is None


def test_hooks_of_a_leafs_node() -> None:
    x = ss.ones(2, requires_grad=True)
    y = x * 2
    node = y.grad_fn.next_functions[0][0]
    seen: list[object] = []

    def before(grads: tuple[ss.Tensor, ...]) -> tuple[ss.Tensor, ...]:
        seen.append(("pre", x.grad))
        return (grads[0] * 10,)

    node.register_prehook(before)
    node.register_hook(lambda ins, outs: seen.append(("post", ins, outs[0].tolist())))
    x.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad.tolist()))
    y.sum().backward()
    assert seen == [("pre", None), [20.0, 20.0], ("post", (), [20.0, 20.0])]
    assert x.grad.tolist() == [20.0, 20.0]
    # A gradient that is only returned is not accumulated, and the node does not run.
    assert ss.autograd.grad((x * 2).sum(), x)[0].tolist() == [2.0, 2.0]
    assert len(seen) == 3

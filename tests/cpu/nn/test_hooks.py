"""Hooks of modules: forward, backward, state_dict; handles."""

from __future__ import annotations

import pytest

import slipstream as ss
from slipstream import nn
from slipstream.nn.modules import hooks


@pytest.fixture
def layer() -> nn.Linear:
    layer = nn.Linear(2, 1)
    nn.init.ones_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def test_forward_hooks_replace_arguments_and_output(layer):
    before = layer.register_forward_pre_hook(lambda module, args: args[0] * 10)
    after = layer.register_forward_hook(lambda module, args, output: output + args[0].sum())
    assert layer(ss.ones(1, 2)).item() == 40
    before.remove()
    assert layer(ss.ones(1, 2)).item() == 4
    with after:
        pass
    after.remove()
    assert layer(ss.ones(1, 2)).item() == 2


def test_hooks_with_keywords_run_in_order():
    class Add(nn.Module):
        def forward(self, a, b=0):
            return a + b

    seen = []
    add = Add()
    add.register_forward_pre_hook(lambda module, args, kwargs: (args, {"b": 5}), with_kwargs=True)
    add.register_forward_hook(lambda module, args, kwargs, output: seen.append(kwargs),
                              with_kwargs=True)
    add.register_forward_hook(lambda module, args, output: seen.append("first"), prepend=True)
    assert add(1, b=2) == 6
    assert seen == ["first", {"b": 5}]
    add.register_forward_pre_hook(lambda module, args, kwargs: 3, with_kwargs=True)
    with pytest.raises(RuntimeError, match="pre-hook"):
        add(1)


def test_a_hook_that_is_always_called_sees_a_failure():
    class Fails(nn.Module):
        def forward(self):
            raise ValueError("no")

    seen = []
    module = Fails()
    module.register_forward_hook(lambda m, args, output: seen.append(output), always_call=True)
    module.register_forward_hook(lambda m, args, output: seen.append("never"))
    with pytest.raises(ValueError, match="no"):
        module()
    assert seen == [None]


def test_backward_hook_sees_and_replaces_gradients(layer):
    seen = []

    def hook(module, grad_input, grad_output):
        seen.append((grad_input[0].tolist(), grad_output[0].tolist()))
        return (grad_input[0] * 3,)

    layer.register_full_backward_pre_hook(lambda module, grad_output: (grad_output[0] * 5,))
    layer.register_full_backward_hook(hook)
    input = ss.ones(1, 2, requires_grad=True)
    layer(input).sum().backward()
    assert seen == [([[5.0, 5.0]], [[5.0]])]
    assert input.grad.tolist() == [[15.0, 15.0]]
    assert layer.bias.grad.tolist() == [5.0]


def test_backward_hook_without_input_gradients(layer):
    seen = []
    handle = layer.register_full_backward_hook(lambda module, *gradients: seen.append(gradients))
    layer(ss.ones(1, 2)).sum().backward()
    assert seen[0][0] == (None,)
    assert seen[0][1][0].tolist() == [[1.0]]
    handle.remove()
    layer(ss.ones(1, 2)).sum().backward()
    assert len(seen) == 1


def test_backward_hook_of_several_inputs_and_outputs():
    class Two(nn.Module):
        def forward(self, a, b, scale):
            return a * b * scale, a + b

    seen = []
    module = Two()
    module.register_full_backward_hook(lambda m, *gradients: seen.append(gradients))
    a = ss.tensor(2.0, requires_grad=True)
    b = ss.tensor(3.0, requires_grad=True)
    module(a, b, 10)[0].backward()
    (grad_input, grad_output), = seen
    assert [None if g is None else g.item() for g in grad_input] == [30.0, 20.0, None]
    assert grad_output[0].item() == 1.0
    assert (a.grad.item(), b.grad.item()) == (30.0, 20.0)


def test_a_hook_that_returns_too_many_gradients_is_refused(layer):
    layer.register_full_backward_hook(lambda module, grad_input, grad_output: grad_input * 2)
    with pytest.raises(RuntimeError, match="grad_input"):
        layer(ss.ones(1, 2, requires_grad=True)).sum().backward()


def test_hooks_of_every_module(layer, monkeypatch):
    monkeypatch.setattr(hooks.Hooks, "_hooked", False)
    seen = []
    handles = [
        hooks.register_module_forward_pre_hook(lambda module, args: seen.append("pre")),
        hooks.register_module_forward_hook(lambda module, args, output: seen.append("post")),
        hooks.register_module_full_backward_pre_hook(lambda m, gradients: seen.append("back")),
        hooks.register_module_full_backward_hook(lambda m, a, b: seen.append("backed")),
    ]
    layer(ss.ones(1, 2)).sum().backward()
    for handle in handles:
        handle.remove()
    layer(ss.ones(1, 2)).sum().backward()
    assert seen == ["pre", "post", "back", "backed"]


def test_a_call_without_hooks_does_not_look_for_any(layer, monkeypatch):
    def fail(*arguments):
        raise AssertionError("the hooks were looked at")

    monkeypatch.setattr("slipstream.nn.modules.module.call_with_hooks", fail)
    assert layer(ss.ones(1, 2)).item() == 2


def test_state_dict_hooks():
    layer = nn.Linear(1, 1)
    seen = []
    layer.register_state_dict_pre_hook(lambda module, prefix, keep: seen.append((prefix, keep)))
    layer.register_state_dict_post_hook(lambda module, state, prefix, meta: state.pop("bias"))
    with pytest.raises(RuntimeError, match="returns None"):
        layer.state_dict()
    assert seen == [("", False)]


def test_load_hooks():
    layer = nn.Linear(1, 1)

    def rename(module, state, prefix, *rest):
        state[prefix + "weight"] = state.pop(prefix + "kernel")

    layer.register_load_state_dict_pre_hook(rename)
    layer.register_load_state_dict_post_hook(lambda module, told: told.missing_keys.clear())
    model = nn.Sequential(layer)
    model.load_state_dict({"0.kernel": ss.full((1, 1), 4.0)}, strict=True)
    assert layer.weight.item() == 4

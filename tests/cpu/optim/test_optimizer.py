"""Optimizer: groups, state in PyTorch's layout, hooks, errors, printing."""

from __future__ import annotations

import copy
import pickle

import pytest

import slipstream as ss
from slipstream import optim

KINDS = [optim.SGD, optim.Adam, optim.AdamW]


def parameters(count: int = 3) -> list[ss.Tensor]:
    return [ss.full((2,), float(place), requires_grad=True) for place in range(count)]


def advance(optimizer: optim.Optimizer, steps: int = 1) -> None:
    for _ in range(steps):
        for group in optimizer.param_groups:
            for place, parameter in enumerate(group["params"]):
                parameter.grad = ss.full((2,), 0.5 + place)
        optimizer.step()


def test_groups_take_the_defaults_they_do_not_set():
    first, second, third = parameters()
    optimizer = optim.SGD([{"params": first, "lr": 3}, {"params": [second, third]}], lr=0.5)
    assert [group["lr"] for group in optimizer.param_groups] == [3, 0.5]
    optimizer.add_param_group({"params": ss.ones(2, requires_grad=True), "momentum": 0.9})
    advance(optimizer)
    assert first.tolist() == [-1.5, -1.5]
    assert second.tolist() == [0.75, 0.75]
    assert len(optimizer.state) == 1


def test_named_parameters():
    optimizer = optim.SGD(zip("abc", parameters(), strict=True))
    assert optimizer.state_dict()["param_groups"][0]["param_names"] == ["a", "b", "c"]
    with pytest.raises(ValueError, match="names"):
        optimizer.add_param_group({"params": parameters(1)})
    with pytest.raises(ValueError, match="names"):
        optim.SGD([("a", parameters(1)[0]), *parameters(1)])


def test_state_dict_has_pytorchs_layout():
    optimizer = optim.Adam(parameters(2), lr=0.1, amsgrad=True)
    assert optimizer.state_dict()["state"] == {}
    advance(optimizer, 2)
    saved = optimizer.state_dict()
    assert list(saved) == ["state", "param_groups"]
    assert list(saved["state"]) == [0, 1]
    assert list(saved["state"][0]) == ["step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"]
    assert saved["state"][0]["step"].item() == 2
    assert saved["state"][0]["step"].dtype == ss.float32
    assert list(saved["param_groups"][0]) == [
        "lr", "betas", "eps", "weight_decay", "amsgrad", "maximize", "foreach", "capturable",
        "differentiable", "fused", "decoupled_weight_decay", "params"]
    assert saved["param_groups"][0]["params"] == [0, 1]
    sgd = optim.SGD(parameters(2), momentum=0.9)
    advance(sgd)
    assert list(sgd.state_dict()["state"][1]) == ["momentum_buffer"]
    assert list(sgd.state_dict()["param_groups"][0]) == [
        "lr", "momentum", "dampening", "weight_decay", "nesterov", "maximize", "foreach",
        "differentiable", "fused", "params"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_loaded_optimizer_goes_on_alike(kind):
    options = {"momentum": 0.9} if kind is optim.SGD else {"amsgrad": True}
    first = kind(parameters(), lr=0.1, weight_decay=0.1, **options)
    advance(first, 3)
    copies = [each.detach().clone().requires_grad_() for each in first.param_groups[0]["params"]]
    second = kind(copies)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    assert second.param_groups[0]["lr"] == 0.1
    advance(first, 3)
    advance(second, 3)
    for a, b in zip(first.param_groups[0]["params"], copies, strict=True):
        assert a.tolist() == b.tolist()


def test_loaded_state_takes_the_parameters_dtype():
    first = optim.Adam(parameters(1))
    advance(first)
    wide = [ss.ones(2, dtype=ss.float64, requires_grad=True)]
    second = optim.Adam(wide)
    second.load_state_dict(first.state_dict())
    assert second.state[wide[0]]["exp_avg"].dtype == ss.float64
    assert second.state[wide[0]]["step"].dtype == ss.float32


def test_state_of_older_versions():
    optimizer = optim.Adam(parameters(1))
    advance(optimizer)
    saved = copy.deepcopy(optimizer.state_dict())
    saved["state"][0]["step"] = 7
    for name in ("maximize", "foreach", "fused", "capturable", "differentiable"):
        del saved["param_groups"][0][name]
    optimizer.load_state_dict(saved)
    advance(optimizer)
    assert optimizer.state_dict()["state"][0]["step"].item() == 8


def test_state_that_does_not_fit_is_refused():
    optimizer = optim.SGD(parameters(2))
    for other in (optim.SGD(parameters(3)),
                  optim.SGD([{"params": parameters(1)}, {"params": parameters(1)}])):
        with pytest.raises(ValueError, match="group"):
            optimizer.load_state_dict(other.state_dict())


def test_closure_is_called_with_gradients_recorded():
    parameter = ss.ones(2, requires_grad=True)
    optimizer = optim.SGD([parameter], lr=0.5)

    def closure():
        optimizer.zero_grad()
        loss = (parameter * parameter).sum()
        loss.backward()
        return loss

    with ss.no_grad():
        assert optimizer.step(closure).item() == 2.0
    assert parameter.tolist() == [0.0, 0.0]


def test_zero_grad():
    optimizer = optim.SGD(parameters(1))
    advance(optimizer)
    optimizer.zero_grad(set_to_none=False)
    assert optimizer.param_groups[0]["params"][0].grad.tolist() == [0.0, 0.0]
    optimizer.zero_grad()
    assert optimizer.param_groups[0]["params"][0].grad is None


def test_hooks():
    optimizer, seen = optim.SGD(parameters(1)), []
    handle = optimizer.register_step_pre_hook(lambda o, args, kwargs: seen.append("before"))
    optimizer.register_step_post_hook(lambda o, args, kwargs: seen.append(args[0] is o))
    optimizer.register_state_dict_post_hook(lambda o, state: {**state, "more": 1})
    optimizer.register_load_state_dict_pre_hook(lambda o, state: seen.append(state["more"]))
    optimizer.register_load_state_dict_post_hook(lambda o: seen.append("loaded"))
    advance(optimizer)
    handle.remove()
    advance(optimizer)
    optimizer.load_state_dict(optimizer.state_dict())
    assert seen == ["before", True, True, 1, "loaded"]
    optimizer.register_step_pre_hook(lambda o, args, kwargs: 3)
    with pytest.raises(RuntimeError, match="pre-hook"):
        optimizer.step()


@pytest.mark.parametrize("make", [
    lambda p: optim.SGD(p, lr=-1.0), lambda p: optim.SGD(p, momentum=-0.1),
    lambda p: optim.SGD(p, weight_decay=-1), lambda p: optim.SGD(p, nesterov=True),
    lambda p: optim.SGD(p, momentum=0.9, dampening=0.1, nesterov=True),
    lambda p: optim.Adam(p, betas=(1.0, 0.9)), lambda p: optim.Adam(p, betas=(0.9, -0.1)),
    lambda p: optim.Adam(p, eps=-1.0), lambda p: optim.AdamW(p, lr=ss.ones(2)),
    lambda p: optim.Adam([]), lambda p: optim.SGD([p[0] * 2]),
    lambda p: optim.SGD([{"params": p}, {"params": p}]),
])
def test_bad_values_are_refused(make):
    with pytest.raises(ValueError):
        make(parameters())


@pytest.mark.parametrize("make", [
    lambda p: optim.SGD(p[0]), lambda p: optim.SGD([1.0]), lambda p: optim.SGD([{"params": {*p}}]),
    lambda p: optim.Adam(p, unknown=1), lambda p: optim.SGD(p).add_param_group([1]),
])
def test_bad_kinds_are_refused(make):
    with pytest.raises(TypeError):
        make(parameters())


def test_flags_that_exclude_each_other_are_refused():
    for flags in ({"foreach": True, "fused": True}, {"differentiable": True, "fused": True}):
        with pytest.raises(RuntimeError):
            optim.SGD(parameters(), **flags)


def test_a_parameter_twice_in_a_group_warns():
    parameter, = parameters(1)
    with pytest.warns(UserWarning, match="twice"):
        optim.SGD([parameter, parameter])


def test_printing():
    first, second = parameters(2)
    text = repr(optim.SGD([{"params": first, "lr": 3}, {"params": second}], lr=0.5))
    assert text.startswith("SGD (\nParameter Group 0\n    dampening: 0\n")
    assert "    lr: 3\n" in text
    assert "\n\nParameter Group 1\n" in text


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))])
def test_copies_go_on(copied):
    optimizer = optim.Adam(parameters(1), lr=0.1)
    advance(optimizer)
    other = copied(optimizer)
    advance(optimizer)
    advance(other)
    values = [o.param_groups[0]["params"][0].tolist() for o in (optimizer, other)]
    assert values[0] == values[1]
    assert other.param_groups[0]["params"][0] is not optimizer.param_groups[0]["params"][0]


def test_a_new_optimizer_is_a_class_with_a_step():
    class Sign(optim.Optimizer):
        def __init__(self, params):
            super().__init__(params, {"lr": 1.0})

        def step(self, closure=None):
            with ss.no_grad():
                for parameter in self.param_groups[0]["params"]:
                    parameter.sub_(self.param_groups[0]["lr"])

    seen = []
    optimizer = Sign(parameters(1))
    optimizer.register_step_post_hook(lambda *rest: seen.append(1))
    optimizer.step()
    assert optimizer.param_groups[0]["params"][0].tolist() == [-1.0, -1.0]
    assert seen == [1]

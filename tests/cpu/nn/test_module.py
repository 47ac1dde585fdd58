"""Module: attributes, names, modes, conversion, state, printing, copying."""

from __future__ import annotations

import copy
import pickle
from collections import OrderedDict

import pytest

import slipstream as ss
from slipstream import nn


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(ss.ones(2))
        self.register_buffer("count", ss.zeros(1))
        self.register_buffer("scratch", ss.zeros(1), persistent=False)
        self.linear = nn.Linear(2, 2)
        self.plain = 3

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        return self.linear(input) * self.scale


def net() -> nn.Sequential:
    return nn.Sequential(Block(), nn.ReLU(), nn.Linear(2, 1, bias=False))


def names(pairs: object) -> list[str]:
    return [name for name, _ in pairs]


def test_members_come_in_the_order_of_registration():
    model = net()
    assert names(model.named_parameters()) == [
        "0.scale", "0.linear.weight", "0.linear.bias", "2.weight"]
    assert names(model.named_buffers()) == ["0.count", "0.scratch"]
    assert names(model.named_modules()) == ["", "0", "0.linear", "1", "2"]
    assert names(model.named_children()) == ["0", "1", "2"]
    assert list(model.state_dict()) == [
        "0.scale", "0.count", "0.linear.weight", "0.linear.bias", "2.weight"]
    assert names(model[0].named_parameters(prefix="x", recurse=False)) == ["x.scale"]


def test_shared_members_are_given_once():
    layer = nn.Linear(1, 1)
    model = nn.Sequential(layer, layer)
    assert names(model.named_parameters()) == ["0.weight", "0.bias"]
    assert len(names(model.named_parameters(remove_duplicate=False))) == 4
    assert names(model.named_modules()) == ["", "0"]
    assert len(list(model.state_dict())) == 4


def test_assignment_moves_a_name_between_tables():
    model = Block()
    model.plain = nn.Parameter(ss.zeros(1))
    assert "plain" not in model.__dict__
    assert names(model.named_parameters(recurse=False)) == ["scale", "plain"]
    model.count = nn.Parameter(ss.zeros(1))
    assert names(model.named_buffers()) == ["scratch"]
    model.scale = nn.ReLU()
    assert names(model.named_children()) == ["linear", "scale"]
    model.scale = None
    assert model.scale is None
    del model.linear
    assert not hasattr(model, "linear")


@pytest.mark.parametrize(("name", "value", "error"), [
    ("scale", ss.ones(2), TypeError), ("scale", 3, TypeError), ("linear", 3, TypeError),
    ("linear", ss.ones(1), TypeError), ("count", 3, TypeError),
])
def test_wrong_assignments_are_refused(name, value, error):
    with pytest.raises(error, match=name):
        setattr(Block(), name, value)


@pytest.mark.parametrize(("name", "error"), [
    ("a.b", KeyError), ("", KeyError), ("forward", KeyError), (3, TypeError),
])
def test_wrong_names_are_refused(name, error):
    for register, value in (("register_parameter", None), ("register_buffer", None),
                            ("add_module", nn.ReLU())):
        with pytest.raises(error):
            getattr(Block(), register)(name, value)


def test_wrong_registrations_are_refused():
    with pytest.raises(TypeError):
        Block().register_parameter("new", ss.ones(1))
    with pytest.raises(TypeError):
        Block().register_buffer("new", [1.0])
    with pytest.raises(TypeError):
        Block().add_module("new", 3)
    with_history = nn.Parameter(ss.ones(1), requires_grad=False)
    with_history.mul_(ss.ones(1, requires_grad=True))
    with pytest.raises(ValueError, match="leaf"):
        Block().register_parameter("new", with_history)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        Block().nothing
    with pytest.raises(NotImplementedError):
        nn.Module()(1)


def test_attributes_before_init_are_refused():
    class Early(nn.Module):
        def __init__(self, value: object) -> None:
            self.early = value
            super().__init__()

    for value in (nn.Parameter(ss.ones(1)), nn.ReLU()):
        with pytest.raises(AttributeError, match=r"before Module\.__init__"):
            Early(value)
    assert Early(3).early == 3


def test_lookup_by_dotted_name():
    model = net()
    assert model.get_submodule("0.linear") is model[0].linear
    assert model.get_submodule("") is model
    assert model.get_parameter("0.linear.bias") is model[0].linear.bias
    assert model.get_buffer("0.count") is model[0].count
    for wrong in (lambda: model.get_submodule("0.nothing"), lambda: model.get_parameter("0.count"),
                  lambda: model.get_buffer("0.scale"), lambda: model.get_submodule("0.plain")):
        with pytest.raises(AttributeError):
            wrong()
    model.set_submodule("0.linear", nn.Identity())
    assert isinstance(model[0].linear, nn.Identity)


def test_modes_reach_every_module():
    model = net()
    assert model.eval() is model
    assert not any(module.training for module in model.modules())
    model.train()
    assert all(module.training for module in model.modules())
    with pytest.raises(ValueError, match="boolean"):
        model.train(1)
    model.requires_grad_(False)
    assert not any(parameter.requires_grad for parameter in model.parameters())


def test_conversion_keeps_parameters_the_same_objects():
    model = Block()
    model.register_buffer("number", ss.zeros(1, dtype=ss.int64))
    before = list(model.parameters())
    model(ss.ones(1, 2)).sum().backward()
    model.double()
    assert all(a is b for a, b in zip(before, model.parameters(), strict=True))
    assert {p.dtype for p in model.parameters()} == {ss.float64}
    assert model.scale.grad.dtype == ss.float64
    assert model.count.dtype == ss.float64
    assert model.number.dtype == ss.int64
    for convert, dtype in (("half", ss.float16), ("bfloat16", ss.bfloat16), ("float", ss.float32)):
        assert getattr(model, convert)().scale.dtype == dtype
    assert model.to(ss.float64).scale.dtype == ss.float64
    assert model.to("cpu", ss.float32).scale.dtype == ss.float32
    assert model.to(ss.ones(1, dtype=ss.float64)).scale.dtype == ss.float64
    with pytest.raises(TypeError, match="floating point or complex"):
        model.to(ss.int32)


def test_meta_modules_come_back_empty():
    model = nn.Linear(2, 3, device="meta")
    assert model.weight.is_meta
    assert not model.to_empty(device="cpu").weight.is_meta
    assert isinstance(model.weight, nn.Parameter)


def test_zero_grad():
    model = nn.Linear(2, 1)
    model(ss.ones(1, 2)).sum().backward()
    model.zero_grad(set_to_none=False)
    assert model.weight.grad.tolist() == [[0.0, 0.0]]
    model.zero_grad()
    assert model.weight.grad is None


def test_apply_visits_children_first():
    visited = []
    net().apply(lambda module: visited.append(type(module).__name__))
    assert visited == ["Linear", "Block", "ReLU", "Linear", "Sequential"]


def test_state_goes_round():
    source, target = net(), net()
    assert repr(target.load_state_dict(source.state_dict())) == "<All keys matched successfully>"
    for a, b in zip(source.parameters(), target.parameters(), strict=True):
        assert a is not b
        assert a.tolist() == b.tolist()


def test_state_shares_memory_and_has_versions():
    model = Block()
    state = model.state_dict()
    state["scale"][0] = 7
    assert model.scale[0].item() == 7
    assert not state["scale"].requires_grad
    assert model.state_dict(keep_vars=True)["scale"] is model.scale
    assert dict(state._metadata) == {"": {"version": 1}, "linear": {"version": 1}}


def test_wrong_state_is_told_of_in_full():
    model = net()
    state = OrderedDict(model.state_dict())
    del state["0.scale"]
    state["junk"] = ss.ones(1)
    state["2.weight.more"] = ss.ones(1)
    told = model.load_state_dict(state, strict=False)
    assert told.missing_keys == ["0.scale"]
    assert sorted(told.unexpected_keys) == ["2.weight.more", "junk"]
    with pytest.raises(RuntimeError) as caught:
        model.load_state_dict(state)
    assert 'Missing key(s) in state_dict: "0.scale"' in str(caught.value)
    assert "junk" in str(caught.value)
    state = OrderedDict(model.state_dict())
    state["2.weight"] = ss.ones(5)
    with pytest.raises(RuntimeError, match=r"size mismatch for 2\.weight"):
        model.load_state_dict(state, strict=False)
    with pytest.raises(TypeError):
        model.load_state_dict([1])


def test_assign_takes_the_tensors_over():
    model = nn.Linear(1, 1)
    state = {"weight": ss.ones(1, 1, dtype=ss.float64), "bias": ss.ones(1, dtype=ss.float64)}
    model.load_state_dict(state, assign=True)
    assert model.weight.dtype == ss.float64
    assert isinstance(model.weight, nn.Parameter)


def test_extra_state():
    class Counter(nn.Module):
        calls = 0

        def get_extra_state(self) -> int:
            return self.calls

        def set_extra_state(self, state: int) -> None:
            self.calls = state

    source, target = Counter(), Counter()
    source.calls = 5
    state = source.state_dict()
    assert list(state) == ["_extra_state"]
    target.load_state_dict(state)
    assert target.calls == 5
    with pytest.raises(RuntimeError, match="Missing"):
        target.load_state_dict({})


def test_printing():
    assert repr(net()) == (
        "Sequential(\n"
        "  (0): Block(\n"
        "    (linear): Linear(in_features=2, out_features=2, bias=True)\n"
        "  )\n"
        "  (1): ReLU()\n"
        "  (2): Linear(in_features=2, out_features=1, bias=False)\n"
        ")")
    assert repr(nn.Parameter(ss.ones(1))).startswith("Parameter containing:\n")


def test_dir_lists_members():
    listed = dir(Block())
    assert {"scale", "count", "linear", "plain", "forward"} <= set(listed)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_are_independent(copied):
    model = nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2))
    other = copied(model)
    assert repr(other) == repr(model)
    assert isinstance(other[0].weight, nn.Parameter)
    assert other[0].weight.tolist() == model[0].weight.tolist()
    with ss.no_grad():
        other[0].weight.fill_(9)
    assert model[0].weight[0, 0].item() != 9
    assert other(ss.ones(1, 2)).shape == (1, 2)


def test_parameter():
    data = ss.zeros(2)
    parameter = nn.Parameter(data)
    assert parameter.is_leaf
    assert parameter.requires_grad
    assert isinstance(parameter, ss.Tensor)
    assert type(parameter + 1) is ss.Tensor
    with ss.no_grad():
        parameter.fill_(3)
    assert data.tolist() == [3.0, 3.0]
    assert not nn.Parameter(data, requires_grad=False).requires_grad
    with pytest.raises(RuntimeError):
        nn.Parameter(ss.zeros(2, dtype=ss.int64))


class Kept(nn.Module):
    def __init__(self):
        super().__init__()
        self.kept = nn.Buffer(ss.zeros(2))
        self.passing = nn.Buffer(ss.ones(1), persistent=False)


def test_an_assigned_buffer_is_registered():
    module = Kept()
    assert [name for name, _ in module.named_buffers()] == ["kept", "passing"]
    assert list(module.state_dict()) == ["kept"]
    assert not list(module.parameters())
    assert isinstance(module.kept, nn.Buffer)
    assert type(module.kept + 1) is ss.Tensor
    assert not module.kept.requires_grad
    for copied in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert list(copied.state_dict()) == ["kept"]
        assert [name for name, _ in copied.named_buffers()] == ["kept", "passing"]
    assert module.half().kept.dtype is ss.float16


def test_a_buffer_takes_the_place_of_what_had_its_name():
    module = Kept()
    module.passing = nn.Buffer(ss.ones(3))
    assert list(module.state_dict()) == ["kept", "passing"]
    module.kept = nn.Parameter(ss.ones(2))
    assert [name for name, _ in module.named_buffers()] == ["passing"]
    module.kept = nn.Buffer(ss.ones(2))
    assert not list(module.parameters())


def test_what_is_no_buffer():
    with pytest.raises(TypeError, match="argument 'data' must be Tensor, not list"):
        nn.Buffer([1.0])

    class Early(nn.Module):
        def __init__(self):
            self.kept = nn.Buffer(ss.zeros(2))

    with pytest.raises(AttributeError, match=r"cannot assign buffers before Module.__init__\(\)"):
        Early()


class Holder(nn.Module):
    """A module with a submodule, a parameter and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.gain = nn.Parameter(ss.ones(2))
        self.register_buffer("mask", ss.zeros(2))


def test_attributes_are_looked_up_as_a_class_says_at_any_time() -> None:
    class Named(Holder):
        @property
        def broken(self) -> int:
            raise AttributeError("inside")

    module = Named()
    assert module.layer is module._modules["layer"]
    assert module.gain is module._parameters["gain"]
    assert module.mask is module._buffers["mask"]
    with pytest.raises(AttributeError, match="'Named' object has no attribute 'nothing'"):
        _ = module.nothing
    with pytest.raises(AttributeError, match="has no attribute 'broken'"):
        _ = module.broken
    Named.__getattr__ = lambda self, name: f"patched {name}"
    assert (module.nothing, module.layer) == ("patched nothing", "patched layer")
    del Named.__getattr__
    assert module.layer is module._modules["layer"]
    Named.__getattribute__ = lambda self, name: f"all of {name}"
    assert module.training == "all of training"
    del Named.__getattribute__
    assert module.training is True
    assert not hasattr(module, "nothing")


def test_a_class_of_its_own_look_up_may_ask_the_module() -> None:
    class Wrapper(Holder):
        def __getattr__(self, name: str) -> object:
            try:
                return super().__getattr__(name)
            except AttributeError:
                return getattr(super().__getattr__("layer"), name)

    class Below(Wrapper):
        pass

    class Beside(nn.Module):
        def __getattribute__(self, name: str) -> object:
            asked.append(name)
            return super().__getattribute__(name)

    asked: list[str] = []
    for module in (Wrapper(), Below()):
        assert module.in_features == 2
        assert module.layer.out_features == 2
    beside = Beside()
    beside.inner = nn.ReLU()
    asked.clear()
    assert isinstance(beside.inner, nn.ReLU)
    assert "inner" in asked


def test_a_module_that_was_not_begun_says_what_it_lacks() -> None:
    class Late(nn.Linear):
        def __init__(self) -> None:
            pass

    with pytest.raises(AttributeError, match="'Late' object has no attribute '_parameters'"):
        Late().forward(ss.ones(2))

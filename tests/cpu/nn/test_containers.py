"""Containers of modules and parameters."""

from __future__ import annotations

from collections import OrderedDict

import pytest

import slipstream as ss
from slipstream import nn


def kinds(modules: object) -> list[str]:
    return [type(module).__name__ for module in modules]


def test_sequential_passes_its_output_on():
    model = nn.Sequential(nn.Flatten(), nn.ReLU())
    assert model(ss.full((2, 3, 1), -1.0)).tolist() == [[0.0] * 3] * 2


def test_sequential_slices_and_names():
    model = nn.Sequential(OrderedDict(a=nn.ReLU(), b=nn.Tanh(), c=nn.GELU()))
    assert isinstance(model.b, nn.Tanh)
    assert list(model[1:].state_dict()) == []
    assert [name for name, _ in model[1:].named_children()] == ["b", "c"]
    assert kinds(nn.Sequential(nn.ReLU(), nn.Tanh())[-1:]) == ["Tanh"]
    with pytest.raises(IndexError):
        model[3]


def test_sequential_changes_like_a_list():
    model = nn.Sequential(nn.ReLU(), nn.Tanh())
    model.append(nn.GELU()).extend([nn.Identity()]).insert(0, nn.Flatten())
    assert kinds(model) == ["Flatten", "ReLU", "Tanh", "GELU", "Identity"]
    assert kinds([model.pop(1)]) == ["ReLU"]
    del model[0:2]
    model[0] = nn.ReLU()
    assert kinds(model) == ["ReLU", "Identity"]
    assert list(model._modules) == ["0", "1"]
    assert kinds(model + model) == ["ReLU", "Identity"] * 2
    assert kinds(model * 2) == ["ReLU", "Identity"] * 2
    for wrong in (lambda: model + 3, lambda: model * 0):
        with pytest.raises(ValueError):
            wrong()
    with pytest.raises(TypeError):
        model * "2"
    with pytest.raises(TypeError):
        model.insert(0, 3)


def test_module_list():
    modules = nn.ModuleList([nn.ReLU(), nn.ReLU(), nn.Linear(1, 2)])
    assert repr(modules) == ("ModuleList(\n  (0-1): 2 x ReLU()\n"
                             "  (2): Linear(in_features=1, out_features=2, bias=True)\n)")
    modules.insert(1, nn.Tanh())
    modules += [nn.GELU()]
    assert kinds(modules) == ["ReLU", "Tanh", "ReLU", "Linear", "GELU"]
    assert kinds(modules[::2]) == ["ReLU", "ReLU", "GELU"]
    del modules[-1]
    assert len(modules) == 4
    assert [name for name, _ in modules.named_parameters()] == ["3.weight", "3.bias"]
    with pytest.raises(TypeError):
        nn.ModuleList([3])


def test_module_dict():
    modules = nn.ModuleDict({"a": nn.ReLU()})
    modules["b"] = nn.Tanh()
    modules.update([("a", nn.GELU())])
    assert list(modules) == ["a", "b"]
    assert kinds(modules.values()) == ["GELU", "Tanh"]
    assert "b" in modules
    assert kinds([modules.pop("a")]) == ["GELU"]
    assert len(modules) == 1
    with pytest.raises(ValueError):
        modules.update([(1, 2, 3)])
    with pytest.raises(TypeError):
        nn.ModuleDict(3)


def test_parameter_list():
    parameters = nn.ParameterList([ss.ones(1), nn.Parameter(ss.ones(2))])
    parameters.append(ss.ones(3))
    assert [name for name, _ in parameters.named_parameters()] == ["0", "1", "2"]
    assert all(isinstance(each, nn.Parameter) for each in parameters)
    assert [len(each) for each in parameters[1:]] == [2, 3]
    assert len(parameters.pop(0)) == 1
    assert [len(each) for each in parameters] == [2, 3]
    assert "size 2" in repr(parameters)


def test_parameter_dict():
    parameters = nn.ParameterDict({"a": ss.ones(1), "option": 3})
    parameters["b"] = ss.ones(2)
    assert [name for name, _ in parameters.named_parameters()] == ["a", "b"]
    assert parameters["option"] == 3
    assert list(parameters) == ["a", "option", "b"]
    assert len(parameters.pop("b")) == 2
    assert parameters.get("b") is None
    with pytest.raises(KeyError):
        parameters["b"]

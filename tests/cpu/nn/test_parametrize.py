"""Weights computed from other parameters: weight_norm in both forms, and parametrize."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import slipstream as ss
from slipstream import nn
from slipstream.nn.utils import parametrizations, parametrize, remove_weight_norm, weight_norm


class Symmetric(nn.Module):
    """The upper triangle, mirrored."""

    def forward(self, x):
        return x.triu() + x.triu(1).T

    def right_inverse(self, x):
        return x.triu()


class Doubled(nn.Module):
    """Twice the original, without an inverse."""

    def forward(self, x):
        return 2 * x


def lengths(weight, dim):
    axes = None if dim is None else tuple(each for each in range(weight.ndim) if each != dim)
    return np.sqrt((weight ** 2).sum(axes, keepdims=dim is not None))


@pytest.mark.parametrize("dim", [0, 1, None])
@pytest.mark.parametrize("form", [weight_norm, parametrizations.weight_norm])
def test_weight_norm_keeps_the_weight_and_splits_it(form, dim):
    ss.manual_seed(0)
    layer = nn.Conv1d(2, 3, 2)
    before = layer.weight.detach().numpy().copy()
    x = ss.randn(1, 2, 5)
    wanted = layer(x).detach().numpy()
    form(layer, dim=dim)
    length, direction = (value for name, value in layer.named_parameters() if name != "bias")
    np.testing.assert_allclose(length.detach(), lengths(before, dim), rtol=1e-6)
    np.testing.assert_array_equal(direction.detach(), before)
    np.testing.assert_allclose(layer(x).detach(), wanted, atol=1e-6)
    with ss.no_grad():
        length.mul_(3)
        direction.mul_(5)
    np.testing.assert_allclose((layer(x) - layer.bias.reshape(1, -1, 1)).detach(),
                               3 * (wanted - layer.bias.detach().numpy().reshape(1, -1, 1)),
                               atol=1e-5)


def test_weight_norm_is_taken_away():
    layer = weight_norm(nn.Linear(3, 2))
    assert list(layer.state_dict()) == ["bias", "weight_g", "weight_v"]
    with pytest.raises(RuntimeError, match="two weight_norm hooks"):
        weight_norm(layer)
    layer.weight_g.data.mul_(2)
    remove_weight_norm(layer)
    assert list(layer.state_dict()) == ["bias", "weight"]
    assert isinstance(layer.weight, nn.Parameter)
    with pytest.raises(ValueError, match="not found"):
        remove_weight_norm(layer)


def test_weight_norm_trains_both_parameters():
    layer = weight_norm(nn.Linear(3, 2).double())

    def run(length, direction, x):
        layer._parameters["weight_g"], layer._parameters["weight_v"] = length, direction
        return layer(x)

    start = [each.detach().requires_grad_(True) for each in (layer.weight_g, layer.weight_v)]
    assert ss.autograd.gradcheck(run, (*start, ss.randn(2, 3, dtype=ss.float64)))


def test_parametrize():
    layer = nn.Linear(3, 3)
    upper = layer.weight.detach().numpy().copy()
    parametrize.register_parametrization(layer, "weight", Symmetric())
    expected = np.triu(upper) + np.triu(upper, 1).T
    np.testing.assert_array_equal(layer.weight.detach(), expected)
    assert type(layer).__name__ == "ParametrizedLinear"
    assert list(layer.state_dict()) == ["bias", "parametrizations.weight.original"]
    layer(ss.ones(1, 3)).sum().backward()
    assert layer.parametrizations.weight.original.grad is not None
    layer.weight = ss.eye(3)
    assert layer.weight.tolist() == np.eye(3).tolist()
    parametrize.register_parametrization(layer, "weight", Doubled())
    assert layer.weight.tolist() == (2 * np.eye(3)).tolist()
    with pytest.raises(RuntimeError, match="does not implement right_inverse"):
        layer.weight = ss.eye(3)
    parametrize.remove_parametrizations(layer, "weight")
    assert type(layer) is nn.Linear
    assert isinstance(layer.weight, nn.Parameter)
    assert layer.weight.tolist() == (2 * np.eye(3)).tolist()


def test_copies_go_their_own_way():
    layer = nn.Linear(2, 2)
    parametrize.register_parametrization(layer, "weight", Doubled())
    other = copy.deepcopy(layer)
    parametrize.remove_parametrizations(other, "weight", leave_parametrized=False)
    other.weight.data.zero_()
    assert parametrize.is_parametrized(layer)
    assert not parametrize.is_parametrized(other)
    assert layer.weight.tolist() == (2 * layer.parametrizations.weight.original).tolist()


def test_within_cached_a_weight_is_computed_once():
    layer = nn.Linear(2, 2)
    parametrize.register_parametrization(layer, "weight", Doubled())
    assert layer.weight is not layer.weight
    with parametrize.cached():
        assert layer.weight is layer.weight
    assert layer.weight is not layer.weight


def test_buffers():
    layer = nn.BatchNorm1d(2)
    parametrize.register_parametrization(layer, "running_var", Doubled())
    assert layer.running_var.tolist() == [2.0, 2.0]
    parametrize.remove_parametrizations(layer, "running_var")
    assert "running_var" in dict(layer.named_buffers())


class Smaller(nn.Module):
    def forward(self, x):
        return x[:1]


def test_what_is_refused():
    layer = nn.Linear(2, 2)
    with pytest.raises(ValueError, match="does not have a parameter"):
        parametrize.register_parametrization(layer, "nothing", Doubled())
    with pytest.raises(ValueError, match="may not change the shape"):
        parametrize.register_parametrization(layer, "weight", Smaller())
    with pytest.raises(ValueError, match="does not have a parametrization"):
        parametrize.remove_parametrizations(layer, "weight")
    assert type(layer) is nn.Linear
    parametrizations.weight_norm(layer)
    with pytest.raises(ValueError, match="sequence of tensors"):
        parametrize.remove_parametrizations(layer, "weight", leave_parametrized=False)


def test_an_optimizer_made_before_goes_on_training():
    """The tensor itself becomes the original, and is the module's again afterwards."""
    layer = nn.Linear(3, 3)
    weight = layer.weight
    optimizer = ss.optim.SGD(layer.parameters(), lr=1.0)
    parametrize.register_parametrization(layer, "weight", Symmetric())
    assert layer.parametrizations.weight.original is weight
    before = weight.detach().clone()
    layer(ss.ones(1, 3)).sum().backward()
    optimizer.step()
    # Each place above the diagonal stands for two.
    moved = np.triu(np.ones((3, 3))) + np.triu(np.ones((3, 3)), 1)
    np.testing.assert_allclose(weight.detach(), before.numpy() - moved, rtol=1e-6)
    expected = layer.weight.detach().clone()
    parametrize.remove_parametrizations(layer, "weight")
    assert layer.weight is weight
    assert weight.tolist() == expected.tolist()
    assert optimizer.param_groups[0]["params"][0] is layer.weight


def test_a_refused_parametrization_leaves_the_value():
    class Emptied(nn.Module):
        def forward(self, x):
            return x[:1]

        def right_inverse(self, x):
            return x * 0

    layer = nn.Linear(2, 2)
    weight, before = layer.weight, layer.weight.tolist()
    with pytest.raises(ValueError, match="may not change the shape"):
        parametrize.register_parametrization(layer, "weight", Emptied())
    assert layer.weight is weight
    assert layer.weight.tolist() == before


def test_a_frozen_parameter_stays_frozen():
    layer = nn.Linear(2, 2)
    layer.weight.requires_grad_(False)
    parametrize.register_parametrization(layer, "weight", Doubled())
    parametrize.remove_parametrizations(layer, "weight", leave_parametrized=False)
    assert isinstance(layer.weight, nn.Parameter)
    assert not layer.weight.requires_grad


class Twice(nn.Module):
    def forward(self, x: ss.Tensor) -> ss.Tensor:
        return x * 2

    def right_inverse(self, x: ss.Tensor) -> ss.Tensor:
        return x / 2


class Upper(nn.Module):
    def forward(self, x: ss.Tensor) -> ss.Tensor:
        return x.triu()

    def right_inverse(self, x: ss.Tensor) -> ss.Tensor:
        raise NotImplementedError


def test_a_second_parametrization_follows_the_first() -> None:
    layer = nn.Linear(1, 1)
    layer.weight.data.fill_(4.0)
    parametrize.register_parametrization(layer, "weight", Twice())
    parametrize.register_parametrization(layer, "weight", Twice())
    assert layer.weight.item() == 8.0
    assert layer.parametrizations.weight.original.item() == 2.0


def test_an_inverse_that_is_not_there_is_none() -> None:
    layer = nn.Linear(2, 2)
    before = layer.weight
    for _ in range(2):
        parametrize.register_parametrization(layer, "weight", Upper())
    assert layer.parametrizations.weight.original is before
    assert layer.weight[1, 0] == 0

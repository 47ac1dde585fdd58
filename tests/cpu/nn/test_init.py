"""Initialisation: bounds, spreads, reproducibility."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

import slipstream as ss
from slipstream import nn
from slipstream.nn import init


@pytest.fixture(autouse=True)
def seeded():
    ss.manual_seed(0)


def empty() -> ss.Tensor:
    return ss.empty(64, 32, 3, 3)


@pytest.mark.parametrize(("fill", "std"), [
    (lambda t: init.xavier_uniform_(t, gain=2.0), 2 * math.sqrt(2 / (32 * 9 + 64 * 9))),
    (init.xavier_normal_, math.sqrt(2 / (32 * 9 + 64 * 9))),
    (lambda t: init.kaiming_uniform_(t, nonlinearity="relu"), math.sqrt(2 / (32 * 9))),
    (lambda t: init.kaiming_normal_(t, a=1, mode="fan_out"), 1 / math.sqrt(64 * 9)),
    (lambda t: init.normal_(t, std=3.0), 3.0),
    (lambda t: init.uniform_(t, -1.0, 1.0), 1 / math.sqrt(3)),
])
def test_spread(fill, std):
    tensor = empty()
    assert fill(tensor) is tensor
    values = tensor.numpy()
    assert abs(values.mean()) < 0.03 * std
    assert abs(values.std() / std - 1) < 0.03


@pytest.mark.parametrize(("low", "high"), [(-2, 2), (5, 6), (-0.1, 0.1), (3, 100), (-100, -3)])
def test_trunc_normal(low, high):
    tensor = init.trunc_normal_(ss.empty(5000, dtype=ss.float64), 1.0, 2.0, 1 + 2 * low,
                                1 + 2 * high)
    expected = stats.truncnorm(low, high, loc=1.0, scale=2.0)
    assert stats.kstest(tensor.numpy(), expected.cdf).pvalue > 1e-4


def test_constants():
    assert init.ones_(ss.empty(2)).tolist() == [1.0, 1.0]
    assert init.zeros_(ss.empty(2)).tolist() == [0.0, 0.0]
    assert init.constant_(ss.empty(2), 3.5).tolist() == [3.5, 3.5]
    np.testing.assert_array_equal(init.eye_(ss.empty(2, 3)).numpy(), np.eye(2, 3))
    kernel = init.dirac_(ss.empty(4, 2, 3, 3), groups=2)
    image = ss.randn(1, 4, 5, 5)
    passed = nn.functional.conv2d(image, kernel, padding=1, groups=2)
    np.testing.assert_array_equal(passed.numpy(), image.numpy())


@pytest.mark.parametrize(("name", "param", "gain"), [
    ("linear", None, 1.0), ("tanh", None, 5 / 3), ("relu", None, math.sqrt(2)),
    ("leaky_relu", 0.2, math.sqrt(2 / 1.04)), ("leaky_relu", None, math.sqrt(2 / 1.0001)),
])
def test_gain(name, param, gain):
    assert math.isclose(init.calculate_gain(name, param), gain)


def test_errors():
    for wrong in (lambda: init.calculate_gain("nothing"),
                  lambda: init.calculate_gain("leaky_relu", "steep"),
                  lambda: init.xavier_uniform_(ss.empty(3)),
                  lambda: init.kaiming_normal_(ss.empty(3, 3), mode="sideways"),
                  lambda: init.eye_(ss.empty(3)), lambda: init.dirac_(ss.empty(3, 3)),
                  lambda: init.trunc_normal_(ss.empty(3), a=2.0, b=1.0)):
        with pytest.raises(ValueError):
            wrong()


def test_layers_start_as_in_pytorch():
    for layer, fan_in in ((nn.Linear(50, 200), 50), (nn.Conv2d(8, 64, 3, groups=2), 36)):
        bound = 1 / math.sqrt(fan_in)
        for parameter in (layer.weight, layer.bias):
            largest = np.abs(parameter.detach().numpy()).max()
            assert 0.9 * bound < largest <= bound
    table = nn.Embedding(100, 100).weight.detach().numpy()
    assert abs(table.std() - 1) < 0.03


def test_the_same_seed_gives_the_same_weights():
    made = []
    for _ in range(2):
        ss.manual_seed(7)
        made.append(nn.Linear(5, 5).weight.tolist())
    assert made[0] == made[1]


def test_filling_leaves_no_history():
    layer = nn.Linear(2, 2)
    init.xavier_normal_(layer.weight)
    assert layer.weight.is_leaf
    assert layer.weight.requires_grad


@pytest.mark.parametrize("shape", [(4, 4), (3, 7), (7, 3), (5, 2, 3), (2, 3, 4)])
def test_orthogonal(shape):
    tensor = ss.empty(shape, dtype=ss.float64)
    assert init.orthogonal_(tensor, gain=2.0) is tensor
    matrix = tensor.numpy().reshape(shape[0], -1)
    if shape[0] > matrix.shape[1]:
        matrix = matrix.T
    np.testing.assert_allclose(matrix @ matrix.T, 4.0 * np.eye(len(matrix)), atol=1e-12)


def test_orthogonal_matrices_are_uniform():
    # The trace of a uniform orthogonal matrix has mean 0 and variance 1.
    traces = [init.orthogonal_(ss.empty(3, 3, dtype=ss.float64)).trace().item()
              for _ in range(2000)]
    assert abs(np.mean(traces)) < 0.1
    assert abs(np.var(traces) - 1.0) < 0.15


def test_sparse():
    tensor = init.sparse_(ss.empty(10, 6), 0.25, std=2.0)
    assert (tensor == 0).sum(0).tolist() == [3] * 6
    assert 1.0 < tensor[tensor != 0].std().item() < 3.0


def test_refusals_of_shapes():
    with pytest.raises(ValueError, match="2 or more dimensions"):
        init.orthogonal_(ss.empty(3))
    with pytest.raises(ValueError, match="2 dimensions"):
        init.sparse_(ss.empty(3, 3, 3), 0.1)
    assert init.orthogonal_(ss.empty(0, 3)).shape == (0, 3)

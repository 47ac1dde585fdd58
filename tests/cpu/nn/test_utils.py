"""Gradient clipping and parameters as a vector."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import slipstream as ss
from slipstream import nn
from slipstream.nn import utils


def parameter(gradient: object, dtype: ss.dtype = ss.float32) -> nn.Parameter:
    gradient = ss.tensor(gradient, dtype=dtype)
    made = nn.Parameter(ss.zeros(gradient.shape, dtype=dtype))
    made.grad = gradient
    return made


def exact_norm(values: np.ndarray, norm_type: float) -> float:
    values = np.abs(values.astype(np.longdouble))
    if norm_type == math.inf:
        return values.max()
    return (values ** np.longdouble(norm_type)).sum() ** (1 / np.longdouble(norm_type))


@given(st.lists(st.floats(-(2.0 ** 100), 2.0 ** 100, width=32), min_size=1, max_size=20),
       st.sampled_from([0.5, 1.0, 2.0, 3.0, math.inf]), st.floats(1e-3, 1e3))
def test_clip_grad_norm(values, norm_type, max_norm):
    parameters = [parameter(values), parameter([values[0]]), nn.Parameter(ss.zeros(2))]
    before = np.array([*values, values[0]], dtype=np.float32).astype(np.float64)
    norm = utils.clip_grad_norm_(parameters, max_norm, norm_type)
    expected = float(exact_norm(before, norm_type))
    np.testing.assert_allclose(norm.item(), np.float32(expected), rtol=2e-5)
    factor = min(1.0, max_norm / (expected + 1e-6))
    after = np.concatenate([p.grad.numpy() for p in parameters[:2]])
    np.testing.assert_allclose(after, before * factor, rtol=3e-5, atol=1e-44)


@pytest.mark.parametrize(("dtype", "huge"), [
    (ss.float16, 6e4), (ss.bfloat16, 3e38), (ss.float32, 3e38), (ss.float64, 1.7e308),
])
def test_gradients_are_right_where_the_norm_is_beyond_the_dtype(dtype, huge):
    parameters = [parameter([huge] * 100, dtype), parameter([huge] * 44, dtype)]
    norm = utils.clip_grad_norm_(parameters, 1.0)
    assert norm.dtype == dtype
    assert math.isinf(norm.item())
    for each in parameters:
        assert abs(each.grad[0].item() * 12 - 1) < 0.01


def test_tiny_gradients_stay():
    for dtype, tiny in ((ss.float32, 1e-45), (ss.float64, 5e-324)):
        made = parameter([tiny, 0.0], dtype)
        utils.clip_grad_norm_([made], 1.0)
        assert made.grad[0].item() > 0


@pytest.mark.parametrize("bad", [math.inf, math.nan])
def test_a_norm_that_is_not_finite(bad):
    made = parameter([1.0, bad])
    with pytest.raises(RuntimeError):
        utils.clip_grad_norm_([made], 1.0, error_if_nonfinite=True)
    assert made.grad[0].item() == 1.0
    assert not math.isfinite(utils.clip_grad_norm_([made], 1.0).item())


def test_without_gradients_the_norm_is_zero():
    assert utils.clip_grad_norm_([nn.Parameter(ss.ones(2))], 1.0).item() == 0
    assert utils.clip_grad_norm_([parameter([0.0])], 1.0).item() == 0
    with pytest.raises(ValueError):
        utils.clip_grad_norm_([parameter([1.0])], 1.0, norm_type=-1.0)


def test_total_norm_and_clipping_with_it():
    made = [parameter([3.0]), parameter([[4.0]])]
    norm = utils.get_total_norm([p.grad for p in made])
    assert norm.item() == 5.0
    utils.clip_grads_with_norm_(made, 1.0, norm)
    np.testing.assert_allclose([made[0].grad.item(), made[1].grad.item()], [0.6, 0.8], rtol=1e-5)


def test_clip_grad_value():
    made = parameter([-5.0, 0.1, math.nan, math.inf])
    gradient = made.grad
    utils.clip_grad_value_(made, 0.5)
    np.testing.assert_allclose(gradient.numpy(), [-0.5, 0.1, math.nan, 0.5], rtol=1e-6)


def test_parameters_as_a_vector():
    layer = nn.Linear(2, 3)
    vector = utils.parameters_to_vector(layer.parameters())
    assert vector.shape == (9,)
    utils.vector_to_parameters(ss.arange(9, dtype=ss.float32), layer.parameters())
    assert layer.weight.tolist() == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]
    assert layer.bias.tolist() == [6.0, 7.0, 8.0]
    assert isinstance(layer.weight, nn.Parameter)
    with pytest.raises(RuntimeError):
        utils.vector_to_parameters(ss.arange(8, dtype=ss.float32), layer.parameters())
    with pytest.raises(TypeError):
        utils.vector_to_parameters([1.0], layer.parameters())

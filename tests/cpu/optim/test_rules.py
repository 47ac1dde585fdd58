"""Update rules: steps against the published formulas, in NumPy's double precision."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import slipstream as ss
from slipstream import optim

STEPS = 5
SHAPES = ((3,), (2, 4), ())
numbers = st.sampled_from([0.0, 0.1, 0.5])
flags = st.booleans()
sgd_options = st.fixed_dictionaries({
    "lr": st.sampled_from([0.0, 0.05, 1.0]), "momentum": st.sampled_from([0.0, 0.9]),
    "dampening": numbers, "weight_decay": numbers, "nesterov": flags, "maximize": flags,
}).filter(lambda o: not o["nesterov"] or (o["momentum"] > 0 and o["dampening"] == 0))
adam_options = st.fixed_dictionaries({
    "lr": st.sampled_from([0.01, 0.3]), "betas": st.sampled_from([(0.9, 0.999), (0.0, 0.5)]),
    "eps": st.sampled_from([1e-8, 1e-2]), "weight_decay": numbers, "amsgrad": flags,
    "maximize": flags,
})


def drawn(seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [np.array(rng.standard_normal(shape)) for shape in SHAPES]


def sgd(p, gradients, o):
    buffer = None
    for g in gradients:
        g = (-g if o["maximize"] else g) + o["weight_decay"] * p
        if o["momentum"]:
            buffer = g if buffer is None else o["momentum"] * buffer + (1 - o["dampening"]) * g
            g = g + o["momentum"] * buffer if o["nesterov"] else buffer
        p = p - o["lr"] * g
    return p


def adam(p, gradients, o, decoupled):
    first = second = largest = np.zeros_like(p)
    beta1, beta2 = o["betas"]
    for step, g in enumerate(gradients, 1):
        g = -g if o["maximize"] else g
        if decoupled:
            p = p * (1 - o["lr"] * o["weight_decay"])
        else:
            g = g + o["weight_decay"] * p
        first = beta1 * first + (1 - beta1) * g
        second = beta2 * second + (1 - beta2) * g * g
        largest = np.maximum(largest, second)
        used = largest if o["amsgrad"] else second
        denominator = np.sqrt(used / (1 - beta2 ** step)) + o["eps"]
        p = p - o["lr"] * first / (1 - beta1 ** step) / denominator
    return p


def check(kind, options, expected):
    starts = drawn(0)
    gradients = [drawn(1 + step) for step in range(STEPS)]
    parameters = [ss.from_numpy(each.copy()).requires_grad_() for each in starts]
    optimizer = kind(parameters, **options)
    for step in gradients:
        for parameter, gradient in zip(parameters, step, strict=True):
            parameter.grad = ss.from_numpy(gradient.copy())
        optimizer.step()
    for place, parameter in enumerate(parameters):
        want = expected(starts[place], [step[place] for step in gradients], options)
        np.testing.assert_allclose(parameter.detach().numpy(), want, rtol=1e-11, atol=1e-12)


@given(sgd_options)
def test_sgd(options):
    check(optim.SGD, options, sgd)


@given(adam_options)
def test_adam(options):
    check(optim.Adam, options, lambda p, g, o: adam(p, g, o, decoupled=False))


@given(adam_options)
def test_adamw(options):
    check(optim.AdamW, options, lambda p, g, o: adam(p, g, o, decoupled=True))


def run(kind, gradients, start=1.0, **options):
    parameter = ss.tensor([start], requires_grad=True)
    optimizer = kind([parameter], **options)
    for gradient in gradients:
        parameter.grad = None if gradient is None else ss.tensor([gradient])
        optimizer.step()
    return parameter.item(), optimizer, parameter


@pytest.mark.parametrize(("kind", "gradients", "options", "expected"), [
    (optim.Adam, [1.0], {}, 0.9),
    (optim.Adam, [1.0], {"maximize": True}, 1.1),
    (optim.Adam, [0.0], {"weight_decay": 0.1}, 0.9),
    (optim.AdamW, [0.0], {"weight_decay": 0.1}, 0.99),
    (optim.AdamW, [1.0], {"weight_decay": 0.1, "maximize": True}, 1.09),
    (optim.SGD, [0.0, 0.0], {"momentum": 0.9, "weight_decay": 0.0}, 1.0),
])
def test_decay_and_direction(kind, gradients, options, expected):
    assert abs(run(kind, gradients, lr=0.1, **options)[0] - expected) < 2e-6


def test_a_parameter_without_gradient_is_left_alone():
    for kind in (optim.SGD, optim.Adam, optim.AdamW):
        value, optimizer, parameter = run(kind, [None], lr=0.1, weight_decay=0.1)
        assert value == 1.0
        assert len(optimizer.state[parameter]) == 0


def test_float32_averages_use_unrounded_rates():
    # 1 - float32(0.999) is 5e-5 off: the first step would show it.
    _, optimizer, parameter = run(optim.Adam, [1.0], lr=0.1)
    assert abs(optimizer.state[parameter]["exp_avg_sq"].item() / 0.001 - 1) < 1e-6


def test_a_nan_gradient_stays_visible():
    for amsgrad in (False, True):
        value, *_ = run(optim.Adam, [1.0, math.nan, 1.0], lr=0.1, amsgrad=amsgrad)
        assert math.isnan(value)


def test_tensor_options():
    lr = ss.tensor(0.5)
    assert run(optim.SGD, [1.0], lr=lr)[0] == 0.5
    assert abs(run(optim.Adam, [1.0], lr=lr)[0] - 0.5) < 1e-6


@pytest.mark.parametrize("flag", ["foreach", "fused"])
def test_flags_change_nothing(flag):
    for kind in (optim.SGD, optim.Adam, optim.AdamW):
        plain = run(kind, [1.0, -2.0], lr=0.1, weight_decay=0.1)[0]
        assert run(kind, [1.0, -2.0], lr=0.1, weight_decay=0.1, **{flag: True})[0] == plain


def test_steps_are_in_place_and_outside_of_autograd():
    parameter = ss.ones(3, requires_grad=True)
    alias = parameter.detach()
    optimizer = optim.AdamW([parameter], lr=0.1)
    (parameter * 2).sum().backward()
    optimizer.step()
    assert parameter.is_leaf
    assert alias.tolist() == parameter.tolist()
    assert not optimizer.state[parameter]["exp_avg"].requires_grad


def test_narrow_dtypes():
    for dtype in (ss.float16, ss.bfloat16):
        parameter = ss.ones(3, dtype=dtype, requires_grad=True)
        optimizer = optim.AdamW([parameter], lr=0.125, weight_decay=0.0)
        parameter.grad = ss.ones(3, dtype=dtype)
        optimizer.step()
        assert parameter.dtype == dtype
        assert optimizer.state[parameter]["exp_avg"].dtype == dtype
        assert abs(parameter[0].item() - 0.875) < 0.01

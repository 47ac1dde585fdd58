"""Checkpoints give the gradients that the function itself gives."""

from __future__ import annotations

import pytest

import slipstream as ss
from slipstream.utils.checkpoint import CheckpointError, checkpoint, checkpoint_sequential


def function(x):
    return (x.exp() * x.sin()).tanh()


@pytest.mark.parametrize("early_stop", [True, False])
def test_gradients_of_first_and_second_order(early_stop):
    x = ss.tensor([0.1, 0.5, -1.0], requires_grad=True)
    found = []
    for value in (function(x), checkpoint(function, x, use_reentrant=False,
                                          early_stop=early_stop)):
        first, = ss.autograd.grad(value.sum(), x, create_graph=True)
        second, = ss.autograd.grad(first.sum(), x)
        found.append((first.detach(), second))
    assert ss.equal(found[0][0], found[1][0])
    assert ss.equal(found[0][1], found[1][1])


def test_the_function_runs_again_with_its_random_numbers():
    calls = []

    def drops(x):
        calls.append(1)
        return ss.nn.functional.dropout(x * x, 0.5)

    x = ss.ones(100, requires_grad=True)
    out = checkpoint(drops, x, use_reentrant=False)
    state = ss.get_rng_state()
    out.sum().backward()
    assert len(calls) == 2
    assert ss.equal(x.grad, 2 * out.detach())
    assert ss.equal(state, ss.get_rng_state())


def test_backward_twice_and_nested():
    x = ss.tensor([0.3, 0.7], requires_grad=True)
    out = checkpoint(lambda y: checkpoint(function, y * y, use_reentrant=False).exp(), x,
                     use_reentrant=False).sum()
    out.backward(retain_graph=True)
    out.backward()
    expected, = ss.autograd.grad(function(x * x).exp().sum(), x)
    assert ss.allclose(x.grad, 2 * expected)


def test_another_computation_the_second_time_is_an_error():
    calls = []

    def changes(x):
        calls.append(1)
        return x.exp() if len(calls) > 1 else x.exp().sin().exp()

    x = ss.ones(2, requires_grad=True)
    out = checkpoint(changes, x, use_reentrant=False)
    with pytest.raises(CheckpointError, match="different number of tensors"):
        out.sum().backward()


def test_other_shapes_the_second_time_are_an_error():
    calls = []

    def grows(x):
        calls.append(1)
        return x.sum() * ss.ones(len(calls)).exp()

    x = ss.ones(2, requires_grad=True)
    out = checkpoint(grows, x, use_reentrant=False)
    with pytest.raises(CheckpointError, match="different metadata"):
        out.sum().backward()


def test_bad_arguments_and_no_grad():
    with pytest.raises(ValueError, match="determinism_check"):
        checkpoint(function, ss.ones(2), use_reentrant=False, determinism_check="maybe")
    with ss.no_grad():
        assert not checkpoint(function, ss.ones(2, requires_grad=True)).requires_grad


def test_sequential_in_segments():
    ss.manual_seed(0)
    layers = [ss.nn.Linear(3, 3), ss.nn.Tanh(), ss.nn.Linear(3, 3), ss.nn.Tanh()]
    model = ss.nn.Sequential(*layers)
    x = ss.randn(2, 3, requires_grad=True)
    expected, = ss.autograd.grad(model(x).sum(), x)
    found, = ss.autograd.grad(checkpoint_sequential(model, 2, x, use_reentrant=False).sum(), x)
    assert ss.equal(found, expected)
    with pytest.raises(ValueError, match="Unexpected keyword"):
        checkpoint_sequential(model, 2, x, other=1)

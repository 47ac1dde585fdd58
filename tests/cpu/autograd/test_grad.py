"""autograd.grad, autograd.backward and anomaly detection."""

from __future__ import annotations

import pytest

import slipstream as ss


def test_several_outputs_and_inputs() -> None:
    x = ss.ones(2, requires_grad=True)
    w = ss.ones(2, requires_grad=True)
    first, second = x * w * 2, x * 3
    grads = ss.autograd.grad((first, second), (x, w), (ss.ones(2), ss.full((2,), 10.0)))
    assert [g.tolist() for g in grads] == [[32.0, 32.0], [2.0, 2.0]]
    assert x.grad is None


def test_inputs_that_are_not_used() -> None:
    x, w = ss.ones(2, requires_grad=True), ss.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="not have been used in the graph"):
        ss.autograd.grad((x * 2).sum(), (x, w))
    assert ss.autograd.grad((x * 2).sum(), (x, w), allow_unused=True)[1] is None
    zeros = ss.autograd.grad((x * 2).sum(), (x, w), materialize_grads=True)[1]
    assert zeros.tolist() == [0.0] * 3


def test_bad_calls() -> None:
    x = ss.ones(2, requires_grad=True)
    y = (x * x).sum()
    with pytest.raises(NotImplementedError, match="is_grads_batched"):
        ss.autograd.grad(y, x, is_grads_batched=True)
    with pytest.raises(ValueError, match="non-empty"):
        ss.autograd.grad(y, [])
    with pytest.raises(RuntimeError, match="does not require grad"):
        ss.autograd.grad(y, ss.ones(2))
    with pytest.raises(RuntimeError, match="1 tensors and 2 gradients"):
        ss.autograd.grad(y, x, [None, None])


def test_higher_orders() -> None:
    x = ss.tensor([2.0], dtype=ss.float64, requires_grad=True)
    y = x * x * x * x
    for expected in (32.0, 48.0, 48.0, 24.0):
        (y,) = ss.autograd.grad(y.sum(), x, create_graph=True)
        assert y.tolist() == [expected]


def test_backward_from_several_tensors() -> None:
    x = ss.ones(2, requires_grad=True)
    ss.autograd.backward([(x * 2).sum(), x * 3], [None, ss.ones(2)])
    assert x.grad.tolist() == [5.0, 5.0]


def test_anomalies_name_the_line() -> None:
    x = ss.tensor([0.0], requires_grad=True)
    with ss.autograd.detect_anomaly():
        y = x.log() * 0
        with pytest.raises(RuntimeError, match=r"LogBackward0.*test_grad.py"):
            y.sum().backward()
    (x.log() * 0).sum().backward()

"""autograd.grad, autograd.backward and anomaly detection."""

from __future__ import annotations

import inspect

import pytest

import slipstream as ss
from slipstream import nn
from slipstream.nn import functional


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


class Refuses(ss.autograd.Function):
    """A step whose backward always fails."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        raise ValueError("no gradient today")


def notes_of_a_failure(x: ss.Tensor) -> tuple[int, list[str]]:
    line = inspect.currentframe().f_lineno + 1
    y = Refuses.apply(x) + 1
    with pytest.raises(ValueError, match="no gradient today") as caught:
        y.sum().backward()
    return line, getattr(caught.value, "__notes__", [])


def test_failures_name_the_line_while_anomalies_are_looked_for() -> None:
    x = ss.ones(2, requires_grad=True)
    with ss.autograd.detect_anomaly():
        line, notes = notes_of_a_failure(x)
    assert len(notes) == 1
    assert notes[0].endswith(f"test_grad.py:{line}")
    assert "RefusesBackward" in notes[0]
    assert notes_of_a_failure(x)[1] == []


@pytest.mark.parametrize("make", [
    lambda x: functional.normalize(x, dim=0, eps=0),
    lambda x: nn.Sequential(nn.Identity())(x / x),
    lambda x: (x * 1).sqrt_() * 0,
    lambda x: (x.sqrt() * 0)[:1],
])
def test_anomalies_name_the_line_of_the_user(make) -> None:
    x = ss.zeros(2, requires_grad=True)
    y = make(x)
    line = make.__code__.co_firstlineno
    with ss.autograd.set_detect_anomaly(True), pytest.raises(
            RuntimeError, match=rf"nan values.*test_grad\.py:{line}$"):
        y.sum().backward()


def test_a_view_in_place_outside_of_recording_leaves_a_parameter_one() -> None:
    parameter = ss.nn.Parameter(ss.ones(2, 3))
    (parameter * 2).sum().backward()
    with ss.no_grad():
        parameter.t_()
    assert (parameter.requires_grad, parameter.is_leaf) == (True, True)
    assert parameter.shape == (3, 2)
    assert parameter.grad is not None
    parameter.grad = None
    (parameter * 3).sum().backward()
    assert parameter.grad is not None
    assert parameter.grad.shape == (3, 2)


def test_full_of_a_tensor_requires_grad_where_asked() -> None:
    assert ss.full((2,), ss.tensor(3.0), requires_grad=True).requires_grad

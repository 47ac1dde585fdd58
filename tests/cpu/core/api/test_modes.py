"""Grad scopes, user's modes, redispatch, recording, threads."""

from __future__ import annotations

import threading

import pytest

import slipstream as ss


@pytest.fixture
def x():
    return ss.ones(2, requires_grad=True)


def test_no_grad_and_enable_grad_nest(x):
    with ss.no_grad():
        assert not (x * 2).requires_grad
        with ss.enable_grad():
            assert (x * 2).requires_grad
        assert not ss.is_grad_enabled()
    assert (x * 2).requires_grad


@pytest.mark.parametrize("scope", [ss.no_grad, ss.inference_mode, ss.enable_grad])
def test_decorators_with_and_without_parentheses(scope):
    wanted = scope is ss.enable_grad

    @scope()
    def called():
        """Say so."""
        return ss.is_grad_enabled()

    @scope
    def bare():
        return ss.is_grad_enabled()

    with ss.set_grad_enabled(not wanted):
        assert called() is wanted
        assert bare() is wanted
        assert ss.is_grad_enabled() is not wanted
    assert (called.__name__, called.__doc__) == ("called", "Say so.")


def test_a_decorated_generator_runs_in_the_scope_and_its_caller_does_not():
    @ss.no_grad()
    def numbers():
        try:
            got = yield ss.is_grad_enabled()
            assert got == "sent"
            yield ss.is_grad_enabled()
        except ValueError:
            yield "caught", ss.is_grad_enabled()

    steps = numbers()
    assert next(steps) is False
    assert ss.is_grad_enabled()
    assert steps.send("sent") is False
    assert ss.is_grad_enabled()
    assert steps.throw(ValueError("x")) == ("caught", False)
    assert ss.is_grad_enabled()
    steps.close()


def test_the_mode_comes_back_after_an_error():
    with pytest.raises(ZeroDivisionError), ss.no_grad():
        1 / 0
    assert ss.is_grad_enabled()


def test_set_grad_enabled_at_once_and_as_a_scope():
    ss.set_grad_enabled(False)
    try:
        assert not ss.is_grad_enabled()
    finally:
        ss.set_grad_enabled(True)
    with ss.set_grad_enabled(False):
        assert not ss.is_grad_enabled()
    assert ss.is_grad_enabled()


def test_inference_mode(x):
    assert not ss.is_inference_mode_enabled()
    with ss.inference_mode():
        assert ss.is_inference_mode_enabled()
        assert not (x * 2).requires_grad
    with ss.no_grad():
        assert not ss.is_inference_mode_enabled()
    with ss.inference_mode(), ss.inference_mode(False):
        assert (x * 2).requires_grad


class Doubling(ss.DispatchMode):
    """Replaces every exp by twice its operand."""

    def __init__(self):
        self.seen = []

    def __dispatch__(self, op, args, kwargs):
        self.seen.append(op.name)
        if op.name == "exp":
            return args[0] * 2
        return ss.redispatch(op, args, kwargs)


def test_a_mode_sees_and_replaces():
    a = ss.ones(2)
    with Doubling() as mode:
        assert a.exp().tolist() == [2.0, 2.0]
        b = a + a
        b.add_(1)
        ss.mul(b, 2, out=b)
        -b
        b @ b
    assert mode.seen[:5] == ["exp", "add", "add_", "mul", "neg"]
    assert b.tolist() == [6.0, 6.0]
    assert a.exp().tolist() != [2.0, 2.0]
    assert len(mode.seen) < 12


def test_modes_nest_innermost_first():
    order = []

    class Named(ss.DispatchMode):
        def __init__(self, name):
            self.name = name

        def __dispatch__(self, op, args, kwargs):
            order.append((self.name, op.name))
            # Ops called in a handler go to the modes further out only.
            args[0] * 1
            return ss.redispatch(op, args, kwargs)

    with Named("outer"), Named("inner"):
        ss.ones(1).exp()
    exps = [name for name, op in order if op == "exp"]
    assert exps == ["inner", "outer"]
    assert ("outer", "mul") in order
    assert ("inner", "mul") not in order


def test_a_mode_that_raises_leaves_the_state_clean():
    class Broken(ss.DispatchMode):
        def __dispatch__(self, op, args, kwargs):
            raise KeyError(op.name)

    a = ss.ones(1)
    with pytest.raises(KeyError), Broken():
        a.exp()
    assert (a + a).item() == 2.0


def test_gradients_pass_a_mode(x):
    with ss.RecordMode() as record:
        (x * 3).sum().backward()
    assert x.grad.tolist() == [3.0, 3.0]
    assert [name for name, _, _ in record.calls][:2] == ["mul", "sum"]


def test_record_mode_keeps_arguments():
    a = ss.ones(2)
    with ss.RecordMode() as record:
        ss.add(a, 2, alpha=3)
        a.mul_(4)
    (first, args, kwargs), (second, others, _) = record.calls
    assert (first, second) == ("add", "mul_")
    assert args[0] is a
    assert (args[1], kwargs) == (2, {"alpha": 3})
    assert others[1] == 4


def test_threads_have_states_of_their_own(x):
    found = {}

    def work():
        found["grad"] = ss.is_grad_enabled()
        found["device"] = ss.zeros(1).device.type
        found["result"] = (x * 2).requires_grad
        with ss.no_grad():
            found["inside"] = ss.is_grad_enabled()

    with ss.no_grad(), ss.device("meta"), ss.RecordMode() as record:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert not ss.is_grad_enabled()
    assert found == {"grad": True, "device": "cpu", "result": True, "inside": False}
    assert record.calls == []


def test_default_device_and_dtype():
    with ss.device("meta"):
        assert ss.zeros(1).device.type == "meta"
        assert ss.tensor(1.0).device.type == "meta"
        with ss.device("cpu"):
            assert ss.zeros(1).device.type == "cpu"
    assert ss.zeros(1).device.type == "cpu"
    ss.set_default_device("meta")
    try:
        assert ss.rand(2).device.type == "meta"
        assert ss.get_default_device().type == "meta"
    finally:
        ss.set_default_device(None)
    ss.set_default_dtype(ss.float64)
    try:
        assert ss.zeros(1).dtype is ss.float64
        assert ss.tensor(1.5).dtype is ss.float64
        assert (ss.tensor(1) / 2).dtype is ss.float64
        assert ss.tensor(1j).dtype is ss.complex128
    finally:
        ss.set_default_dtype(ss.float32)
    assert (ss.tensor(1) / 2).dtype is ss.float32
    with pytest.raises(TypeError):
        ss.set_default_dtype(ss.int64)

"""`explain`, `time_shares`, and kernels registered by the user."""

from __future__ import annotations

import json
import threading
import time

import numpy as np
import pytest

import slipstream as ss
from slipstream import library
from slipstream.core.api.explain import OwnTime
from slipstream.core.launch import door
from slipstream.core.vocab.modes import hearing, modes


def test_explain_tells_every_layer():
    a, b = ss.ones(2, 3, requires_grad=True), ss.ones(3)
    seen = ss.explain(lambda: a * b)
    (call,) = seen.calls
    assert call.op == "mul"
    assert (call.file, call.line) == (__file__, test_explain_tells_every_layer.__code__
                                      .co_firstlineno + 2)
    assert call.operands == {"self": "float32[2, 3]@cpu", "other": "float32[3]@cpu"}
    assert call.plan.results == ["float32[2, 3]@cpu"]
    assert "return" in call.plan.program
    assert len(call.launches) == 1
    assert [each["nbytes"] for each in call.allocations] == [24]
    assert call.tape == [{"node": "MulBackward0", "saved": ["float32[3]@cpu"], "saved_bytes": 12}]
    assert call.waits == []
    assert set(call.microseconds) == {"dispatch", "plan", "allocation", "kernel", "tape", "wait"}
    assert all(value >= 0 for value in call.microseconds.values())
    assert ss.explain(lambda: a * b).calls[0].plan.state == "found"
    np.testing.assert_array_equal(seen.result.detach().numpy(), np.ones((2, 3)))
    for text in ("mul", "MulBackward0", "12 bytes", "considered", "def program", "µs"):
        assert text in str(seen)
    json.dumps(seen.to_dict())


def test_explain_shows_calls_inside_calls_waits_and_backward():
    x = ss.ones(2, 3, requires_grad=True)
    seen = ss.explain(x.flatten)
    assert [call.op for call in seen.calls] == ["flatten"]
    assert seen.calls[0].inner[-1].op in ("view", "reshape")
    assert "\n    " in str(seen)
    waited = ss.explain(lambda: (x.detach() + 1).sum().item())
    assert waited.waits[0].startswith("item on cpu")
    backward = ss.explain((x.exp() * 2).sum().backward)
    assert "mul_backward" in str(backward)


def test_explain_of_forms_and_of_nothing():
    a = ss.ones(3)
    (call,) = ss.explain(a.add_, 1).calls
    assert (call.op, call.form, call.allocations) == ("add", "in place", [])
    (call,) = ss.explain(ss.add, a, 1, out=ss.empty(3)).calls
    assert (call.form, call.allocations) == ("out=", [])
    assert str(ss.explain(lambda: None)) == "no op was called"
    with pytest.raises(TypeError, match="needs a function"):
        ss.explain(a + 1)


def test_explain_passes_errors_and_stops_listening():
    with pytest.raises(RuntimeError):
        ss.explain(lambda: ss.ones(2) + ss.ones(3))
    assert ss.core.vocab.modes.modes.listeners is None
    assert ss.core.vocab.modes.modes.current().special == 0


def test_explain_keeps_no_tensor_alive():
    live = ss.core.launch.devices.host_allocator
    ss.explain(lambda: (ss.ones(1000) + 1).sum() and None)
    before = live.settled().live_bytes
    seen = ss.explain(lambda: (ss.ones(1000) + 1).sum() and None)
    assert live.settled().live_bytes == before
    assert seen.result is None


def test_shares_add_up():
    with ss.time_shares() as shares:
        a = ss.ones(200, 200)
        (a @ a).sum().item()
    assert set(shares) == {"dispatch", "kernels", "waits"}
    assert sum(shares.values()) == pytest.approx(1.0)
    assert shares["kernels"] > 0


def test_time_inside_other_time_counts_once():
    alone = OwnTime()
    # Spans come at their ends: a wait and a kernel inside a launch, then a launch by itself.
    assert [alone.of(*span) for span in ((2, 5), (6, 7), (1, 10), (10, 14))] == [3, 1, 5, 4]
    assert alone.of(0, 20) == 20 - 9 - 4


def test_a_wait_inside_a_launch_is_no_kernel_time():
    def both():
        door.emit("wait", "inside", start, start + 80, {})
        door.emit("launch", "kernel", start - 20, start + 100, {})

    with ss.time_shares() as shares:
        start = time.perf_counter_ns()
        both()
        other = threading.Thread(target=both)
        other.start()
        other.join()
    assert shares["kernels"] == pytest.approx(shares["waits"] / 2)
    assert sum(shares.values()) == pytest.approx(1.0)


@pytest.fixture
def a():
    return ss.tensor([1.0, 2.0])


def test_a_registered_kernel_runs_and_goes(a):
    @library.impl("add", "cpu")
    def subtracting(self, other, alpha):
        return self - other

    try:
        assert (a + 3).tolist() == [-2.0, -1.0]
        assert (a + a).tolist() == [0.0, 0.0]
        assert a.clone().add_(a).tolist() == [0.0, 0.0]
        assert subtracting.redispatch(a, a).tolist() == [2.0, 4.0]
        assert subtracting(a, 1, 1).tolist() == [0.0, 1.0]
        plan = ss.describe_plan("add", a, a)
        assert plan.considered[0][0].endswith("subtracting")
        assert plan.considered[0][1] == "chosen"
        assert "not needed" in plan.considered[1][1]
    finally:
        subtracting.remove()
    subtracting.remove()
    assert (a + 3).tolist() == [4.0, 5.0]


def test_gradients_and_promotion_stay_the_ops_own(a):
    x = a.clone().requires_grad_()
    with library.impl("exp", "cpu", lambda v: np.exp(v) * 2, arrays=True):
        y = x.exp()
        y.sum().backward()
        assert ss.tensor([0, 1], device="meta").exp().dtype is ss.float32
    np.testing.assert_allclose(x.grad.numpy(), 2 * np.exp([1.0, 2.0]), rtol=1e-6)


def test_a_kernel_may_refuse(a):
    def long_only(call):
        return "" if call.spec("self").numel > 2 else "shorter than 3"

    with library.impl("neg", "cpu", lambda v: v * 0, arrays=True, refuses=long_only):
        assert (-a).tolist() == [-1.0, -2.0]
        assert (-ss.ones(3)).tolist() == [0.0, 0.0, 0.0]
        assert ss.describe_plan("neg", a).considered[0][1] == "shorter than 3"
        assert "shorter than 3" in str(ss.explain(lambda: -a))


def test_ops_that_hold_kernels_take_one_too(a):
    with library.impl("matmul", "cpu", lambda x, y: np.full((), 7.0, np.float32), arrays=True):
        assert (a @ a).item() == 7.0
        assert (a.to("delay") @ a.to("delay")).item() == 7.0
    assert (a @ a).item() == 5.0
    with library.impl("cat", "cpu", lambda tensors, dim: np.concatenate(tensors[::-1], dim),
                      arrays=True):
        assert ss.cat([a, a + 5], 0).tolist() == [6.0, 7.0, 1.0, 2.0]


def test_modes_do_not_see_inside_a_kernel(a):
    with library.impl("tanh", "cpu", lambda v: v * 3), ss.RecordMode() as record:
        assert a.tanh().tolist() == [3.0, 6.0]
    assert [name for name, _, _ in record.calls] == ["tanh", "tolist"][:1]


@pytest.mark.parametrize(("result", "kind"), [
    (np.ones(3, np.float32), RuntimeError), (np.ones(2), RuntimeError), (3, TypeError),
    ((1, 2), RuntimeError), (None, TypeError),
])
def test_wrong_results_are_refused(a, result, kind):
    with library.impl("exp", "cpu", lambda v: result, arrays=True), pytest.raises(kind):
        a.exp()
    assert a.tolist() == [1.0, 2.0]


def test_what_cannot_be_implemented():
    for name, kind in [("nonsense", ValueError), ("flatten", ValueError), ("view", ValueError)]:
        with pytest.raises(kind):
            library.impl(name, "cpu", lambda *a: a)
    with pytest.raises(RuntimeError):
        library.impl("add", "abacus", lambda *a: a)
    with pytest.raises(TypeError):
        library.impl("add", "cpu", 3)


def test_calls_of_other_threads_are_told_of():
    early = threading.Event()

    def late():
        early.wait()
        ss.ones(3) * 2.0

    before = threading.Thread(target=late, name="before")
    ss.ones(3)
    before.start()

    def both():
        early.set()
        before.join()
        meanwhile = threading.Thread(target=lambda: ss.ones(4) + 1.0, name="meanwhile")
        meanwhile.start()
        meanwhile.join()
        return ss.ones(5) - 1.0

    found = ss.explain(both)
    whose = {call.op: call.thread for call in found.calls if call.op != "ones"}
    assert whose["mul"] == "before"
    assert whose["add"] == "meanwhile"
    assert whose["sub"] == ""
    mul = next(call for call in found.calls if call.op == "mul")
    assert mul.operands["self"] == "float32[3]@cpu"
    assert ", in thread before" in str(found)
    assert found.to_dict()["calls"][0]["thread"] in ("before", "meanwhile")
    # Nobody listens any more.
    assert modes.current().special == 0
    assert hearing.count == 0

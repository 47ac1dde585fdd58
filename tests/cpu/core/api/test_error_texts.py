"""What errors and warnings say: the op as the user wrote it, its operands, a sensible mend."""

from __future__ import annotations

import pickle
import traceback
import warnings

import pytest

import slipstream as ss
from slipstream.core.catalog.table import table
from slipstream.core.dispatch.op import plan_table
from slipstream.core.native import drivers as native

F = ss.nn.functional


def text_of(call, kind=Exception):
    with pytest.raises(kind) as caught:
        call()
    return str(caught.value)


SCORES = ss.zeros(2, 3)
NAMED = {
    "a target": (lambda: F.cross_entropy(SCORES, ss.tensor([0, 9])), IndexError,
                 "Target 9 is out of bounds.\n"
                 "  in cross_entropy(self: float32[2, 3]@cpu, target: int64[2]@cpu)"),
    "nll_loss": (lambda: F.nll_loss(SCORES, ss.tensor([0, 1, 2])), ValueError,
                 "  in nll_loss(self: float32[2, 3]@cpu, target: int64[3]@cpu)"),
    "a weight": (lambda: F.cross_entropy(SCORES, ss.tensor([0, 1]), ss.ones(2)), RuntimeError,
                 "  in cross_entropy(self: float32[2, 3]@cpu, target: int64[2]@cpu, "
                 "weight: float32[2]@cpu)"),
    "an index": (lambda: ss.ones(3)[ss.tensor([5])], IndexError,
                 "index 5 is out of bounds for dimension 0 with size 3\n"
                 "  in getitem(self: float32[3]@cpu, indices: [int64[1]@cpu])"),
    "a write": (lambda: ss.ones(3).__setitem__(ss.tensor([5]), 1), IndexError,
                "  in setitem(self: float32[3]@cpu, indices: [int64[1]@cpu], values: 1)"),
    "gather": (lambda: ss.ones(3).gather(0, ss.tensor([5])), RuntimeError,
               "  in gather(self: float32[3]@cpu, dim: 0, index: int64[1]@cpu)"),
    "take": (lambda: ss.take(ss.ones(3), ss.tensor([7])), IndexError,
             "  in take(self: float32[3]@cpu, index: int64[1]@cpu)"),
    "embedding": (lambda: F.embedding(ss.tensor([5]), ss.ones(3, 2)), IndexError,
                  "  in embedding(weight: float32[3, 2]@cpu, indices: int64[1]@cpu)"),
}


@pytest.mark.parametrize("name", NAMED)
def test_the_op_is_named_as_it_was_called(name):
    call, kind, wanted = NAMED[name]
    for _ in range(2):
        assert wanted in text_of(call, kind)


def test_a_mend_stays():
    found = text_of(lambda: F.cross_entropy(SCORES, ss.tensor([0.0, 1.0])), RuntimeError)
    assert found.splitlines()[1].startswith("  in cross_entropy(")
    assert found.splitlines()[2] == "  mend: convert it with .long()"


def test_the_input_is_to_go_where_the_parameters_are():
    weight = ss.nn.Parameter(ss.ones(2, 3, device="delay"))
    found = text_of(lambda: F.linear(ss.ones(2, 3), weight), RuntimeError)
    assert found.endswith("mend: move input to delay, for example input.to('delay')")


FAR = ss.ones(2, 3, 8, 8, device="delay")
ROW = ss.ones(2, 3, device="delay")
# A call with a module that was left on the CPU: which operands are where.
LEFT = {
    "linear": (lambda: ss.nn.Linear(3, 2)(ROW), "weight and bias are parameters", "input is"),
    "without bias": (lambda: ss.nn.Linear(3, 2, bias=False)(ROW), "weight is a parameter",
                     "input is"),
    "frozen": (lambda: ss.nn.Linear(3, 2).requires_grad_(False)(ROW),
               "weight and bias are parameters", "input is"),
    "convolution": (lambda: ss.nn.Conv2d(3, 4, 3)(FAR), "weight and bias are parameters",
                    "self is"),
    "layer_norm": (lambda: ss.nn.LayerNorm(3)(ROW), "weight and bias are parameters", "self is"),
    "batch_norm": (lambda: ss.nn.BatchNorm1d(3)(ROW), "weight and bias are parameters", "self is"),
    "embedding": (lambda: ss.nn.Embedding(9, 3)(ss.zeros(4, dtype=ss.int64, device="delay")),
                  "weight is a parameter", "indices is"),
    "slices of weights": (lambda: ss.nn.MultiheadAttention(3, 1)(ROW, ROW, ROW + 1),
                          "weight and bias are parameters", "input is"),
    "product": (lambda: ROW * ss.nn.Parameter(ss.ones(3)), "other is a parameter", "self is"),
}


@pytest.mark.parametrize("name", LEFT)
def test_a_module_that_was_left_behind_is_to_follow(name):
    call, behind, there = LEFT[name]
    mend = text_of(call, RuntimeError).rpartition("mend: ")[2]
    module = "its" if "a parameter" in behind else "their"
    assert mend == (f"{behind} on cpu, {there} on delay: move {module} module, "
                    f"model.to('delay'), or {there[:-3]}.to('cpu')")


def test_a_leaf_that_is_no_modules_is_to_be_made_there():
    weight = ss.ones(3, requires_grad=True)
    mend = text_of(lambda: ROW * weight, RuntimeError).rpartition("mend: ")[2]
    assert mend == ("other is a leaf on cpu, self is on delay: make it there, with "
                    "device='delay', or self.to('cpu')")


def test_a_module_that_was_moved_in_part_is_to_be_moved_whole():
    linear = ss.nn.Linear(3, 2)
    linear.weight.data = linear.weight.data.to("delay")
    mend = text_of(lambda: linear(ROW), RuntimeError).rpartition("mend: ")[2]
    assert mend.startswith("bias is a parameter on cpu, input is on delay: move its module")


def test_without_parameters_operands_leave_the_cpu():
    a, b = ss.ones(2), ss.ones(2, device="delay")
    assert "move self to delay" in text_of(lambda: a + b, RuntimeError)
    assert "move other to delay" in text_of(lambda: b + a, RuntimeError)
    assert "move the others to delay" in text_of(lambda: ss.cat([a, b]), RuntimeError)


def test_faults_inside_an_op_are_not_restated():
    found = text_of(lambda: F.cross_entropy(SCORES, ss.tensor([0, 1]), label_smoothing=3.0))
    assert found == "label_smoothing must be between 0.0 and 1.0. Got: 3"


def frames_of(call):
    with pytest.raises(Exception) as caught:
        call()
    ours = [frame for frame in traceback.extract_tb(caught.value.__traceback__)
            if "slipstream/core" in frame.filename]
    return [frame.name for frame in ours]


def test_tracebacks_of_bad_input_end_at_the_door():
    for call in (lambda: ss.ones(2) + ss.ones(3), lambda: F.cross_entropy(SCORES, SCORES[0].long()),
                 lambda: ss.ones(2, 3).softmax(7)):
        found = frames_of(call)
        assert 1 <= len(found) <= 6
        assert not {"error", "check", "explain", "broadcast_shapes"} & set(found)


def test_faults_of_ours_keep_their_frames():
    class Broken:
        def plan(self, *arguments):
            raise RuntimeError("a fault")

    op = table["exp"]
    saved, op.builder = op.builder, Broken()
    try:
        with pytest.raises(RuntimeError, match="a fault") as caught:
            ss.ones(3, 1, 4, 1, 2).exp()
    finally:
        op.builder = saved
    assert traceback.extract_tb(caught.value.__traceback__)[-1].filename == __file__


def test_devices_that_are_offered():
    assert "delay" not in text_of(lambda: ss.device("gpu"), RuntimeError)
    assert "cpu, cuda, meta" in text_of(lambda: ss.device("gpu"), RuntimeError)


@pytest.mark.parametrize("data", [[1.0], 1.0, "a"], ids=repr)
def test_a_parameter_of_no_tensor(data):
    found = text_of(lambda: ss.nn.Parameter(data), TypeError)
    assert "must be Tensor, not " + type(data).__name__ in found
    assert "slipstream.tensor(data)" in found


def test_a_plan_says_what_it_is():
    # A shape of its own: other tests' plans are in the ring too.
    ss.ones(2, 3, 1, 7).exp()
    (found,) = {repr(plan) for plan in plan_table.ring
                if plan.op.name == "exp" and plan.out_spec.shape == (2, 3, 1, 7)
                and plan.out_spec.device.type == "cpu"}
    assert found.startswith("<plan of exp: float32[2, 3, 1, 7]@cpu; launch, kernel cpu ")


def test_named_results():
    x = ss.tensor([3.0, 1.0, 2.0])
    for name, call in {"topk": lambda: x.topk(2), "sort": x.sort, "max": lambda: x.max(0),
                       "median": lambda: x.median(0), "cummin": lambda: x.cummin(0),
                       "kthvalue": lambda: x.kthvalue(1), "aminmax": x.aminmax}.items():
        found = call()
        assert type(found) is getattr(ss.return_types, name)
        head = f"slipstream.return_types.{name}(\n{found._fields[0]}=tensor("
        assert repr(found).startswith(head)
        again = pickle.loads(pickle.dumps(found))
        assert type(again) is type(found)
        assert [each.tolist() for each in again] == [each.tolist() for each in found]


# -- grad of what is no leaf ---------------------------------------------------------------------
def test_the_grad_of_a_tensor_that_is_no_leaf_warns_at_the_users_line():
    leaf = ss.ones(2, requires_grad=True)
    middle = leaf * 2
    with pytest.warns(UserWarning, match="no leaf") as caught:
        assert middle.grad is None
    assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match="retain_grad"):
        assert leaf[:1].grad is None


def test_other_grads_do_not_warn():
    leaf = ss.ones(2, requires_grad=True)
    kept = leaf * 2
    kept.retain_grad()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (leaf.grad, kept.grad, ss.ones(2).grad, ss.ones(2)[:1].grad) == (None,) * 4
        kept.sum().backward()
        assert kept.grad.tolist() == [1.0, 1.0]
        with ss.no_grad():
            assert (leaf * 2).grad is None


# -- no card -------------------------------------------------------------------------------------
@pytest.mark.parametrize("failure", [ModuleNotFoundError("No module named 'cuda'"),
                                     RuntimeError("no device")], ids=repr)
def test_without_a_card_there_are_three_ways_out(monkeypatch, failure):
    def absent(name):
        raise failure

    monkeypatch.setattr(native.optional, "load", absent)
    monkeypatch.setattr(native.settings, "driver", "auto")
    found = native.Drivers()
    assert not found.available()
    for _ in range(2):
        text = text_of(found.current, RuntimeError)
        assert str(failure) in text
        for way in ("pip install -e '.[cuda]'", "SLIPSTREAM_DRIVER=sim", "device='cpu'"):
            assert text.count(way) == 1


def test_without_a_compiler_the_simulated_driver_is_not_available(monkeypatch):
    def absent(name):
        raise RuntimeError("no C++ compiler")

    monkeypatch.setattr(native.optional, "load", absent)
    monkeypatch.setattr(native.settings, "driver", "sim")
    found = native.Drivers()
    assert not found.available()
    assert text_of(found.current, RuntimeError).endswith("no C++ compiler")

"""Plans: what a known call runs, how many plans are kept, what a plan says of itself."""

from __future__ import annotations

import gc
import inspect
import math
import sys

import numpy as np
import pytest

import slipstream as ss
from slipstream.core.catalog.table import ops
from slipstream.core.dispatch.op import Op, plan_table
from slipstream.core.launch.door import door
from slipstream.core.vocab import records
from slipstream.core.vocab.modes import decode_site, modes

COMPILED = not inspect.isfunction(Op.call)
# Modules whose functions decide shapes, dtypes and strides: none of them runs for a known call.
DECIDERS = ("shapes", "promotion", "formulas", "kernels.py", "viewing", "calls", "trace",
            "registry", "dtypes", "catalog")


def frames_of(call) -> list[tuple[int, str, str]]:
    """(depth, file, function) of each interpreted frame of ours that a call enters."""
    found, depth = [], 0

    def watch(frame, event, argument):
        nonlocal depth
        ours = "slipstream" + "/" in frame.f_code.co_filename.rpartition("src/")[2]
        if event == "call" and ours:
            depth += 1
            found.append((depth, frame.f_code.co_filename, frame.f_code.co_name))
        elif event == "return" and ours:
            depth -= 1

    gc.disable()
    sys.setprofile(watch)
    try:
        call()
    finally:
        sys.setprofile(None)
        gc.enable()
    return found


def known(call) -> list[tuple[int, str, str]]:
    for _ in range(3):
        call()
    return frames_of(call)


a, b = ss.ones(2, 3), ss.ones(3)
leaf = ss.ones(2, 3, requires_grad=True)
out = ss.empty(2, 3)
ROADS = {
    "a + b": lambda: a + b,
    "a * 2.0": lambda: a * 2.0,
    "-a": lambda: -a,
    "leaf + b": lambda: leaf + b,
    "a.sum()": a.sum,
    "a.add_(b)": lambda: a.add_(b),
    "out=": lambda: ss.add(a, b, out=out),
    "a.softmax(-1)": lambda: a.softmax(-1),
    "a.expand": lambda: a.expand(2, 3),
    "matmul": lambda: a @ b,
}


@pytest.mark.parametrize("name", ROADS)
def test_a_known_call_decides_nothing(name):
    deciding = [frame for frame in known(ROADS[name])
                if any(each in frame[1].partition("/core/")[2] for each in DECIDERS)
                and "/kernels/" not in frame[1]]
    assert deciding == []


@pytest.mark.parametrize("name", ["a + b", "a * 2.0", "-a"])
def test_interpreted_frames_of_the_road(name):
    frames = known(ROADS[name])
    if COMPILED:
        assert frames == []
        return
    road = [frame for frame in frames
            if "/kernels/" not in frame[1] and "/fuse/" not in frame[1]
            and "/memory/" not in frame[1]]
    assert max(depth for depth, _, _ in road) <= 4


def test_numbers_are_no_part_of_the_key():
    made = plan_table.made
    x = ss.ones(5, 7)
    x * 2.0
    first = plan_table.made
    for number in (3.0, 4.5, float("nan")):
        x * number
    assert first - made <= 2
    assert plan_table.made == first
    x * 3
    assert plan_table.made == first + 1


def test_offsets_are_no_part_of_the_key():
    x = ss.arange(100)
    assert [x[i].item() for i in range(50)] == list(range(50))
    made = plan_table.made
    for start in range(50):
        x[start]
        x[start:start + 10]
    assert plan_table.made - made <= 1


def test_shapes_that_pass_through_leave_nothing_behind():
    living = [ss.ones(n % 40 + 1, n // 40 + 1) for n in range(2000)]
    specs = len(records.table)
    for n in range(60_000):
        # A view by its shape: the cheapest call that makes a spec and a plan of its own.
        living[0].expand(n + 2, 1)
    gc.collect()
    assert len(plan_table.ring) <= plan_table.limit
    assert sum(len(op.plans) for op in vars(ss.core.catalog.table)["table"].values()) <= (
        len(plan_table.ring))
    # Plans hold their specs; nothing else does, so the table is bounded as the plans are.
    assert len(records.table) - specs <= 2 * plan_table.limit
    for n, tensor in enumerate(living):
        assert tensor.spec is records.table[tensor.spec.key]()
        assert tensor.shape == (n % 40 + 1, n // 40 + 1)
    assert len({id(each.spec) for each in living}) == 2000


def test_a_new_shape_takes_the_recipe():
    ss.ones(3, 4).exp()
    recipes = len(ops.exp.recipes)
    for n in range(5, 25):
        ss.ones(n, 4).exp()
    assert len(ops.exp.recipes) == recipes


def test_a_dropped_plan_is_made_again():
    x = ss.ones(11, 13)
    expected = (x + x).tolist()
    for n in range(plan_table.limit + 100):
        x.view(-1)[:11].expand(n + 1, 11)
    assert (x + x).tolist() == expected


def test_a_plan_lists_the_kernels_considered():
    text = str(ss.describe_plan("matmul", ss.ones(2, 3), ss.ones(3, 2)))
    assert "plan of matmul" in text
    assert "chosen" in text
    report = ss.describe_plan(ss.add, ss.ones(4), 2)
    assert report.kernel in [name for name, _ in report.considered]
    assert "def program(self, other)" in str(report)
    assert ss.describe_plan(ss.add, ss.ones(4), 2).state == "found"
    with pytest.raises(ValueError, match="calls other ops"):
        ss.describe_plan("flatten", ss.ones(2, 2))
    with pytest.raises(ValueError, match="no op named"):
        ss.describe_plan("nonsense")


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div"])
def test_a_known_operator_keeps_the_laws(name):
    operator = getattr(ss.Tensor, {"div": "__truediv__"}.get(name, f"__{name}__"))
    x, y = ss.tensor([6.0, -1.0]), ss.tensor([3.0, 0.0])
    expected = operator(x, y).tolist()
    operator(x, y)
    launches = door.launches
    z = operator(x, y)
    line = sys._getframe().f_lineno - 1
    state = modes.current()
    assert decode_site(state.code, state.instruction) == (__file__, line)
    assert door.launches == launches + 1
    assert z.tolist() == expected
    with ss.RecordMode() as seen:
        operator(x, y)
    assert [call[0] for call in seen.calls] == [name]
    # Views, other offsets and history are no matter of the short way.
    wide = ss.tensor([0.0, 6.0, -1.0])
    assert operator(wide[1:], y).tolist() == expected
    assert operator(wide[1:].detach(), y).tolist() == expected
    assert operator(x.requires_grad_(), y).grad_fn is not None
    assert operator(x, y).detach().tolist() == expected


def test_calls_that_differ_in_a_static_argument_alone() -> None:
    x = ss.arange(24).float().view(1, 2, 3, 4)
    values = np.arange(24.0).reshape(1, 2, 3, 4)
    one, zero = ss.ones(4), ss.zeros(4)
    for _ in range(2):
        for dtype in (ss.float64, ss.int32, ss.bool, ss.float64):
            found = ops.to_dtype.call((x, dtype), None)
            assert found.dtype is dtype
            np.testing.assert_array_equal(found.numpy(), values.astype(dtype.numpy))
        for shape in ((4, 3, 2, 1), (1, 2, 3, 4), (2, 2, 3, 2)):
            assert ops.view.call((x, *shape), None).shape == shape
        errors = (values - 1) ** 2
        for form, wanted in (("mean", errors.mean()), ("sum", errors.sum()), ("none", errors)):
            found = ops.squared_error.call((x, ss.ones_like(x), form), None).numpy()
            np.testing.assert_allclose(found, wanted, rtol=1e-6)
        for eps in (1e-5, 1.0, 1, 0.0, -0.0, 0.5):
            found = ops.layer_norm.call((x, (4,), one, zero, eps), None).numpy()
            centred = values - values.mean(-1, keepdims=True)
            wanted = centred / np.sqrt((centred ** 2).mean(-1, keepdims=True) + eps)
            np.testing.assert_allclose(found, wanted, rtol=1e-5)
    assert np.isnan(ops.layer_norm.call((x, (4,), one, zero, math.nan), None).numpy()).all()


def test_such_calls_are_found_by_their_short_keys() -> None:
    x = ss.rand(5, 7)
    for op, args in ((ops.to_dtype, (x, ss.float64)), (ops.squared_error, (x, x + 1, "none")),
                     (ops.layer_norm, (x, (7,), x[0], x[1], 1e-5))):
        op.call(args, None)
        known = dict(op.binary)
        assert any(plan.out_spec.shape == (5, 7) for plan in known.values())
        op.call(args, None)
        assert dict(op.binary) == known


def test_calls_with_keywords_have_short_keys_of_their_own() -> None:
    x = ss.rand(5, 11)
    for _ in range(2):
        for form in ("tanh", "none"):
            found = ss.nn.functional.gelu(x, approximate=form)
            wanted = ss.nn.functional.gelu(x.double(), approximate=form)
            np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-5, atol=1e-7)
        with pytest.raises(TypeError, match="positional"):
            ss.nn.functional.gelu(x, "tanh")  # type: ignore[call-arg]
    ops.gelu.call((x,), {"approximate": "tanh"})
    known = dict(ops.gelu.binary)
    assert [plan for key, plan in known.items() if key[0] == "bound"]
    ops.gelu.call((x,), {"approximate": "tanh"})
    assert dict(ops.gelu.binary) == known
    for keepdim in (True, False):
        for dim in (0, 1, -1):
            for _ in range(2):
                found = ss.sum(x, dim=dim, keepdim=keepdim)
                np.testing.assert_allclose(found.numpy(), x.numpy().sum(dim, keepdims=keepdim),
                                           rtol=1e-5)


@pytest.mark.parametrize("order", [1, -1])
def test_the_sign_of_zero_is_no_matter_of_who_came_first(order) -> None:
    functional = ss.nn.functional
    x = ss.tensor([-1.0])
    for number in (0.0, -0.0, 0.0)[::order]:
        # Softplus divides by its number; the others give a zero of the number's sign.
        found = functional.softplus(x, beta=number)
        assert found.item() == math.copysign(math.inf, number)
        for result in (functional.hardtanh(x, number, 1.0), functional.threshold(x, 0.5, number),
                       functional.leaky_relu(-x * 0.0 - 1.0, -number),
                       functional.hardtanh(x, min_val=number)):
            assert math.copysign(1.0, result.item()) == math.copysign(1.0, number)


STATICS = {
    "softmax": lambda x, dim: x.softmax(dim), "sum": lambda x, dim: x.sum(dim=dim),
    "cumsum": lambda x, dim: x.cumsum(dim), "unsqueeze": lambda x, dim: x.unsqueeze(dim),
    "argmax": lambda x, dim: x.argmax(dim), "cat": lambda x, dim: ss.cat((x, x), dim),
    # Each takes a one where the size or dim is.
    "tuple": lambda x, dim: x.sum((0, dim)), "list": lambda x, dim: x.sum(dim=[0, dim]),
    "expand": lambda x, dim: x[:, :1].expand(4, dim), "view": lambda x, dim: x.view((12, dim)),
    "select": lambda x, dim: x.select(0, dim),
}


@pytest.mark.parametrize("name", STATICS)
def test_errors_do_not_depend_on_earlier_calls(name) -> None:
    x = ss.ones(4, 3)
    for wrong in (True, 1.0):
        for _ in range(2):
            with pytest.raises(TypeError):
                STATICS[name](x, wrong)
            STATICS[name](x, 1)
    with pytest.raises(TypeError):
        x.sum(0, keepdim=1.0)  # type: ignore[call-overload]
    x.sum(0, keepdim=True)
    with pytest.raises(TypeError):
        x.sum(0, keepdim=1.0)  # type: ignore[call-overload]


def test_dims_may_be_numpy_integers() -> None:
    x = ss.rand(3, 5)
    for kind in (np.int64, np.int32, np.uint8):
        for dim in (0, 1):
            for call in (lambda dim: x.sum(dim=dim), lambda dim: x.mean(dim),
                         lambda dim: x.softmax(dim), lambda dim: x.amax(dim=dim),
                         lambda dim: x.sum((dim,)), lambda dim: x.sum([dim], keepdim=True)):
                ops.sum.plans.clear()
                found = call(kind(dim))
                np.testing.assert_array_equal(found.numpy(), call(dim).numpy())
    leaf = ss.ones(2, 3, requires_grad=True)
    leaf.softmax(np.int64(1)).sum(np.int64(0)).sum().backward()
    assert leaf.grad is not None
    assert leaf.grad.shape == (2, 3)
    with pytest.raises(TypeError):
        x.sum(dim=np.float32(1))
    with pytest.raises(TypeError):
        x.sum(dim=np.bool_(True))


def test_calls_with_bools_and_sizes_keep_their_short_keys() -> None:
    x = ss.rand(5, 13)
    for call in (lambda: x.sum(0, True), lambda: x.view((13, 5)), lambda: x.permute(1, 0)):
        call()
        before = plan_table.made
        found = [dict(op.binary) for op in (ops.sum, ops.view, ops.permute)]
        call()
        assert plan_table.made == before
        assert [dict(op.binary) for op in (ops.sum, ops.view, ops.permute)] == found
    short = [key for op in (ops.sum, ops.view) for key in op.binary if x.spec in key]
    assert len(short) == 2

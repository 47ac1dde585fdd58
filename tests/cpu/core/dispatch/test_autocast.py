"""Autocast on the CPU: what it does with each listed op, scopes, the cache of weights, errors."""

from __future__ import annotations

import threading
import warnings
from typing import Any

import numpy as np
import pytest
from lowering import (
    LISTS,
    LOWERED,
    TARGETS,
    check,
    listed,
    sampled,
)

import slipstream as ss
from slipstream import nn
from slipstream.core.catalog.table import table
from slipstream.core.dispatch import op as door
from slipstream.core.vocab.modes import modes
from slipstream.nn import functional as F

CASES = [(policy, name) for policy in TARGETS for name in sampled(policy, "cpu")]


def casts(call: Any) -> int:
    """How many casts a call makes."""
    with ss.RecordMode() as record:
        call()
    return sum(name == "to_dtype" for name, _, _ in record.calls)


# -- ops -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("policy", LISTS)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_policies_are_those_of_pytorch(policy: str, device: str) -> None:
    found = sorted(name for name, op in table.items() if op.policies.get(device) == policy)
    assert found == sorted(listed(policy, device))


@pytest.mark.parametrize("lower", LOWERED["cpu"], ids=lambda dtype: dtype.name)
@pytest.mark.parametrize(("policy", "name"), CASES)
def test_listed_ops(policy: str, name: str, lower: Any) -> None:
    op = table[name]
    for sample in op.entry.samples():
        check(op, sample, "cpu", lower, TARGETS[policy])


def test_other_ops_take_what_they_are_given() -> None:
    wide, narrow = ss.ones(3), ss.ones(3).bfloat16()
    with ss.autocast("cpu"):
        for call in (ss.add, ss.mul, ss.maximum):
            assert call(wide, wide).dtype is ss.float32
            assert call(narrow, narrow).dtype is ss.bfloat16
            assert call(wide, narrow).dtype is ss.float32
        assert narrow.exp().dtype is narrow.sum().dtype is narrow.softmax(0).dtype is ss.bfloat16


def test_ops_without_a_policy_stay_on_their_fast_path(monkeypatch: Any) -> None:
    seen: list[str] = []
    special = door.wiring.special
    monkeypatch.setattr(door.wiring, "special",
                        lambda op, *rest: seen.append(op.name) or special(op, *rest))
    x = ss.ones(3)
    with ss.autocast("cpu"):
        (x + x).relu().exp().sum()
        ss.zeros(3)
        assert seen == []
        ss.outer(x, x) @ x.reshape(3, 1)
        assert seen == ["matmul"]


def test_float64_complex_and_integers_stay() -> None:
    with ss.autocast("cpu"):
        for dtype in (ss.float64, ss.complex64, ss.int64):
            x = ss.ones(2, 2).to(dtype)
            assert (x @ x).dtype is dtype
        with pytest.raises(RuntimeError, match="same dtype"):
            ss.ones(2, 2).double() @ ss.ones(2, 2)


def test_given_memory_is_written_without_casts() -> None:
    x = ss.ones(2, 2)
    with ss.autocast("cpu"):
        assert ss.mm(x, x, out=ss.empty(2, 2)).dtype is ss.float32
        assert ss.ones(2, 2).addmm_(x, x).dtype is ss.float32
        with pytest.raises(RuntimeError):
            ss.mm(x.bfloat16(), x, out=ss.empty(2, 2))


def test_a_dtype_that_is_given_wins() -> None:
    with ss.autocast("cpu"):
        x = ss.ones(2, 2).bfloat16()
        assert x.prod().dtype is x.prod(0).dtype is ss.float32
        assert x.prod(dtype=ss.bfloat16).dtype is x.prod(0, dtype=ss.bfloat16).dtype is ss.bfloat16
        assert x.prod(dtype=ss.float64).dtype is ss.float64


# -- scopes ----------------------------------------------------------------------------------------
def product(**options: Any) -> Any:
    return (ss.ones(2, 2, **options) @ ss.ones(2, 2, **options)).dtype


def test_scopes_nest_and_put_back_what_was() -> None:
    with ss.autocast("cpu"):
        assert product() is ss.bfloat16
        with ss.autocast("cpu", dtype=ss.float16):
            assert product() is ss.float16
            with ss.autocast("cpu", enabled=False):
                assert product() is ss.float32
                assert not ss.is_autocast_enabled("cpu")
            assert product() is ss.float16
        assert product() is ss.bfloat16
        assert ss.get_autocast_dtype("cpu") is ss.bfloat16
    assert product() is ss.float32
    with pytest.raises(ZeroDivisionError), ss.autocast("cpu", dtype=ss.float16):
        1 / 0
    assert not ss.is_autocast_enabled("cpu")
    assert product() is ss.float32
    assert ss.get_autocast_dtype("cpu") is ss.bfloat16


def test_an_op_that_fails_leaves_autocast_on() -> None:
    with ss.autocast("cpu"):
        with pytest.raises(RuntimeError):
            ss.ones(2, 3) @ ss.ones(2, 3)
        assert product() is ss.bfloat16


def test_one_scope_used_again_and_inside_itself() -> None:
    scope = ss.autocast("cpu", dtype=ss.float16)
    with scope:
        with scope:
            assert product() is ss.float16
        assert product() is ss.float16
    assert product() is ss.float32
    with scope:
        assert product() is ss.float16


def test_decorated_functions_may_call_themselves() -> None:
    @ss.autocast("cpu")
    def below(depth: int) -> list[Any]:
        """A docstring."""
        return [product(), *(below(depth - 1) if depth else []), product()]

    assert below(3) == [ss.bfloat16] * 8
    assert below.__doc__ == "A docstring."
    assert product() is ss.float32


def test_each_thread_has_its_own() -> None:
    found: dict[str, Any] = {}

    def elsewhere() -> None:
        found["before"] = product()
        with ss.autocast("cpu", dtype=ss.float16):
            found["inside"] = product()
            ready.set()
            go_on.wait(10)
        found["after"] = product()

    ready, go_on = threading.Event(), threading.Event()
    thread = threading.Thread(target=elsewhere)
    with ss.autocast("cpu"):
        thread.start()
        assert ready.wait(10)
        assert product() is ss.bfloat16
        go_on.set()
        thread.join()
    assert found == {"before": ss.float32, "inside": ss.float16, "after": ss.float32}


def test_settings_without_a_scope() -> None:
    assert ss.get_autocast_dtype("cpu") is ss.get_autocast_cpu_dtype() is ss.bfloat16
    assert ss.get_autocast_dtype("cuda") is ss.get_autocast_gpu_dtype() is ss.float16
    ss.set_autocast_enabled("cpu", True)
    ss.set_autocast_dtype("cpu", ss.float16)
    try:
        assert ss.is_autocast_enabled("cpu")
        assert ss.is_autocast_cpu_enabled()
        assert not ss.is_autocast_enabled()
        assert not ss.is_autocast_enabled("cuda")
        assert product() is ss.float16
    finally:
        ss.set_autocast_cpu_enabled(False)
        ss.set_autocast_cpu_dtype(ss.bfloat16)
    ss.set_autocast_enabled(True)
    assert ss.is_autocast_enabled("cuda")
    assert product() is ss.float32
    ss.set_autocast_enabled(False)
    assert ss.autocast_increment_nesting() == 1
    assert ss.autocast_decrement_nesting() == 0


def test_what_is_no_scope() -> None:
    with pytest.raises(ValueError, match="device_type"):
        ss.autocast(ss.device("cpu"))
    for name in ("mps", "meta", "cuda:0"):
        with pytest.raises(RuntimeError, match="device_type"):
            ss.autocast(name)
        with pytest.raises(RuntimeError, match="device type"):
            ss.get_autocast_dtype(name)
    for dtype in (ss.int32, "float16"):
        with pytest.raises(TypeError):
            ss.set_autocast_dtype("cpu", dtype)
        with pytest.raises(TypeError):
            ss.autocast("cpu", dtype=dtype)
    with pytest.raises(TypeError):
        ss.set_autocast_enabled("cpu", 1)
    with pytest.raises(TypeError):
        ss.is_autocast_enabled(0)
    with pytest.warns(UserWarning, match="bfloat16 or float16"):
        scope = ss.autocast("cpu", dtype=ss.float32)
    with scope:
        assert not ss.is_autocast_enabled("cpu")
    assert ss.amp.is_autocast_available("cpu")
    assert not ss.amp.is_autocast_available("meta")


def test_modes_see_casts_and_what_is_cast() -> None:
    x = ss.ones(2, 2)
    with ss.autocast("cpu"), ss.RecordMode() as record:
        (x + x) @ x
    names = [name for name, _, _ in record.calls]
    assert names == ["add", "to_dtype", "to_dtype", "matmul"]
    assert [each.dtype for each in record.calls[-1][1]] == [ss.bfloat16] * 2


# -- the cache of weights --------------------------------------------------------------------------
def test_a_weight_is_cast_once_in_the_outermost_scope() -> None:
    weight, x = nn.Parameter(ss.ones(3, 3)), ss.ones(2, 3).bfloat16()
    with ss.autocast("cpu"):
        assert casts(lambda: F.linear(x, weight)) == 1
        with ss.autocast("cpu"):
            assert casts(lambda: [F.linear(x, weight), F.linear(x, weight)]) == 0
        assert casts(lambda: F.linear(x, weight)) == 0
        # What is no float32 leaf that wants a gradient is cast each time.
        for other in (ss.ones(3, 3), weight * 1, weight.detach(), weight[:], weight.t()):
            assert casts(lambda other=other: [F.linear(x, other), F.linear(x, other)]) == 2
    with ss.autocast("cpu"):
        assert casts(lambda: F.linear(x, weight)) == 1
        ss.clear_autocast_cache()
        assert casts(lambda: F.linear(x, weight)) == 1
        with ss.autocast("cpu", cache_enabled=False):
            assert not ss.is_autocast_cache_enabled()
            assert casts(lambda: F.linear(x, weight)) == 1
        assert casts(lambda: F.linear(x, weight)) == 0
        with ss.autocast("cpu", dtype=ss.float16):
            assert F.linear(x, weight).dtype is ss.float16


def test_a_loop_makes_no_new_plans_and_keeps_no_casts() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    optimizer = ss.optim.SGD(model.parameters(), lr=0.1)
    x = ss.rand(5, 3)

    def step() -> None:
        optimizer.zero_grad()
        with ss.autocast("cpu"):
            loss = model(x).logsumexp(1).mean()
        loss.backward()
        optimizer.step()

    for _ in range(3):
        step()
    made = door.plan_table.made
    for _ in range(5):
        step()
    assert door.plan_table.made == made
    assert modes.current().autocast.casts == {}


def test_a_weight_that_was_written_is_cast_again() -> None:
    weight, x = nn.Parameter(ss.ones(2, 2)), ss.ones(1, 2)
    optimizer = ss.optim.SGD([weight], lr=1.0)
    with ss.autocast("cpu"):
        F.linear(x, weight).sum().backward()
        optimizer.step()
        assert F.linear(x, weight).tolist() == [[0, 0]]
        weight.data = ss.full((2, 2), 3.0)
        assert F.linear(x, weight).tolist() == [[6, 6]]


def test_a_cast_made_without_gradients_does_not_lose_them() -> None:
    weight, x = nn.Parameter(ss.ones(2, 2)), ss.ones(1, 2)
    with ss.autocast("cpu"):
        with ss.no_grad():
            F.linear(x, weight)
        with ss.inference_mode():
            F.linear(x, weight)
        F.linear(x, weight).sum().backward()
    assert weight.grad.tolist() == [[1, 1], [1, 1]]


def test_gradients_arrive_in_float32() -> None:
    weight, x = nn.Parameter(ss.rand(4, 3)), ss.rand(2, 3, requires_grad=True)
    with ss.autocast("cpu"):
        for _ in range(2):
            # Both go through the one cast.
            F.linear(x, weight).sum().backward()
    lowered = x.detach().bfloat16().sum(0).expand(4, 3).float()
    assert weight.grad.dtype is x.grad.dtype is ss.float32
    np.testing.assert_allclose(weight.grad.numpy(), 2 * lowered.numpy(), rtol=2 ** -7)


def test_backward_is_the_same_inside_and_outside() -> None:
    def gradients(inside: bool, again: bool) -> list[Any]:
        ss.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
        x = ss.rand(5, 4, requires_grad=True)
        with ss.autocast("cpu"):
            loss = F.cross_entropy(model(x), ss.tensor([0, 1, 2, 0, 1]))
            if inside:
                return twice(loss, x, model, again)
        return twice(loss, x, model, again)

    def twice(loss: Any, x: Any, model: Any, again: bool) -> list[Any]:
        if again:
            (slope,) = ss.autograd.grad(loss, x, create_graph=True)
            loss = (slope * slope).sum()
        loss.backward()
        return [each.grad for each in (x, *model.parameters()) if each.grad is not None]

    for again in (False, True):
        for mine, theirs in zip(gradients(True, again), gradients(False, again), strict=True):
            assert mine.dtype is ss.float32
            assert ss.equal(mine, theirs)


# -- what is built of ops --------------------------------------------------------------------------
def test_modules() -> None:
    ss.manual_seed(0)
    images = ss.rand(2, 3, 8, 8)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
                        nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(36, 5))
    rows = ss.rand(3, 2, 4)
    with ss.autocast("cpu"):
        loss = F.cross_entropy(net(images), ss.tensor([1, 2]))
        assert net(images).dtype is ss.bfloat16
        assert loss.dtype is ss.float32
        assert nn.LayerNorm(5)(net(images)).dtype is ss.bfloat16
        out, weights = nn.MultiheadAttention(4, 2)(rows, rows, rows)
        assert out.dtype is weights.dtype is ss.bfloat16
        heads = ss.rand(1, 2, 3, 4)
        mask = ss.zeros(3, 3)
        assert F.scaled_dot_product_attention(heads, heads, heads, mask).dtype is ss.bfloat16
        lstm, gru = nn.LSTM(4, 5)(rows), nn.GRU(4, 5)(rows)
        assert lstm[0].dtype is lstm[1][1].dtype is ss.bfloat16
        assert gru[0].dtype is ss.float32
    loss.backward()
    assert all(each.grad.dtype is ss.float32 for each in net.parameters())


LOSSES = {
    "smooth_l1_loss": 2, "huber_loss": 2, "kl_div": 2, "poisson_nll_loss": 2,
    "soft_margin_loss": 2, "hinge_embedding_loss": 2, "margin_ranking_loss": 3,
    "triplet_margin_loss": 3,
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses_are_float32(name: str) -> None:
    values = [ss.rand(3, 4).bfloat16() for _ in range(LOSSES[name])]
    with ss.autocast("cpu"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = getattr(F, name)(*values)
        wanted = getattr(F, name)(*[value.float() for value in values])
    assert found.dtype is ss.float32
    assert found.item() == wanted.item()


def test_functions_of_several_ops() -> None:
    volumes, weight = ss.rand(1, 2, 4, 4, 4), ss.rand(3, 2, 2, 2, 2)
    with ss.autocast("cpu"):
        assert F.conv3d(volumes, weight).dtype is ss.bfloat16
        assert F.conv_transpose1d(ss.rand(1, 2, 4), ss.rand(2, 3, 2)).dtype is ss.bfloat16
        narrow = volumes.bfloat16()
        assert F.avg_pool3d(narrow, 2).dtype is F.max_pool3d(narrow, 2).dtype is ss.float32
        assert F.pad(narrow, (1,) * 6, "replicate").dtype is ss.float32
        assert F.pad(narrow, (1,) * 6).dtype is F.avg_pool2d(narrow[0], 2).dtype is ss.bfloat16
        # Averages are no convolutions here: nothing inside is rounded.
        exact = F.avg_pool2d(volumes[0], 2)
    assert ss.equal(exact, F.avg_pool2d(volumes[0], 2))


# -- steps of one's own, and checkpoints -----------------------------------------------------------
class Product(ss.autograd.Function):
    """A product that notes how it was called."""

    notes: list[Any] = []

    @staticmethod
    @ss.amp.custom_fwd(device_type="cpu")
    def forward(ctx: Any, a: Any, b: Any) -> Any:
        ctx.save_for_backward(a, b)
        Product.notes = [ss.is_autocast_enabled("cpu"), a.dtype]
        return a @ b

    @staticmethod
    @ss.amp.custom_bwd(device_type="cpu")
    def backward(ctx: Any, grad: Any) -> Any:
        a, b = ctx.saved_tensors
        Product.notes += [ss.is_autocast_enabled("cpu"), (grad @ b.t()).dtype]
        return grad @ b.t(), a.t() @ grad


class Wide(Product):
    """The same, always in float32."""

    @staticmethod
    @ss.amp.custom_fwd(device_type="cpu", cast_inputs=ss.float32)
    def forward(ctx: Any, a: Any, b: Any) -> Any:
        ctx.save_for_backward(a, b)
        Product.notes = [ss.is_autocast_enabled("cpu"), a.dtype]
        return a @ b


def test_steps_run_backward_as_forward() -> None:
    a, b = (ss.rand(2, 2, requires_grad=True) for _ in range(2))
    with ss.autocast("cpu"):
        out = Product.apply(a, b)
    assert out.dtype is ss.bfloat16
    out.sum().backward()
    assert Product.notes == [True, ss.float32, True, ss.bfloat16]
    assert a.grad.dtype is ss.float32
    Product.apply(a, b).sum().backward()
    assert Product.notes == [False, ss.float32, False, ss.float32]
    with ss.autocast("cpu"):
        out = Wide.apply(a.bfloat16(), b)
        assert out.dtype is ss.float32
        out.sum().backward()
    assert Product.notes == [False, ss.float32, False, ss.float32]
    assert Wide.apply(a.bfloat16(), b.bfloat16()).dtype is ss.bfloat16
    for decorate in (ss.amp.custom_fwd, ss.amp.custom_bwd):
        with pytest.raises(ValueError, match="device_type"):
            decorate(device_type=3)


class Seen(ss.autograd.Function):
    """Notes whether autocast is on in its backward."""

    inside: bool | None = None

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        Seen.inside = ss.is_autocast_enabled("cpu")
        return grad


def test_a_users_backward_sees_autocast_as_it_is() -> None:
    for inside in (True, False):
        x = ss.ones(2, requires_grad=True)
        loss = Seen.apply(x).sum()
        with ss.autocast("cpu", enabled=inside):
            loss.backward()
            assert Seen.inside is inside
            assert ss.is_autocast_enabled("cpu") is inside


@pytest.mark.parametrize("inside", [True, False])
def test_checkpoints_compute_again_as_before(inside: bool) -> None:
    def gradients(kept: bool) -> list[Any]:
        ss.manual_seed(1)
        block = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
        x = ss.rand(3, 4, requires_grad=True)
        with ss.autocast("cpu", dtype=ss.float16):
            y = block(x) if kept else ss.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
            assert y.dtype is ss.float16
            if inside:
                y.sum().backward()
        if not inside:
            y.sum().backward()
        return [x.grad, *[each.grad for each in block.parameters()]]

    for mine, theirs in zip(gradients(False), gradients(True), strict=True):
        assert mine.dtype is ss.float32
        assert ss.equal(mine, theirs)


# -- names -----------------------------------------------------------------------------------------
def test_names() -> None:
    assert ss.autocast is ss.amp.autocast
    assert issubclass(ss.cuda.amp.autocast, ss.autocast)
    assert issubclass(ss.cuda.amp.GradScaler, ss.amp.GradScaler)
    with ss.cuda.amp.autocast(enabled=False):
        assert not ss.is_autocast_enabled("cuda")

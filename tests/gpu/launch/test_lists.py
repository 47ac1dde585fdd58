"""Lists of tensors on the device: launches of a step, replay, and what they give."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import slipstream as ss
from cpu.optim.changes import CHANGES
from cpu.optim.listed import OPTIMIZERS, Pair, give_gradients, parameters
from slipstream import nn, optim
from slipstream.core.kernels.cuda.lists import cut
from slipstream.nn import functional as F


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_lists_are_as_good_as_one_by_one(name: str) -> None:
    pair = Pair("cuda", name)
    for _ in range(4):
        pair.step()
    pair.check()


@pytest.mark.parametrize("name", ["adamw", "sgd with momentum"])
def test_dtypes_are_mixed(name: str) -> None:
    pair = Pair("cuda", name, dtypes=(None, ss.bfloat16, ss.float64, ss.float16))
    for _ in range(3):
        pair.step()
    pair.check()


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", ["sgd with momentum", "adam amsgrad"])
def test_whatever_changes_between_steps(name: str, change: Any) -> None:
    Pair("cuda", name).live_through(change)


def launches(call: Any) -> int:
    """How many kernels a call launches."""
    before = ss.cuda.launch_stats()["launches"]
    call()
    ss.cuda.synchronize()
    return int(ss.cuda.launch_stats()["launches"] - before)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_is_one_launch(name: str) -> None:
    cls, options = OPTIMIZERS[name]
    params = parameters("cuda", shapes=((7,),) * 300 + ((40, 50),) * 20)
    optimizer = cls(params, **options)
    give_gradients(params, 1)
    optimizer.step()
    ss.cuda.synchronize()
    assert launches(optimizer.step) == 1


def test_unaligned_gradients() -> None:
    for name in ("adamw", "sgd"):
        pair = Pair("cuda", name)
        for params in pair.params:
            for param in params:
                room = ss.ones(param.numel() + 1, device="cuda")
                param.grad = room[1:].view(param.shape)
        pair.step(gradients=False)
        pair.check()


def steady(step: Any, count: int = 60) -> dict[str, int]:
    """What the runtime and the driver counted in the second half of some steps."""
    for number in range(count):
        step(number)
    ss.cuda.synchronize()
    before = {**ss.cuda.launch_stats(), **ss.cuda.driver_stats()}
    for number in range(count, 2 * count):
        step(number)
    # Before the wait, which ends a window early as the one before did: the second is captured.
    after = {**ss.cuda.launch_stats(), **ss.cuda.driver_stats()}
    ss.cuda.synchronize()
    return {name: after[name] - before.get(name, 0) for name in after
            if isinstance(after[name], int)}


def test_a_schedule_and_the_step_count_never_stop_replay(restart: Any) -> None:
    restart(zero_cost=True, race=False, poison=False)
    model = nn.Sequential(*[part for _ in range(6) for part in (nn.Linear(8, 8), nn.ReLU())])
    model = model.to("cuda")
    optimizer = optim.AdamW(model.parameters())
    schedule = optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.99)
    x = ss.randn(4, 8, device="cuda")

    def step(number: int) -> None:
        optimizer.zero_grad()
        F.mse_loss(model(x), x).backward()
        optimizer.param_groups[0]["betas"] = (0.9 - number / 1000, 0.999)
        optimizer.step()
        schedule.step()

    found = steady(step, 200)
    assert found["captured"] == 0
    assert found["replayed"] >= 0.99 * found["launches"]
    assert found.get("compilations", 0) == 0
    assert found.get("copies", 0) == 0


def test_gradients_that_take_turns_find_their_tables_again(restart: Any) -> None:
    restart(zero_cost=True, race=False, poison=False)
    params = parameters("cuda", shapes=((9,),) * 30)
    optimizer = optim.SGD(params, lr=0.1)
    turns = [[ss.ones(9, device="cuda") for _ in params] for _ in range(3)]

    def step(number: int) -> None:
        for param, gradient in zip(params, turns[number % 3], strict=True):
            param.grad = gradient
        optimizer.step()

    found = steady(step, 12)
    assert found["launches"] == 12
    assert found.get("copies", 0) == 0


def test_a_bad_index_keeps_parameters_as_they_were() -> None:
    params = parameters("cuda", shapes=((9,), (5,)))
    optimizer = optim.SGD(params, lr=0.1)
    give_gradients(params, 1)
    before = [param.tolist() for param in params]
    table = ss.arange(4, device="cuda")
    found = table[ss.tensor([7], device="cuda")]

    def noticed() -> None:
        # A card may be quick enough for the step to notice.
        optimizer.step()
        ss.cuda.synchronize()

    with pytest.raises(IndexError, match="index 7"):
        noticed()
    assert found.tolist() == [0]
    assert [param.tolist() for param in params] == before
    optimizer.step()
    assert [param.tolist() for param in params] != before


@pytest.mark.parametrize("name", ["Adam", "NAdam", "ASGD"])
def test_a_bad_index_in_a_step_keeps_weights_and_moments(name: str) -> None:
    embedding = ss.nn.Embedding(10, 4, device="cuda")
    optimizer = getattr(optim, name)(embedding.parameters())

    def step(*rows: int) -> None:
        optimizer.zero_grad()
        embedding(ss.tensor(rows, device="cuda")).square().sum().backward()
        optimizer.step()
        ss.cuda.synchronize()

    def kept() -> list[Any]:
        state = optimizer.state[embedding.weight]
        names = [name for name in ("exp_avg", "exp_avg_sq", "ax") if name in state]
        return [embedding.weight.tolist(), *[state[name].tolist() for name in names]]

    step(1, 2)
    step(1, 2)
    before = kept()
    with pytest.raises(IndexError, match="index 99"):
        step(1, 99)
    assert kept() == before
    step(1, 2)
    assert kept() != before


def test_several_streams() -> None:
    pair = Pair("cuda", "adamw")
    other = ss.cuda.Stream()
    for number in range(6):
        stream = other if number % 2 else ss.cuda.current_stream()
        with ss.cuda.stream(stream):
            stream.wait_stream(ss.cuda.default_stream())
            pair.step()
        ss.cuda.default_stream().wait_stream(stream)
    pair.check()


def test_another_stream_does_not_take_the_memory_of_gradients_in_use() -> None:
    params = parameters("cuda", shapes=((1000,),) * 20)
    optimizer = optim.SGD(params, lr=1.0)
    start = [param.detach().clone() for param in params]
    other = ss.cuda.Stream()
    for _ in range(3):
        for param in params:
            param.grad = ss.ones(1000, device="cuda")
        other.wait_stream(ss.cuda.current_stream())
        with ss.cuda.stream(other):
            optimizer.step()
        optimizer.zero_grad()
        # The default stream asks for blocks of the same sizes, and writes them at once.
        new = [ss.full((1000,), 7.0, device="cuda") for _ in params]
        ss.cuda.current_stream().wait_stream(other)
        del new
    for param, before in zip(params, start, strict=True):
        assert (param == before - 1 - 1 - 1).all()


def test_many_elements_are_cut_evenly() -> None:
    for numels in ([5_000_000, 3, 0, 4097], [3500] * 3000, [1], [2**33]):
        chunks = cut(numels, 1024).reshape(-1, 2)
        tensor, count, first = chunks[:, 0] & 0xFFFFFFFF, chunks[:, 0] >> 32, chunks[:, 1]
        for number, numel in enumerate(numels):
            mine = tensor == number
            assert count[mine].sum() == numel
            assert (first[mine][1:] == (first[mine] + count[mine])[:-1]).all()
            assert (first[mine] % 4 == 0).all()
        assert count.max() <= 16384


GRADIENT_SHAPES = ((3,), (2, 4), (0,), (5000,), (33, 129), (1,))


def with_gradients(dtype: Any, scale: float) -> list[Any]:
    """Parameters with gradients of about a size."""
    made = []
    for seed, shape in enumerate(GRADIENT_SHAPES):
        param = nn.Parameter(ss.zeros(shape, dtype=dtype, device="cuda"))
        values = np.random.default_rng(seed).standard_normal(shape) * scale
        param.grad = ss.from_numpy(values).to(dtype).to("cuda")
        made.append(param)
    return made


@pytest.mark.parametrize("dtype", [ss.float32, ss.float64, ss.bfloat16, ss.float16])
@pytest.mark.parametrize("order", [2.0, 1.0, 3.5, float("inf")])
@pytest.mark.parametrize("scale", [1.0, 1e-30, 1e30])
def test_clipping_neither_overflows_nor_takes_more_than_three_launches(
        dtype: Any, order: float, scale: float) -> None:
    if dtype == ss.float16 and scale != 1.0:
        scale = 1e-3
    if dtype == ss.float64:
        scale **= 9
    params = with_gradients(dtype, scale)
    most = max(scale, 1e-6) * 2
    before = [param.grad.double().cpu().numpy() for param in params]
    nn.utils.clip_grad_norm_(params, 1e300, norm_type=order)
    found: list[Any] = []
    count = launches(lambda: found.append(
        nn.utils.clip_grad_norm_(params, most, norm_type=order)))
    assert count <= 3
    size = max([np.abs(each).max() for each in before if each.size])
    flat = np.concatenate([each.ravel() for each in before]) / size
    wanted = size * np.linalg.norm(flat, order)
    rounding = {ss.float64: 1e-12, ss.float32: 1e-6}.get(dtype, 1e-2)
    np.testing.assert_allclose(found[0].double().item(), wanted, rtol=rounding)
    assert found[0].dtype == dtype
    factor = min(1.0, most / (wanted + 1e-6))
    # Half of the smallest float16; below the others' smallest nothing is left here.
    tiny = 2.0 ** -25 if dtype == ss.float16 else 0.0
    for param, each in zip(params, before, strict=True):
        np.testing.assert_allclose(param.grad.double().cpu().numpy(), each * factor,
                                   rtol=rounding, atol=rounding * size * factor + tiny)


def test_a_norm_beyond_its_dtype_clips_all_the_same() -> None:
    params = [nn.Parameter(ss.zeros(4, device="cuda")) for _ in range(3)]
    for param in params:
        param.grad = ss.full((4,), 2e38, device="cuda")
    norm = nn.utils.clip_grad_norm_(params, 1.0, error_if_nonfinite=True)
    assert norm.item() == float("inf")
    np.testing.assert_allclose(params[0].grad.cpu().numpy(), 1 / np.sqrt(12), rtol=1e-6)


@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_clipping_what_is_not_finite(bad: float) -> None:
    for order in (2.0, 3.0, float("inf")):
        params = with_gradients(ss.float32, 1.0)
        params[3].grad[77] = bad
        with pytest.raises(RuntimeError, match="not finite"):
            nn.utils.clip_grad_norm_(params, 1.0, norm_type=order, error_if_nonfinite=True)
        norm = nn.utils.clip_grad_norm_(params, 1.0, norm_type=order).item()
        assert norm == bad or norm != norm


def test_clipping_zeros() -> None:
    params = with_gradients(ss.float32, 0.0)
    assert nn.utils.clip_grad_norm_(params, 1.0).item() == 0.0
    assert params[0].grad.tolist() == [0.0] * 3


@pytest.mark.parametrize("place", [None, 0, 4999])
@pytest.mark.parametrize("bad", [float("inf"), float("nan"), -float("inf")])
def test_a_scaler_takes_two_launches_and_finds_what_is_not_finite(
        place: int | None, bad: float) -> None:
    params = with_gradients(ss.float32, 1.0)
    scaler = ss.amp.GradScaler("cuda", init_scale=4.0)
    scaler.scale(ss.ones((), device="cuda"))
    optimizer = optim.SGD(params, lr=1.0)
    before = [param.grad.cpu().numpy() for param in params]
    if place is not None:
        params[3].grad[place] = bad
    scaler.unscale_(optimizer)
    np.testing.assert_array_equal(params[4].grad.cpu().numpy(), before[4] / 4)
    scaler.step(optimizer)
    assert (params[4].detach().cpu().numpy() == 0).all() == (place is not None)
    scaler.update()
    assert scaler.get_scale() == (4.0 if place is None else 2.0)
    more = ss.amp.GradScaler("cuda", init_scale=4.0)
    more.scale(ss.ones((), device="cuda"))
    # The inverse of the scale, the flag's zero, and the list.
    assert launches(lambda: more.unscale_(optimizer)) <= 5


def test_gradients_are_zeroed_by_one_launch() -> None:
    params = with_gradients(ss.float32, 1.0)
    optimizer = optim.SGD(params, lr=1.0)
    optimizer.zero_grad(set_to_none=False)
    ss.cuda.synchronize()
    assert launches(lambda: optimizer.zero_grad(set_to_none=False)) == 1
    assert all((param.grad == 0).all() for param in params)
    optimizer.zero_grad()
    assert all(param.grad is None for param in params)


def test_scopes_of_a_stream_find_its_tables_again(restart: Any) -> None:
    restart(zero_cost=True, race=False, poison=False)
    optimizer = optim.Adam(with_gradients(ss.float32, 1.0), lr=0.1)
    side = ss.cuda.Stream()
    side.wait_stream(ss.cuda.current_stream())

    def step(_: int) -> None:
        with ss.cuda.stream(side):
            optimizer.step()

    assert steady(step, 6).get("copies", 0) == 0


def test_clipping_an_infinite_gradient_beside_a_large_one() -> None:
    for values in ((math.inf, 1e200), (1e200, math.inf)):
        leaves = [ss.zeros(2000, dtype=ss.float64, device="cuda").requires_grad_() for _ in values]
        for leaf, value in zip(leaves, values, strict=True):
            leaf.grad = ss.full((2000,), value, dtype=ss.float64, device="cuda")
        assert ss.nn.utils.clip_grad_norm_(leaves, 1.0).item() == math.inf

"""Small training steps: what is launched, and what is kept from one step to the next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import slipstream as ss
from slipstream.core.launch.door import backend_of


def pair() -> tuple[Any, Any]:
    """A leaf that wants a gradient, and a tensor that does not."""
    leaf = ss.arange(8, device="cuda").to(ss.float32).requires_grad_()
    return leaf, ss.full((8,), 3.0, device="cuda")


def counted(step: Callable[[], Any], times: int = 1) -> dict[str, Any]:
    """How much the counts of launches grew in so many steps."""
    before = ss.cuda.launch_stats()
    for _ in range(times):
        step()
    after = ss.cuda.launch_stats()
    return {name: after[name] - before[name] for name in ("launches", "windows")}


def kept(device: Any) -> dict[Any, Any]:
    """What the current stream keeps between backwards."""
    backend: Any = backend_of(device)
    found: dict[Any, Any] = backend.queue().lasting
    return found


def test_a_step_fills_no_memory_with_the_gradient_one() -> None:
    leaf, other = pair()

    def step() -> None:
        (leaf * other).sum().backward()
        leaf.grad = None

    step()
    ss.cuda.synchronize()
    before = ss.cuda.launch_stats()["launches"]
    for _ in range(5):
        step()
    ss.cuda.synchronize()
    # mul, sum and mul's gradient; what sum's gradient is a view of was filled before.
    assert ss.cuda.launch_stats()["launches"] - before == 5 * 3


@pytest.mark.parametrize("dtype", [ss.float32, ss.float64, ss.bfloat16])
def test_gradients_stay_right_in_every_dtype(dtype: Any) -> None:
    for _ in range(3):
        leaf = ss.ones(4, device="cuda", dtype=dtype, requires_grad=True)
        (leaf * 2).sum().backward()
        assert leaf.grad.tolist() == [2.0] * 4


def test_a_hook_that_writes_does_so_for_its_own_backward_alone() -> None:
    leaf, other = pair()
    for change in (1.0, 5.0, 1.0, 1.0):
        leaf.grad = None
        total = (leaf * other).sum()
        total.register_hook(lambda grad, by=change: grad.mul_(by) if by != 1.0 else None)
        total.backward()
        assert leaf.grad.tolist() == [3.0 * change] * 8


def test_gradients_that_hooks_keep_are_tensors_of_their_own() -> None:
    leaf, other = pair()
    seen: list[Any] = []
    for _ in range(3):
        total = (leaf * other).sum()
        total.register_hook(seen.append)
        total.backward()
    assert len({each.data_ptr() for each in seen}) == 3
    seen[0].fill_(7)
    assert [each.item() for each in seen] == [7.0, 1.0, 1.0]


def test_an_asked_gradient_of_the_root_is_its_own() -> None:
    leaf, other = pair()
    for _ in range(2):
        total = (leaf * other).sum()
        (root,) = ss.autograd.grad(total, [total])
        root.mul_(9)
    leaf.grad = None
    (leaf * other).sum().backward()
    assert leaf.grad.tolist() == [3.0] * 8


def test_a_send_that_fails_leaves_nothing_behind(restart: Any) -> None:
    driver = restart()
    leaf, other = pair()
    ss.cuda.synchronize()
    (leaf * other).sum().backward()
    assert kept(leaf.device)
    driver.fail_next("launch", 2)
    with pytest.raises(RuntimeError):
        ss.cuda.synchronize()
    # The fill may never have run.
    assert not kept(leaf.device)
    leaf.grad = None
    (leaf * other).sum().backward()
    assert leaf.grad.tolist() == [3.0] * 8


def test_emptying_the_cache_lets_go_of_it() -> None:
    leaf, other = pair()
    (leaf * other).sum().backward()
    assert kept(leaf.device)
    ss.cuda.empty_cache()
    assert not kept(leaf.device)


def test_a_capture_neither_takes_nor_keeps_it() -> None:
    leaf, other = pair()
    (leaf * other).sum().backward()
    ss.cuda.synchronize()
    ss.cuda.empty_cache()
    graph = ss.cuda.CUDAGraph()
    with ss.cuda.graph(graph):
        leaf.grad = None
        (leaf * other).sum().backward()
    graph.replay()
    assert leaf.grad.tolist() == [3.0] * 8
    found = leaf.grad
    del graph
    leaf.grad = None
    (leaf * other).sum().backward()
    assert leaf.grad.tolist() == [3.0] * 8
    assert found is not leaf.grad


def test_a_short_loop_is_sent_in_whole_rounds() -> None:
    leaf, other = pair()

    def step() -> None:
        (leaf * other).sum().backward()
        leaf.grad = None

    for _ in range(60):
        step()
    grown = counted(step, 110)
    # Eleven rounds of three launches are the first whole rounds that are 32 launches or more.
    assert grown["launches"] == 330
    assert grown["windows"] <= 11


def test_what_follows_a_short_loop_is_cut_by_content_again() -> None:
    leaf, other = pair()
    for _ in range(60):
        (leaf * other).sum().backward()
        leaf.grad = None
    ss.cuda.synchronize()
    marks = [lambda x: x + 1, lambda x: x * 2, lambda x: x - 3, ss.relu, ss.exp, ss.tanh, ss.neg,
             ss.abs, ss.sin, ss.cos, ss.sqrt, ss.floor, ss.sigmoid, lambda x: x / 7]

    def loop() -> None:
        for mark in marks:
            mark(other)

    for _ in range(30):
        loop()
    before = ss.cuda.launch_stats()
    for _ in range(40):
        loop()
    ss.cuda.synchronize()
    after = ss.cuda.launch_stats()
    launches = after["launches"] - before["launches"]
    assert launches == 40 * len(marks)
    assert after["replayed"] - before["replayed"] >= 0.9 * launches


def test_unpacked_tensors_of_another_layout_get_a_plan_of_their_own() -> None:
    weight = ss.arange(6, device="cuda").to(ss.float32).reshape(2, 3).requires_grad_()
    other = ss.arange(6, device="cuda").to(ss.float32).reshape(2, 3) + 1

    def gradient() -> Any:
        weight.grad = None
        (weight * other).sin().sum().backward()
        return weight.grad.cpu().numpy()

    expected = np.cos(weight.detach().cpu().numpy() * other.cpu().numpy()) * other.cpu().numpy()
    np.testing.assert_allclose(gradient(), expected, rtol=1e-5)
    with ss.autograd.graph.saved_tensors_hooks(
            lambda saved: saved.mT.contiguous(), lambda packed: packed.mT):
        turned = (weight * other).sin().sum()
    weight.grad = None
    turned.backward()
    np.testing.assert_allclose(weight.grad.cpu().numpy(), expected, rtol=1e-5)
    np.testing.assert_allclose(gradient(), expected, rtol=1e-5)


def test_numbers_of_a_formula_are_those_of_each_call() -> None:
    leaf = ss.ones(4, device="cuda", requires_grad=True)
    for power in (2.0, 3.0, 2, 5):
        leaf.grad = None
        (leaf ** power).sum().backward()
        assert leaf.grad.tolist() == [float(power)] * 4


def test_a_kernel_looks_at_each_call_after_a_right_one() -> None:
    kernel = ss.cuda.kernel("""__global__ void shift(float* y, int n, float by) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) y[i] += by;
    }""")[1, 64]
    y, longer = ss.zeros(8, device="cuda"), ss.zeros(16, device="cuda")
    for _ in range(2):
        kernel(y, 8, 1.0)
        kernel(longer, 16, 2)
    with pytest.raises(TypeError):
        kernel(y.to(ss.float64), 8, 1.0)
    with pytest.raises(TypeError):
        kernel(y, 8)
    with pytest.raises(TypeError):
        kernel(y, 8.0, 1.0)
    with pytest.raises(OverflowError):
        kernel(y, 2**40, 1.0)
    kernel(y, 8, 1.0)
    assert (y.tolist(), longer.tolist()) == ([3.0] * 8, [4.0] * 16)


@pytest.mark.parametrize("op", [
    lambda made, other: made + other, lambda made, other: other + made,
    lambda made, other: made - other, lambda made, other: ss.addcmul(made, other, other),
    lambda made, other: made.clone(), lambda made, other: made % other])
def test_a_gradient_that_is_the_results_own_is_no_launch(op: Callable[..., Any]) -> None:
    leaf, other = pair()

    def step(known: Callable[..., Any]) -> Any:
        leaf.grad = None
        known(leaf * other, other).mul(other).sum().backward()
        return leaf.grad

    step(op)
    # What is multiplied, computed between, multiplied and summed; the gradients of both products.
    assert counted(lambda: step(op))["launches"] == 6
    assert step(op).tolist() == [9.0] * 8


def test_a_gradient_that_passed_is_nobody_elses() -> None:
    for device in ("cpu", "cuda"):
        leaf = ss.ones(3, device=device, requires_grad=True)
        given = ss.full((3,), 2.0, device=device)
        (leaf + 1).clone().backward(given)
        leaf.grad.mul_(5)
        assert given.tolist() == [2.0] * 3
        (leaf - 1).half().backward(given.half())
        assert leaf.grad.tolist() == [12.0] * 3
        assert leaf.grad.dtype is ss.float32


def test_a_gradient_of_a_narrow_addend_is_cast() -> None:
    narrow = ss.ones(3, device="cuda", dtype=ss.bfloat16, requires_grad=True)
    real = ss.ones(3, device="cuda", requires_grad=True)
    ((narrow + ss.ones(3, device="cuda")) * 3).sum().backward()
    assert narrow.grad.dtype is ss.bfloat16
    assert narrow.grad.tolist() == [3.0] * 3
    ((real + ss.full((3,), 1j, device="cuda")) * (2 + 1j)).sum().real.backward()
    assert real.grad.dtype is ss.float32
    assert real.grad.tolist() == [2.0] * 3

"""Copies between pinned memory and the card: the host goes on, and waits where it must."""

from __future__ import annotations

from typing import Any

import pytest

import slipstream as ss


def test_a_pinned_tensor_says_so() -> None:
    pinned = ss.arange(10.0).pin_memory()
    assert pinned.is_pinned()
    assert pinned.pin_memory() is pinned
    assert not ss.arange(10.0).is_pinned()
    with pytest.raises(RuntimeError, match="only dense CPU tensors"):
        ss.arange(3, device="cuda").pin_memory()


def test_writing_waits_for_the_copy_that_reads() -> None:
    pinned = ss.arange(1000.0).pin_memory()
    copy = pinned.to("cuda", non_blocking=True)
    pinned.add_(1)
    assert copy.tolist() == list(range(1000))
    assert pinned[0] == 1


def test_reading_waits_for_the_copy_that_fills() -> None:
    source = ss.arange(1000.0).cuda()
    for read in (lambda t: t.tolist(), lambda t: t.numpy().tolist(), lambda t: (t + 0).tolist()):
        target = ss.zeros(1000).pin_memory()
        target.copy_(source * 3, non_blocking=True)
        assert read(target) == [3.0 * i for i in range(1000)]


def test_a_block_is_not_given_out_while_a_copy_reads_it() -> None:
    first = ss.full((1000,), 1.0).pin_memory()
    copy = first.to("cuda", non_blocking=True)
    address = first.storage.address
    del first
    second = ss.full((1000,), 2.0).pin_memory()
    assert second.storage.address != address or copy.sum() == 1000
    assert copy.sum() == 1000


@pytest.mark.parametrize("make", [
    lambda **more: ss.empty(3, 4, **more), lambda **more: ss.zeros((3, 4), **more),
    lambda **more: ss.ones(5, dtype=ss.int64, **more), lambda **more: ss.full((2,), 7, **more),
    lambda **more: ss.arange(6, **more), lambda **more: ss.eye(3, **more),
    lambda **more: ss.linspace(0, 1, 5, **more), lambda **more: ss.rand(4, **more),
    lambda **more: ss.randn((2, 3), **more), lambda **more: ss.randint(0, 5, (4,), **more),
    lambda **more: ss.randperm(9, **more), lambda **more: ss.tensor([1.0, 2.0], **more),
    lambda **more: ss.zeros_like(ss.ones(3), **more),
    lambda **more: ss.ones(2).new_zeros(3, **more),
    lambda **more: ss.empty_strided((2, 3), (1, 2), **more),
    lambda **more: ss.normal(0.0, 1.0, (3,), **more)])
def test_factories_pin(make: Any) -> None:
    ss.manual_seed(1)
    plain = make()
    assert not plain.is_pinned()
    ss.manual_seed(1)
    pinned = make(pin_memory=True, requires_grad=plain.is_floating_point())
    assert pinned.is_pinned()
    assert pinned.requires_grad == plain.is_floating_point()
    assert pinned.is_leaf
    assert (pinned.shape, pinned.dtype, pinned.stride()) == (
        plain.shape, plain.dtype, plain.stride())
    if plain.shape != (3, 4) and plain.stride() != (1, 2):
        assert pinned.tolist() == plain.tolist()


def test_only_the_cpus_tensors_are_pinned() -> None:
    with pytest.raises(RuntimeError, match="only dense CPU tensors"):
        ss.zeros(3, device="cuda", pin_memory=True)


def test_a_copy_to_the_cpu_in_a_hurry_is_pinned(restart: Any) -> None:
    driver = restart()
    x = ss.arange(1000.0, device="cuda")
    before = driver.statistics()["synchronizations"]
    y = x.to("cpu", non_blocking=True)
    z = (x * 2).to("cpu", non_blocking=True)
    assert driver.statistics()["synchronizations"] == before
    assert y.is_pinned()
    assert (y + z).tolist() == [3.0 * i for i in range(1000)]
    w = x.requires_grad_().to("cpu", non_blocking=True)
    w.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [1.0] * 1000

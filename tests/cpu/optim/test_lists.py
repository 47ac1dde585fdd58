"""Optimizers over lists of tensors give what they give parameter by parameter, to the bit."""

from __future__ import annotations

import weakref
from typing import Any

import pytest

import slipstream as ss
from cpu.optim.changes import CHANGES
from cpu.optim.listed import OPTIMIZERS, Pair
from slipstream import optim
from slipstream.core.launch.door import door


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_lists_are_as_good_as_one_by_one(name: str) -> None:
    pair = Pair("cpu", name)
    for _ in range(4):
        pair.step()
    pair.check()


@pytest.mark.parametrize("name", ["adamw", "sgd with momentum", "rmsprop"])
def test_dtypes_are_mixed(name: str) -> None:
    pair = Pair("cpu", name, dtypes=(None, ss.bfloat16, ss.float64, ss.float16))
    for _ in range(3):
        pair.step()
    pair.check()


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", ["sgd", "sgd with momentum", "adam amsgrad", "adagrad"])
def test_whatever_changes_between_steps(name: str, change: Any) -> None:
    Pair("cpu", name).live_through(change)


def test_a_step_is_one_launch_for_each_dtype() -> None:
    pair = Pair("cpu", "adamw", dtypes=(None, ss.float64))
    pair.step()
    before = door.launches
    pair.optimizers[0].step()
    assert door.launches - before == 2


def test_gradients_are_not_kept() -> None:
    pair = Pair("cpu", "adamw")
    pair.step()
    held = [param.grad for param in pair.params[0]]
    storages = [weak(each) for each in held]
    pair.optimizers[0].zero_grad()
    del held
    assert all(storage() is None for storage in storages)


def weak(tensor: Any) -> Any:
    """A weak reference to a tensor's memory."""
    return weakref.ref(tensor.storage)


def test_versions_count_writes() -> None:
    pair = Pair("cpu", "adamw")
    pair.step()
    param = pair.params[0][0]
    before = param._version
    pair.step()
    assert param._version > before


def test_lists_that_pytorch_refuses_are_refused() -> None:
    params = [ss.ones(2, requires_grad=True)]
    rate = ss.tensor(0.1)
    with pytest.raises(ValueError, match="lr as a Tensor is not supported for capturable=False"):
        optim.Adam(params, lr=rate, foreach=True)
    with pytest.raises(ValueError, match="either both floats or both Tensors"):
        optim.AdamW(params, betas=(rate, 0.9))
    with pytest.raises(ValueError, match=r"Tensor betas\[1\] must be 1-element"):
        optim.Adam(params, betas=(rate, ss.ones(2) * 0.5))
    with pytest.raises(RuntimeError, match="cannot be `True` together"):
        optim.Adam(params, foreach=True, fused=True)
    complex_one = [ss.ones(2, dtype=ss.complex64, requires_grad=True)]
    complex_one[0].grad = ss.ones(2, dtype=ss.complex64)
    with pytest.raises(RuntimeError, match="requires all the params to be floating point"):
        optim.Adam(complex_one, fused=True).step()

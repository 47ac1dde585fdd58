"""Optimizers over lists of tensors give what they give parameter by parameter, to the bit."""

from __future__ import annotations

import weakref
from typing import Any

import pytest

import slipstream as ss
from cpu.optim.changes import CHANGES
from cpu.optim.listed import OPTIMIZERS, Pair
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
    pair = Pair("cpu", name)
    for _ in range(3):
        pair.step()
        pair.step()
        pair.both(change)
        pair.step(gradients=False)
    pair.step()
    pair.check()


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

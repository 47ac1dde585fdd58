"""The order of `optimizer.step()` and `lr_scheduler.step()`, and what a scheduler holds on to."""

from __future__ import annotations

import copy
import gc
import pickle
import warnings
import weakref

import pytest

import slipstream as ss


def pair():
    """An optimizer of one parameter with a gradient, and its scheduler."""
    parameter = ss.nn.Parameter(ss.ones(2))
    parameter.grad = ss.ones(2)
    optimizer = ss.optim.SGD([parameter], lr=0.1)
    return optimizer, ss.optim.lr_scheduler.StepLR(optimizer, 1)


def test_a_scheduler_that_steps_first_warns_once():
    optimizer, scheduler = pair()
    with pytest.warns(UserWarning, match=r"before `optimizer.step\(\)`"):
        scheduler.step()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.step()
        scheduler.step()


@pytest.mark.parametrize("again", [copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))])
def test_the_right_order_says_nothing(again):
    optimizer, scheduler = pair()
    optimizer.step()
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.01)
    again(optimizer).step()


def test_a_resumed_scheduler_says_nothing():
    optimizer, scheduler = pair()
    optimizer.step()
    scheduler.step()
    _, later = pair()
    later.load_state_dict(scheduler.state_dict())
    later.step()
    assert later.last_epoch == 2


def test_a_step_of_ones_own_is_called():
    optimizer, _ = pair()
    calls = []
    optimizer.step = lambda: calls.append(1)
    scheduler = ss.optim.lr_scheduler.StepLR(optimizer, 1)
    optimizer.step()
    scheduler.step()
    assert calls == [1]


def test_a_scheduler_makes_no_cycle():
    optimizer, scheduler = pair()
    optimizer.step()
    seen = weakref.ref(optimizer)
    gc.disable()
    try:
        del optimizer, scheduler
        assert seen() is None
    finally:
        gc.enable()

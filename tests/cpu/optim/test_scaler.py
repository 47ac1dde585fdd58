"""GradScaler: closures, pickling, and the messages of calls out of turn."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

import slipstream as ss
from slipstream import optim
from slipstream.amp import GradScaler


def scaled(factor: float, **options: Any) -> tuple[Any, Any, GradScaler]:
    """A parameter with scaled gradients, its optimizer and its scaler."""
    parameter = ss.nn.Parameter(ss.ones(3))
    optimizer = optim.SGD([parameter], lr=0.1, **options)
    scaler = GradScaler("cpu", init_scale=4.0, growth_interval=1)
    scaler.scale((parameter * factor).sum()).backward()
    return parameter, optimizer, scaler


def test_a_step_that_is_left_out_calls_no_closure() -> None:
    called = []
    parameter, optimizer, scaler = scaled(float("inf"))
    assert scaler.step(optimizer, lambda: called.append(1) or 7.0) is None
    assert not called
    assert parameter.tolist() == [1, 1, 1]
    parameter, optimizer, scaler = scaled(2.0)
    assert scaler.step(optimizer, lambda: called.append(1) or 7.0) == 7.0
    assert called == [1]
    assert parameter.tolist() == pytest.approx([0.8] * 3)


def test_a_fused_step_calls_its_closure_itself() -> None:
    parameter, optimizer, scaler = scaled(float("inf"), fused=True)
    assert scaler.step(optimizer, lambda: 7.0) == 7.0
    assert parameter.tolist() == [1, 1, 1]


def test_pickling_waits_for_update() -> None:
    _, optimizer, scaler = scaled(2.0)
    scaler.unscale_(optimizer)
    with pytest.raises(AssertionError, match="at the end after scaler"):
        pickle.dumps(scaler)
    scaler.step(optimizer)
    with pytest.raises(AssertionError, match="may only be pickled"):
        pickle.dumps(scaler)
    scaler.update()
    again = pickle.loads(pickle.dumps(scaler))
    assert again.state_dict() == scaler.state_dict()
    assert again.get_scale() == 8.0
    assert again.scale(ss.ones(1)).item() == 8.0


@pytest.mark.parametrize("name", ["unscale_", "step", "update"])
def test_the_call_out_of_turn_is_named(name: str) -> None:
    optimizer = optim.SGD([ss.nn.Parameter(ss.ones(3))], lr=0.1)
    arguments = () if name == "update" else (optimizer,)
    with pytest.raises(AssertionError, match=f"^Attempted {name} but _scale is None"):
        getattr(GradScaler("cpu"), name)(*arguments)


def test_gradients_in_float16_are_for_fused_steps() -> None:
    for fused in (False, True):
        parameter = ss.nn.Parameter(ss.ones(3, dtype=ss.float16))
        optimizer = optim.SGD([parameter], lr=0.5, fused=fused)
        scaler = GradScaler("cpu", init_scale=4.0, growth_interval=1)
        scaler.scale(parameter.float().sum()).backward()
        if not fused:
            with pytest.raises(ValueError, match="Attempting to unscale FP16 gradients"):
                scaler.step(optimizer)
            continue
        with pytest.raises(ValueError, match="Attempting to unscale FP16 gradients"):
            scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        assert parameter.tolist() == [0.5] * 3
        optimizer.zero_grad()
        scaler.scale((parameter.float() * 1e5).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        assert parameter.tolist() == [0.5] * 3
        assert scaler.get_scale() == 4.0


def test_an_optimizer_without_gradients_is_told_in_step() -> None:
    for fused in (False, True):
        optimizer = optim.SGD([ss.nn.Parameter(ss.ones(3))], lr=0.1, fused=fused)
        scaler = GradScaler("cpu")
        scaler.scale(ss.ones(1))
        scaler.unscale_(optimizer)
        if fused:
            assert scaler.step(optimizer) is None
        else:
            with pytest.raises(AssertionError, match="No inf checks were recorded for this opt"):
                scaler.step(optimizer)
        with pytest.raises(AssertionError, match="No inf checks were recorded prior to update"):
            scaler.update()

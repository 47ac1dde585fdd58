"""Optimizers on a card: a model that is moved after a step, and first steps that are left out."""

from __future__ import annotations

import io
from typing import Any

import pytest

import slipstream as ss


@pytest.mark.parametrize(("name", "options"), [
    ("SGD", {"momentum": 0.9}), ("Adam", {}), ("NAdam", {}), ("Rprop", {}), ("Muon", {}),
    ("Adafactor", {}),
])
def test_a_model_that_is_moved_after_a_step(name: str, options: dict[str, Any]) -> None:
    model = ss.nn.Linear(3, 3, bias=False)
    optimizer = getattr(ss.optim, name)(model.parameters(), **options)

    def step() -> None:
        optimizer.zero_grad()
        model(ss.ones(2, 3, device=model.weight.device)).square().sum().backward()
        optimizer.step()

    step()
    model.cuda()
    with pytest.raises(RuntimeError, match=rf"{name} keeps, on cpu: the model was moved") as told:
        step()
    assert "load_state_dict" in str(told.value)
    assert told.value.__cause__ is None
    assert len(str(told.value)) < 400
    optimizer.load_state_dict(optimizer.state_dict())
    before = model.weight.tolist()
    step()
    assert model.weight.tolist() != before


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_sizes_begin_with_the_first_step_that_is_taken(device: str) -> None:
    parameter = ss.nn.Parameter(ss.ones(3, device=device))
    optimizer = ss.optim.Rprop([parameter], lr=0.5)
    scaler = ss.amp.GradScaler(device, init_scale=4.0)
    for factor, rate in ((float("inf"), 0.5), (1.0, 0.125), (float("inf"), 0.125), (1.0, 0.125)):
        optimizer.param_groups[0]["lr"] = rate
        optimizer.zero_grad()
        scaler.scale((parameter * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
    state = optimizer.state[parameter]
    # Of four steps two are taken: the size is the rate of the first of them, and then grows.
    assert parameter.tolist() == pytest.approx([1 - 0.125 - 0.15] * 3)
    assert state["step"].item() == 2
    assert state["step_size"].tolist() == pytest.approx([0.15] * 3)


@pytest.mark.parametrize(("name", "options"), [
    ("Adam", {"amsgrad": True}), ("AdamW", {"foreach": True}), ("AdamW", {"fused": True}),
    ("NAdam", {}),
])
def test_a_state_that_was_loaded_to_a_card_goes_on_with_the_same_bits(
        name: str, options: dict[str, Any]) -> None:
    gradient = ss.linspace(-1, 1, 50, device="cuda")

    def run(parameter: ss.Tensor, optimizer: Any, steps: range) -> None:
        for number in steps:
            parameter.grad = gradient * (number + 1) ** 0.5
            optimizer.step()

    parameter = ss.nn.Parameter(ss.ones(50, device="cuda"))
    optimizer = getattr(ss.optim, name)([parameter], lr=0.01, **options)
    run(parameter, optimizer, range(5))
    file = io.BytesIO()
    ss.save((parameter.detach(), optimizer.state_dict()), file)
    file.seek(0)
    values, state = ss.load(file, map_location="cuda")
    again = ss.nn.Parameter(values)
    resumed = getattr(ss.optim, name)([again], lr=0.01, **options)
    resumed.load_state_dict(state)
    run(parameter, optimizer, range(5, 40))
    run(again, resumed, range(5, 40))
    assert again.tolist() == parameter.tolist()

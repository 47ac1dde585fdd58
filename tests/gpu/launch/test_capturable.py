"""Steps of Adam inside a captured graph: the card counts them, each replay is a step more."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import slipstream as ss

WARM, REPLAYS = 2, 4
OPTIONS = ({}, {"weight_decay": 0.1}, {"amsgrad": True, "maximize": True}, {"foreach": False})


def made(device: str, cls: Any, **options: Any) -> tuple[list[Any], Any]:
    """Two parameters with gradients, and their optimizer."""
    params = [ss.nn.Parameter(ss.arange(6.0, device=device).reshape(2, 3) / 5),
              ss.nn.Parameter(ss.ones(4, device=device))]
    params[0].grad = ss.full((2, 3), 0.3, device=device)
    params[1].grad = ss.arange(4.0, device=device) - 1.5
    return params, cls(params, **{"lr": 0.05, **options})


def captured(optimizer: Any) -> Any:
    """A graph of one step, after steps that are not in it."""
    for _ in range(WARM):
        optimizer.step()
    graph = ss.cuda.CUDAGraph()
    with ss.cuda.graph(graph):
        optimizer.step()
    return graph


@pytest.mark.parametrize("cls", [ss.optim.Adam, ss.optim.AdamW])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_each_replay_is_a_step_more(cls: Any, options: dict[str, Any]) -> None:
    params, optimizer = made("cuda", cls, capturable=True, **options)
    graph = captured(optimizer)
    for _ in range(REPLAYS):
        graph.replay()
    wanted, plain = made("cpu", cls, **options)
    eager, same = made("cuda", cls, capturable=True, **options)
    for _ in range(WARM + REPLAYS):
        plain.step()
        same.step()
    for mine, other, reference in zip(params, eager, wanted, strict=True):
        assert mine.tolist() == other.tolist()
        np.testing.assert_allclose(mine.detach().cpu().numpy(), reference.detach().numpy(),
                                   rtol=1e-5, atol=1e-6)
    step = optimizer.state[params[0]]["step"]
    assert (step.device.type, step.dtype, step.item()) == ("cuda", ss.float32, WARM + REPLAYS)


def test_a_first_step_inside_a_capture_is_told_to_come_before_it() -> None:
    params, optimizer = made("cuda", ss.optim.Adam, capturable=True)
    graph = ss.cuda.CUDAGraph()
    with (pytest.raises(RuntimeError, match=r"first Adam.step(.|\n)*take a step before the capt"),
          ss.cuda.graph(graph)):
        optimizer.step()
    assert not optimizer.state.get(params[0])
    captured(optimizer).replay()
    assert optimizer.state[params[0]]["step"].item() == WARM + 1


def test_a_rate_on_the_card_is_read_in_each_replay() -> None:
    lr = ss.tensor(0.05, device="cuda")
    params, optimizer = made("cuda", ss.optim.AdamW, lr=lr, capturable=True)
    graph = captured(optimizer)
    wanted, plain = made("cpu", ss.optim.AdamW)
    for step in range(WARM + REPLAYS):
        rate = 0.05 if step < WARM else 0.01 * step
        plain.param_groups[0]["lr"] = rate
        plain.step()
        if step >= WARM:
            lr.fill_(rate)
            graph.replay()
    for mine, reference in zip(params, wanted, strict=True):
        np.testing.assert_allclose(mine.detach().cpu().numpy(), reference.detach().numpy(),
                                   rtol=1e-5, atol=1e-6)


def test_a_rate_on_the_card_that_no_replay_would_read_is_named() -> None:
    lr = ss.tensor(0.05, device="cuda")
    _, optimizer = made("cuda", ss.optim.SGD, lr=lr)
    optimizer.step()
    with (pytest.raises(RuntimeError, match=r"reads an option.*such as lr(.|\n)*Python number"),
          ss.cuda.graph(ss.cuda.CUDAGraph())):
        optimizer.step()


def test_a_loaded_state_goes_on_where_it_was() -> None:
    params, optimizer = made("cuda", ss.optim.Adam, capturable=True)
    _, other = made("cpu", ss.optim.Adam)
    for _ in range(3):
        other.step()
    optimizer.load_state_dict(other.state_dict())
    optimizer.param_groups[0]["capturable"] = True
    captured(optimizer).replay()
    # The captured step itself was not carried out.
    assert optimizer.state[params[0]]["step"].item() == 3 + WARM + 1


def test_steps_that_the_host_counts_are_refused() -> None:
    for cls, options in ((ss.optim.Adam, {}), (ss.optim.Adamax, {"capturable": True})):
        _, optimizer = made("cuda", cls, **options)
        with pytest.raises(RuntimeError, match="capturable=True"):
            captured(optimizer)


def test_steps_wait_for_nothing() -> None:
    _, optimizer = made("cuda", ss.optim.AdamW, capturable=True)
    optimizer.step()
    before = ss.cuda.driver_stats()["synchronizations"]
    for _ in range(5):
        optimizer.step()
    assert ss.cuda.driver_stats()["synchronizations"] == before


def test_a_card_s_counters_go_home_with_the_parameters() -> None:
    _, optimizer = made("cuda", ss.optim.Adam, capturable=True)
    optimizer.step()
    params, other = made("cpu", ss.optim.Adam)
    other.load_state_dict(optimizer.state_dict())
    step = other.state[params[0]]["step"]
    assert (step.device.type, step.item()) == ("cpu", 1.0)
    # The option came with the state.
    with pytest.raises(AssertionError, match="If capturable=True"):
        other.step()
    other.param_groups[0]["capturable"] = False
    other.step()
    assert other.state[params[0]]["step"].item() == 2.0


@pytest.mark.parametrize("cls", [ss.optim.Adam, ss.optim.AdamW])
def test_a_rate_that_becomes_a_tensor_and_a_number_again(cls: Any) -> None:
    params, optimizer = made("cuda", cls, lr=0.1, capturable=True)
    wanted, plain = made("cpu", cls, lr=0.1)
    rates = [0.1, ss.tensor(0.05, device="cuda"), ss.tensor(0.2, device="cuda"),
             ss.tensor(0.03, dtype=ss.float64, device="cuda"), 0.07]
    for rate in rates:
        optimizer.param_groups[0]["lr"] = rate
        plain.param_groups[0]["lr"] = float(rate)
        for each in (params, wanted):
            for place, parameter in enumerate(each):
                parameter.grad = ss.full_like(parameter, 0.5 + place)
        optimizer.step()
        plain.step()
    for found, right in zip(params, wanted, strict=True):
        assert ss.allclose(found.cpu(), right, rtol=1e-5)


def test_a_step_with_wide_counters_is_left_out_too() -> None:
    ss.set_default_dtype(ss.float64)
    try:
        parameter = ss.ones(4, dtype=ss.float32, device="cuda", requires_grad=True)
        optimizer, scaler = ss.optim.Adam([parameter]), ss.amp.GradScaler("cuda")
        for factor in (1.0, float("inf"), 1.0):
            before = parameter.detach().clone()
            optimizer.zero_grad()
            scaler.scale((parameter * factor).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
            assert parameter.isfinite().all()
            assert parameter.equal(before) == (factor != 1.0)
    finally:
        ss.set_default_dtype(ss.float32)

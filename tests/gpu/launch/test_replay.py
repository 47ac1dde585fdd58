"""Loops that repeat themselves are replayed: 200 steps after 200 of warm-up, kernels cost nothing.

What the runtime says of its launches is checked against the simulated driver's own counts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import slipstream as ss
from gpu.launch.loops import LOOPS

STEPS = 200


def counts() -> dict[str, int]:
    """What the runtime counted and, under the driver's names, what the driver did."""
    report = ss.cuda.launch_stats()
    singles = sum(sum(names.values()) for names in report["single"].values())
    kept = {name: report[name] for name in ("launches", "replayed", "captured", "patched")}
    return {**kept, "single": singles, **{f"driver {name}": count for name, count
                                          in ss.cuda.driver_stats().items()}}


def steady(step: Callable[[int], Any]) -> dict[str, int]:
    """The counts of the steps after the warm-up."""
    for number in range(STEPS):
        step(number)
    before = counts()
    for number in range(STEPS, 2 * STEPS):
        step(number)
    after = counts()
    return {name: count - before.get(name, 0) for name, count in after.items()}


@pytest.mark.parametrize("name", LOOPS)
def test_the_steady_state_is_replayed(restart: Any, name: str) -> None:
    restart(zero_cost=True, race=False, poison=False)
    found = steady(LOOPS[name]())
    assert found["launches"] >= STEPS
    assert found["replayed"] >= 0.99 * found["launches"]
    assert found["single"] <= 0.01 * found["launches"]
    assert found["replayed"] + found["single"] == found["launches"]
    assert found["captured"] == 0


@pytest.mark.parametrize("name", LOOPS)
def test_the_driver_counts_the_same(restart: Any, name: str) -> None:
    restart(zero_cost=True, race=False, poison=False)
    found = steady(LOOPS[name]())
    assert found["driver graph_kernel_nodes"] == found["replayed"]
    assert found["driver kernel_launches"] == found["single"]
    assert found["driver node_updates"] == found["patched"]
    for never in ("captures", "instantiate", "allocations", "allocate", "create_physical", "map",
                  "synchronizations", "compilations", "load_module"):
        assert found.get(f"driver {never}", 0) == 0, never


def test_without_the_memo_every_launch_goes_by_itself(restart: Any) -> None:
    restart(memo=False, zero_cost=True, race=False, poison=False)
    step = LOOPS["lengths"]()
    for number in range(20):
        step(number)
    found = counts()
    assert found["replayed"] == found["captured"] == found["driver graph_launches"] == 0
    assert found["single"] == found["launches"] == found["driver kernel_launches"]


def test_memo_on_and_off_train_to_the_same_bits(restart: Any) -> None:
    losses = []
    for memo in (True, False):
        restart(memo=memo, race=False)
        ss.manual_seed(7)
        step = LOOPS["lengths"]()
        losses.append([step(number).item() for number in range(12)])
    assert losses[0] == losses[1]


def test_a_loop_that_keeps_its_last_result_has_a_graph_for_each_turn(restart: Any) -> None:
    restart()
    x, total = ss.ones(256, device="cuda"), ss.zeros((), device="cuda")
    kept = [total]

    def step() -> None:
        # The new result never lies where the one lies that it takes the place of.
        for _ in range(16):
            y = (x * 2.0 + 1.0).sum()
            kept[0] = total + y

    for _ in range(2):
        # The second time windows begin where steps do.
        ss.cuda.synchronize()
        for _ in range(20):
            step()
    ss.cuda.synchronize()
    before = ss.cuda.launch_stats()
    for _ in range(10):
        step()
    assert kept[0].item() == 768.0
    after = ss.cuda.launch_stats()
    found = {name: after[name] - before[name] for name in ("launches", "patched", "captured")}
    assert found == {"launches": 640, "patched": 0, "captured": 0}


def layered(layers: int) -> Callable[[], None]:
    """Layers of one kind, whose windows send the same kernels with other addresses."""
    weights = [ss.rand(64, device="cuda") for _ in range(layers)]
    marks = [ss.cuda.Event() for _ in range(layers)]
    x = ss.rand(64, device="cuda")

    def step() -> None:
        y = x
        for weight, mark in zip(weights, marks, strict=True):
            for _ in range(6):
                y = ((y * weight + 1.0).sin() - weight).cos()
            # Each layer ends a window, as one of a real model is long enough to.
            mark.record()

    return step


@pytest.mark.parametrize("layers", [6, 12, 24])
def test_layers_of_one_kind_have_a_graph_each(restart: Any, layers: int) -> None:
    restart(zero_cost=True, race=False, poison=False)
    step = layered(layers)
    for _ in range(6):
        step()
    ss.cuda.synchronize()
    before = counts()
    for _ in range(5):
        step()
    ss.cuda.synchronize()
    found = {name: count - before.get(name, 0) for name, count in counts().items()}
    assert found["replayed"] == found["launches"] == 5 * layers * 30
    assert found["patched"] == found["captured"] == 0


def test_arguments_that_never_come_again_are_patched_into_one_graph(restart: Any) -> None:
    restart(zero_cost=True, race=False, poison=False)
    x = ss.rand(64, device="cuda")
    for number in range(300):
        y = x
        for place in range(16):
            y = y * float(number * 16 + place) + 1.0
        ss.cuda.synchronize()
    found = counts()
    assert found["captured"] <= 2
    assert found["patched"] >= 16 * 290

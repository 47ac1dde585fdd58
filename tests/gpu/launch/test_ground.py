"""The CUDA road starts anew over any simulated driver: what the tests beside this rest on."""

from __future__ import annotations

import gc
from typing import Any

import slipstream as ss


def test_a_fresh_driver_has_fresh_counts(restart: Any) -> None:
    for model in ("T4", "H100"):
        driver = restart(model=model)
        x = ss.ones(4, device="cuda")
        assert (x + x).tolist() == [2.0] * 4
        assert model in ss.cuda.get_device_name()
        assert driver.statistics()["kernel_launches"] == ss.cuda.launch_stats()["launches"]


def test_plans_of_the_last_driver_are_gone(restart: Any) -> None:
    restart()
    x = ss.ones(4, device="cuda", requires_grad=True)
    (x * x).sum().backward()
    restart()
    y = ss.ones(4, device="cuda", requires_grad=True)
    (y * y).sum().backward()
    assert y.grad is not None
    assert y.grad.tolist() == [2.0] * 4


def test_a_new_start_does_not_go_through_what_others_left(restart: Any) -> None:
    # The fixture has put aside what lived before: modules, tests, tensors of earlier ones.
    driver = restart()
    assert len(gc.get_objects()) < gc.get_freeze_count() / 4
    x = ss.ones(3, device="cuda")
    assert (x + 1).sum().item() == 6
    again = restart()
    assert again is not driver
    assert (ss.ones(3, device="cuda") + 1).sum().item() == 6

"""The CUDA road starts anew over any simulated driver: what the tests beside this rest on."""

from __future__ import annotations

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

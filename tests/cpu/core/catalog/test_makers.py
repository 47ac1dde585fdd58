"""Makers of tensors that write into a given one: what they leave open follows it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import slipstream as ss

MAKERS: dict[str, Any] = {
    "arange": lambda **more: ss.arange(0, 1, 0.1, **more),
    "linspace": lambda **more: ss.linspace(0, 1, 10, **more),
    "full": lambda **more: ss.full((10,), 0.1, **more),
    "zeros": lambda **more: ss.zeros(10, **more),
    "eye": lambda **more: ss.eye(5, 2, **more),
}


@pytest.mark.parametrize("name", MAKERS)
def test_numbers_have_the_precision_of_out(name: str) -> None:
    make = MAKERS[name]
    for dtype in (ss.float64, ss.float16):
        wanted = make(dtype=dtype)
        out = ss.empty(wanted.shape, dtype=dtype)
        assert make(out=out) is out
        assert out.numpy().tobytes() == wanted.numpy().tobytes()
    assert ss.arange(5, out=ss.empty(5)).tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert ss.full((2,), 3, out=ss.empty(2, dtype=ss.int64)).tolist() == [3, 3]


@pytest.mark.parametrize("name", MAKERS)
def test_they_are_made_where_out_lies(name: str) -> None:
    make = MAKERS[name]
    wanted = make(dtype=ss.float32).numpy()
    out = ss.empty(wanted.shape, device="delay")
    assert make(out=out) is out
    assert out.device.type == "delay"
    np.testing.assert_array_equal(out.cpu().numpy(), wanted)


def test_a_device_that_is_named_must_be_that_of_out() -> None:
    with pytest.raises(RuntimeError, match="delay"):
        ss.zeros(2, device="cpu", out=ss.empty(2, device="delay"))

"""Memory that other code's work on another stream still uses, and `Tensor.record_stream`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import slipstream as ss
from gpu.conftest import REAL
from slipstream.cuda import driver

READER = """
extern "C" __global__ void reader(const float* x, float* y, int rounds) {
    float sum = 0;
    for (int i = 0; i < rounds; i++) sum += x[threadIdx.x];
    y[threadIdx.x] = sum;
}
"""
SIZE = 256


def read_late(recorded: bool) -> Any:
    """What a launch of other code's reads on a side stream, where its operand is let go at once."""
    function = driver.get_function(driver.module_load(driver.compile(READER)), "reader")
    side, y = ss.cuda.Stream(), ss.zeros(SIZE, device="cuda")
    x = ss.full((SIZE,), 3.0, device="cuda")
    side.wait_stream(ss.cuda.current_stream())
    parameters = driver.pack(x.data_ptr(), y.data_ptr(), np.int32(1))
    driver.launch(function, 1, SIZE, parameters, stream=side)
    if recorded:
        x.record_stream(side)
    del x
    over = [ss.full((SIZE,), 7.0, device="cuda") for _ in range(4)]
    ss.cuda.synchronize()
    assert all(each.sum().item() == 7 * SIZE for each in over)
    return y


def test_recorded_memory_serves_nobody_before_the_stream_is_done() -> None:
    assert read_late(True).tolist() == SIZE * [3.0]


@pytest.mark.skipif(REAL, reason="a card tells of no races")
def test_without_it_other_codes_work_races() -> None:
    with pytest.raises(RuntimeError, match="race"):
        read_late(False)
    # What follows comes after the launch that nobody counted.
    ss.cuda.synchronize()


def test_arguments_are_looked_at() -> None:
    x = ss.ones(3, device="cuda")
    with pytest.raises(TypeError, match="must be Stream, not int"):
        x.record_stream(3)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="the tensor lies on cpu"):
        x.cpu().record_stream(ss.cuda.current_stream())
    x.record_stream(ss.cuda.current_stream())
    x[1:].record_stream(ss.cuda.Stream())
    assert (x + 1).tolist() == [2.0, 2.0, 2.0]

"""What is kept over calls outlives a driver and holds none: its memory goes with it."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import slipstream as ss
from gpu import simulation
from slipstream.core.kernels.cuda import attention
from slipstream.core.native.drivers import drivers

functional = ss.nn.functional


def attend(dtype: ss.dtype) -> None:
    sides = [ss.ones(1, 2, 8, 16, device="cuda", dtype=dtype).requires_grad_() for _ in range(3)]
    functional.scaled_dot_product_attention(*sides).sum().backward()


def train() -> None:
    layer = ss.nn.Linear(8, 8).to("cuda")
    layer(ss.ones(4, 8, device="cuda")).softmax(-1).square().mean().backward()
    ss.optim.SGD(layer.parameters(), lr=0.1).step()


@pytest.mark.parametrize("run", [
    lambda: attend(ss.float32), lambda: attend(ss.bfloat16), train,
    lambda: ss.rand(64, device="cuda").sort()[0].cumsum(0).cpu(),
], ids=["attention", "attention of 16 bits", "training", "sorting"])
def test_a_driver_that_was_replaced_is_freed(restart: Callable[..., Any],
                                             run: Callable[[], Any]) -> None:
    kept = weakref.ref(restart(devices=1))
    run()
    ss.cuda.synchronize()
    assert kept() is drivers.current()
    simulation.restart(devices=1)
    gc.unfreeze()
    gc.collect()
    assert kept() is None


@pytest.mark.parametrize("model", ["V100", "T4", "H100"])
def test_the_card_that_is_there_decides(restart: Callable[..., Any], model: str) -> None:
    """Of two drivers with one name for their first card, each is asked about its own."""
    for name in ("H100", model):
        restart(model=name)
        card = ss.device("cuda:0")
        assert attention.supports(card, ss.bfloat16, 64) == (name == "H100")
        # float32 heads of this width need 66 KiB of a block's shared memory.
        assert attention.supports(card, ss.float32, 64) == (name != "T4")

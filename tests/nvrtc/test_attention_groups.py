"""Attention by groups of warps keeps to registers, and its products go on meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

import slipstream as ss
from gpu.simulation import forget
from nvrtc.batches import FIGURES
from slipstream.core.api.cuda.packing import recorded
from slipstream.core.kernels.cuda import attention as tiles
from slipstream.core.native.drivers import drivers
from slipstream.core.native.recording import Source

compilers = pytest.importorskip("slipstream.core.native.real.compiler")


def asked(width: int, dropout: float) -> list[Source]:
    """What a causal call and its gradients ask for."""
    forget()
    with recorded(("sm_90",)) as driver:
        operands = [ss.empty(1, 1, 256, width, device="cuda", dtype=ss.bfloat16)
                    .requires_grad_() for _ in range(3)]
        out = ss.nn.functional.scaled_dot_product_attention(*operands, is_causal=True,
                                                            dropout_p=dropout)
        out.backward(ss.empty_like(out))
        ss.cuda.synchronize()
        found = [each for each in driver.sources if "#define GROUPED 1" in each.text]
    forget()
    drivers.use(None)
    return found


@pytest.mark.parametrize("few", [2, 1 << 20], ids=["one group", "two groups"])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("width", [64, 128])
def test_groups_of_warps_spill_nothing_and_wait_for_nothing(
        width: int, dropout: float, few: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(tiles, "FEW", few)
    sources = asked(width, dropout)
    assert len(sources) == 3
    for each in sources:
        _, log = compilers.Compiler().compile_with_log(
            each.text, each.name, (*each.options, "--ptxas-options=-v"), each.arch)
        figures = FIGURES.search(log)
        assert figures is not None
        assert int(figures["stores"]) == 0, log
        # What ptxas says where it has to wait for each product before the next.
        assert "wgmma.mma_async" not in log, log

"""Small exact products keep what a warp fetches in registers, on every card."""

from __future__ import annotations

import pytest

import slipstream as ss
from gpu.simulation import forget
from nvrtc.batches import FIGURES
from slipstream.core.api.cuda.packing import recorded
from slipstream.core.kernels.cuda import small_tiles
from slipstream.core.native.drivers import drivers
from slipstream.core.native.recording import Source

compilers = pytest.importorskip("slipstream.core.native.real.compiler")

# Rows, columns and steps for every tile.
SIZES = ((64, 256, 100), (64, 256, 256), (64, 256, 400), (64, 64, 40), (128, 256, 100),
         (256, 256, 200), (256, 256, 400), (256, 256, 64), (256, 256, 128))


def asked(arch: str) -> list[Source]:
    """What products of these sizes ask for, of operands that lie in three manners."""
    forget()
    with recorded((arch,)) as driver:
        for rows, columns, depth in SIZES:
            x, w = (ss.empty(*shape, device="cuda") for shape in ((rows, depth), (columns, depth)))
            ss.nn.functional.linear(x, w, ss.empty(columns, device="cuda"))
            ss.empty(rows, depth, device="cuda") @ ss.empty(depth, columns, device="cuda")
            ss.empty(depth, rows, device="cuda").t() @ ss.empty(depth, columns, device="cuda")
            leaves = [ss.empty(*shape, device="cuda", requires_grad=True)
                      for shape in ((rows, columns), (rows,))]
            made = ss.nn.functional.linear(ss.empty(depth, columns, device="cuda"), *leaves)
            ss.autograd.grad(made, leaves, ss.empty_like(made))
        ss.cuda.synchronize()
        found = [each for each in driver.sources if "slip_share" in each.text]
    forget()
    drivers.use(None)
    return found


@pytest.mark.parametrize("arch", ["sm_75", "sm_90"])
def test_small_tiles_spill_nothing(arch: str) -> None:
    tiles = {*small_tiles.SMALLEST.values(), *small_tiles.SQUARE.values(),
             *small_tiles.WIDE.values()}
    sources = asked(arch)
    assert len(sources) == 4 * len(tiles)
    for each in sources:
        _, log = compilers.Compiler().compile_with_log(
            each.text, each.name, (*each.options, "--ptxas-options=-v"), each.arch)
        figures = FIGURES.findall(log)
        assert figures
        assert "0 bytes spill stores" in log
        assert not [line for line in log.splitlines()
                    if "spill stores" in line and " 0 bytes spill stores" not in line], log

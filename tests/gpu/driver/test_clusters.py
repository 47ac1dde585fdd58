"""Blocks of a cluster on the simulated card: they run at once and reach each other's memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from slipstream.core.kernels.cuda.clusters import CLUSTERS
from slipstream.core.kernels.cuda.prelude import PRELUDE
from slipstream.core.native.driver import DriverError
from slipstream.core.native.simulated import SimulatedFault

# Each block leaves its number with the next one of its cluster; MEET is the cluster's barrier.
RING = PRELUDE + CLUSTERS + """
extern "C" __global__ void __cluster_dims__(4, 1, 1) __launch_bounds__(64)
kernel(int* out) {
    __shared__ int left[SLIP_COPIES(4) * 64];
    const int next = (slip_rank() + 1) % 4;
    MEET;
    slip_shared_of<64>(left, next)[threadIdx.x] = 100 * blockIdx.x + threadIdx.x;
    MEET;
    out[blockIdx.x * 64 + threadIdx.x] = SLIP_OWN(left, 64)[threadIdx.x];
}
"""
DYNAMIC = PRELUDE + CLUSTERS + """
extern "C" __global__ void __cluster_dims__(2, 1, 1) kernel(int* out) {
    SLIP_POINTER(int) own = slip_cast<int>(slip_dynamic_shared());
    own[threadIdx.x] = 1000 * slip_rank() + threadIdx.x;
    slip_meet();
    out[blockIdx.x * 32 + threadIdx.x] = own[31 - threadIdx.x];
    if (WRONG) out[0] = own[32];
}
"""
# The blocks of a cluster wait for their own threads: one of them far more often than the other.
ALONE = PRELUDE + CLUSTERS + """
extern "C" __global__ void __cluster_dims__(2, 1, 1) kernel(int* out) {
    int found = 0;
    for (int turn = 0; turn < 1 + 4 * slip_rank(); turn++) {
        found += __syncthreads_count(threadIdx.x < 5 + slip_rank());
    }
    if (slip_rank() == 1 && threadIdx.x > 40) return;
    slip_meet();
    if (threadIdx.x == 0) out[blockIdx.x] = found;
}
"""


@pytest.mark.parametrize("seed", range(4))
def test_blocks_reach_each_others_memory(make_card: Any, seed: int) -> None:
    card = make_card(seed=seed)
    out = card.room(12 * 64, np.int32)
    card.launch(card.kernel(RING, options=("-DMEET=slip_meet()",)), 12, 64, "Q", out)
    card.wait()
    block, thread = np.divmod(np.arange(12 * 64), 64)
    left = block // 4 * 4 + (block + 3) % 4
    np.testing.assert_array_equal(card.fetch(out, 12 * 64, np.int32), 100 * left + thread)


def test_a_missing_meeting_shows(make_card: Any) -> None:
    found = []
    for seed in range(4):
        card = make_card(seed=seed)
        out = card.room(12 * 64, np.int32)
        card.launch(card.kernel(RING, options=("-DMEET=__syncthreads()",)), 12, 64, "Q", out)
        card.wait()
        found.append(card.fetch(out, 12 * 64, np.int32))
    assert any((each < 0).any() for each in found)


def test_every_block_has_dynamic_memory_of_its_own(card: Any) -> None:
    out = card.room(128, np.int32)
    card.launch(card.kernel(DYNAMIC, options=("-DWRONG=0",)), 4, 32, "Q", out, shared=128)
    card.wait()
    line = 31 - np.arange(32)
    np.testing.assert_array_equal(card.fetch(out, 128, np.int32),
                                  np.concatenate([line, 1000 + line] * 2))
    card.launch(card.kernel(DYNAMIC, options=("-DWRONG=1",)), 4, 32, "Q", out, shared=128)
    with pytest.raises(SimulatedFault, match="0 bytes past the end of the block of 128 bytes"):
        card.wait()


def test_the_barrier_of_a_block_is_its_own(card: Any) -> None:
    out = card.room(6, np.int32)
    card.launch(card.kernel(ALONE), 6, 64, "Q", out)
    card.wait()
    np.testing.assert_array_equal(card.fetch(out, 6, np.int32), [5, 30] * 3)


def test_what_is_no_cluster_is_refused(make_card: Any) -> None:
    for model, grid, threads, words in (("H100", 6, 64, "whole clusters"),
                                        ("A100", 8, 64, "no card here"),
                                        ("H100", 8, 48, "whole warps")):
        card = make_card(model=model)
        kernel = card.kernel(RING, options=("-DMEET=slip_meet()",))
        with pytest.raises(DriverError, match=words):
            card.launch(kernel, grid, threads, "Q", card.room(512, np.int32))

"""Masks as indices on the device: how many elements are true, where they are, which they are.

The mask is cut into tiles of positions.  Each tile's true elements are counted, the counts are
summed from tile to tile, and each element then knows its number among the true ones.
"""

from __future__ import annotations

from typing import Any

from slipstream.core.kernels.cuda import elements
from slipstream.core.kernels.cuda.walks import (
    THREADS,
    address,
    blocks,
    described,
    divider,
    place_type,
)
from slipstream.core.launch.cuda.launches import KernelCode, Launch, LaunchKernel, make_launch
from slipstream.core.vocab.records import Kernel, Plan

# Positions of a tile; a block looks at its tile in rounds of one position a thread.
TILE = 4096
SUMMERS = 1024

_HEAD = """
#define TILE 4096
#define THREADS 256
struct slip_walk {
    int64_t numel, tiles, row, column;
    int64_t shape[RANK], divider[RANK], mask[RANK], data[RANK];
};
SLIP_DEVICE int64_t slip_offset(const slip_walk& walk, int64_t at, bool data) {
    place_t left = (place_t)at;
    int64_t offset = 0;
#pragma unroll
    for (int d = RANK - 1; d >= 0; d--) {
        const int64_t c = slip_take(left, walk.shape[d], walk.divider[d]);
        offset += c * (data ? walk.data[d] : walk.mask[d]);
    }
    return offset;
}
// How many of the block's earlier threads say yes; `total`: how many say so at all.
SLIP_DEVICE int slip_before(bool yes, int& total) {
    __shared__ int sums[THREADS / 32];
    const unsigned votes = __ballot_sync(0xffffffffu, yes);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    __syncthreads();
    if (lane == 0) sums[warp] = __popc(votes);
    __syncthreads();
    int before = __popc(votes & ((1u << lane) - 1u));
    total = 0;
    for (int w = 0; w < THREADS / 32; w++) {
        before += w < warp ? sums[w] : 0;
        total += sums[w];
    }
    return before;
}
"""
_COUNT = """
extern "C" __global__ void slip_mask_count(int64_t* counts, const uint8_t* mask,
                                           const slip_walk walk) {
    const int64_t start = (int64_t)blockIdx.x * TILE;
    int64_t count = 0;
    for (int round = 0; round < TILE / THREADS; round++) {
        const int64_t at = start + round * THREADS + threadIdx.x;
        int total = 0;
        slip_before(at < walk.numel && mask[slip_offset(walk, at, false)] != 0, total);
        count += total;
    }
    if (threadIdx.x == 0) counts[blockIdx.x] = count;
}
"""
# counts[i] = the sum of all before it, and total the sum of all; one block, each thread a run.
_SUM = """
struct slip_span { int64_t numel; };
extern "C" __global__ void slip_mask_sum(int64_t* total, int64_t* counts, const slip_span span) {
    __shared__ int64_t sums[1024];
    const int64_t run = (span.numel + 1023) / 1024, start = threadIdx.x * run;
    const int64_t end = slip_least(start + run, span.numel);
    int64_t sum = 0;
    for (int64_t i = start; i < end; i++) sum += counts[i];
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (int step = 1; step < 1024; step *= 2) {
        const int64_t before = threadIdx.x >= step ? sums[threadIdx.x - step] : 0;
        __syncthreads();
        sums[threadIdx.x] += before;
        __syncthreads();
    }
    sum = threadIdx.x ? sums[threadIdx.x - 1] : 0;
    for (int64_t i = start; i < end; i++) {
        const int64_t own = counts[i];
        counts[i] = sum;
        sum += own;
    }
    if (threadIdx.x == 1023) total[0] = sum;
}
"""
# The number of each true element among them is known in ACTION.
_WALK = """
extern "C" __global__ void slip_mask_NAME(OUT* out, IN const uint8_t* mask, const int64_t* counts,
                                          const slip_walk walk) {
    const int64_t start = (int64_t)blockIdx.x * TILE;
    int64_t base = counts[blockIdx.x];
    for (int round = 0; round < TILE / THREADS; round++) {
        const int64_t at = start + round * THREADS + threadIdx.x;
        const bool yes = at < walk.numel && mask[slip_offset(walk, at, false)] != 0;
        int total = 0;
        const int64_t number = base + slip_before(yes, total);
        base += total;
        ACTION
    }
}
"""
_PLACES = """if (yes) {
            place_t left = (place_t)at;
            for (int d = RANK - 1; d >= 0; d--) {
                const int64_t c = slip_take(left, walk.shape[d], walk.divider[d]);
                out[number * walk.row + d * walk.column] = c;
            }
        }"""
_SELECT = "if (yes) out[number] = data[slip_offset(walk, at, true)];"
_SPREAD = """if (at < walk.numel) {
            item_t item = {};
            if (yes) item = data[number];
            out[slip_offset(walk, at, true)] = item;
        }"""


class MaskKernel(Kernel):
    """Counts tiles, sums the counts, then does the work, if any, tile by tile."""

    def __init__(self, name: str, plan: Any, binding: Any, data: Any = None) -> None:
        self.name = name
        self.device = plan.out_spec.device
        self.tiles = blocks(binding.numel, TILE)
        shape = binding.shape or (1,)
        mask = binding.mask_strides or (0,)
        strides = data or (0,) * len(shape)
        self.rank = len(shape)
        self.numel = binding.numel
        self.sizes = [*shape, *map(divider, shape), *mask, *strides]
        self.work: Launch | None = None
        self.counting = self.launch("count", _HEAD + _COUNT, "", (0, 0))
        self.summing = make_launch(KernelCode("slip_mask_sum", _SUM), self.device, 1, SUMMERS,
                                   tail=[self.tiles])

    def launch(self, name: str, text: str, item: str, steps: tuple[int, int]) -> Launch:
        """A launch of one block a tile; ``steps``: the target's strides where it has two dims."""
        head = f"{item}{place_type(self.numel)}#define RANK {self.rank}\n"
        return make_launch(KernelCode(f"slip_mask_{name}", head + text), self.device, self.tiles,
                           THREADS, tail=[self.numel, self.tiles, *steps, *self.sizes])

    def act(self, name: str, action: str, item: str, steps: tuple[int, int] = (0, 0)) -> None:
        """Say what is done with the true elements; ``item``: the lines that name their type."""
        text = _WALK.replace("NAME", name).replace("ACTION", action)
        text = text.replace("OUT", "item_t" if item else "int64_t")
        text = text.replace("IN", "const item_t* data," if item else "")
        self.work = self.launch(name, _HEAD + text, item, steps)

    def run(self, plan: Plan, operands: tuple[Any, ...], numbers: tuple[Any, ...]) -> None:
        """Operands: out, the data if any, mask."""
        backend: Any = plan.backend
        places = [address(tensor) for tensor in operands]
        counts = backend.scratch(8 * self.tiles + 8)
        total = places[0] if self.work is None else counts.address + 8 * self.tiles
        backend.record(self.counting, (counts.address, places[-1]), ())
        backend.record(self.summing, (total, counts.address), ())
        if self.work is not None:
            backend.record(self.work, (*places, counts.address), ())


_ZERO = """
extern "C" __global__ void slip_mask_none(int64_t* out, const uint8_t* mask) { out[0] = 0; }
"""


def count(plan: Any, call: Any) -> Any:
    """How many elements of a mask are true."""
    binding = described(plan, call).binding
    if not binding.numel:
        plan.binding = make_launch(KernelCode("slip_mask_none", _ZERO), plan.out_spec.device, 1, 1)
        return LaunchKernel("cuda count of a mask")
    return MaskKernel("cuda count of a mask", plan, binding)


def places(plan: Any, call: Any) -> Any:
    """The coordinates of a mask's true elements."""
    out = plan.out_spec
    if not out.numel:
        return LaunchKernel("cuda coordinates of a mask")
    kernel = MaskKernel("cuda coordinates of a mask", plan, described(plan, call).binding)
    kernel.act("places", _PLACES, "", out.strides)
    return kernel


def select(plan: Any, call: Any) -> Any:
    """The elements where a mask is true."""
    if not plan.out_spec.numel:
        return LaunchKernel("cuda elements of a mask")
    binding = described(plan, call).binding
    kernel = MaskKernel("cuda elements of a mask", plan, binding, binding.strides)
    kernel.act("select", _SELECT, elements.moved(binding.dtype.itemsize))
    return kernel


def spread(plan: Any, call: Any) -> Any:
    """Zeros with a source's elements in turn where a mask is true."""
    if not plan.out_spec.numel:
        return LaunchKernel("cuda spread over a mask")
    binding = described(plan, call).binding
    kernel = MaskKernel("cuda spread over a mask", plan, binding, binding.strides)
    kernel.act("spread", _SPREAD, elements.moved(binding.dtype.itemsize))
    return kernel

"""Sorting on the device: stable, by 64-bit keys, always the same way for the same number of keys.

Few keys are ranked by comparing each with all others of its line, which the lanes of a warp share
where the line is long.  More are sorted by their
digits of eight bits, lowest first: count the digits of each tile, find where each digit of each
tile begins, move.  A key's place in its tile follows from the order of threads, so ties keep their
order.
"""

from __future__ import annotations

from typing import Any

from slipstream.core.kernels.cuda.walks import THREADS, blocks, launch
from slipstream.core.launch.cuda.launches import KernelCode, Launch, make_launch

# Comparisons up to which ranking is the faster way.
COMPARED = 1 << 24
# Keys of a line from which on a warp ranks several keys together, and how many.
SHARED_LINE = 128
OWN = 4
# Keys of a tile; each thread moves a run of them.
TILE = 2048
MOVERS = 64
# Threads of a block whose warps rank keys: small blocks reach more multiprocessors.
SHARERS = 128
SUMMERS = 1024

_HEAD = """
typedef {0} order_t;
#define TILE 2048
#define MOVERS 64
#define RUN (TILE / MOVERS)
#define OWN {1}
struct slip_sort {{ int64_t numel, line, shift, tiles, first; }};
"""
# order[rank] = place, sorted[rank] = key, in lines of `line` keys.
_RANK = """
extern "C" __global__ void slip_rank(order_t* order, uint64_t* sorted, const uint64_t* keys,
                                     const slip_sort sort) {
    const int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= sort.numel) return;
    const int64_t start = at / sort.line * sort.line, mine = at - start;
    const uint64_t own = keys[at];
    int64_t rank = start;
    for (int64_t j = 0; j < sort.line; j++) {
        const uint64_t other = keys[start + j];
        rank += other < own || (other == own && j < mine);
    }
    order[rank] = (order_t)at;
    sorted[rank] = own;
}
"""
# The same by warps: the lanes share the line, of which each element is compared with OWN keys.
_RANK_SHARED = """
extern "C" __global__ void slip_rank_shared(order_t* order, uint64_t* sorted,
                                            const uint64_t* keys, const slip_sort sort) {
    const int64_t groups = (sort.line + OWN - 1) / OWN;
    const int64_t warp = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    const int lane = threadIdx.x % 32;
    if (warp >= groups * (sort.numel / sort.line)) return;
    const int64_t start = warp / groups * sort.line, first = warp % groups * OWN;
    uint64_t own[OWN];
    uint32_t rank[OWN] = {};
#pragma unroll
    for (int i = 0; i < OWN; i++) {
        const int64_t at = slip_least(first + i, sort.line - 1);
        own[i] = keys[start + at];
    }
#pragma unroll 4
    for (int64_t j = lane; j < sort.line; j += 32) {
        const uint64_t other = keys[start + j];
#pragma unroll
        for (int i = 0; i < OWN; i++)
            rank[i] += other < own[i] || (other == own[i] && j < first + i);
    }
#pragma unroll
    for (int i = 0; i < OWN; i++) {
        for (int far = 16; far > 0; far /= 2)
            rank[i] += __shfl_xor_sync(0xffffffffu, rank[i], far);
        if (lane == i && first + i < sort.line) {
            order[start + rank[i]] = (order_t)(start + first + i);
            sorted[start + rank[i]] = own[i];
        }
    }
}
"""
_COUNT = """
extern "C" __global__ void slip_digits(uint32_t* counts, const uint64_t* keys,
                                       const slip_sort sort) {
    __shared__ uint32_t found[256];
    const int64_t start = (int64_t)blockIdx.x * TILE;
    found[threadIdx.x] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < TILE; i += 256) {
        if (start + i < sort.numel) {
            const uint64_t key = keys[start + i];
            atomicAdd(&found[(key >> sort.shift) & 255], 1u);
        }
    }
    __syncthreads();
    counts[threadIdx.x * sort.tiles + blockIdx.x] = found[threadIdx.x];
}
"""
# counts[i] = the sum of all before it; one block, each thread a run.
_STARTS = """
extern "C" __global__ void slip_starts(uint32_t* counts, const slip_sort sort) {
    __shared__ uint32_t sums[1024];
    const int64_t run = (sort.numel + 1023) / 1024, start = threadIdx.x * run;
    const int64_t end = slip_least(start + run, sort.numel);
    uint32_t sum = 0;
    for (int64_t i = start; i < end; i++) sum += counts[i];
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (int step = 1; step < 1024; step *= 2) {
        const uint32_t before = threadIdx.x >= step ? sums[threadIdx.x - step] : 0;
        __syncthreads();
        sums[threadIdx.x] += before;
        __syncthreads();
    }
    sum = threadIdx.x ? sums[threadIdx.x - 1] : 0;
    for (int64_t i = start; i < end; i++) {
        const uint32_t own = counts[i];
        counts[i] = sum;
        sum += own;
    }
}
"""
_MOVE = """
extern "C" __global__ void slip_move(order_t* order, uint64_t* sorted, const order_t* places,
                                     const uint64_t* keys, const uint32_t* counts,
                                     const slip_sort sort) {
    __shared__ uint16_t taken[256][MOVERS];
    const int64_t start = (int64_t)blockIdx.x * TILE + threadIdx.x * RUN;
    const int64_t end = slip_least(start + RUN, sort.numel);
    for (int digit = 0; digit < 256; digit++) taken[digit][threadIdx.x] = 0;
    for (int64_t i = start; i < end; i++) {
        const uint64_t key = keys[i];
        taken[(key >> sort.shift) & 255][threadIdx.x]++;
    }
    __syncthreads();
    for (int digit = threadIdx.x; digit < 256; digit += MOVERS) {
        uint16_t before = 0;
        for (int t = 0; t < MOVERS; t++) {
            const uint16_t own = taken[digit][t];
            taken[digit][t] = before;
            before += own;
        }
    }
    __syncthreads();
    for (int64_t i = start; i < end; i++) {
        const uint64_t key = keys[i];
        const int digit = (int)((key >> sort.shift) & 255);
        const int64_t to = (int64_t)counts[digit * sort.tiles + blockIdx.x]
                           + taken[digit][threadIdx.x]++;
        const order_t place = sort.first ? (order_t)i : places[i];
        order[to] = place;
        sorted[to] = key;
    }
}
"""


class Ordering:
    """Sorts ``count`` keys of ``bits`` bits.

    Keys of different lines (runs of ``line`` keys) must be in the order of their lines.  The
    order's type is int64 if ``wide``, else int32.
    """

    def __init__(self, device: Any, count: int, bits: int, line: int, wide: bool = False) -> None:
        self.count = count
        self.itemsize = 8 if wide else 4
        head = _HEAD.format("int64_t" if wide else "int32_t", OWN)
        self.ranking: Launch | None = None
        self.passes: list[tuple[Launch, Launch]] = []
        if count * line <= COMPARED:
            tail = [count, line, 0, 0, 0]
            if line < SHARED_LINE:
                self.ranking = launch(KernelCode("slip_rank", head + _RANK), device, count, tail)
                return
            code = KernelCode("slip_rank_shared", head + _RANK_SHARED)
            lanes = 32 * blocks(line, OWN) * (count // line)
            self.ranking = make_launch(code, device, blocks(lanes, SHARERS), SHARERS, tail=tail)
            return
        tiles = blocks(count, TILE)
        self.tiles = tiles
        self.starts = make_launch(KernelCode("slip_starts", head + _STARTS), device, 1, SUMMERS,
                                  tail=[256 * tiles, 0, 0, 0, 0])
        count_code = KernelCode("slip_digits", head + _COUNT)
        move_code = KernelCode("slip_move", head + _MOVE)
        for shift in range(0, max(bits, 1), 8):
            tail = [count, line, shift, tiles, int(shift == 0)]
            self.passes.append((make_launch(count_code, device, tiles, THREADS, tail=tail),
                                make_launch(move_code, device, tiles, MOVERS, tail=tail)))

    def run(self, backend: Any, order: int, ordered: int, keys: int) -> None:
        """Store the places of the keys in order, and the keys, at two addresses."""
        if self.ranking is not None:
            backend.record(self.ranking, (order, ordered, keys), ())
            return
        counts = backend.scratch(256 * self.tiles * 4)
        spare_order = backend.scratch(self.count * self.itemsize)
        spare_keys = backend.scratch(self.count * 8)
        targets = ((order, ordered), (spare_order.address, spare_keys.address))
        # The last pass writes the result, the passes before it take turns.
        turn = (len(self.passes) - 1) % 2
        source = (targets[turn][0], keys)
        for counting, moving in self.passes:
            backend.record(counting, (counts.address, source[1]), ())
            backend.record(self.starts, (counts.address,), ())
            backend.record(moving, (*targets[turn], *source, counts.address), ())
            source = targets[turn]
            turn = 1 - turn

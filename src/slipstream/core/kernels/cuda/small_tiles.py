# cython: annotation_typing=False
"""Exact float32 products of small nets: a warp fetches its share of the sums all at once.

What such a product costs is the way to memory and back, once for each time that a block waits for
it.  So each warp of a block asks for all it needs of both sides at once, makes the whole tile from
its share of the steps without waiting for another warp, and the sums of all groups of lanes are
joined in their order.  A lane takes four steps of a few rows and columns at a time, 16 bytes an
access, along whichever dim a side lies; the order of the sums is the same however it lies.
"""

from __future__ import annotations

import struct
from functools import lru_cache, partial
from typing import Any, NamedTuple

from slipstream.core.kernels.cuda.epilogues import lead
from slipstream.core.kernels.cuda.tiles import KEPT, Product, Sizes, filled, launched
from slipstream.core.kernels.cuda.walks import NARROW, blocks
from slipstream.core.launch.cuda.launches import (
    EPILOGUE,
    TILED,
    KernelCode,
    Launch,
)
from slipstream.core.launch.cuda.modules import modules
from slipstream.core.vocab.records import Kernel


class SmallTile(NamedTuple):
    """Rows and columns of a tile, and of it those of a lane; steps that a block fetches at once.

    ``threads``: of a block; ``once``: there are no more steps.  A warp has the whole tile at least
    once.
    """

    rows: int
    columns: int
    own_rows: int
    own_columns: int
    depth: int
    threads: int
    once: bool = True

# Blocks of which each of a large card's multiprocessors has one.
ENOUGH = 132
# By the most steps for which they are: tiles for few results, some, and many.
SMALLEST = {128: SmallTile(16, 8, 4, 2, 128, 256), 256: SmallTile(16, 8, 4, 2, 256, 256),
            512: SmallTile(16, 8, 4, 2, 256, 256, False)}
SQUARE = {64: SmallTile(16, 16, 4, 4, 64, 128), 128: SmallTile(16, 16, 4, 4, 128, 256),
          256: SmallTile(16, 16, 4, 4, 256, 256), 512: SmallTile(16, 16, 4, 4, 256, 256, False)}
WIDE = {64: SmallTile(16, 32, 4, 4, 64, 128), 128: SmallTile(16, 32, 4, 4, 128, 256)}
# Steps that a block fetches at most.
DEEPEST = 256

_KERNEL = """
#define ROWS {0.rows}
#define COLUMNS {0.columns}
#define OWN_ROWS {0.own_rows}
#define OWN_COLUMNS {0.own_columns}
#define DEPTH {0.depth}
#define THREADS {0.threads}
// There are no more steps than are fetched at once.
#define ONCE {0.once:d}
#define LEFT_ALONG_K {1.left_along_k:d}
#define RIGHT_ALONG_K {1.right_along_k:d}
// Lanes of a group, which makes the whole tile, and groups of a warp.
#define ACROSS (COLUMNS / OWN_COLUMNS)
#define DOWN (ROWS / OWN_ROWS)
#define LANES (ACROSS * DOWN)
#define GROUPS (32 / LANES)
#define WARPS (THREADS / 32)
// Steps of a warp, which its groups take in turn, four at a time.
#define STEPS (DEPTH / WARPS)
#define ELEMENTS (ROWS * COLUMNS)
// Each thread stores one element at most: what it adds is asked for before the sums.
#define ONE_EACH (ELEMENTS <= THREADS)
typedef slip_vector<float, 4> slip_four_steps;
template <int OWN> SLIP_DEVICE constexpr int slip_near() {{ return OWN < 4 ? OWN : 4; }}
// A warp's share of a side: LINES rows or columns, whose steps lie side by side, or which do.
// They are so far apart that lanes meet no bank twice.
template <int LINES, bool ALONG> struct slip_share {{
    static const int APART = ALONG ? STEPS + (GROUPS > 1 ? 8 : 4) : LINES + 4;
    static const int SIZE = (ALONG ? LINES : STEPS) * APART;
    SLIP_DEVICE int at(int line, int step) {{
        return ALONG ? line * APART + step : step * APART + line;
    }}
    // Four neighbours, of which a lane has one in so many lines or steps.
    static const int UNITS = LINES * STEPS / 4, BESIDE = (ALONG ? STEPS : LINES) / 4;
    static const int TURNS = (UNITS + 31) / 32, EVERY = 32 / BESIDE;
    slip_four_steps held[TURNS];
    SLIP_DEVICE int line_of(int n) {{
        const int lane = threadIdx.x % 32;
        return ALONG ? lane / BESIDE + n * EVERY : lane % BESIDE * 4;
    }}
    SLIP_DEVICE int step_of(int n) {{
        const int lane = threadIdx.x % 32;
        return ALONG ? lane % BESIDE * 4 : lane / BESIDE + n * EVERY;
    }}
    SLIP_DEVICE bool is_unit(int n) {{ return UNITS % 32 == 0 || (int)threadIdx.x % 32 < UNITS; }}
    // Ask for it: `from` is where it begins, of which so many lines and steps are there.
    template <class P>
    __device__ __forceinline__ void ask(P from, int line_step, int step_step, int lines,
                                        int steps) {{
        from = from + (line_of(0) * line_step + step_of(0) * step_step);
        const int apart = EVERY * (ALONG ? line_step : step_step);
#pragma unroll
        for (int n = 0; n < TURNS; n++) {{
            held[n] = slip_four_steps();
            if (is_unit(n) && line_of(n) < lines && step_of(n) < steps)
                held[n] = slip_read<float, 4>(from + n * apart, 4, true);
        }}
    }}
    __device__ __forceinline__ void settle(float* to) const {{
#pragma unroll
        for (int n = 0; n < TURNS; n++)
            if (is_unit(n)) slip_write(to + at(line_of(n), step_of(n)), held[n], 4, true);
    }}
    // Ask for it one by one: it may begin anywhere, and its elements lie apart.  Not a part of the
    // kernel's own code, which is mostly read once.
    template <class P>
    static __device__ __noinline__ void gather(float* to, P from, int line_step, int step_step,
                                               int lines, int steps) {{
#pragma unroll 4
        for (int n = threadIdx.x % 32; n < LINES * STEPS; n += 32) {{
            const int line = ALONG ? n / STEPS : n % LINES, step = ALONG ? n % STEPS : n / LINES;
            if (line < lines && step < steps)
                slip_copy_ahead<float, 1>(to + at(line, step),
                                          from + (line * line_step + step * step_step), true);
            else
                to[at(line, step)] = 0;
        }}
    }}
    // Four steps of OWN of the lines, every EVERY-th of them, or of four neighbours at a time.
    template <int OWN, int EVERY>
    SLIP_DEVICE void take(float (&to)[OWN][4], const float* from, int lane, int step) {{
        const int size = ALONG ? 4 : slip_near<OWN>();
#pragma unroll
        for (int a = 0; a < OWN * 4 / size; a++) {{
            const int first = ALONG ? a : a / 4 * size, s = ALONG ? 0 : a % 4;
            const int line = ALONG ? lane + first * EVERY : lane * size + first * EVERY;
            const slip_vector<float, size> v = slip_read<float, size>(from + at(line, step + s),
                                                                      size, true);
#pragma unroll
            for (int b = 0; b < size; b++) to[ALONG ? a : first + b][ALONG ? b : s] = v.get(b);
        }}
    }}
    // Which lane has a line, and as which of its own.
    template <int OWN, int EVERY> SLIP_DEVICE int lane_of(int line) {{
        return ALONG ? line % EVERY : line / slip_near<OWN>() % EVERY;
    }}
    template <int OWN, int EVERY> SLIP_DEVICE int own_of(int line) {{
        const int near = slip_near<OWN>();
        return ALONG ? line / EVERY : line / (near * EVERY) * near + line % near;
    }}
}};
typedef slip_share<ROWS, LEFT_ALONG_K> slip_left;
typedef slip_share<COLUMNS, RIGHT_ALONG_K> slip_right;
// A group's sums lie where what its warp fetched is of no use any more; groups meet no bank twice.
#define SUMS (ELEMENTS + (GROUPS > 1 ? LANES % 32 : 0))
#define FETCHED (slip_left::SIZE + slip_right::SIZE)
#define ROOM (FETCHED > GROUPS * SUMS ? FETCHED : GROUPS * SUMS)
extern "C" __global__ void __launch_bounds__(THREADS, 1)
slip_NAME(OUT, SIDESEXTRANUMBERS, const slip_walk walk) {{
    __shared__ __align__(16) float rooms[WARPS][ROOM];
    const int warp = threadIdx.x / 32, group = threadIdx.x % 32 / LANES;
    const int lane = threadIdx.x % LANES, x = lane % ACROSS, y = lane / ACROSS;
    const int rows = (int)walk.rows, columns = (int)walk.columns, depth = (int)walk.depth;
    const int left_row = (int)walk.left_row, left_k = (int)walk.left_k;
    const int right_k = (int)walk.right_k, right_column = (int)walk.right_column;
    const int first_row = blockIdx.y * ROWS, first_column = blockIdx.x * COLUMNS;
    // Whether four neighbours are always one access.
#ifdef LINE_SUMS
    // The blocks of the first columns sum the lines of the left side too, each lane a part of one.
    __shared__ float line_sums[WARPS][32];
    float line_sum = 0;
#endif
    const bool left_fits = slip_aligned<item_t>(left, 16)
        && (LEFT_ALONG_K ? left_k == 1 && (left_row | depth) % 4 == 0
                         : left_row == 1 && (left_k | rows) % 4 == 0);
    const bool right_fits = slip_aligned<item_t>(right, 16)
        && (RIGHT_ALONG_K ? right_k == 1 && (right_column | depth) % 4 == 0
                          : right_column == 1 && (right_k | columns) % 4 == 0);
    float* lefts = rooms[warp];
    float* rights = lefts + slip_left::SIZE;
    float sum[OWN_ROWS][OWN_COLUMNS] = {{}};
    slip_left left_share;
    slip_right right_share;
    auto ask = [&](int begin) {{
        if (left_fits)
            left_share.ask(left + (first_row * left_row + begin * left_k), left_row, left_k,
                           rows - first_row, depth - begin);
        if (right_fits)
            right_share.ask(right + (first_column * right_column + begin * right_k), right_column,
                            right_k, columns - first_column, depth - begin);
    }};
    auto settle = [&](int begin) {{
        if (!left_fits)
            slip_left::gather(lefts, left + (first_row * left_row + begin * left_k), left_row,
                              left_k, rows - first_row, depth - begin);
        if (!right_fits)
            slip_right::gather(rights, right + (first_column * right_column + begin * right_k),
                               right_column, right_k, columns - first_column, depth - begin);
        if (left_fits) left_share.settle(lefts);
        if (right_fits) right_share.settle(rights);
        slip_copies_done();
        __syncwarp();
    }};
    int begin = warp * STEPS;
    ask(begin);
    PLACE
#if ONE_EACH
    // Beyond the last row or column the last one is read: what comes of it is not stored.
    const int each = threadIdx.x;
    const place_t row = slip_least(first_row + each / COLUMNS, rows - 1);
    const place_t column = slip_least(first_column + each % COLUMNS, columns - 1);
    AHEAD
#endif
    auto compute = [&]() {{
#pragma unroll
        for (int turn = 0; turn < STEPS / (4 * GROUPS); turn++) {{
            const int step = (turn * GROUPS + group) * 4;
            float a[OWN_ROWS][4], b[OWN_COLUMNS][4];
            slip_left::take<OWN_ROWS, DOWN>(a, lefts, y, step);
            slip_right::take<OWN_COLUMNS, ACROSS>(b, rights, x, step);
#pragma unroll
            for (int s = 0; s < 4; s++) {{
#pragma unroll
                for (int i = 0; i < OWN_ROWS; i++) {{
#pragma unroll
                    for (int j = 0; j < OWN_COLUMNS; j++)
                        sum[i][j] = FUSED(a[i][s], b[j][s], sum[i][j]);
                }}
            }}
        }}
#ifdef LINE_SUMS
        if (blockIdx.x == 0) {{
            const int part = threadIdx.x % 32 / ROWS, line = threadIdx.x % ROWS;
#pragma unroll
            for (int step = 0; step < STEPS; step += 32 / ROWS)
                line_sum = PLUS(line_sum, lefts[left_share.at(line, step + part)]);
        }}
#endif
        __syncwarp();
    }};
#if ONCE
    settle(begin);
    compute();
#else
    for (int slab = DEPTH;; slab += DEPTH) {{
        settle(begin);
        begin += DEPTH;
        // On its way while there is something to compute.
        if (slab < depth) ask(begin);
        compute();
        if (slab >= depth) break;
    }}
#endif
#pragma unroll
    for (int i = 0; i < OWN_ROWS; i++) {{
#pragma unroll
        for (int j = 0; j < OWN_COLUMNS; j++)
            lefts[group * SUMS + (i * OWN_COLUMNS + j) * LANES + lane] = sum[i][j];
    }}
#ifdef LINE_SUMS
    line_sums[warp][threadIdx.x % 32] = line_sum;
#endif
    __syncthreads();
#ifdef LINE_SUMS
    if (blockIdx.x == 0 && threadIdx.x < ROWS && first_row + (int)threadIdx.x < rows) {{
        float whole = 0;
#pragma unroll
        for (int part = 0; part < WARPS * 32 / ROWS; part++)
            whole = PLUS(whole, line_sums[part * ROWS / 32][part * ROWS % 32 + threadIdx.x]);
        sums[first_row + threadIdx.x] = whole;
    }}
#endif
#if ONE_EACH
    if (each < ELEMENTS && first_row + each / COLUMNS < rows
        && first_column + each % COLUMNS < columns) {{
#else
#pragma unroll
    for (int each = threadIdx.x; each < ELEMENTS; each += THREADS) {{
        const place_t row = first_row + each / COLUMNS, column = first_column + each % COLUMNS;
        if (row >= rows || column >= columns) continue;
        AHEAD
#endif
        const int down = each / COLUMNS, along = each % COLUMNS;
        const int own = slip_left::own_of<OWN_ROWS, DOWN>(down) * OWN_COLUMNS
                        + slip_right::own_of<OWN_COLUMNS, ACROSS>(along);
        const int spot = own * LANES + slip_left::lane_of<OWN_ROWS, DOWN>(down) * ACROSS
                         + slip_right::lane_of<OWN_COLUMNS, ACROSS>(along);
        wide_t total = rooms[0][spot];
#pragma unroll
        for (int g = 1; g < WARPS * GROUPS; g++)
            total = PLUS(total, rooms[g / GROUPS][g % GROUPS * SUMS + spot]);
        STORE
    }}
}}
"""
# One matrix is a batch of one, which lies where its tensor begins.
_PLACE = "const int64_t out_start = 0, added_start = 0;\n"


def suits(dtype: Any, sizes: Sizes, steps: list[int]) -> bool:
    """Whether a product of shared tiles is one of those; ``steps``: of both sides, as in the tail.
    """
    if dtype.name != "float32" or sizes.batches != 1 or not sizes.rows or not sizes.columns:
        return False
    left_row, left_k, right_k, right_column = steps
    # Places are reckoned in 32 bits, those beyond the last row and step too.
    depth = sizes.depth + DEEPEST
    return ((sizes.rows + 16) * abs(left_row) + depth * abs(left_k) < NARROW
            and (sizes.columns + 32) * abs(right_column) + depth * abs(right_k) < NARROW)


def tile_of(sizes: Sizes) -> SmallTile:
    """The tile of a product, from its sizes alone: as each was fastest on a card."""
    depth, columns, down = sizes.depth, sizes.columns, blocks(sizes.rows, 16)
    steps = 64 if depth <= 64 else 128 if depth <= 128 else 256 if depth <= 256 else 512
    if steps > 64 and down * blocks(columns, 8) <= ENOUGH:
        return SMALLEST[steps]
    if steps > 128 or (steps == 64 and columns <= 16) or down * blocks(columns, 16) <= ENOUGH:
        return SQUARE[steps]
    return WIDE[steps]


@lru_cache(maxsize=KEPT)
def code_of(product: Product, tile: SmallTile) -> KernelCode:
    """The kernel of a product."""
    text = filled(_KERNEL.format(tile, product), product)
    code = KernelCode(f"slip_{product.name}", product.head + text)
    return code.made_by(EPILOGUE if product.fused else TILED)


@lru_cache(maxsize=KEPT)
def alone(product: Product, tile: SmallTile) -> tuple[Product, KernelCode]:
    """The product of two matrices, and its kernel."""
    product = product._replace(locate="", place=_PLACE)
    return product, code_of(product, tile)


def small_tiles(plan: Any, product: Product, sizes: Sizes, geometry: list[int],
                numbers: tuple[str, ...] = (), leads: bool = True) -> Kernel:
    """The kernel of a product that `suits`; arguments as `tiled` has them.

    ``leads``: it may take what follows it into its kernel.
    """
    tile = tile_of(sizes)
    product, code = alone(product, tile)
    device = plan.out_spec.device
    grid = (blocks(sizes.columns, tile.columns), blocks(sizes.rows, tile.rows), 1)
    tail = [sizes.rows, sizes.columns, sizes.depth, 1, sizes.depth, 1, *geometry]
    # As `make_launch` makes it; products are bound for every new size.
    launch = Launch(code, modules.function(device, code), (grid, (tile.threads, 1, 1), 0), numbers,
                    struct.pack(f"<{len(tail)}q", *tail))
    if leads and not numbers:
        lead(plan.out_spec, product, partial(code_of, tile=tile), launch, (sizes, geometry[-8:]))
    plan.binding = launch
    return launched(f"cuda {product.name} of small tiles")

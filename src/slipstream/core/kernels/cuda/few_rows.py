"""Products of few rows of 16-bit floats: one token, a small batch.

Such a product reads a large matrix once and does little with it: what counts is that many reads
are under way.  A block makes all rows of a few columns; its warps share the steps of the sums,
32 steps a warp in turn, and their sums are joined in shared memory in the order of the warps.
Lane l reads, of 32 steps, the eight from 8 (l % 4) on, 16 bytes at once: of rows l / 4 and
l / 4 + 8 and of column l / 4 of each tile of eight.  A matrix instruction takes them as steps of
other numbers, the same on both sides, which a sum does not see.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from slipstream.core.kernels.cuda.prelude_matrix import MATRIX
from slipstream.core.kernels.cuda.tiles import KEPT, Product, Sizes, filled
from slipstream.core.kernels.cuda.walks import THREADS, blocks
from slipstream.core.launch.cuda.launches import (
    EPILOGUE,
    TILED,
    KernelCode,
    LaunchKernel,
    make_launch,
)
from slipstream.core.vocab.records import Kernel

# Rows of a matrix instruction, columns of a tile, and elements of an access.
ROWS = 16
COLUMNS = 8
WHOLE = 8
# Columns from which on a block has so many tiles.
TILES = ((1 << 15, 4), (1 << 11, 2), (0, 1))

_KERNEL = """
#define TILES {tiles}
#define HIGH {high}
#define WIDE (8 * TILES)
#define WARPS 8
typedef slip_vector<item_t, 8> slip_eight;
// Sums of 32 steps for all tiles.
SLIP_DEVICE void slip_steps(float (&sum)[TILES][4], const slip_eight& low, const slip_eight& high,
                            const slip_eight (&side)[TILES]) {{
#pragma unroll
    for (int half = 0; half < 4; half += 2) {{
        const uint32_t rows[4] = {{low.word[half], high.word[half],
                                   low.word[half + 1], high.word[half + 1]}};
#pragma unroll
        for (int t = 0; t < TILES; t++)
            slip_multiply(sum[t], rows, side[t].word[half], side[t].word[half + 1], item_t());
    }}
}}
extern "C" __global__ void __launch_bounds__(32 * WARPS)
slip_NAME(OUT, SIDESEXTRANUMBERS, const slip_walk walk) {{
    const place_t batch = 0;
    LOCATE
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int own = lane / 4, eight = lane % 4 * 8;
    const int64_t first = (int64_t)blockIdx.x * WIDE;
    const bool fits = slip_aligned<item_t>(left, 16) && slip_aligned<item_t>(right, 16);
    // Beyond the last row or column the last one is read: what comes of it is not stored.
    const int64_t last_row = walk.rows - 1, last_column = walk.columns - 1;
    const item_t* lows = left + (left_start + slip_least((int64_t)own, last_row) * walk.left_row);
    const item_t* highs = left + (left_start + slip_least((int64_t)own + 8, last_row)
                                  * walk.left_row);
    int64_t column[TILES];
#pragma unroll
    for (int t = 0; t < TILES; t++) {{
        const int64_t wanted = slip_least(first + 8 * t + own, last_column);
        column[t] = right_start + wanted * walk.right_column;
    }}
    float sum[TILES][4] = {{}};
    // All lanes of a warp go round alike, as the instruction asks; whole steps without a branch,
    // so that all reads of some turns are under way together.
    const int64_t whole = fits ? walk.depth / 32 * 32 : 0;
#pragma unroll 4
    for (int64_t begin = warp * 32; begin < whole; begin += WARPS * 32) {{
        const slip_eight low = slip_read<item_t, 8>(lows + (begin + eight), 8, true);
        const slip_eight high = HIGH ? slip_read<item_t, 8>(highs + (begin + eight), 8, true) : low;
        slip_eight side[TILES];
#pragma unroll
        for (int t = 0; t < TILES; t++)
            side[t] = slip_read<item_t, 8>(right + (column[t] + begin + eight), 8, true);
        slip_steps(sum, low, high, side);
    }}
    // The rest, and all of it where an operand begins anywhere.
#pragma unroll 1
    for (int64_t begin = whole + warp * 32; begin < walk.depth; begin += WARPS * 32) {{
        slip_eight low = {{}}, high = {{}}, side[TILES] = {{}};
        const int64_t k = begin + eight;
        if (k < walk.depth) {{
            low = slip_read<item_t, 8>(lows + k, 8, fits);
            high = slip_read<item_t, 8>(highs + k, 8, fits);
            for (int t = 0; t < TILES; t++)
                side[t] = slip_read<item_t, 8>(right + (column[t] + k), 8, fits);
        }}
        slip_steps(sum, low, high, side);
    }}
    __shared__ float parts[WARPS][16 * WIDE];
#pragma unroll
    for (int t = 0; t < TILES; t++) {{
#pragma unroll
        for (int e = 0; e < 4; e++)
            parts[warp][(own + e / 2 * 8) * WIDE + 8 * t + lane % 4 * 2 + e % 2] = sum[t][e];
    }}
    __syncthreads();
    PLACE
    for (int each = threadIdx.x; each < 16 * WIDE; each += 32 * WARPS) {{
        const int64_t row = each / WIDE, column = first + each % WIDE;
        if (row >= walk.rows || column >= walk.columns) continue;
        wide_t total = parts[0][each];
#pragma unroll
        for (int g = 1; g < WARPS; g++) total = PLUS(total, parts[g][each]);
        STORE
    }}
}}
"""


def suits(sizes: Sizes, lines: tuple[int, int]) -> bool:
    """Whether a product whose steps lie side by side on both sides is one of few rows.

    ``lines``: how far the rows of the left side lie apart, and the columns of the right one.
    """
    if sizes.rows > ROWS or sizes.batches != 1:
        return False
    apart = (sizes.depth, lines[1], lines[0] if sizes.rows > 1 else 0)
    return sizes.columns >= COLUMNS and not any(step % WHOLE for step in apart)


@lru_cache(maxsize=KEPT)
def code_of(product: Product, tiles: int, high: bool) -> KernelCode:
    """The kernel of a product; ``high``: there are more rows than eight."""
    text = filled(_KERNEL.format(tiles=tiles, high=int(high)), product)
    code = KernelCode(f"slip_{product.name}", product.head + MATRIX + text)
    return code.made_by(EPILOGUE if product.fused else TILED)


def few_rows(plan: Any, product: Product, sizes: Sizes, geometry: list[int],
             numbers: tuple[str, ...] = ()) -> Kernel:
    """The kernel of a product with at most `ROWS` rows whose steps lie side by side on both sides.

    Arguments as `tiled` has them.
    """
    tiles = next(count for least, count in TILES if sizes.columns >= least)
    code = code_of(product, tiles, sizes.rows > ROWS // 2)
    tail = [sizes.rows, sizes.columns, sizes.depth, 1, sizes.depth, 1, *geometry]
    grid = blocks(sizes.columns, COLUMNS * tiles)
    plan.binding = make_launch(code, plan.out_spec.device, (grid, 1), THREADS, tail=tail,
                               numbers=numbers)
    return LaunchKernel(f"cuda {product.name} of few rows")

"""Products of few rows of 16-bit floats: one token, a small batch.

Such a product reads a large matrix once and does little with it: what counts is that many reads
are under way.  A block makes all rows of a few columns; its warps share the steps of the sums,
32 or 64 steps a warp in turn, and their sums are joined in shared memory in the order of the warps.
Lane l reads, of 32 steps, the eight from 8 (l % 4) on, 16 bytes at once.  A matrix instruction
takes them as steps of other numbers, the same on both sides, which a sum does not see.

A tile of an instruction, 16 rows by 8 columns, may be of two parts: up to four, or eight, rows by
four columns, the second part 32 steps further on.  So a warp reads whole lines of 128 bytes, and
there are twice as many blocks.  What rows of one part and columns of the other give is not kept.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any, NamedTuple

from slipstream.core.kernels.cuda.epilogues import lead
from slipstream.core.kernels.cuda.prelude_matrix import MATRIX
from slipstream.core.kernels.cuda.tiles import KEPT, Product, Sizes, filled
from slipstream.core.kernels.cuda.walks import blocks
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
# How many rows a text is for, and the parts of a tile that it has.
PARTS = ((1, 2), (4, 2), (8, 2), (16, 1))
# Blocks from which on the card is full: two for each of the multiprocessors of a large one.
ENOUGH = 264
# Turns whose reads are under way together, at most.
MOST_TURNS = 4


class Manner(NamedTuple):
    """How a block shares its work.

    ``rows``: that are kept; ``parts`` of a tile, ``tiles`` side by side, ``warps``, ``turns`` of a
    warp whose reads are under way together; ``whole``: there are just as many steps as all of
    them take.
    """

    rows: int
    parts: int
    tiles: int
    warps: int
    turns: int
    whole: bool

    @property
    def columns(self) -> int:
        """Columns of a block."""
        return self.tiles * COLUMNS // self.parts


def manner_of(sizes: Sizes) -> Manner:
    """The manner of a product, from its sizes alone."""
    rows, parts = next(each for each in PARTS if sizes.rows <= each[0])
    across = COLUMNS // parts
    tiles = 2 if sizes.columns >= 2 * across * ENOUGH else 1
    full = sizes.columns >= tiles * across * ENOUGH
    # Where blocks are few, each has more warps, so that as much is read at a time.
    steps = blocks(sizes.depth, 32 * parts)
    warps = 4 if steps <= 4 * MOST_TURNS else 8 if full or steps <= 8 * MOST_TURNS else 16
    some = blocks(steps, warps)
    # Of more than two turns, so many at a time that fewest are left empty.
    turns = some if some < 3 else min((4, 3), key=lambda count: -some % count)
    whole = turns > 2 and sizes.depth % (32 * parts * warps * turns) == 0
    return Manner(rows, parts, tiles, warps, turns, whole)


_KERNEL = """
// Rows that are kept, parts of a tile, tiles, warps, and turns whose reads are under way together.
#define ROWS {0.rows}
#define PARTS {0.parts}
#define TILES {0.tiles}
#define WARPS {0.warps}
#define TURNS {0.turns}
// Steps may end before the turns do.
#define ENDS {1}
// The instruction's rows 8 to 15 differ from 0 to 7: by so many steps, or they are other rows; rows
// and columns of a part; columns of a block; steps of a turn, and of a turn of all warps.
#define HIGH (ROWS >= 8)
#define APART (PARTS == 2 ? 32 : 0)
#define DOWN ((HIGH ? 16 : 8) / PARTS)
#define ACROSS (8 / PARTS)
#define WIDE (ACROSS * TILES)
#define STEPS (32 * PARTS)
#define ROUND (STEPS * WARPS)
// Each thread stores one element at most: what it adds is asked for before the sums.
#define ONE_EACH (ROWS * WIDE <= 32 * WARPS)
typedef slip_vector<item_t, 8> slip_eight;
#ifdef SLIP_SIMULATED
#define SLIP_ASK(WAY, HINT)                                                                     \
    template <class P> SLIP_DEVICE slip_eight WAY(P p, bool good) {{                              \
        slip_eight v = {{}};                                                                      \
        if (good) v = slip_read<item_t, 8>(p, 8, true);                                         \
        return v;                                                                               \
    }}
#define SLIP_NEXT(sum, a, b0, b1) slip_multiply(sum, a, b0, b1, item_t())
#else
// Plain reads are put off until just before they are used, so that a warp waits for each.
#define SLIP_ASK(WAY, HINT)                                                                     \
    SLIP_DEVICE slip_eight WAY(const item_t* p, bool good) {{                                     \
        slip_eight v = {{}};                                                                      \
        if (ENDS)                                                                               \
            asm volatile("{{.reg .pred good; setp.ne.u32 good, %5, 0; "                          \
                         "@good ld.global" HINT ".v4.u32 {{%0, %1, %2, %3}}, [%4];}}"              \
                         : "+r"(v.word[0]), "+r"(v.word[1]), "+r"(v.word[2]), "+r"(v.word[3])   \
                         : "l"(p), "r"((uint32_t)good) : "memory");                             \
        else                                                                                    \
            asm volatile("ld.global" HINT ".v4.u32 {{%0, %1, %2, %3}}, [%4];"                     \
                         : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])   \
                         : "l"(p) : "memory");                                                  \
        return v;                                                                               \
    }}
#define SLIP_IN_ORDER(TYPE, KIND)                                                               \
    SLIP_DEVICE void slip_in_order(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0,        \
                                   uint32_t b1, TYPE) {{                                         \
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." KIND "." KIND ".f32 "             \
                     "{{%0, %1, %2, %3}}, {{%4, %5, %6, %7}}, {{%8, %9}}, {{%0, %1, %2, %3}};"  \
                     : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])                   \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));           \
    }}
SLIP_IN_ORDER(slip_bfloat16, "bf16")
SLIP_IN_ORDER(slip_float16, "f16")
#define SLIP_NEXT(sum, a, b0, b1) slip_in_order(sum, a, b0, b1, item_t())
#endif
// The right side is read once; the left side by every block.
SLIP_ASK(slip_ask_once, ".L1::no_allocate")
SLIP_ASK(slip_ask, "")
// Sums of a turn for all tiles.
SLIP_DEVICE void slip_steps(float (&sum)[TILES][4], const slip_eight& low, const slip_eight& high,
                            const slip_eight (&side)[TILES]) {{
#pragma unroll
    for (int half = 0; half < 4; half += 2) {{
        const uint32_t rows[4] = {{low.word[half], high.word[half],
                                   low.word[half + 1], high.word[half + 1]}};
#pragma unroll
        for (int t = 0; t < TILES; t++)
            SLIP_NEXT(sum[t], rows, side[t].word[half], side[t].word[half + 1]);
    }}
}}
extern "C" __global__ void __launch_bounds__(32 * WARPS)
slip_NAME(OUT, SIDESEXTRANUMBERS, const slip_walk walk) {{
    const place_t batch = 0;
    LOCATE
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int own = lane / 4, eight = lane % 4 * 8;
    const int64_t first = (int64_t)blockIdx.x * WIDE;
    // Beyond the last row or column the last one is read: what comes of it is not stored.
    const int64_t last_row = walk.rows - 1, last_column = walk.columns - 1;
    // Where a lane begins: of columns `own`, and of rows `own` and `own + 8`, which may be the same
    // row 32 steps further on.
    const place_t depth = (place_t)walk.depth, begin = (place_t)(warp * STEPS);
    const place_t from = begin + own / ACROSS * 32 + eight;
    const place_t low_from = begin + own / DOWN * 32 + eight, high_from = low_from + APART;
    SLIP_POINTER(const item_t) low_at = left + (
        left_start + walk.left_row * slip_least((int64_t)(own % DOWN), last_row) + low_from);
    SLIP_POINTER(const item_t) high_at = left + (
        left_start + walk.left_row * slip_least((int64_t)own + 8, last_row) + low_from);
    SLIP_POINTER(const item_t) at[TILES];
#pragma unroll
    for (int t = 0; t < TILES; t++)
        at[t] = right + (right_start + from + walk.right_column
                         * slip_least(first + ACROSS * t + own % ACROSS, last_column));
    PLACE
#if ONE_EACH
    const int each = threadIdx.x;
    const int64_t row = slip_least((int64_t)(each / WIDE), last_row);
    const int64_t column = slip_least(first + each % WIDE, last_column);
    AHEAD
#endif
    float sum[TILES][4] = {{}};
    const bool fits = slip_aligned<item_t>(left, 16) && slip_aligned<item_t>(right, 16);
    // All lanes of a warp go round alike, as the instruction asks.
    if (fits) {{
#pragma unroll 1
        for (place_t k = 0; begin + k < depth; k += TURNS * ROUND) {{
            slip_eight low[TURNS], high[TURNS], side[TURNS][TILES];
#pragma unroll
            for (int u = 0; u < TURNS; u++) {{
                const int turn = u * ROUND;
#pragma unroll
                for (int t = 0; t < TILES; t++)
                    side[u][t] = slip_ask_once(at[t] + turn, k + turn + from < depth);
                low[u] = slip_ask(low_at + turn, k + turn + low_from < depth);
                high[u] = low[u];
                if (HIGH) high[u] = slip_ask((APART ? low_at + APART : high_at) + turn,
                                             k + turn + high_from < depth);
            }}
            // No read is put off beyond here.
            __syncwarp();
#pragma unroll
            for (int u = 0; u < TURNS; u++) slip_steps(sum, low[u], high[u], side[u]);
#pragma unroll
            for (int t = 0; t < TILES; t++) at[t] += TURNS * ROUND;
            low_at += TURNS * ROUND;
            high_at += TURNS * ROUND;
        }}
    }} else {{
        // The same where an operand begins anywhere.
#pragma unroll 1
        for (place_t k = 0; begin + k < depth; k += ROUND) {{
            slip_eight low = {{}}, high = {{}}, side[TILES] = {{}};
            for (int t = 0; t < TILES; t++)
                if (k + from < depth) side[t] = slip_read<item_t, 8>(at[t] + k, 8, false);
            if (k + low_from < depth) low = slip_read<item_t, 8>(low_at + k, 8, false);
            if (k + high_from < depth)
                high = slip_read<item_t, 8>((APART ? low_at + APART : high_at) + k, 8, false);
            slip_steps(sum, low, HIGH ? high : low, side);
        }}
    }}
    __shared__ float sums[WARPS * PARTS][ROWS * WIDE];
#pragma unroll
    for (int e = 0; e < (HIGH ? 4 : 2); e++) {{
        const int line = own + e / 2 * 8, spot = lane % 4 * 2 + e % 2, part = spot / ACROSS;
        if (line / DOWN != part || line % DOWN >= ROWS) continue;
#pragma unroll
        for (int t = 0; t < TILES; t++)
            sums[warp * PARTS + part][line % DOWN * WIDE + ACROSS * t + spot % ACROSS] = sum[t][e];
    }}
    __syncthreads();
#if ONE_EACH
    if (each < ROWS * WIDE && each / WIDE <= last_row && first + each % WIDE <= last_column) {{
#else
    for (int each = threadIdx.x; each < ROWS * WIDE; each += 32 * WARPS) {{
        const int64_t row = each / WIDE, column = first + each % WIDE;
        if (row > last_row || column > last_column) continue;
        AHEAD
#endif
        wide_t total = sums[0][each];
#pragma unroll
        for (int g = 1; g < WARPS * PARTS; g++) total = PLUS(total, sums[g][each]);
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
def code_of(product: Product, manner: Manner) -> KernelCode:
    """The kernel of a product."""
    text = filled(_KERNEL.format(manner, int(not manner.whole)), product)
    code = KernelCode(f"slip_{product.name}", product.head + MATRIX + text)
    return code.made_by(EPILOGUE if product.fused else TILED)


def few_rows(plan: Any, product: Product, sizes: Sizes, geometry: list[int],
             numbers: tuple[str, ...] = ()) -> Kernel:
    """The kernel of a product with at most `ROWS` rows whose steps lie side by side on both sides.

    Arguments as `tiled` has them.
    """
    manner = manner_of(sizes)
    code = code_of(product, manner)
    tail = [sizes.rows, sizes.columns, sizes.depth, 1, sizes.depth, 1, *geometry]
    grid = blocks(sizes.columns, manner.columns)
    launch = make_launch(code, plan.out_spec.device, (grid, 1), 32 * manner.warps, tail=tail,
                         numbers=numbers)
    if not numbers:
        lead(plan.out_spec, product, partial(code_of, manner=manner), launch,
             (sizes, geometry[-8:]))
    plan.binding = launch
    return LaunchKernel(f"cuda {product.name} of few rows")

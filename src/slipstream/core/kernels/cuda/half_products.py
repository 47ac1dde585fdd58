# cython: annotation_typing=False
"""Products of 16-bit floats by matrix instructions: tiles of both sides come into shared memory.

A block makes a tile of the result.  Slabs of both sides are copied into shared memory some turns
ahead, 16 bytes at once; each warp multiplies its part of the tile.  A side may lie along its steps
or along its rows or columns: it is copied as it lies and turned on the way into registers.  Sums
are float32, in the order of the steps as the instruction has it; the result is rounded once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from slipstream.core.kernels.cuda import few_rows
from slipstream.core.kernels.cuda.epilogues import LEADING, lead
from slipstream.core.kernels.cuda.few_rows import WHOLE
from slipstream.core.kernels.cuda.prelude_matrix import MATRIX
from slipstream.core.kernels.cuda.tiles import KEPT, Product, Sizes, filled
from slipstream.core.kernels.cuda.walks import Ints, blocks
from slipstream.core.launch.cuda.launches import (
    EPILOGUE,
    TILED,
    KernelCode,
    LaunchKernel,
    make_launch,
)
from slipstream.core.native.drivers import drivers
from slipstream.core.vocab.records import Kernel

DTYPES = ("float16", "bfloat16")
# The oldest cards that have the instruction.
OLDEST = (8, 0)
# The most products of numbers of a product that is ours: the library's kernels for these read what
# the host wrote for one set of addresses, and have to be called each time.
MOST = 1 << 29
# Steps of both sides: along k, and along rows or columns.
Sides = tuple[tuple[int, int], tuple[int, int]]
# Words that keep neighbouring lines of a tile in different banks, in elements.
PADDING = 8


@dataclass(frozen=True, slots=True)
class HalfTile:
    """Rows and columns of a tile, steps of a slab, and how many slabs there is room for.

    ``groups``: of warps that share the steps, a slab each in turn; their sums are joined in their
    order.  ``down`` and ``across``: warps of a group that share the rows, and the columns.
    """

    rows: int
    columns: int
    depth: int = 64
    stages: int = 3
    groups: int = 1
    down: int = 2
    across: int = 2

    @property
    def threads(self) -> int:
        """Threads of a group."""
        return 32 * self.down * self.across

    def lines(self, size: int, along_k: bool) -> tuple[int, int]:
        """Lines of a side's slab and elements of a line."""
        return (size, self.depth) if along_k else (self.depth, size)

    def shared(self, left_along_k: bool, right_along_k: bool) -> int:
        """Bytes of shared memory: slabs of both sides, and after them the sums of tile and rows.
        """
        elements = 0
        for size, along_k in ((self.rows, left_along_k), (self.columns, right_along_k)):
            lines, length = self.lines(size, along_k)
            elements += lines * (length + PADDING)
        return self.groups * max(2 * elements * self.stages, 4 * self.rows * (self.columns + 9))


# The largest tile of which there are enough for a card, else the smallest.
TILES = (HalfTile(128, 64, down=4), HalfTile(64, 64), HalfTile(32, 64), HalfTile(32, 32))
ENOUGH = 90
# Where few small tiles have sums of so many slabs, groups of warps share them.  The fewer warps
# share a tile the less each reads of what another has read.
SHARED = {HalfTile(32, 64): HalfTile(32, 64, groups=4, down=1),
          HalfTile(32, 32): HalfTile(32, 32, groups=4, across=1)}
MANY_SLABS = 8

KEEP = """
#define KEEP(value) kept.set(e, value)
"""
_KERNEL = """
#define ROWS {tile.rows}
#define COLUMNS {tile.columns}
#define DEPTH {tile.depth}
#define STAGES {tile.stages}
#define GROUPS {tile.groups}
// Of a group.
#define THREADS {threads}
#define PADDING {padding}
#define DOWN (ROWS / {tile.down})
#define ACROSS (COLUMNS / {tile.across})
// Lines of a side's slab in memory, and elements of one.
#if LEFT_ALONG_K
#define LEFT_LINES ROWS
#define LEFT_LENGTH DEPTH
#else
#define LEFT_LINES DEPTH
#define LEFT_LENGTH ROWS
#endif
#if RIGHT_ALONG_K
#define RIGHT_LINES COLUMNS
#define RIGHT_LENGTH DEPTH
#else
#define RIGHT_LINES DEPTH
#define RIGHT_LENGTH COLUMNS
#endif
#define LEFT_LINE (LEFT_LENGTH + PADDING)
#define RIGHT_LINE (RIGHT_LENGTH + PADDING)
#define LEFT_SLAB (LEFT_LINES * LEFT_LINE)
#define RIGHT_SLAB (RIGHT_LINES * RIGHT_LINE)
// LINES lines of LENGTH elements, `step` apart; beyond `lines` and `length` come zeros.
template <int LINES, int LENGTH, class P, class Q>
SLIP_DEVICE void slip_slab(P to, Q from, int64_t step, int lines, int length, bool fits) {{
    const int across = LENGTH / 8, down = THREADS / across;
    // A thread has one column of chunks.
    const int thread = threadIdx.x % THREADS;
    const int own = thread / across, column = thread % across * 8;
    P into = to + (own * (LENGTH + PADDING) + column);
    Q place = from + (own * step + column);
    const int end = column < length ? lines : 0;
    if (fits) {{
#pragma unroll 2
        for (int line = 0; line < LINES; line += down) {{
            slip_copy_16(into + line * (LENGTH + PADDING), place, own + line < end);
            place += down * step;
        }}
        return;
    }}
#pragma unroll 1
    for (int line = 0; line < LINES; line += down) {{
        slip_vector<item_t, 8> some = {{}};
        if (own + line < end) some = slip_read<item_t, 8>(place, 8, false);
        slip_write(into + line * (LENGTH + PADDING), some, 8, true);
        place += down * step;
    }}
}}
extern "C" __global__ void __launch_bounds__(THREADS * GROUPS)
slip_NAME(OUT, SIDESEXTRANUMBERS, const slip_walk walk) {{
    const place_t across = (place_t)((walk.columns + COLUMNS - 1) / COLUMNS);
    const place_t tiles = (place_t)((walk.rows + ROWS - 1) / ROWS) * across;
    const place_t batch = (place_t)blockIdx.x / tiles, tile = (place_t)blockIdx.x % tiles;
    LOCATE
    const place_t first_row = tile / across * ROWS, first_column = tile % across * COLUMNS;
    // Of this tile.
    const int rows = (int)slip_least(walk.rows - (int64_t)first_row, (int64_t)ROWS);
    const int columns = (int)slip_least(walk.columns - (int64_t)first_column, (int64_t)COLUMNS);
    const int lane = threadIdx.x % 32, warp = threadIdx.x % THREADS / 32;
    const int group = threadIdx.x / THREADS;
    const int own_row = warp % (ROWS / DOWN) * DOWN, own_column = warp / (ROWS / DOWN) * ACROSS;
    const bool fits = slip_aligned<item_t>(left, 16) && slip_aligned<item_t>(right, 16);
    SLIP_POINTER(item_t) lefts = slip_cast<item_t>(slip_dynamic_shared())
                                 + group * STAGES * (LEFT_SLAB + RIGHT_SLAB);
    SLIP_POINTER(item_t) rights = lefts + STAGES * LEFT_SLAB;
    const item_t* left_tile = left + (left_start + first_row * walk.left_row);
    const item_t* right_tile = right + (right_start + first_column * walk.right_column);
    const int slabs = (int)((walk.depth + DEPTH - 1) / DEPTH);
    const int turns = (slabs + GROUPS - 1) / GROUPS;
    float sum[DOWN / 16][ACROSS / 8][4] = {{}};
#ifdef LINE_SUMS
    // The left side times ones, by the warps of the first columns.
    const bool sums_lines = first_column == 0 && own_column == 0;
    const uint32_t ones = slip_pair(1, 1, item_t());
    float line[DOWN / 16][4] = {{}};
#endif
    // Where the next slab comes, and where that of this turn is.
    int next = 0, stage = 0;
#pragma unroll 1
    for (int turn = 1 - STAGES; turn < turns; turn++) {{
        if (turn >= 0) {{
            // This slab is here, and everyone is done with the one whose place is taken next.
            slip_wait_copies<STAGES - 2>();
            __syncthreads();
        }}
        const int slab = (turn + STAGES - 1) * GROUPS + group;
        if (slab < slabs) {{
            const int64_t k = (int64_t)slab * DEPTH;
            const int rest = (int)slip_least(walk.depth - k, (int64_t)DEPTH);
#if LEFT_ALONG_K
            slip_slab<LEFT_LINES, LEFT_LENGTH>(lefts + next * LEFT_SLAB, left_tile + k,
                                               walk.left_row, rows, rest, fits);
#else
            slip_slab<LEFT_LINES, LEFT_LENGTH>(lefts + next * LEFT_SLAB,
                                               left_tile + k * walk.left_k, walk.left_k, rest,
                                               rows, fits);
#endif
#if RIGHT_ALONG_K
            slip_slab<RIGHT_LINES, RIGHT_LENGTH>(rights + next * RIGHT_SLAB, right_tile + k,
                                                 walk.right_column, columns, rest, fits);
#else
            slip_slab<RIGHT_LINES, RIGHT_LENGTH>(rights + next * RIGHT_SLAB,
                                                 right_tile + k * walk.right_k, walk.right_k,
                                                 rest, columns, fits);
#endif
        }}
        // An empty group of copies counts too.
        slip_mark_copies();
        next = next + 1 == STAGES ? 0 : next + 1;
        if (turn < 0) continue;
        SLIP_POINTER(item_t) left_slab = lefts + stage * LEFT_SLAB;
        SLIP_POINTER(item_t) right_slab = rights + stage * RIGHT_SLAB;
        stage = stage + 1 == STAGES ? 0 : stage + 1;
        if (turn * GROUPS + group >= slabs) continue;
#pragma unroll 2
        for (int k = 0; k < DEPTH; k += 16) {{
            uint32_t a[DOWN / 16][4], b[ACROSS / 16][4];
#pragma unroll
            for (int i = 0; i < DOWN / 16; i++) {{
                const int row = own_row + 16 * i;
#if LEFT_ALONG_K
                slip_left(a[i], left_slab + (row * LEFT_LINE + k), LEFT_LINE);
#else
                slip_turned_left(a[i], left_slab + (k * LEFT_LINE + row), LEFT_LINE);
#endif
            }}
#pragma unroll
            for (int j = 0; j < ACROSS / 16; j++) {{
                const int column = own_column + 16 * j;
#if RIGHT_ALONG_K
                slip_right<false>(b[j], right_slab + (column * RIGHT_LINE + k), RIGHT_LINE);
#else
                slip_right<true>(b[j], right_slab + (k * RIGHT_LINE + column), RIGHT_LINE);
#endif
            }}
#pragma unroll
            for (int i = 0; i < DOWN / 16; i++) {{
#pragma unroll
                for (int j = 0; j < ACROSS / 8; j++)
                    slip_multiply(sum[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1],
                                  item_t());
            }}
#ifdef LINE_SUMS
            if (sums_lines) {{
#pragma unroll
                for (int i = 0; i < DOWN / 16; i++)
                    slip_multiply(line[i], a[i], ones, ones, item_t());
            }}
#endif
        }}
    }}
    slip_finish_copies();
    __syncthreads();
    // Neighbouring threads store neighbouring elements.
    SLIP_POINTER(float) whole = slip_cast<float>(slip_dynamic_shared());
    const int tile_line = COLUMNS + 8, tile_size = ROWS * tile_line;
    SLIP_POINTER(float) mine = whole + (group * tile_size + (own_row + lane / 4) * tile_line
                                        + own_column + lane % 4 * 2);
#pragma unroll
    for (int i = 0; i < DOWN / 8; i++) {{
#pragma unroll
        for (int j = 0; j < ACROSS / 8; j++) {{
            slip_vector<float, 2> two;
            two.set(0, sum[i / 2][j][i % 2 * 2]);
            two.set(1, sum[i / 2][j][i % 2 * 2 + 1]);
            slip_write(mine + (8 * i * tile_line + 8 * j), two, 2, true);
        }}
    }}
#ifdef LINE_SUMS
    SLIP_POINTER(float) lines = whole + GROUPS * tile_size;
    if (sums_lines && lane % 4 == 0) {{
#pragma unroll
        for (int i = 0; i < DOWN / 8; i++)
            lines[group * ROWS + own_row + 8 * i + lane / 4] = line[i / 2][i % 2 * 2];
    }}
#endif
    __syncthreads();
#ifdef LINE_SUMS
    if (first_column == 0 && threadIdx.x < rows) {{
        wide_t total = lines[threadIdx.x];
#pragma unroll
        for (int g = 1; g < GROUPS; g++) total = PLUS(total, lines[g * ROWS + threadIdx.x]);
        sums[first_row + threadIdx.x] = NARROW(total);
    }}
#endif
FINISH}}
"""

# Beginning and middle of what is done with the sums, four elements of a row at once: some such
# fours are taken before any is stored, so that what they read is on its way at the same time.
_FOURS = """
    PLACE
    const int fours = ROWS * COLUMNS / 4, everyone = THREADS * GROUPS;
    const int some = fours / everyone < 4 ? (fours / everyone ? fours / everyone : 1) : 4;
    // A thread has the same columns in all its rows.
    const int four = threadIdx.x % (COLUMNS / 4) * 4, apart = everyone / (COLUMNS / 4);
"""
_TOTALS = """
            const int own = begin + n * apart;
            slip_vector<float, 4> totals = slip_read<float, 4>(whole + (own * tile_line + four),
                                                               4, true);
#pragma unroll
            for (int g = 1; g < GROUPS; g++) {
                const slip_vector<float, 4> more = slip_read<float, 4>(
                    whole + (g * tile_size + own * tile_line + four), 4, true);
#pragma unroll
                for (int e = 0; e < 4; e++) totals.set(e, PLUS(totals.get(e), more.get(e)));
            }
            // Beyond the edges the last element is made once more, and not stored.
            const place_t row = first_row + (own < rows ? own : rows - 1);
"""
_ALONE = f"""{_FOURS}
    const bool lies_so = walk.out_column == 1 && walk.out_row % 4 == 0 && out_start % 4 == 0
                         && slip_aligned<item_t>(out, 8);
#pragma unroll 1
    for (int begin = threadIdx.x / (COLUMNS / 4); begin < ROWS; begin += some * apart) {{
        slip_vector<item_t, 4> made[some];
#pragma unroll
        for (int n = 0; n < some; n++) {{{_TOTALS}
            slip_vector<item_t, 4>& kept = made[n];
            kept = {{}};
#pragma unroll
            for (int e = 0; e < 4; e++) {{
                ONLY_ONCE
                const place_t column = first_column + (four + e < columns ? four + e
                                                                          : columns - 1);
                const wide_t total = totals.get(e);
                STORE
            }}
        }}
#pragma unroll
        for (int n = 0; n < some; n++) {{
            const int own = begin + n * apart;
            if (own >= rows || four >= columns) continue;
            item_t* to = out + (out_start + (first_row + own) * walk.out_row
                                + (first_column + four) * walk.out_column);
            if (lies_so && four + 4 <= columns) slip_write(to, made[n], 4, true);
            else slip_scatter<item_t, 4>(to, made[n], columns - four, walk.out_column);
        }}
    }}
"""
# Where a chain goes on, whose elements lie in the order of the result's.
_JOINED = f"""{_FOURS}
    const int there = four < columns ? columns - four : 0;
    const bool full = walk.columns % 4 == 0 && there >= 4;
#pragma unroll 1
    for (int begin = threadIdx.x / (COLUMNS / 4); begin < ROWS; begin += some * apart) {{
        FOUR_HELD
#pragma unroll
        for (int n = 0; n < some; n++) {{
            const int own = begin + n * apart;
            const int64_t spot = (int64_t)(first_row + (own < rows ? own : rows - 1)) * walk.columns
                                 + first_column + four;
            FOUR_ASKED
        }}
#pragma unroll
        for (int n = 0; n < some; n++) {{{_TOTALS}
            const int64_t spot = (int64_t)row * walk.columns + first_column + four;
            FOUR_MADE
#pragma unroll
            for (int e = 0; e < 4; e++) {{
                const place_t column = first_column + (four + e < columns ? four + e
                                                                          : columns - 1);
                const wide_t total = totals.get(e);
                FOUR_ELEMENT
            }}
            if (own >= rows) continue;
            FOUR_WRITTEN
        }}
    }}
"""
FOUR_WORDS = ("FOUR_HELD", "FOUR_ASKED", "FOUR_MADE", "FOUR_ELEMENT", "FOUR_WRITTEN")
# What writes elsewhere too must not do so for another's element.
_ONLY_ONCE = "if (own >= rows || four + e >= columns) continue;"


def suits(sizes: Sizes, sides: Sides, steps: Ints) -> bool:
    """Whether both sides can be copied 16 bytes at once.  ``steps``: between matrices."""
    if any(step % WHOLE for step in steps):
        return False
    for (along_k, across), size in zip(sides, (sizes.rows, sizes.columns), strict=True):
        length, step = (sizes.depth, across) if along_k == 1 else (size, along_k)
        if 1 not in (along_k, across) or length % WHOLE or step % WHOLE:
            return False
    return True


class Cards:
    """What devices' cards have, as far as was asked; of one driver at a time."""

    def __init__(self) -> None:
        self.number = -1
        self.known: dict[int, tuple[bool, int]] = {}

    def of(self, index: int) -> tuple[bool, int]:
        """Whether a device's card has the instruction, and its bytes of shared memory a block."""
        if self.number != drivers.number:
            # What was a driver's is not believed of the next one.
            self.number, self.known = drivers.number, {}
        found = self.known.get(index)
        if found is None:
            card = drivers.current().properties(index)
            found = ((card.major, card.minor) >= OLDEST, card.shared_memory_per_block_optin)
            self.known[index] = found
        return found


cards = Cards()


def has_instruction(index: int) -> bool:
    """Whether a device's card has the instruction."""
    return cards.of(index)[0]


def maker_of(sizes: Sizes, spec: Any, sides: Sides,
             steps: Ints = ()) -> Callable[..., Kernel] | None:
    """What makes the kernel of a product of 16-bit floats by matrix instructions; None: nothing.

    ``spec``: of the result; ``sides``: steps of both sides, along k and along rows or columns;
    ``steps``: other steps, between matrices.
    """
    if spec.dtype.name not in DTYPES:
        return None
    if not has_instruction(spec.device.index or 0):
        return None
    left, right = sides
    if left[0] == right[0] == 1 and few_rows.suits(sizes, (left[1], right[1])):
        return few_rows.few_rows
    return half_product if suits(sizes, sides, steps) else None


def tile_of(sizes: Sizes, room: int) -> HalfTile:
    """The tile for results of this size, on a card with so much shared memory for a block."""
    tile = TILES[-1]
    for each in TILES:
        down, across = blocks(sizes.rows, each.rows), blocks(sizes.columns, each.columns)
        if down * across * sizes.batches >= ENOUGH:
            tile = each
            break
    shared = SHARED.get(tile)
    if (shared is None or sizes.depth < MANY_SLABS * tile.depth
            or blocks(sizes.rows, tile.rows) * blocks(sizes.columns, tile.columns)
            * sizes.batches >= 2 * ENOUGH):
        return tile
    most = max(shared.shared(left, right) for left in (False, True) for right in (False, True))
    return shared if most <= room else tile


def finish_of(product: Product) -> str:
    """What a kernel does with its sums."""
    if product.fours is None:
        return _ALONE.replace("ONLY_ONCE", _ONLY_ONCE if product.aside else "")
    text = _JOINED
    for word, meaning in zip(FOUR_WORDS, product.fours, strict=True):
        text = text.replace(word, meaning)
    return text


@lru_cache(maxsize=KEPT)
def code_of(product: Product, tile: HalfTile) -> KernelCode:
    """The kernel of a product with a tile."""
    text = _KERNEL.format(tile=tile, threads=tile.threads, padding=PADDING)
    text = filled(text.replace("FINISH", finish_of(product)), product)
    head = (f"#define LEFT_ALONG_K {int(product.left_along_k)}\n"
            f"#define RIGHT_ALONG_K {int(product.right_along_k)}\n")
    keep = KEEP if product.fours is None else ""
    code = KernelCode(f"slip_{product.name}", keep + product.head + head + MATRIX + text)
    return code.made_by(EPILOGUE if product.fused else TILED)


def half_product(plan: Any, product: Product, sizes: Sizes, geometry: list[int],
                 numbers: tuple[str, ...] = ()) -> Kernel:
    """The kernel of a product for which `suits` holds; arguments as `tiled` has them."""
    device = plan.out_spec.device
    room = cards.of(device.index or 0)[1]
    tile = tile_of(sizes, room)
    sides = product.left_along_k, product.right_along_k
    code = code_of(product, tile)
    tail = [sizes.rows, sizes.columns, sizes.depth, sizes.batches, sizes.depth, 1, *geometry]
    tiles = blocks(sizes.rows, tile.rows) * blocks(sizes.columns, tile.columns) * sizes.batches
    launch = make_launch(code, device, (tiles, 1), tile.threads * tile.groups, tail=tail,
                         numbers=numbers, shared=tile.shared(*sides))
    code.sizes += 1
    if not numbers and code.sizes <= LEADING:
        lead(plan.out_spec, product, partial(code_of, tile=tile), launch, (sizes, geometry[-8:]),
             dear=True)
    plan.binding = launch
    return LaunchKernel(f"cuda {product.name} by matrix instructions")

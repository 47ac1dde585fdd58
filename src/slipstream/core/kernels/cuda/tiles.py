# cython: annotation_typing=False
"""Sums of products by tiles: what matrix products and convolutions have in common.

out[row, column] = the sum over k of left(row, k) * right(k, column).  A block makes a tile of the
result: it loads slabs of both sides into shared memory and every thread sums a few elements, in
the order of k, each step rounded once (fma).  Where tiles are few, the warps of a block share the
steps of a slab and their sums are joined in the block, so that one launch fills the card; a longer
sum is cut into parts by k, which a second kernel adds in order.  Tiles, groups and parts depend on
sizes and dtypes only.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any, NamedTuple

from slipstream.core.kernels.cuda.walks import THREADS, address, blocks, launch
from slipstream.core.launch.cuda.launches import (
    EPILOGUE,
    TILED,
    KernelCode,
    Launch,
    LaunchKernel,
)
from slipstream.core.launch.cuda.modules import modules
from slipstream.core.vocab.records import Kernel, Plan

# Blocks below which a long sum is cut, the least steps of a part, and the most parts.
FEW = 128
SHORTEST = 64
MOST_PARTS = 64
# The most steps of a sum that the groups of one block share, of numbers of so many bytes.
SHARED_STEPS = 512
SHARED_BYTES = 4


class Tile(NamedTuple):
    """Rows and columns of a tile, and of it those of a thread; 256 threads.

    ``depth``: steps of a slab; ``groups``: of threads, each of which makes the whole tile from its
    share of a slab's steps.
    """

    rows: int
    columns: int
    own_rows: int
    own_columns: int
    depth: int = 16
    groups: int = 1


WHOLE = Tile(64, 64, 4, 4)
FLAT = Tile(16, 64, 1, 4)
TALL = Tile(64, 16, 4, 1)
SMALL = Tile(16, 16, 1, 1)
# A warp has the whole tile; small, so that many multiprocessors have one.
SHARED = Tile(16, 16, 4, 2, 64, 8)
# The most products of numbers, and elements of both operands, of a float32 product that is ours
# where there is a library; what such products are called.
SMALL_PRODUCTS = 1 << 24
SMALL_ELEMENTS = 1 << 18
MATRICES = "product"
# Steps of the deepest slab.
DEEPEST = 64
# How many texts are kept: products of other sizes have the same.
KEPT = 256


class Sizes:
    """Rows, columns, steps of the sums, and how many such products."""

    rows: int
    columns: int
    depth: int
    batches: int

    def __init__(self, rows: int, columns: int, depth: int, batches: int = 1) -> None:
        self.rows = rows
        self.columns = columns
        self.depth = depth
        self.batches = batches

    def tiles(self, tile: Tile) -> int:
        """How many tiles the results have."""
        return blocks(self.rows, tile.rows) * blocks(self.columns, tile.columns) * self.batches


def tile_of(sizes: Sizes, itemsize: int) -> Tile:
    """The tile for results of this size, whose sums are numbers of ``itemsize`` bytes."""
    if sizes.rows <= 24:
        tile = SMALL if sizes.columns <= 24 else FLAT
    else:
        tile = TALL if sizes.columns <= 24 else WHOLE
    shares = itemsize <= SHARED_BYTES and tile.depth < sizes.depth <= SHARED_STEPS
    return SHARED if shares and sizes.tiles(tile) < FEW else tile


# ALONG_K: consecutive threads load along k, else along rows or columns.
_TILES = """
#define ROWS {tile.rows}
#define COLUMNS {tile.columns}
#define OWN_ROWS {tile.own_rows}
#define OWN_COLUMNS {tile.own_columns}
#define DEPTH {tile.depth}
#define GROUPS {tile.groups}
#define THREADS 256
#define ACROSS (COLUMNS / OWN_COLUMNS)
#define DOWN (ROWS / OWN_ROWS)
#if LEFT_ALONG_K
#define LEFT_STEP(i) ((i) % DEPTH)
#define LEFT_LINE(i) ((i) / DEPTH)
#else
#define LEFT_STEP(i) ((i) / ROWS)
#define LEFT_LINE(i) ((i) % ROWS)
#endif
#if RIGHT_ALONG_K
#define RIGHT_STEP(i) ((i) % DEPTH)
#define RIGHT_LINE(i) ((i) / DEPTH)
#else
#define RIGHT_STEP(i) ((i) / COLUMNS)
#define RIGHT_LINE(i) ((i) % COLUMNS)
#endif
"""
_BODY = """
    __shared__ wide_t lefts[DEPTH][ROWS + 1];
    __shared__ wide_t rights[DEPTH][COLUMNS + 1];
    const place_t first_row = tile / across * ROWS, first_column = tile % across * COLUMNS;
    const int x = threadIdx.x % ACROSS, y = threadIdx.x / ACROSS % DOWN;
    const int group = threadIdx.x / (ACROSS * DOWN);
    const place_t rows = (place_t)walk.rows, columns = (place_t)walk.columns;
    const place_t start = (place_t)(blockIdx.y * walk.part);
    const place_t end = (place_t)slip_least(walk.depth, start + walk.part);
    const wide_t zero = {};
    wide_t sum[OWN_ROWS][OWN_COLUMNS] = {};
    // What a thread loads of the next slab, while it computes with this one.
    wide_t next_left[ROWS * DEPTH / THREADS], next_right[COLUMNS * DEPTH / THREADS];
    BEFORE
    auto fetch = [&](place_t slab) {
        EACH
#pragma unroll
        for (int n = 0; n < ROWS * DEPTH / THREADS; n++) {
            const int i = threadIdx.x + n * THREADS;
            const place_t k = slab + LEFT_STEP(i), row = first_row + LEFT_LINE(i);
            wide_t value = zero;
            if (k < end && row < rows) { LEFT }
            next_left[n] = value;
        }
#pragma unroll
        for (int n = 0; n < COLUMNS * DEPTH / THREADS; n++) {
            const int i = threadIdx.x + n * THREADS;
            const place_t k = slab + RIGHT_STEP(i), column = first_column + RIGHT_LINE(i);
            wide_t value = zero;
            if (k < end && column < columns) { RIGHT }
            next_right[n] = value;
        }
    };
    fetch(start);
    for (place_t slab = start; slab < end; slab += DEPTH) {
#pragma unroll
        for (int n = 0; n < ROWS * DEPTH / THREADS; n++) {
            const int i = threadIdx.x + n * THREADS;
            lefts[LEFT_STEP(i)][LEFT_LINE(i)] = next_left[n];
        }
#pragma unroll
        for (int n = 0; n < COLUMNS * DEPTH / THREADS; n++) {
            const int i = threadIdx.x + n * THREADS;
            rights[RIGHT_STEP(i)][RIGHT_LINE(i)] = next_right[n];
        }
        __syncthreads();
        fetch(slab + DEPTH);
#pragma unroll
        for (int own = 0; own < DEPTH / GROUPS; own++) {
            const int step = group * (DEPTH / GROUPS) + own;
            wide_t a[OWN_ROWS], b[OWN_COLUMNS];
#pragma unroll
            for (int i = 0; i < OWN_ROWS; i++) a[i] = lefts[step][y + i * DOWN];
#pragma unroll
            for (int j = 0; j < OWN_COLUMNS; j++) b[j] = rights[step][x + j * ACROSS];
#pragma unroll
            for (int i = 0; i < OWN_ROWS; i++) {
#pragma unroll
                for (int j = 0; j < OWN_COLUMNS; j++) sum[i][j] = FUSED(a[i], b[j], sum[i][j]);
            }
        }
        __syncthreads();
    }
#if GROUPS > 1
    // The groups' sums of each element, joined in their order.
    __shared__ wide_t joined[GROUPS][ROWS * COLUMNS];
#pragma unroll
    for (int i = 0; i < OWN_ROWS; i++) {
#pragma unroll
        for (int j = 0; j < OWN_COLUMNS; j++)
            joined[group][(y + i * DOWN) * COLUMNS + x + j * ACROSS] = sum[i][j];
    }
    __syncthreads();
#pragma unroll
    for (int n = 0; n < ROWS * COLUMNS / THREADS; n++) {
        const int each = threadIdx.x + n * THREADS;
        const place_t row = first_row + each / COLUMNS, column = first_column + each % COLUMNS;
        if (row >= rows || column >= columns) continue;
        wide_t total = joined[0][each];
#pragma unroll
        for (int g = 1; g < GROUPS; g++) total = PLUS(total, joined[g][each]);
        STORE
    }
#else
#pragma unroll
    for (int i = 0; i < OWN_ROWS; i++) {
        const place_t row = first_row + y + i * DOWN;
        if (row >= rows) continue;
#pragma unroll
        for (int j = 0; j < OWN_COLUMNS; j++) {
            const place_t column = first_column + x + j * ACROSS;
            if (column >= columns) continue;
            const wide_t total = sum[i][j];
            STORE
        }
    }
#endif
"""
# blockIdx.x: the tile of a batch or group, y: the part.
_KERNEL = """
extern "C" __global__ void slip_NAME(OUT, SIDESEXTRANUMBERS, const slip_walk walk) {
    const place_t across = (place_t)((walk.columns + COLUMNS - 1) / COLUMNS);
    const place_t tiles = (place_t)((walk.rows + ROWS - 1) / ROWS) * across;
    const place_t batch = (place_t)blockIdx.x / tiles, tile = (place_t)blockIdx.x % tiles;
    LOCATE
BODY
}
"""
# The parts of each element, added in order.
_JOIN = """
extern "C" __global__ void slip_NAME_join(OUT, const wide_t* partsEXTRANUMBERS,
                                          const slip_walk walk) {
    const int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    const int64_t elements = walk.rows * walk.columns;
    if (at >= elements * walk.batches) return;
    const place_t batch = (place_t)(at / elements);
    const place_t row = (place_t)(at % elements / walk.columns);
    const place_t column = (place_t)(at % walk.columns);
    PLACE
    wide_t total = parts[at];
    for (int64_t part = 1; part < walk.parts; part++) {
        const wide_t more = parts[part * elements * walk.batches + at];
        total = PLUS(total, more);
    }
    STORE
}
"""
_STORE_PART = """parts[((int64_t)blockIdx.y * walk.batches + batch) * walk.rows * walk.columns
                  + (int64_t)row * walk.columns + column] = total;"""
# What every tail begins with.
SIZES = "int64_t rows, columns, depth, batches, part, parts;"


class Product(NamedTuple):
    """The text of a product.

    ``head`` names types and ``slip_walk``.  ``out``, ``sides`` and ``extra`` declare pointers: the
    result and what only ``store`` reads, both sides, and again what only ``store`` reads.
    ``left`` and ``right`` set ``value`` from (row, k) and (k, column) of ``batch``; ``store``
    stores ``total`` at (row, column); ``locate`` and ``place`` come before them, and ``ahead`` what
    ``store`` reads, which may be asked for before there are sums.  ``before`` comes
    before all slabs and ``each`` before one that begins at step ``slab``; ``left`` and ``right``
    load number ``n`` of a thread's elements of it.  ``fours``: where a chain goes on from the
    product, the same as ``ahead`` and ``store`` for kernels that take four elements at once, in the
    parts that `EpilogueWriter` gives.  ``aside``: storing writes elsewhere too, which must be done
    once only.
    """

    name: str
    head: str
    out: str
    sides: str
    left: str
    right: str
    store: str
    extra: str = ""
    numbers: str = ""
    locate: str = ""
    place: str = ""
    before: str = ""
    each: str = ""
    ahead: str = ""
    left_along_k: bool = True
    right_along_k: bool = False
    fours: tuple[str, ...] | None = None
    aside: bool = False

    @property
    def fused(self) -> bool:
        """Whether storing does more than to narrow a sum: it reads or writes other tensors."""
        return bool(self.extra) or "," in self.out


def parts_of(sizes: Sizes, tile: Tile) -> int:
    """In how many parts the sums are cut."""
    tiles = sizes.tiles(tile)
    if not 0 < tiles < FEW or sizes.depth < 4 * SHORTEST or tile.groups > 1:
        return 1
    return min(blocks(2 * FEW, tiles), sizes.depth // SHORTEST, MOST_PARTS)


def filled(text: str, product: Product) -> str:
    """A kernel's text with what a product says in the places of its words.

    Where it has no place for AHEAD, that comes just before STORE.
    """
    early = "AHEAD" in text
    text = text.replace("AHEAD", product.ahead)
    store = product.store if early else product.ahead + product.store
    for word, meaning in (("NAME", product.name), ("OUT", product.out), ("SIDES", product.sides),
                          ("EXTRA", product.extra), ("NUMBERS", product.numbers),
                          ("LOCATE", product.locate), ("PLACE", product.place),
                          ("STORE", store)):
        text = text.replace(word, meaning)
    return text


@lru_cache(maxsize=KEPT)
def code_of(product: Product, tile: Tile, parts: bool) -> KernelCode:
    """The kernel of the tiles, storing results or parts."""
    body = _BODY.replace("BEFORE", product.before).replace("EACH", product.each)
    body = body.replace("STORE", _STORE_PART if parts else product.ahead + product.store)
    body = body.replace("{ LEFT }", "{ " + product.left + " }")
    body = body.replace("{ RIGHT }", "{ " + product.right + " }")
    text = _KERNEL.replace("NAME", product.name).replace("SIDES", product.sides)
    text = text.replace("OUT", "wide_t* parts" if parts else product.out)
    text = text.replace("EXTRA", "" if parts else product.extra)
    text = text.replace("NUMBERS", "" if parts else product.numbers)
    text = text.replace("LOCATE", product.locate + ("" if parts else product.place))
    sides = (f"#define LEFT_ALONG_K {int(product.left_along_k)}\n"
             f"#define RIGHT_ALONG_K {int(product.right_along_k)}\n")
    code = KernelCode(f"slip_{product.name}", product.head + sides + _TILES.format(tile=tile)
                      + text.replace("BODY", body))
    return code.made_by(EPILOGUE if product.fused and not parts else TILED)


@lru_cache(maxsize=KEPT)
def join_of(product: Product) -> KernelCode:
    """The kernel that adds parts."""
    text = filled(_JOIN, product)
    code = KernelCode(f"slip_{product.name}_join", product.head + text)
    return code.made_by(EPILOGUE if product.fused else TILED)


def few_steps(rows: int, columns: int, depth: int) -> bool:
    """Whether an exact product of float32 is ours although there is a library."""
    return (depth <= SHARED_STEPS and (rows + columns) * depth <= SMALL_ELEMENTS
            and rows * columns * depth <= SMALL_PRODUCTS)


class TiledKernel(Kernel):
    """The launches of a product that is cut into parts: the parts, and their sum.

    ``outs``: how many operands come before the sides; ``itemsize``: of the sums.
    """

    def __init__(self, name: str, launches: tuple[Launch, Launch], outs: int, nbytes: int) -> None:
        self.name = name
        self.launches = launches
        self.outs = outs
        self.nbytes = nbytes

    def run(self, plan: Plan, operands: tuple[Any, ...], numbers: tuple[Any, ...]) -> None:
        """Operands: the result and what its storing reads, both sides, more that storing reads."""
        backend: Any = plan.backend
        places = [address(tensor) for tensor in operands]
        outs, sides, extra = (places[:self.outs], places[self.outs:self.outs + 2],
                              places[self.outs + 2:])
        parts = backend.scratch(self.nbytes)
        first, second = self.launches
        backend.record(first, (parts.address, *sides), ())
        backend.record(second, (*outs, parts.address, *extra), numbers)


@lru_cache(maxsize=KEPT)
def launched(name: str) -> LaunchKernel:
    """The kernel of this name that is one launch: all that differs is in the plans."""
    return LaunchKernel(name)


def tiled(plan: Any, product: Product, sizes: Sizes, geometry: list[int],
          numbers: tuple[str, ...] = ()) -> Kernel:
    """The kernel of a product; ``geometry`` follows the sizes in the tail."""
    name = f"cuda {product.name}"
    device = plan.out_spec.device
    itemsize = COMPUTED_BYTES[plan.out_spec.dtype.compute]
    tile = tile_of(sizes, itemsize)
    parts = parts_of(sizes, tile)
    # A part ends where a slab does.
    part = sizes.depth if parts == 1 else blocks(sizes.depth, parts)
    part = -(-part // tile.depth) * tile.depth
    tail = [sizes.rows, sizes.columns, sizes.depth, sizes.batches, part, parts, *geometry]
    elements = sizes.rows * sizes.columns * sizes.batches
    if not elements:
        return launched(name)
    code = code_of(product, tile, parts > 1)
    shape = ((sizes.tiles(tile), parts, 1), (THREADS, 1, 1), 0)
    # As `make_launch` makes it; products are bound for every new size.
    first = Launch(code, modules.function(device, code), shape, numbers if parts == 1 else (),
                   struct.pack(f"<{len(tail)}q", *tail))
    if parts == 1:
        plan.binding = first
        return launched(name)
    second = launch(join_of(product), device, elements, tail, numbers=numbers)
    return TiledKernel(name, (first, second), product.out.count("*"), elements * parts * itemsize)


COMPUTED_BYTES = {"b1": 1, "i64": 8, "f32": 4, "f64": 8, "c64": 8, "c128": 16}

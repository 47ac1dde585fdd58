"""Sums of products by tiles: what matrix products and convolutions have in common.

out[row, column] = the sum over k of left(row, k) * right(k, column).  A block makes a tile of the
result: it loads slabs of both sides into shared memory and every thread sums a few elements, in
the order of k, each step rounded once (fma).  A long sum whose result is small is cut into parts
by k, which a second kernel adds in order.  Tiles and parts depend on sizes only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from slipstream.core.kernels.cuda.walks import THREADS, blocks, launch
from slipstream.core.launch.cuda.launches import KernelCode, Launch, make_launch

# Blocks below which a long sum is cut, the least steps of a part, and the most parts.
FEW = 128
SHORTEST = 256
MOST_PARTS = 64


@dataclass(frozen=True, slots=True)
class Tile:
    """Rows and columns of a tile, and of it those of a thread; 256 threads."""

    rows: int
    columns: int
    own_rows: int
    own_columns: int
    depth: int = 16


WHOLE = Tile(64, 64, 4, 4)
FLAT = Tile(16, 64, 1, 4)
TALL = Tile(64, 16, 4, 1)
SMALL = Tile(16, 16, 1, 1)


def tile_of(rows: int, columns: int) -> Tile:
    """The tile for a result of this size."""
    if rows <= 24:
        return SMALL if columns <= 24 else FLAT
    return TALL if columns <= 24 else WHOLE


# LEFT(row, k) and RIGHT(k, column) load widened elements that exist; STORE(row, column, sum) stores
# one.  ALONG_K: consecutive threads load along k, else along rows or columns.
_TILES = """
#define ROWS {tile.rows}
#define COLUMNS {tile.columns}
#define OWN_ROWS {tile.own_rows}
#define OWN_COLUMNS {tile.own_columns}
#define DEPTH {tile.depth}
#define THREADS 256
#define ACROSS (COLUMNS / OWN_COLUMNS)
#define DOWN (ROWS / OWN_ROWS)
"""
_BODY = """
    __shared__ wide_t lefts[DEPTH][ROWS + 1];
    __shared__ wide_t rights[DEPTH][COLUMNS + 1];
    const place_t across = (place_t)blocks_of(walk.columns, COLUMNS);
    const place_t first_row = (place_t)(blockIdx.x / across) * ROWS;
    const place_t first_column = (place_t)(blockIdx.x % across) * COLUMNS;
    const int x = threadIdx.x % ACROSS, y = threadIdx.x / ACROSS;
    const place_t rows = (place_t)walk.rows, columns = (place_t)walk.columns;
    const place_t start = (place_t)(blockIdx.y * walk.part);
    const place_t end = (place_t)slip_least(walk.depth, start + walk.part);
    const wide_t zero = {};
    wide_t sum[OWN_ROWS][OWN_COLUMNS] = {};
    for (place_t slab = start; slab < end; slab += DEPTH) {
#pragma unroll
        for (int i = threadIdx.x; i < ROWS * DEPTH; i += THREADS) {
#if LEFT_ALONG_K
            const int step = i % DEPTH, line = i / DEPTH;
#else
            const int step = i / ROWS, line = i % ROWS;
#endif
            const place_t k = slab + step, row = first_row + line;
            wide_t value = zero;
            if (k < end && row < rows) { LEFT }
            lefts[step][line] = value;
        }
#pragma unroll
        for (int i = threadIdx.x; i < COLUMNS * DEPTH; i += THREADS) {
#if RIGHT_ALONG_K
            const int step = i % DEPTH, line = i / DEPTH;
#else
            const int step = i / COLUMNS, line = i % COLUMNS;
#endif
            const place_t k = slab + step, column = first_column + line;
            wide_t value = zero;
            if (k < end && column < columns) { RIGHT }
            rights[step][line] = value;
        }
        __syncthreads();
#pragma unroll
        for (int step = 0; step < DEPTH; step++) {
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
"""
# blockIdx.x: the tile, y: the part, z: the batch or group.
_KERNEL = """
SLIP_DEVICE int64_t blocks_of(int64_t count, int64_t each) { return (count + each - 1) / each; }
extern "C" __global__ void slip_NAME(OUT, LEFT_POINTER, RIGHT_POINTERNUMBERS,
                                     const slip_walk walk) {
    const place_t batch = (place_t)blockIdx.z;
    PROLOGUE
BODY
}
"""
# The parts of each element, added in order.
_JOIN = """
extern "C" __global__ void slip_NAME_join(OUT, const wide_t* partsNUMBERS, const slip_walk walk) {
    const int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    const int64_t elements = walk.rows * walk.columns;
    if (at >= elements * walk.batches) return;
    const place_t batch = (place_t)(at / elements);
    const place_t row = (place_t)(at % elements / walk.columns);
    const place_t column = (place_t)(at % walk.columns);
    PROLOGUE
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


@dataclass(frozen=True, slots=True)
class Product:
    """The text of a product: pointers and their meaning.

    ``head`` names types and ``slip_walk``; ``left`` and ``right`` set ``value`` from (row, k) and
    (k, column); ``store`` stores ``total`` at (row, column) of ``batch``; ``prologue`` comes first
    in each kernel.  ``out`` declares the result's pointer and those that only ``store`` reads.
    """

    name: str
    head: str
    out: str
    left_pointer: str
    right_pointer: str
    left: str
    right: str
    store: str
    numbers: str = ""
    prologue: str = ""
    prologue_right: str = ""
    left_along_k: bool = True
    right_along_k: bool = False


@dataclass(frozen=True, slots=True)
class Sizes:
    """Rows, columns, steps of the sums, and how many such products."""

    rows: int
    columns: int
    depth: int
    batches: int = 1


def parts_of(sizes: Sizes, tile: Tile) -> int:
    """In how many parts the sums are cut."""
    tiles = blocks(sizes.rows, tile.rows) * blocks(sizes.columns, tile.columns) * sizes.batches
    if tiles >= FEW or sizes.depth < 2 * SHORTEST:
        return 1
    return min(blocks(2 * FEW, tiles), sizes.depth // SHORTEST, MOST_PARTS)


def code_of(product: Product, tile: Tile, parts: bool) -> KernelCode:
    """The kernel of the tiles, storing results or parts."""
    body = _BODY.replace("STORE", _STORE_PART if parts else product.store)
    body = body.replace("{ LEFT }", "{ " + product.left + " }")
    body = body.replace("{ RIGHT }", "{ " + product.right + " }")
    text = _KERNEL.replace("BODY", body).replace("LEFT_POINTER", product.left_pointer)
    text = text.replace("RIGHT_POINTER", product.right_pointer)
    text = text.replace("OUT", "wide_t* parts" if parts else product.out)
    text = text.replace("NUMBERS", "" if parts else product.numbers)
    text = text.replace("PROLOGUE", product.prologue_right + (
        "" if parts else product.prologue)).replace("NAME", product.name)
    sides = (f"#define LEFT_ALONG_K {int(product.left_along_k)}\n"
             f"#define RIGHT_ALONG_K {int(product.right_along_k)}\n")
    return KernelCode(f"slip_{product.name}", product.head + sides + _TILES.format(tile=tile) + text)


class TiledLaunches:
    """The launches of a product: one, or parts and then their sum."""

    def __init__(self, device: Any, product: Product, sizes: Sizes, geometry: list[int],
                 numbers: tuple[str, ...] = ()) -> None:
        tile = tile_of(sizes.rows, sizes.columns)
        parts = parts_of(sizes, tile)
        # A part ends where a slab does.
        part = blocks(blocks(sizes.depth, parts), tile.depth) * tile.depth
        tail = [sizes.rows, sizes.columns, sizes.depth, sizes.batches, part, parts, *geometry]
        tiles = blocks(sizes.rows, tile.rows) * blocks(sizes.columns, tile.columns)
        self.nbytes = sizes.rows * sizes.columns * sizes.batches * parts
        self.join: Launch | None = None
        self.first = make_launch(code_of(product, tile, parts > 1), device,
                                 (tiles, parts, sizes.batches), THREADS, tail=tail,
                                 numbers=numbers if parts == 1 else ())
        if parts > 1:
            text = _JOIN.replace("OUT", product.out).replace("NUMBERS", product.numbers)
            text = text.replace("PROLOGUE", product.prologue).replace("STORE", product.store)
            code = KernelCode(f"slip_{product.name}_join",
                              product.head + text.replace("NAME", product.name))
            self.join = launch(code, device, sizes.rows * sizes.columns * sizes.batches, tail,
                               numbers=numbers)

    def run(self, backend: Any, itemsize: int, outs: tuple[int, ...], sides: tuple[int, ...],
            numbers: tuple[Any, ...] = ()) -> None:
        """Record them; ``outs``: the result and what only its storing reads; ``itemsize``: of the

        numbers in which sums are taken.
        """
        if self.join is None:
            backend.record(self.first, (*outs, *sides), numbers)
            return
        parts = backend.scratch(self.nbytes * itemsize)
        backend.record(self.first, (parts.address, *sides), ())
        backend.record(self.join, (*outs, parts.address), numbers)

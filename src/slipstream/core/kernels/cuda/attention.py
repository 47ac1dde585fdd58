"""Attention on the device in tiles: softmax(query @ key^T * scale + mask) @ value, and its slopes.

16-bit floats go through matrix instructions (sm_80 and later), float32 and float64 through exact
fused multiply-adds.  No score is ever written to memory.
"""

from __future__ import annotations

import functools
import struct
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from slipstream.core.kernels.cuda import elements
from slipstream.core.kernels.cuda.attention_common import COMMON
from slipstream.core.kernels.cuda.attention_groups import ALIGNED, BLOCK, GATE, group_tiles
from slipstream.core.kernels.cuda.attention_texts import FORWARD, KEYS, QUERIES
from slipstream.core.kernels.cuda.attention_tiles import DROP, HALF, HALF_TILES, WHOLE_TILES
from slipstream.core.kernels.cuda.prelude_matrix import MATRIX
from slipstream.core.kernels.cuda.random import STREAM
from slipstream.core.kernels.cuda.walks import blocks, merged
from slipstream.core.launch.cuda.launches import KernelCode, Launch, LaunchKernel, make_launch
from slipstream.core.launch.cuda.series import Staged, Step
from slipstream.core.native.drivers import drivers
from slipstream.core.shapes.broadcast import broadcast_strides
from slipstream.core.vocab.records import Kernel

Ints = tuple[int, ...]
# Heads beyond this width have their two gradients in blocks of their own.
WIDE = 128
# Scales whose product with a score that is left out of account, -inf, is -inf in every dtype.
LEAST_SCALE, LARGEST_SCALE = 1e-30, 1e30
# The kernels, and bytes of shared memory of a block that every card since sm_80 has.
FORWARD_KERNEL, QUERY_KERNEL, KEY_KERNEL = "slip_attention", "slip_attention_queries", (
    "slip_attention_keys")
EVERYWHERE = 99 << 10
# What the compiler has to be asked for where warps multiply as groups.
GROUP_OPTIONS = ("--gpu-architecture=sm_90a",)
# Warps of a group; of so few blocks that this many times as many leave multiprocessors idle, each
# has one group.
GROUP, FEW = 4, 2
# Fewer queries or keys than this leave most of a group's rows empty.
LEAST_GROUPED = 64


@dataclass(frozen=True, slots=True)
class Tiling:
    """Columns of a tile, bands of 16 rows a warp, warps of a block, tiles that are there at once.

    Without matrix instructions a block has ``rows`` rows.  ``beside``: warps that share their rows,
    each with a part of the columns; only where rows are keys.  ``grouped``: a band is of 64 rows,
    and of four warps; ``resident``: blocks of a multiprocessor that registers are kept for;
    ``ahead``: products are begun before the weights of the step before are used.
    """

    columns: int
    bands: int = 1
    warps: int = 4
    stages: int = 2
    rows: int = 0
    beside: int = 1
    grouped: bool = False
    resident: int = 1
    ahead: bool = False

    def tiles(self, name: str) -> tuple[int, int]:
        """Tiles of keys and of values (or of queries and of gradients) that are there at once."""
        more_keys = self.ahead and name == QUERY_KERNEL
        # One group of warps alone waits for nobody.
        more_values = self.ahead and name == FORWARD_KERNEL and self.warps > GROUP
        return self.stages + more_keys, self.stages + more_values

    @property
    def height(self) -> int:
        """Rows of a block."""
        return self.rows or 16 * self.bands * self.warps // self.beside


# What was quickest of some thirty settings on an H200.
GROUPED = {
    (FORWARD_KERNEL, 64): Tiling(128, warps=4, grouped=True, resident=3, ahead=True),
    (FORWARD_KERNEL, 128): Tiling(128, warps=8, grouped=True, ahead=True),
    (QUERY_KERNEL, 64): Tiling(64, warps=4, grouped=True, resident=3, ahead=True),
    (QUERY_KERNEL, 128): Tiling(96, warps=8, grouped=True, ahead=True),
    (KEY_KERNEL, 64): Tiling(64, warps=4, grouped=True, resident=3),
    (KEY_KERNEL, 128): Tiling(64, warps=8, stages=4, grouped=True, ahead=True),
}


def half_tiling(name: str, width: int, masked: bool, drops: bool, roomy: bool) -> Tiling:
    """The tiles for 16-bit floats; ``roomy``: a block may have more than `EVERYWHERE`.

    The largest that stay in registers as NVRTC 13 has it for sm_80 and sm_90 (but for added masks
    with heads beyond 192, where up to 16 of them do not); two bands load each right side half as
    often.
    """
    if name == FORWARD_KERNEL:
        if width <= 64:
            return Tiling(32 if masked else 64, bands=2)
        return Tiling(32 if width <= 128 or not masked else 16,
                      bands=1 if masked or width > 128 else 2)
    if name == QUERY_KERNEL:
        if width <= 64:
            return Tiling(32, bands=2)
        if width <= 128:
            return Tiling(32) if masked else Tiling(32 if roomy and not drops else 16, bands=2)
        return Tiling(16, stages=1 if masked else 2)
    if width <= 64:
        return Tiling(64) if masked or (drops and not roomy) else Tiling(32, bands=2)
    if width <= 128:
        if roomy and not drops:
            # A warp of 16 keys would read shared memory for longer than it multiplies.
            return Tiling(64, bands=2, warps=8, beside=2)
        return Tiling(16 if masked or drops else 32)
    return Tiling(16, stages=2 if roomy else 1)


def group_tiling(name: str, width: int, drops: bool) -> Tiling:
    """The tiles of groups of warps, which only sm_90 has."""
    tiling = GROUPED[name, width]
    # A thread keeps four bits of every eight columns in one word while it drops weights.
    return replace(tiling, columns=min(tiling.columns, 64)) if drops else tiling


def whole_tiling(width: int, itemsize: int) -> Tiling:
    """The tiles for float32 and float64: what shared memory holds."""
    side = 64 if width * itemsize <= 64 * 4 else 32 if width * itemsize <= 128 * 4 else 16
    return Tiling(side, warps=8, stages=1, rows=side)


def supports(device: Any, dtype: Any, width: int) -> bool:
    """Whether a card has the instructions, and shared memory for heads of a width."""
    card = drivers.current().properties(device.index or 0)
    return _card_supports(card.major, card.shared_memory_per_block_optin, dtype.itemsize, width)


@functools.lru_cache(maxsize=64)
def _card_supports(major: int, shared: int, itemsize: int, width: int) -> bool:
    """The same by a card's facts: what is kept here outlives every driver."""
    if itemsize == 2:
        return major >= 8 and shared >= EVERYWHERE
    wide = padded(width)
    side = whole_tiling(wide, itemsize).rows
    # Four tiles of vectors, one of weights, and two rows of sums.
    held = 4 * side * (wide + 1) + side * (side + 1) + 2 * side
    return held * itemsize <= shared


def padded(width: int) -> int:
    """A head's width as the tiles have it."""
    return blocks(max(width, 1), 16) * 16


class Attention:
    """One call's geometry, and the launches made of it.

    ``sides``: specs by the names of `slip_walk`'s fields; those that a kernel does not use are 0.
    """

    def __init__(self, plan: Any, call: Any, sides: dict[str, Any]) -> None:
        query, key, value = [call.spec(name) for name in ("query", "key", "value")]
        self.plan = plan
        self.dtype = query.dtype
        self.batch = query.shape[:-3]
        self.heads, self.queries, self.width = query.shape[-3:]
        self.key_heads, self.keys, self.depth = value.shape[-3:]
        self.mask = call["mask"]
        self.causal = bool(call["is_causal"])
        self.dropout = float(call["dropout_p"])
        self.scale = float(call["scale"])
        self.sides = {"query": query, "key": key, "value": value, **sides}
        self.lined: list[Ints] = []
        self.shape, self.steps = self._walks()

    @property
    def foldable(self) -> bool:
        """Whether the largest score times the scale is the largest of the products."""
        return LEAST_SCALE <= self.scale <= LARGEST_SCALE

    @property
    def half(self) -> bool:
        """Whether the tiles are of 16-bit floats."""
        return self.dtype.itemsize == 2

    def _walks(self) -> tuple[Ints, list[int]]:
        """The batch dims, and the words of all sides."""
        names = ("query", "key", "value", "mask", "out", "grad", "query_grad", "key_grad",
                 "value_grad")
        strides: list[Ints] = []
        for name in names:
            spec = self.sides.get(name)
            if name == "mask" and self.mask is not None:
                shape = (*self.batch, self.heads, self.queries, self.keys)
                strides.append(broadcast_strides(self.mask.spec.shape, self.mask.spec.strides,
                                                 shape))
            else:
                strides.append((0,) * (len(self.batch) + 3) if spec is None else spec.strides)
        self.mask_column = strides[3][-1]
        shape, walks = merged(self.batch, [each[:-3] for each in strides])
        self.lined = [each[:-1] for place, each in enumerate(strides) if place != 3]
        words: list[int] = []
        for each, walk in zip(strides, walks, strict=True):
            words += [each[-3], each[-2], *walk]
        return shape, words

    def fits(self) -> bool:
        """Whether every line may begin at 16 bytes."""
        each = 16 // self.dtype.itemsize
        steps = [step for strides in self.lined for step in strides]
        return all(step % each == 0 for step in (*steps, self.width, self.depth))

    def groups(self) -> bool:
        """Whether tiles may be of groups of warps."""
        widths = padded(self.width), padded(self.depth)
        return (self.mask is None and widths[0] == widths[1] and widths[0] in (BLOCK, 2 * BLOCK)
                and min(self.queries, self.keys) >= max(LEAST_GROUPED, 1))

    def tiling(self, name: str) -> Tiling:
        """The tiles of a kernel."""
        width = max(padded(self.width), padded(self.depth))
        if not self.half:
            return whole_tiling(width, self.dtype.itemsize)
        card = drivers.current().properties(self.plan.out_spec.device.index or 0)
        roomy = card.shared_memory_per_block_optin > 2 * EVERYWHERE
        if roomy and (card.major, card.minor) == (9, 0) and self.groups():
            tiling = group_tiling(name, width, self.dropout > 0)
            few = FEW * self.grid(name, tiling.height)[1] <= card.multi_processor_count
            return replace(tiling, warps=GROUP) if few else tiling
        if name == KEY_KERNEL and 64 < width <= WIDE:
            # Two warps beside each other have whole tiles of 16 columns each.
            roomy = roomy and not padded(self.width) % 32 and not padded(self.depth) % 32
        return half_tiling(name, width, self.mask is not None, self.dropout > 0, roomy)

    def code(self, name: str, text: str, tiling: Tiling) -> KernelCode:
        """The kernel's source."""
        mask = None if self.mask is None else self.mask.spec.dtype
        kind = 0 if mask is None else 1 if mask.name == "bool" else 2
        apart = name == KEY_KERNEL and max(self.width, self.depth) > WIDE
        double = self.dtype.itemsize == 8
        facts = {
            "CAUSAL": int(self.causal), "MASK": kind, "DROPOUT": int(self.dropout > 0),
            "RANK": len(self.shape), "WIDTH": padded(self.width), "DEPTH": padded(self.depth),
            "OWN_WIDTH": self.width, "OWN_DEPTH": self.depth, "COLUMNS": tiling.columns,
            "BANDS": tiling.bands, "WARPS": tiling.warps, "THREADS": 32 * tiling.warps,
            "STAGES": tiling.stages, "APART": int(apart), "BESIDE": tiling.beside,
            "MASKED": ", const mask_t* mask" if kind else "",
            "MASK_WIDEN(x)": "0" if mask is None else f"({elements.widened(mask, 'x')})",
            "HALF": int(self.half), "GROUPED": int(tiling.grouped), "AHEAD": int(tiling.ahead),
            "KEY_STAGES": tiling.tiles(name)[0], "VALUE_STAGES": tiling.tiles(name)[1],
            "RESIDENT": tiling.resident, "ROWS": tiling.height, "SUMS": self.sums(tiling),
            "FOLDED": int(kind < 2 and self.foldable),
            "LOG2": "log2" if double else "log2f", "LARGER": "fmax" if double else "fmaxf"}
        if not self.half:
            facts["EXP2"] = "exp2" if double else "exp2f"
        head = "".join(f"#define {word} {meaning}\n" for word, meaning in facts.items())
        stored = "uint8_t" if mask is None else elements.STORED[mask.name]
        return KernelCode(name, f"{elements.typed(self.dtype)}typedef {stored} mask_t;\n"
                          f"{head}{self.tiles(tiling)}{COMMON}{DROP}{text}",
                          GROUP_OPTIONS if tiling.grouped else ())

    def tiles(self, tiling: Tiling) -> str:
        """The text of the tiles and of the products over them."""
        if not self.half:
            return WHOLE_TILES
        if not tiling.grouped:
            return MATRIX + HALF + HALF_TILES
        kind = "bf16" if self.dtype.name == "bfloat16" else "f16"
        widths = {tiling.columns, padded(self.width), padded(self.depth)}
        return MATRIX + HALF + group_tiles(kind, widths)

    def sums(self, tiling: Tiling) -> int:
        """Numbers that go before the tiles where rows are keys."""
        held = 3 * tiling.stages * tiling.columns
        return blocks(held, ALIGNED // 4) * (ALIGNED // 4) if tiling.grouped else held

    def grid(self, name: str, rows: int) -> tuple[int, int]:
        """Blocks of a head, and of all heads."""
        by_key = name == KEY_KERNEL
        tiles = blocks(self.keys if by_key else self.queries, rows)
        return tiles, tiles * prod(self.batch) * (self.key_heads if by_key else self.heads)

    def launch(self, name: str, text: str) -> Launch:
        """The launch of a kernel over all heads."""
        tiling = self.tiling(name)
        code = self.code(name, text, tiling)
        rows = tiling.height
        tiles, grid = self.grid(name, rows)
        parts = 2 if "#define APART 1" in code.source else 1
        return make_launch(code, self.plan.out_spec.device, (grid, parts), 32 * tiling.warps,
                           shared=self.shared(name, tiling, rows), tail=self.tail(tiles),
                           numbers=STREAM if self.dropout else ("i64", "i64"))

    def shared(self, name: str, tiling: Tiling, rows: int) -> int:
        """Bytes of shared memory."""
        more = 0 if tiling.grouped else 8 if self.half else 1
        width, depth = padded(self.width) + more, padded(self.depth) + more
        lines = width + depth
        keys, values = tiling.tiles(name)
        held = tiling.columns * (keys * width + values * depth)
        held += rows * (width if name == FORWARD_KERNEL else lines)
        laid = 2 * (tiling.beside > 1) if self.half else 1
        held += laid * rows * (tiling.columns + more)
        computed = max(self.dtype.itemsize, 4)
        numbers = self.sums(tiling) if name == KEY_KERNEL else 0
        # Where the first tile has to begin at a multiple, that much may go before it.
        return (held * self.dtype.itemsize + numbers * computed
                + (ALIGNED - 16 + GATE if tiling.grouped else 0))

    def tail(self, tiles: int) -> bytes:
        """The geometry: `slip_walk`."""
        stays = 1.0 - self.dropout
        words = [self.queries, self.keys, self.heads, self.heads // self.key_heads, tiles,
                 int(self.fits()), round(stays * 4294967296.0), self.mask_column]
        rest = [*self.shape, *self.steps]
        return struct.pack(f"<{len(words)}qdd{len(rest)}q", *words, self.scale,
                           1.0 / stays if stays else 0.0, *rest)


def forward(plan: Any, call: Any) -> Kernel:
    """Operands: out, what is known of its rows, query, key, value, mask; numbers: seed, base."""
    found = Attention(plan, call, {"out": plan.out_specs[0]})
    plan.binding = found.launch(FORWARD_KERNEL, FORWARD)
    return LaunchKernel("cuda attention, tiled by hand")


def backward(plan: Any, call: Any) -> Kernel:
    """The gradients by query, key and value; operands: these, what `_upstream` of the op names.

    Two launches: by blocks of queries, which leaves the sums that the blocks of keys need.
    """
    specs = plan.out_specs
    found = Attention(plan, call, {
        "grad": call.spec("grad"), "out": call.spec("out"), "query_grad": specs[0],
        "key_grad": specs[1], "value_grad": specs[2]})
    grad, query, key, value, out, rows = range(3, 9)
    mask = () if call["mask"] is None else (9,)
    # The gradients by query, key and value are the first operands; -1 is the sums.
    steps = [Step(found.launch(QUERY_KERNEL, QUERIES), (0, -1, grad, query, key, value, *mask, out,
                                                        rows)),
             Step(found.launch(KEY_KERNEL, KEYS), (1, 2, grad, query, key, value, *mask, -1))]
    plan.binding = Staged(steps, call.spec("rows").nbytes // 2 * 3)
    return LaunchKernel("cuda attention gradient, tiled by hand")

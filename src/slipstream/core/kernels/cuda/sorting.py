"""Sorting on the device: stable, nan the largest, zeros equal, one result whatever runs first.

Elements become keys, unsigned numbers in their order.  A line of up to BLOCK elements is sorted in
shared memory, keys beside their places, by a network; the first of several lines have a block
together.  Longer lines are sorted by digits of eight bits, lowest first: count the digits of each
tile, find where each digit of each tile begins, move.  Of long lines the few best are found block
by block: each keeps its best, and theirs are sorted again.
"""

from __future__ import annotations

from math import prod
from typing import Any

from slipstream.core.kernels.cuda import elements
from slipstream.core.kernels.cuda.sorting_texts import (
    BEST,
    COUNTS,
    HEAD,
    KEYS,
    MOVE,
    NETWORK,
    PICK,
    ROWS,
    SEARCH,
    SORT_BLOCK,
)
from slipstream.core.kernels.cuda.walks import (
    THREADS,
    address,
    blocks,
    divider,
    launch,
    merged,
    place_type,
)
from slipstream.core.launch.cuda.launches import KernelCode, Launch, LaunchKernel, make_launch
from slipstream.core.shapes.views import normalize_dim
from slipstream.core.vocab.records import Kernel, Plan

# Entries that a block has room for in shared memory, and where the lines are short.
BLOCK, FEWEST = 2048, 512
# Keys of a tile.
TILE = 4096
# The most of the best that are looked for block by block.
FEW = 256
# A line's places have 32 bits.
LONGEST = 2**32 - 1
# Elements as raw bits: sign bit and infinity of floats.
_FLOATS = {"float16": ("0x8000", "0x7C00"), "bfloat16": ("0x8000", "0x7F80"),
           "float32": ("0x80000000u", "0x7F800000u"),
           "float64": ("0x8000000000000000ull", "0x7FF0000000000000ull")}
# What is stored of the entries of a line.
BOTH, VALUES, ONE = range(3)


def _apart(spec: Any, dim: int, rank: int) -> tuple[int, tuple[int, ...]]:
    """The step along a dim, and the other strides; a dim that is lost has step 0."""
    if spec.ndim < rank:
        return 0, spec.strides
    return (spec.strides[dim], spec.strides[:dim] + spec.strides[dim + 1:]) if rank else (0, ())


class Sorting:
    """Lines to be sorted, and how: the launches of every way are made here.

    ``kept``: entries stored of each line, or with ONE the number of the entry from 1.
    """

    def __init__(self, plan: Any, call: Any, way: int, kept: int, facts: tuple[bool, bool]) -> None:
        spec, outs = call.spec("self"), plan.out_specs
        dim = normalize_dim(call["dim"], max(spec.ndim, 1))
        self.device = outs[0].device
        self.length = spec.shape[dim] if spec.ndim else 1
        self.way = way
        self.kept = kept
        places = outs[0]
        steps, walks = zip(*[_apart(each, dim, spec.ndim) for each in (places, outs[-1], spec)],
                           strict=True)
        sizes, strides = merged(spec.shape[:dim] + spec.shape[dim + 1:], list(walks), True)
        self.lines = prod(sizes)
        self.tail = [*steps, *sizes, *map(divider, sizes)]
        self.tail += [step for walk in strides for step in walk]
        self.key_bits = 64 if spec.itemsize == 8 else 32
        self.bits = max(8 * spec.itemsize, 8)
        self.flags = [-int(facts[0]), int(facts[1]), int(way != VALUES), int(way == ONE)]
        self.head = self._head(spec.dtype, len(sizes))

    def _head(self, dtype: Any, rank: int) -> str:
        """Types and keys."""
        lines = [f"typedef {elements.MOVED[dtype.itemsize]} bits_t;",
                 f"typedef uint{self.key_bits}_t sort_key_t;",
                 place_type(self.lines) + f"#define RANK {rank}"]
        if dtype.name in _FLOATS:
            sign, top = _FLOATS[dtype.name]
            lines.append(f"#define KEY(x) slip_float_key((bits_t)(x), (bits_t){sign}, "
                         f"(bits_t){top})")
        elif dtype.name == "bool":
            lines.append("#define KEY(x) ((sort_key_t)((x) != 0))")
        else:
            sign = f"((bits_t)1 << {8 * dtype.itemsize - 1})" if dtype.is_signed else "(bits_t)0"
            lines.append(f"#define KEY(x) ((sort_key_t)(bits_t)((x) ^ {sign}))")
        return "\n".join(lines) + "\n" + HEAD

    def words(self, row: int = 0, more: tuple[int, ...] = (0, 0), entries: int = 0) -> list[int]:
        """The tail: lines, their length, what is kept, entries between lines, two more, flags."""
        return [self.lines, self.length, self.kept, row, *more, *self.flags, entries, *self.tail]

    def make(self, name: str, text: str, grid: int, tail: list[int]) -> Launch:
        """A launch of blocks of THREADS threads."""
        return make_launch(KernelCode(name, self.head + text), self.device, grid, THREADS,
                           tail=tail)

    def pick(self, row: int) -> Launch:
        """Stores places and values of sorted entries."""
        count = self.lines * (1 if self.way == ONE else self.kept)
        return launch(KernelCode("slip_sort_pick", self.head + PICK), self.device, count,
                      self.words(row))


def network(room: int) -> str:
    """The text of the network over the entries of a block."""
    return f"#define ENTRIES {room}\n{NETWORK}"


class BlockKernel(Kernel):
    """Lines that fit into a block."""

    def __init__(self, name: str, sorting: Sorting) -> None:
        self.name = name
        entries = 1 << max(sorting.length - 1, 1).bit_length()
        room = FEWEST if entries <= FEWEST else BLOCK
        self.sort = sorting.make("slip_sort_block", network(room) + SORT_BLOCK,
                                 blocks(sorting.lines, room // entries),
                                 sorting.words(entries=entries))

    def run(self, plan: Plan, operands: tuple[Any, ...], numbers: tuple[Any, ...]) -> None:
        """Operands: places (unless only values are wanted), values, the source."""
        backend: Any = plan.backend
        places = [address(tensor) for tensor in operands]
        # The first is no place where only values are stored: nothing is written there.
        backend.record(self.sort, (places[0], *places[-2:]), ())


class DigitKernel(Kernel):
    """Long lines, sorted by digits."""

    def __init__(self, name: str, sorting: Sorting) -> None:
        self.name = name
        self.total = sorting.lines * sorting.length
        self.key_bytes = sorting.key_bits // 8
        tiles = blocks(sorting.length, TILE)
        self.counts = 4 * sorting.lines * 256 * tiles
        self.totals = 4 * sorting.lines * 256
        tail = sorting.words()
        self.keys = launch(KernelCode("slip_sort_keys", sorting.head + KEYS), sorting.device,
                           self.total, tail)
        self.passes = []
        for shift in range(0, sorting.bits, 8):
            tail = sorting.words(sorting.length, (shift, tiles))
            grid = sorting.lines * tiles
            self.passes.append((sorting.make("slip_sort_counts", COUNTS, grid, tail),
                                sorting.make("slip_sort_rows", ROWS, sorting.lines * 256, tail),
                                sorting.make("slip_sort_move", MOVE, grid, tail)))
        self.pick = sorting.pick(sorting.length)

    def run(self, plan: Plan, operands: tuple[Any, ...], numbers: tuple[Any, ...]) -> None:
        """Operands: places (unless only values are wanted), values, the source."""
        backend: Any = plan.backend
        places = [address(tensor) for tensor in operands]
        keys = [backend.scratch(self.key_bytes * self.total) for _ in range(2)]
        order = [backend.scratch(4 * self.total) for _ in range(2)]
        counts, totals = backend.scratch(self.counts), backend.scratch(self.totals)
        backend.record(self.keys, (keys[0].address, order[0].address, places[-1]), ())
        for number, (count, rows, move) in enumerate(self.passes):
            here, there = number % 2, 1 - number % 2
            backend.record(count, (counts.address, keys[here].address), ())
            backend.record(rows, (counts.address, totals.address), ())
            backend.record(move, (keys[there].address, order[there].address, keys[here].address,
                                  order[here].address, counts.address, totals.address), ())
        last = len(self.passes) % 2
        backend.record(self.pick, (places[0], *places[-2:], keys[last].address,
                                   order[last].address), ())


class BestKernel(Kernel):
    """The few best of long lines, block by block."""

    def __init__(self, name: str, sorting: Sorting) -> None:
        self.name = name
        self.lines = sorting.lines
        self.key_bytes = sorting.key_bits // 8
        self.levels: list[tuple[Launch, int]] = []
        size, first = sorting.length, 1
        while first or size > sorting.kept:
            parts = blocks(size, BLOCK)
            text = f"#define FIRST {first}\n{network(BLOCK)}{BEST}"
            each = sorting.make("slip_sort_best", text, sorting.lines * parts,
                                sorting.words(size, (parts, 0)))
            size, first = parts * sorting.kept, 0
            self.levels.append((each, size))
        self.pick = sorting.pick(size)

    def run(self, plan: Plan, operands: tuple[Any, ...], numbers: tuple[Any, ...]) -> None:
        """Operands: places, values, the source."""
        backend: Any = plan.backend
        places = [address(tensor) for tensor in operands]
        # The first level reads no entries.  A level's memory is held until the next has read it.
        held: list[Any] = []
        read = (places[0], places[0])
        for each, size in self.levels:
            held += [backend.scratch(nbytes * self.lines * size) for nbytes in (self.key_bytes, 4)]
            written = (held[-2].address, held[-1].address)
            backend.record(each, (*written, *read, places[-1]), ())
            read = written
        backend.record(self.pick, (*places, *read), ())


def _refuses(call: Any) -> str:
    return "" if call.spec("self").numel <= LONGEST else "places have 32 bits"


sort_refuses = values_refuses = topk_refuses = kth_refuses = _refuses


def _kernel(plan: Any, call: Any, sorting: Sorting) -> Kernel:
    name = f"cuda {call.op.name}"
    if sorting.length <= BLOCK:
        return BlockKernel(name, sorting)
    return DigitKernel(name, sorting)


def sort(plan: Any, call: Any) -> Kernel:
    """All places and values."""
    if not call.spec("self").numel:
        return LaunchKernel("cuda sort")
    spec = call.spec("self")
    length = spec.shape[call["dim"]] if spec.ndim else 1
    return _kernel(plan, call, Sorting(plan, call, BOTH, length, (call["descending"], False)))


def values(plan: Any, call: Any) -> Kernel:
    """The values in order, without their places."""
    spec = call.spec("self")
    if not spec.numel:
        return LaunchKernel("cuda sort of values")
    length = spec.shape[call["dim"]] if spec.ndim else 1
    return _kernel(plan, call, Sorting(plan, call, VALUES, length, (False, False)))


def topk(plan: Any, call: Any) -> Kernel:
    """The k largest or smallest, in order."""
    if not plan.out_specs[0].numel:
        return LaunchKernel("cuda topk")
    # None of a tensor without dims is its element, as on the CPU.
    sorting = Sorting(plan, call, BOTH, call["k"] or 1, (call["largest"], False))
    if sorting.length > BLOCK and sorting.kept <= FEW:
        return BestKernel("cuda topk", sorting)
    return _kernel(plan, call, sorting)


def kth(plan: Any, call: Any) -> Kernel:
    """Place and value of the k-th smallest; with nans the first nan where there is one."""
    spec = call.spec("self")
    if not spec.numel:
        return LaunchKernel("cuda kth value")
    nans = bool(call["nans"]) and spec.dtype.kind == "float"
    return _kernel(plan, call, Sorting(plan, call, ONE, call["k"], (False, nans)))


# -- searching -----------------------------------------------------------------------------------
def search(plan: Any, call: Any) -> LaunchKernel:
    """For each value the place where it goes in its sorted row."""
    table, given, out = call.spec("sorted_sequence"), call.spec("values"), plan.out_spec
    sorter = call["sorter"]
    title = LaunchKernel("cuda searchsorted")
    if not out.numel:
        return title
    own = [table] if sorter is None else [table, sorter.spec]
    walks = [out.strides, given.strides]
    for spec in own:
        walks.append((0,) * given.ndim if table.ndim == 1 else (*spec.strides[:-1], 0))
    sizes, strides = merged(given.shape, walks)
    cls = "i64" if table.dtype.kind == given.dtype.kind == "int" else "f64"
    kind = "int64_t" if cls == "i64" else "double"
    converted = [elements.converted(cls, spec.dtype.compute, elements.widened(spec.dtype, "(x)"))
                 for spec in (table, given)]
    head = (f"{place_type(out.numel)}#define RANK {len(sizes)}\n#define COUNT {len(walks)}\n"
            f"typedef {elements.STORED[table.dtype.name]} table_t;\n"
            f"typedef {elements.STORED[given.dtype.name]} value_t;\n"
            f"typedef {elements.STORED[out.dtype.name]} result_t;\ntypedef {kind} wide_t;\n"
            f"#define TABLE(x) ((wide_t)({converted[0]}))\n"
            f"#define VALUE(x) ((wide_t)({converted[1]}))\n#define RIGHT {int(call['right'])}\n")
    text = SEARCH.replace(" SORTER", "" if sorter is None else ", const int64_t* sorter")
    code = KernelCode("slip_search", head + f"#define SORTED {int(sorter is None)}\n" + text)
    tail = [out.numel, plan.backend.error_slot(), code.mark, table.shape[-1], own[0].strides[-1],
            own[-1].strides[-1], *sizes, *map(divider, sizes)]
    tail += [step for walk in strides for step in walk]
    plan.binding = launch(code, out.device, out.numel, tail)
    return title

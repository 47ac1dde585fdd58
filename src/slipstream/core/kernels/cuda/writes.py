"""Writes by index on the device, always with the same result.

Positions that may meet in one element of the target form a *line*: they differ only in dims along
which the target does not move by itself.  Of a line's positions with the same indices the last one
writes, or the first one adds (multiplies) them all up in order.  How a position finds the others:

* few in a line: it looks at all of them;
* more: the positions are sorted by their indices first, so that those that meet are neighbours;
* many, and nothing is added: the largest position of each target is found in a table first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from slipstream.core.kernels.cpu.gathering_arrays import IndexOperand
from slipstream.core.kernels.cuda import elements
from slipstream.core.kernels.cuda.orders import Ordering
from slipstream.core.kernels.cuda.walks import (
    POSITION,
    Ints,
    divider,
    index_types,
    launch,
    merged,
    place_type,
)
from slipstream.core.launch.cuda.launches import KernelCode, Launch

# The longest line that each of its positions looks through.
LOOKED = 64
# A table may have so many targets for each position.
SPARE = 16
# How written values join: they replace, are added, are multiplied.
WRITE, ADD, MULTIPLY = "write", "add", "multiply"

_TYPES = """
struct slip_index { int64_t step, size, wraps, strides[RANK], line[LRANK]; };
struct slip_walk {
    int64_t slot, tag, numel, length, keys;
    int64_t shape[RANK], divider[RANK], target[RANK], source[RANK], lines[RANK], groups[RANK];
    int64_t line_shape[LRANK], line_divider[LRANK], line_source[LRANK];
    slip_index indices[COUNT];
};
// A thread's position: its number in its line, the line's number among those that have indices of
// their own, and where the line begins in target, source and index tensors.
struct slip_spot { int64_t number, group, to, from, place[COUNT]; };
// What the indices at a position say: how far they move the target, and a number of their own.
struct slip_found { bool good; int64_t shift, key; };

SLIP_DEVICE slip_spot slip_locate(const slip_walk& walk, int64_t at) {
    slip_spot spot = {};
    place_t left = (place_t)at;
#pragma unroll
    for (int d = RANK - 1; d >= 0; d--) {
        const int64_t c = slip_take(left, walk.shape[d], walk.divider[d]);
        spot.number += c * walk.lines[d];
        spot.group += c * walk.groups[d];
        spot.to += c * walk.target[d];
        spot.from += c * walk.source[d];
#pragma unroll
        for (int k = 0; k < COUNT; k++) spot.place[k] += c * walk.indices[k].strides[d];
    }
    return spot;
}
// Where the source of a line's position lies.
SLIP_DEVICE int64_t slip_source(const slip_walk& walk, const slip_spot& spot, int64_t number) {
    place_t left = (place_t)number;
    int64_t from = spot.from;
#pragma unroll
    for (int d = LRANK - 1; d >= 0; d--) {
        from += slip_take(left, walk.line_shape[d], walk.line_divider[d]) * walk.line_source[d];
    }
    return from;
}
SLIP_DEVICE slip_found slip_find(const slip_walk& walk, const slip_spot& spot, int64_t number,
                                 bool reports DECLARED) {
    place_t left = (place_t)number;
    int64_t place[COUNT];
    slip_found found = {true, 0, 0};
    for (int k = 0; k < COUNT; k++) place[k] = spot.place[k];
#pragma unroll
    for (int d = LRANK - 1; d >= 0; d--) {
        const int64_t c = slip_take(left, walk.line_shape[d], walk.line_divider[d]);
        for (int k = 0; k < COUNT; k++) place[k] += c * walk.indices[k].line[d];
    }
LOOKUPS
    return found;
}
"""
_LOOKUP = """
    {{
        const int64_t given = i{0}[place[{0}]], size = walk.indices[{0}].size;
        const int64_t index = walk.indices[{0}].wraps && given < 0 ? given + size : given;
        if (index < 0 || index >= size) {{
            if (reports && found.good) {{
                slip_index_error(walk.slot, walk.tag, place[{0}], given, size);
            }}
            found.good = false;
        }}
        found.shift += index * walk.indices[{0}].step;
        found.key = found.key * size + index;
    }}"""

# Each position looks through its line.
_LOOK = """
extern "C" __global__ void slip_write_looking(item_t* out, const item_t* self PARAMETERS VALUE,
                                              const slip_walk walk) {
""" + POSITION + """
    const slip_spot spot = slip_locate(walk, at);
    const slip_found own = slip_find(walk, spot, spot.number, true ARGUMENTS);
    if (!own.good) return;
#if WRITES
    for (int64_t j = spot.number + 1; j < walk.length; j++) {
        const slip_found other = slip_find(walk, spot, j, false ARGUMENTS);
        if (other.good && other.shift == own.shift) return;
    }
    const int64_t from = slip_source(walk, spot, spot.number);
    out[spot.to + own.shift] = GIVEN;
#else
    for (int64_t j = 0; j < spot.number; j++) {
        const slip_found other = slip_find(walk, spot, j, false ARGUMENTS);
        if (other.good && other.shift == own.shift) return;
    }
    const item_t before = out[spot.to + own.shift];
    wide_t sum = WIDEN(before);
    for (int64_t j = spot.number; j < walk.length; j++) {
        const slip_found other = slip_find(walk, spot, j, false ARGUMENTS);
        if (!other.good || other.shift != own.shift) continue;
        const int64_t from = slip_source(walk, spot, j);
        sum = JOIN(sum, GIVEN);
    }
    out[spot.to + own.shift] = NARROW(sum);
#endif
}
"""
# The number of each position's indices, behind that of its line: what is sorted.
_KEYS = """
extern "C" __global__ void slip_write_keys(uint64_t* keys PARAMETERS, const slip_walk walk) {
""" + POSITION + """
    const slip_spot spot = slip_locate(walk, at);
    const slip_found own = slip_find(walk, spot, spot.number, true ARGUMENTS);
    const int64_t key = own.good ? own.key + 1 : 0;
    keys[spot.group * walk.length + spot.number] = (uint64_t)(spot.group * walk.keys + key);
}
"""
# Positions that meet are neighbours: the last one writes, or the first one adds them up.
_SORTED = """
extern "C" __global__ void slip_write_sorted(item_t* out, const int32_t* order,
                                             const uint64_t* keys PARAMETERS VALUE,
                                             const slip_walk walk) {
""" + POSITION + """
    const slip_spot spot = slip_locate(walk, at);
    const int64_t start = spot.group * walk.length;
    int64_t i = spot.number;
    const uint64_t key = keys[start + i];
#if WRITES
    if (i + 1 < walk.length && keys[start + i + 1] == key) return;
#else
    if (i > 0 && keys[start + i - 1] == key) return;
#endif
    int64_t j = order[start + i] - start;
    const slip_found own = slip_find(walk, spot, j, false ARGUMENTS);
    if (!own.good) return;
#if WRITES
    const int64_t from = slip_source(walk, spot, j);
    out[spot.to + own.shift] = GIVEN;
#else
    const item_t before = out[spot.to + own.shift];
    wide_t sum = WIDEN(before);
    for (; i < walk.length && keys[start + i] == key; i++) {
        j = order[start + i] - start;
        const int64_t from = slip_source(walk, spot, j);
        sum = JOIN(sum, GIVEN);
    }
    out[spot.to + own.shift] = NARROW(sum);
#endif
}
"""
# A table of the largest position of each line's targets.
_CLEAR = """
struct slip_span { int64_t numel; };
extern "C" __global__ void slip_write_clear(int32_t* table, const slip_span walk) {
""" + POSITION + """
    table[at] = -1;
}
"""
_MARK = """
extern "C" __global__ void slip_write_mark(int32_t* table PARAMETERS, const slip_walk walk) {
""" + POSITION + """
    const slip_spot spot = slip_locate(walk, at);
    const slip_found own = slip_find(walk, spot, spot.number, true ARGUMENTS);
    if (own.good) atomicMax(table + (spot.group * walk.keys + own.key), (int32_t)spot.number);
}
"""
_LAST = """
extern "C" __global__ void slip_write_last(item_t* out, const int32_t* table PARAMETERS VALUE,
                                           const slip_walk walk) {
""" + POSITION + """
    const slip_spot spot = slip_locate(walk, at);
    const slip_found own = slip_find(walk, spot, spot.number, false ARGUMENTS);
    if (!own.good) return;
    const int32_t last = table[spot.group * walk.keys + own.key];
    if (last != spot.number) return;
    const int64_t from = slip_source(walk, spot, spot.number);
    out[spot.to + own.shift] = GIVEN;
}
"""


@dataclass(frozen=True, slots=True)
class Target:
    """Where a write goes: shape of the walk, strides of both sides, the index tensors."""

    shape: Ints
    target: Ints
    source: Ints
    indices: tuple[IndexOperand, ...]

    @staticmethod
    def of(binding: Any) -> Target:
        """What a binding walks, in the fewest dims."""
        operands = [binding.target_strides, binding.source_strides]
        operands += [index.strides for index in binding.indices]
        shape, strides = merged(binding.shape, operands)
        walks = zip(binding.indices, strides[2:], strict=True)
        indices = tuple(IndexOperand(steps, each.step, each.size, each.itemsize, each.wraps,
                                     each.dim) for each, steps in walks)
        return Target(shape, strides[0], strides[1], indices)

    @property
    def lines(self) -> list[int]:
        """The dims along which the target does not move by itself."""
        return [dim for dim, step in enumerate(self.target) if not step]

    @property
    def groups(self) -> list[int]:
        """The other dims along which the indices change."""
        return [dim for dim, step in enumerate(self.target)
                if step and any(index.strides[dim] for index in self.indices)]

    def part(self, dims: Sequence[int]) -> Target:
        """The walk over some of the dims."""
        def of(values: Ints) -> Ints:
            return tuple(values[dim] for dim in dims) or (0,)

        indices = tuple(IndexOperand(of(each.strides), each.step, each.size, each.itemsize,
                                     each.wraps, each.dim) for each in self.indices)
        shape = tuple(self.shape[dim] for dim in dims) or (1,)
        return Target(shape, of(self.target), of(self.source), indices)

    def size(self, dims: Sequence[int]) -> int:
        """How many positions some of the dims have."""
        return prod([self.shape[dim] for dim in dims])

    def keys(self) -> int:
        """How many values all indices together can have."""
        return prod([index.size for index in self.indices])

    def weights(self, dims: Sequence[int]) -> list[int]:
        """By how much a step in each dim moves the number of a position in some of the dims."""
        found = [0] * len(self.shape)
        weight = 1
        for dim in reversed(dims):
            found[dim] = weight
            weight *= self.shape[dim]
        return found

    def words(self, keys: int) -> list[int]:
        """The tail of a launch, without slot and tag."""
        lines = self.lines
        line = self.part(lines)
        kept = [int(dim not in lines) for dim in range(len(self.shape))]
        source = [step * keep for step, keep in zip(self.source, kept, strict=True)]
        words = [prod(self.shape), self.size(lines), keys, *self.shape, *map(divider, self.shape),
                 *self.target, *source, *self.weights(lines), *self.weights(self.groups),
                 *line.shape, *map(divider, line.shape), *line.source]
        for index, along in zip(self.indices, line.indices, strict=True):
            own = [step * keep for step, keep in zip(index.strides, kept, strict=True)]
            words += [index.step, index.size, int(index.wraps), *own, *along.strides]
        return words


@dataclass(frozen=True, slots=True)
class Value:
    """What is written: the lines that name the types, how values join, and the value itself.

    ``declared``: the kernel's parameters of it; ``given``: it as an expression of ``from``.
    """

    types: str
    way: str
    declared: str
    given: str
    numbers: tuple[str, ...] = ()

    @property
    def head(self) -> str:
        """The lines before a kernel."""
        join = {WRITE: "", ADD: "#define JOIN PLUS\n", MULTIPLY: "#define JOIN TIMES\n"}[self.way]
        return f"{self.types}#define WRITES {int(self.way == WRITE)}\n{join}"


def value_of(dtype: Any, way: str, number: Any = None) -> Value:
    """The value of a write: a tensor's elements, or a Python number."""
    if way == WRITE:
        types = elements.moved(dtype.itemsize)
        if number is None:
            return Value(types, way, ", const item_t* value", "value[from]")
        given = "item_t{(uint64_t)low, (uint64_t)high}" if dtype.itemsize == 16 else "(item_t)low"
        return Value(types, way, ", int64_t low, int64_t high", given, ("i64", "i64"))
    types = elements.typed(dtype)
    if number is None:
        return Value(types, way, ", const item_t* value", "WIDEN(value[from])")
    cls = elements.number_class(number)
    declared, given = elements.number("number", cls, dtype.compute)
    return Value(types, way, f", {declared}", given, (cls,))


class Maker:
    """Makes the launches of one write."""

    def __init__(self, plan: Any, target: Target, value: Value) -> None:
        self.device = plan.out_spec.device
        self.slot = plan.backend.error_slot()
        self.value = value
        self.target = target
        types = index_types(target.indices)
        self.declared = "".join(f", const {kind}* i{k}" for k, kind in enumerate(types))
        self.pointers = "".join(f", SLIP_POINTER(const {kind}) i{k}"
                                for k, kind in enumerate(types))
        self.passed = "".join(f", i{k}" for k in range(len(types)))

    def code(self, name: str, text: str, target: Target) -> KernelCode:
        """A kernel's source, for a walk of the target's rank."""
        lookups = "".join(_LOOKUP.format(k) for k in range(len(target.indices)))
        head = (f"{place_type(prod(target.shape))}#define RANK {len(target.shape)}\n"
                f"#define LRANK {max(len(target.lines), 1)}\n"
                f"#define COUNT {len(target.indices)}\n")
        text = _TYPES.replace("DECLARED", self.pointers).replace("LOOKUPS", lookups) + text
        text = text.replace(" PARAMETERS", self.declared).replace(" ARGUMENTS", self.passed)
        text = text.replace(" VALUE", self.value.declared).replace("GIVEN", self.value.given)
        return KernelCode(name, self.value.head + head + text)

    def launch(self, name: str, text: str, target: Target, **more: Any) -> Launch:
        """A launch of one thread for each position of a walk."""
        code = self.code(name, text, target)
        tail = [self.slot, code.mark, *target.words(more.pop("keys", 1))]
        return launch(code, self.device, prod(target.shape), tail, **more)


class Looking:
    """Each position looks through its line: one launch.

    ``alone``: no two positions meet, so that there is nothing to look for.
    """

    def __init__(self, maker: Maker, alone: bool = False) -> None:
        text = _LOOK.replace("walk.length", "0") if alone else _LOOK
        self.launch = maker.launch("slip_write_looking", text, maker.target,
                                   numbers=maker.value.numbers)

    def run(self, backend: Any, places: list[int], numbers: tuple[Any, ...]) -> None:
        """``places``: addresses of out, self, the index tensors, the value unless a number."""
        backend.record(self.launch, tuple(places), numbers)


class Sorting:
    """The positions are sorted by their indices: three launches or more."""

    def __init__(self, maker: Maker) -> None:
        target = maker.target
        walked = target.part(sorted(target.groups + target.lines))
        self.count = prod(walked.shape)
        keys = target.keys() + 1
        self.keys = maker.launch("slip_write_keys", _KEYS, walked, keys=keys)
        most = target.size(target.groups) * keys
        self.ordering = Ordering(maker.device, self.count, most.bit_length(),
                                 target.size(target.lines))
        self.apply = maker.launch("slip_write_sorted", _SORTED, target, keys=keys,
                                  numbers=maker.value.numbers)
        self.indices = len(target.indices)

    def run(self, backend: Any, places: list[int], numbers: tuple[Any, ...]) -> None:
        """``places``: addresses of out, self, the index tensors, the value unless a number."""
        keys = backend.scratch(8 * self.count)
        ordered = backend.scratch(8 * self.count)
        order = backend.scratch(4 * self.count)
        indices = places[2:2 + self.indices]
        backend.record(self.keys, (keys.address, *indices), ())
        self.ordering.run(backend, order.address, ordered.address, keys.address)
        found = (order.address, ordered.address)
        backend.record(self.apply, (places[0], *found, *places[2:]), numbers)


class Marking:
    """The last position of each target is found in a table: three launches."""

    def __init__(self, maker: Maker) -> None:
        target = maker.target
        keys = target.keys()
        self.count = target.size(target.groups) * keys
        walked = target.part(sorted(target.groups + target.lines))
        self.clear = launch(KernelCode("slip_write_clear", _CLEAR), maker.device, self.count,
                            [self.count])
        self.mark = maker.launch("slip_write_mark", _MARK, walked, keys=keys)
        self.last = maker.launch("slip_write_last", _LAST, target, keys=keys,
                                 numbers=maker.value.numbers)
        self.indices = len(target.indices)

    def run(self, backend: Any, places: list[int], numbers: tuple[Any, ...]) -> None:
        """``places``: addresses of out, self, the index tensors, the value unless a number."""
        table = backend.scratch(4 * self.count)
        indices = places[2:2 + self.indices]
        backend.record(self.clear, (table.address,), ())
        backend.record(self.mark, (table.address, *indices), ())
        backend.record(self.last, (places[0], table.address, *places[2:]), numbers)

# cython: annotation_typing=False
"""Pointwise kernels: every element by itself, over any mix of layouts.

The elements are numbered in the order of the outputs' memory; a thread takes vectors of
neighbouring numbers.  An operand that lies in that order is read in whole vectors, so that the
warp's accesses follow each other, and the widest operand fills 16 bytes; a broadcast or strided
one goes through the coordinates of its elements.  Sizes and strides are in the tail: a kernel
exists once for each combination of kinds of access, whatever the shapes.

Addresses that are not aligned for whole accesses (a view with an offset) are seen when the kernel
runs: it then goes element by element, and computes the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from slipstream.core.kernels.cuda import access
from slipstream.core.kernels.cuda.access import EVERY, FLAT, ONCE, REPEAT, STEP, VECTOR, Ints, Words
from slipstream.core.kernels.cuda.writing import Formula, Lines
from slipstream.core.launch.cuda.launches import CHAIN
from slipstream.core.shapes.collapse import collapse

Sizes = tuple[int, int, int]
BLOCK = 256
# Bytes that a thread should ask for at once.
IN_FLIGHT = 32
# Elements a thread takes where no operand can be read in vectors.
SINGLES = 4
# Blocks are made smaller where there would be fewer than this.
FEW_BLOCKS = 512


class MapPlan(NamedTuple):
    """What a pointwise kernel's text depends on, beside the program.

    ``kinds``: access of each operand, outputs first; ``vector``: elements of a vector;
    ``unroll``: vectors of a thread; ``rank``: dims of the space where coordinates are needed
    (else 0); ``wide``: 64-bit index arithmetic.
    """

    kinds: tuple[str, ...]
    vector: int
    unroll: int
    rank: int
    wide: bool


def map_space(domain: Ints, strides: Sequence[Ints]) -> tuple[Ints, Sequence[Ints]]:
    """A domain and the strides of its operands in the fewest dims, in the first output's order."""
    first = strides[0]
    if access.is_flat(domain, first):
        if strides.count(first) == len(strides):
            return (access.count_of(domain),), ((1,),) * len(strides)
        # A first output in row-major order decides the order of the dims.
        sizes, steps = collapse(domain, strides, sort=False)
    else:
        sizes, steps = collapse(domain, strides, sort=True)
    if not sizes or sizes == (1,):
        return (1,), ((1,),) * len(strides)
    return sizes, steps


def plan_map(sizes: Ints, steps: Sequence[Ints], itemsizes: Sequence[int],
             outputs: int) -> tuple[MapPlan, Words]:
    """The plan and the tail's words for a collapsed space and the steps of its operands."""
    if len(sizes) == 1 and steps.count((1,)) == len(steps):
        return flat_plan(tuple(itemsizes), outputs), {"count": [sizes[0]]}
    count = access.count_of(sizes)
    if len(sizes) == 1 and steps.count((0,)) + steps.count((1,)) == len(steps):
        return line_plan(tuple(steps), tuple(itemsizes), outputs), {"count": [count]}
    kinds = [_whole_kind(sizes, own) for own in steps]
    vector = access.elements_of([size for size, kind in zip(itemsizes, kinds, strict=True)
                                 if kind != ONCE])
    rest = [place for place, kind in enumerate(kinds) if kind == EVERY]
    words: Words = {"count": [count]}
    if rest:
        if sizes[-1] % vector == 0:
            for place in rest:
                kinds[place] = _vector_kind(steps[place], vector)
        if FLAT not in kinds and VECTOR not in kinds:
            vector = 1
            kinds = [STEP if kind == EVERY else kind for kind in kinds]
        words |= access.space_words(sizes, "at")
        words |= {f"step{place}s": list(steps[place]) for place in rest}
    wide = bool(rest) and max(count, *[access.reach(sizes, own) for own in steps]) >= access.NARROW
    unroll = _unroll(kinds, vector, itemsizes, outputs)
    return MapPlan(tuple(kinds), vector, unroll, len(sizes) if rest else 0, wide), words


@cache
def line_plan(steps: tuple[Ints, ...], itemsizes: Ints, outputs: int) -> MapPlan:
    """The plan where each operand lies in the order of the domain or is one element."""
    kinds = tuple([FLAT if own == (1,) else ONCE for own in steps])
    vector = access.elements_of([size for size, kind in zip(itemsizes, kinds, strict=True)
                                 if kind != ONCE])
    return MapPlan(kinds, vector, _unroll(kinds, vector, itemsizes, outputs), 0, False)


@cache
def flat_plan(itemsizes: Ints, outputs: int) -> MapPlan:
    """The plan where all operands lie in the order of the domain."""
    kinds = (FLAT,) * len(itemsizes)
    vector = access.elements_of(itemsizes)
    return MapPlan(kinds, vector, _unroll(kinds, vector, itemsizes, outputs), 0, False)


def _whole_kind(sizes: Ints, steps: Ints) -> str:
    if not any(steps):
        return ONCE
    return FLAT if access.is_flat(sizes, steps) else EVERY


def _vector_kind(steps: Ints, vector: int) -> str:
    """The kind of an operand's access where no vector crosses the end of the innermost dim."""
    if steps[-1] == 0:
        return REPEAT
    whole = steps[-1] == 1 and all(step % vector == 0 for step in steps[:-1])
    return VECTOR if whole else STEP


def _unroll(kinds: Sequence[str], vector: int, itemsizes: Sequence[int], outputs: int) -> int:
    if vector == 1 and FLAT not in kinds:
        return SINGLES
    read = [vector * size for size, kind in zip(itemsizes[outputs:], kinds[outputs:], strict=True)
            if kind in (FLAT, VECTOR)]
    return 1 if sum(read) >= IN_FLIGHT else 2


def grid_of(plan: MapPlan, count: int) -> tuple[Sizes, Sizes]:
    """The sizes of grid and block: small blocks where the work would fill only a few."""
    mine = plan.vector * plan.unroll
    threads = BLOCK
    while threads > 32 and count <= threads * mine * FEW_BLOCKS // 2:
        threads //= 2
    return (-(-count // (threads * mine)), 1, 1), (threads, 1, 1)


class MapWriter:
    """Writes the kernel of a plan."""

    fusion = CHAIN

    def __init__(self, formula: Formula, plan: MapPlan, words: Words) -> None:
        self.formula = formula
        self.plan = plan
        self.words = words
        self.lines = Lines()

    def text(self) -> str:
        """The source."""
        formula, lines = self.formula, self.lines
        lines.open(f'extern "C" __global__ void __launch_bounds__({BLOCK})\n'
                   f"{formula.name}({formula.parameters()})")
        formula.add_uniform(lines)
        self.body()
        lines.close()
        return access.struct_text(self.words) + "\n" + lines.text()

    def body(self) -> None:
        """The thread's vectors: all are asked for before the first one is used."""
        lines = self.lines
        self._start()
        lines.loop(f"for (int u = 0; u < {self.plan.unroll}; u++)")
        self._place()
        self._loads()
        lines.close()
        lines.loop(f"for (int u = 0; u < {self.plan.unroll}; u++)")
        self._place()
        self._compute()
        self._stores()
        lines.close()

    def _operands(self, *kinds: str) -> list[int]:
        return [place for place, kind in enumerate(self.plan.kinds) if kind in kinds]

    def _start(self) -> None:
        lines, plan, formula = self.lines, self.plan, self.formula
        self._range()
        checks = [
            f"slip_aligned<{formula.stored(place)}>({formula.pointers[place]}, {size})"
            for place in self._operands(FLAT, VECTOR)
            for size in [formula.dtypes[place].itemsize * plan.vector]
            if plan.vector > 1]
        last = f"(int)blockDim.x * {(plan.unroll - 1) * plan.vector} + " if plan.unroll > 1 else ""
        lines.add(f"const bool whole = rest >= {last}{plan.vector}"
                  f"{''.join(f' && {check}' for check in checks)};")
        self._declare_inputs()

    def _range(self) -> None:
        """The first element of the thread, and how many there are from it on."""
        plan = self.plan
        mine = plan.vector * plan.unroll
        self.lines.add(f"const int64_t start = (int64_t)blockIdx.x * (blockDim.x * {mine}) "
                       f"+ threadIdx.x * {plan.vector};",
                       "const int64_t rest = tail.count - start;")

    def _declare_inputs(self) -> None:
        """Inputs that are one element, and the vectors of the others."""
        lines, plan, formula = self.lines, self.plan, self.formula
        self._load_once()
        for place in range(formula.outputs, len(plan.kinds)):
            if plan.kinds[place] != ONCE:
                lines.add(f"{self._vector_type(place)} {self._held(place)}[{plan.unroll}];")

    def _load_once(self) -> None:
        formula = self.formula
        for place in self._operands(ONCE):
            if place >= formula.outputs:
                value = place - formula.outputs
                loaded = formula.loaded(value, f"{formula.pointers[place]}[0]")
                self.lines.add(f"const {formula.type_of(value)} x{value} = {loaded};")

    def _whole(self) -> str:
        return "slip_opaque(whole)" if self.plan.unroll > 1 else "whole"

    def _vector_type(self, place: int) -> str:
        return f"slip_vector<{self.formula.stored(place)}, {self.plan.vector}>"

    def _held(self, place: int) -> str:
        return f"{self.formula.pointers[place]}_held"

    def _place(self) -> None:
        vector = self.plan.vector
        self.lines.add(f"const int shift = u * (int)blockDim.x * {vector};",
                       "const int64_t at = start + shift;",
                       f"const int left = (int)slip_least(rest - shift, {vector});")

    def _coordinates(self, places: Sequence[int], number: str) -> None:
        plan = self.plan
        self.lines.add(*access.coordinates("at", plan.rank, number, plan.wide))
        for place in places:
            text = access.offset("at", plan.rank, place, plan.wide)
            self.lines.add(f"const int64_t place{place} = {text};")

    def _loads(self) -> None:
        formula, plan = self.formula, self.plan
        inputs = [place for place in self._operands(VECTOR, REPEAT, STEP)
                  if place >= formula.outputs]
        if inputs:
            self._coordinates(inputs, "at")
        for place in range(formula.outputs, len(plan.kinds)):
            text = self._load(place)
            if text:
                self.lines.add(f"{self._held(place)}[u] = {text};")
        self._load_every()

    def _load(self, place: int) -> str:
        formula, plan = self.formula, self.plan
        pointer, kind = formula.pointers[place], plan.kinds[place]
        types = f"{formula.stored(place)}, {plan.vector}"
        if kind == FLAT:
            return f"slip_read<{types}>({pointer} + at, left, {self._whole()})"
        if kind == VECTOR:
            return f"slip_read<{types}>({pointer} + place{place}, left, {self._whole()})"
        if kind == REPEAT:
            return f"slip_repeat<{types}>({pointer} + place{place}, left)"
        if kind == STEP:
            last = f"tail.step{place}s[{plan.rank - 1}]"
            return f"slip_gather<{types}>({pointer} + place{place}, left, {last})"
        return ""

    def _load_every(self) -> None:
        formula, lines = self.formula, self.lines
        inputs = [place for place in self._operands(EVERY) if place >= formula.outputs]
        if not inputs:
            return
        lines.loop(f"for (int e = 0; e < {self.plan.vector}; e++)")
        lines.open("if (e < left)")
        self._coordinates(inputs, "at + e")
        for place in inputs:
            pointer = formula.pointers[place]
            lines.add(f"{self._held(place)}[u].set(e, {pointer}[place{place}]);")
        lines.close(2)

    def _compute(self) -> None:
        formula, lines, plan = self.formula, self.lines, self.plan
        for place in range(formula.outputs):
            lines.add(f"{self._vector_type(place)} {self._held(place)} = {{}};")
        lines.loop(f"for (int e = 0; e < {plan.vector}; e++)")
        for value in range(len(formula.program.inputs)):
            place = formula.outputs + value
            if plan.kinds[place] != ONCE:
                loaded = formula.loaded(value, self._element(place))
                lines.add(f"const {formula.type_of(value)} {formula.values[value]} = {loaded};")
        for value in range(formula.stages.base, len(formula.values)):
            if formula.stages.level[value]:
                formula.add_step(lines, value)
        for place, output in enumerate(formula.program.outputs):
            stored = formula.narrowed(place, formula.values[output.value])
            lines.add(f"{self._held(place)}.set(e, {stored});")
        lines.close()

    def _element(self, place: int) -> str:
        """Element e of an input's vector number u."""
        return f"{self._held(place)}[u].get(e)"

    def _stores(self) -> None:
        formula, lines = self.formula, self.lines
        through = [place for place in self._operands(VECTOR, STEP) if place < formula.outputs]
        if through:
            self._coordinates(through, "at")
        for place in range(formula.outputs):
            text = self._store(place)
            if text:
                lines.add(text)
        every = [place for place in self._operands(EVERY) if place < formula.outputs]
        if every:
            lines.loop(f"for (int e = 0; e < {self.plan.vector}; e++)")
            lines.open("if (e < left)")
            self._coordinates(every, "at + e")
            for place in every:
                lines.add(f"{formula.pointers[place]}[place{place}] = {self._held(place)}.get(e);")
            lines.close(2)

    def _store(self, place: int) -> str:
        plan = self.plan
        pointer, held, kind = self.formula.pointers[place], self._held(place), plan.kinds[place]
        if kind == FLAT:
            return f"slip_write({pointer} + at, {held}, left, {self._whole()});"
        if kind == VECTOR:
            return f"slip_write({pointer} + place{place}, {held}, left, {self._whole()});"
        if kind == STEP:
            last = f"tail.step{place}s[{plan.rank - 1}]"
            return f"slip_scatter({pointer} + place{place}, {held}, left, {last});"
        return ""

# cython: annotation_typing=False
"""Tiled maps: pointwise kernels of operands that lie across each other in memory, as transposes do.

The elements are taken in tiles of two dims: that in which outputs are dense (*along*) and that in
which the operands that lie across are (*down*).  A block reads the tile of such an operand down
its dim into shared memory and uses it along the other one, so that all accesses to device memory
follow each other.  The pitch of a tile is an odd number of words: both ways go through all banks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from slipstream.core.kernels.cuda import access
from slipstream.core.kernels.cuda.access import ONCE, REPEAT, STEP, VECTOR, Ints, Words
from slipstream.core.kernels.cuda.maps import BLOCK, MapWriter
from slipstream.core.kernels.cuda.writing import Formula

# The kind of access of an operand that lies across.
ACROSS = "across"
# Sizes of both dims, and elements in all, below which tiles are not worth while.
LEAST_SIDE = 16
LEAST_COUNT = 1024
SIDE = 64
SHORT_SIDE = 32
# Bytes of a block's tiles at most.
SHARED_BYTES = 40960
# Neighbours in memory that a warp takes at once, in vectors.
LEAST_LANES = 8


class TilePlan(NamedTuple):
    """What a tiled kernel's text depends on, beside the program.

    ``kinds``: access of each operand, outputs first; ``vector``: elements of a vector; ``side``:
    elements of a tile's side; ``outer``: how many other dims there are; ``wide``: 64-bit index
    arithmetic.
    """

    kinds: tuple[str, ...]
    vector: int
    side: int
    outer: int
    wide: bool

    @property
    def unroll(self) -> int:
        """Vectors of a thread."""
        return self.side * self.side // (self.vector * BLOCK)

    @property
    def lanes(self) -> int:
        """How many vectors a warp takes side by side."""
        return max(LEAST_LANES, SHORT_SIDE // self.vector)


def plan_tiles(sizes: Ints, steps: Sequence[Ints], itemsizes: Sequence[int],
               outputs: int) -> tuple[TilePlan, Words] | None:
    """The plan and the tail's words for a collapsed space; None where tiles do not help."""
    down = _down(sizes, steps, itemsizes, outputs)
    if down is None:
        return None
    kinds = [_kind(own, down, place >= outputs) for place, own in enumerate(steps)]
    vector = _vector(sizes, steps, kinds, down, itemsizes)
    across = sum([size for size, kind in zip(itemsizes, kinds, strict=True) if kind == ACROSS])
    side = SIDE if vector >= 4 else SHORT_SIDE
    if across * side * (side + 4) > SHARED_BYTES:
        vector, side = min(vector, 4), SHORT_SIDE
    if across * side * (side + 4) > SHARED_BYTES:
        return None
    rest = [dim for dim in range(len(sizes) - 1) if dim != down]
    outer = [sizes[dim] for dim in rest] or [1]
    words: Words = {
        "count": [access.count_of(sizes)], "along": [sizes[-1]], "down": [sizes[down]],
        "across_tiles": [-(-sizes[-1] // side)], "down_tiles": [-(-sizes[down] // side)],
        **access.space_words(outer, "at")}
    for place, own in enumerate(steps):
        words[f"step{place}s"] = [*([own[dim] for dim in rest] or [0]), own[down], own[-1]]
    wide = max(words["count"][0], *[access.reach(sizes, own) for own in steps]) >= access.NARROW
    return TilePlan(tuple(kinds), vector, side, len(outer), wide), words


def blocks_of(words: Words) -> int:
    """How many tiles there are."""
    sides = words["along"][0] * words["down"][0]
    return words["count"][0] // sides * words["across_tiles"][0] * words["down_tiles"][0]


def _down(sizes: Ints, steps: Sequence[Ints], itemsizes: Sequence[int],
          outputs: int) -> int | None:
    """The dim in which the widest input that lies across is dense."""
    if len(sizes) < 2 or sizes[-1] < LEAST_SIDE or steps[0][-1] != 1:
        return None
    if access.count_of(sizes) < LEAST_COUNT:
        return None
    found, widest = None, 0
    for place in range(outputs, len(steps)):
        own = steps[place]
        if own[-1] in (0, 1) or 1 not in own:
            continue
        dim = own.index(1)
        if sizes[dim] >= LEAST_SIDE and itemsizes[place] > widest:
            found, widest = dim, itemsizes[place]
    return found


def _kind(steps: Ints, down: int, is_input: bool) -> str:
    if not any(steps):
        return ONCE
    if steps[-1] in (0, 1):
        return VECTOR if steps[-1] else REPEAT
    return ACROSS if is_input and steps[down] == 1 else STEP


def _vector(sizes: Ints, steps: Sequence[Ints], kinds: Sequence[str], down: int,
            itemsizes: Sequence[int]) -> int:
    """Elements of a vector; none crosses the end of a dim."""
    vector = access.elements_of([size for size, kind in zip(itemsizes, kinds, strict=True)
                                 if kind in (ACROSS, VECTOR)])
    vector = access.power_of_two(sizes[-1], min(vector, 8))
    vector = access.power_of_two(sizes[down], vector)
    near = {ACROSS: down, VECTOR: len(sizes) - 1}
    far = [step for own, kind in zip(steps, kinds, strict=True) if kind in near
           for dim, step in enumerate(own) if dim != near[kind]]
    for step in far:
        vector = access.power_of_two(step, vector)
    return vector


def pitch(side: int, itemsize: int) -> int:
    """Elements from row to row of a tile."""
    return side + max(4 // itemsize, 1)


class TileWriter(MapWriter):
    """Writes the kernel of a tiled plan."""

    plan: TilePlan  # type: ignore[assignment]

    def __init__(self, formula: Formula, plan: TilePlan, words: Words) -> None:
        super().__init__(formula, plan, words)  # type: ignore[arg-type]

    def body(self) -> None:
        """The tile from device memory through shared memory to the results."""
        lines, plan = self.lines, self.plan
        self._start()
        lines.loop(f"for (int u = 0; u < {plan.unroll}; u++)")
        self._loads()
        lines.close()
        lines.loop(f"for (int u = 0; u < {plan.unroll}; u++)")
        self._turn()
        lines.close()
        lines.add("__syncthreads();")
        lines.loop(f"for (int u = 0; u < {plan.unroll}; u++)")
        self._spot("along", "down")
        lines.open("if (inside)")
        self._compute()
        self._stores()
        lines.close(2)

    def _start(self) -> None:
        lines, plan, formula = self.lines, self.plan, self.formula
        lines.add("int64_t tile = blockIdx.x;",
                  f"const int64_t first_along = tile % tail.across_tiles * {plan.side};",
                  "tile /= tail.across_tiles;",
                  f"const int64_t first_down = tile % tail.down_tiles * {plan.side};",
                  "tile /= tail.down_tiles;")
        lines.add(*access.coordinates("at", plan.outer, "tile", plan.wide))
        for place, kind in enumerate(plan.kinds):
            if kind == ONCE:
                continue
            const = "" if place < formula.outputs else "const "
            where = access.offset("at", plan.outer, place, wide=True)
            lines.add(f"{const}{formula.stored(place)}* {formula.pointers[place]}_tile = "
                      f"{formula.pointers[place]} + ({where});")
        checks = [f"slip_aligned<{formula.stored(place)}>({formula.pointers[place]}, "
                  f"{formula.dtypes[place].itemsize * plan.vector})"
                  for place in self._operands(ACROSS, VECTOR) if plan.vector > 1]
        lines.add(f"const bool fits = {' && '.join(checks) or 'true'};")
        for place in self._operands(ACROSS):
            size = formula.dtypes[place].itemsize
            lines.add(f"__shared__ {formula.stored(place)} {formula.pointers[place]}_shared"
                      f"[{plan.side}][{pitch(plan.side, size)}];")
        self._declare_inputs()

    def _spot(self, near: str, far: str) -> None:
        """Where the thread's vector number u lies: neighbours of a warp lie in dim ``near``."""
        plan = self.plan
        self.lines.add(
            f"const int number = u * {BLOCK} + threadIdx.x;",
            f"const int {near}_in = (number / {plan.lanes * plan.side} * {plan.lanes} "
            f"+ number % {plan.lanes}) * {plan.vector};",
            f"const int {far}_in = number / {plan.lanes} % {plan.side};",
            f"const int64_t {near} = first_{near} + {near}_in, {far} = first_{far} + {far}_in;",
            f"const bool inside = {near} < tail.{near} && {far} < tail.{far};")

    def _loads(self) -> None:
        """Ask for the vectors of all operands."""
        lines, formula = self.lines, self.formula
        across = self._operands(ACROSS)
        for near, far, places in (
                ("down", "along", across),
                ("along", "down", [place for place in self._operands(VECTOR, REPEAT, STEP)
                                   if place >= formula.outputs])):
            if not places:
                continue
            lines.open("")
            self._spot(near, far)
            lines.open("if (inside)")
            for place in places:
                lines.add(f"{self._held(place)}[u] = {self._load(place)};")
            lines.close(2)

    def _turn(self) -> None:
        """Write what lies across into its tile."""
        lines = self.lines
        self._spot("down", "along")
        lines.add("if (!inside) continue;")
        lines.loop(f"for (int e = 0; e < {self.plan.vector}; e++)")
        for place in self._operands(ACROSS):
            lines.add(f"{self.formula.pointers[place]}_shared[down_in + e][along_in] = "
                      f"{self._held(place)}[u].get(e);")
        lines.close()

    def _where(self, place: int) -> str:
        outer = self.plan.outer
        return (f"{self.formula.pointers[place]}_tile + (down * tail.step{place}s[{outer}] "
                f"+ along * tail.step{place}s[{outer + 1}])")

    def _load(self, place: int) -> str:
        plan = self.plan
        types = f"{self.formula.stored(place)}, {plan.vector}"
        kind = plan.kinds[place]
        if kind in (ACROSS, VECTOR):
            return f"slip_read<{types}>({self._where(place)}, {plan.vector}, slip_opaque(fits))"
        if kind == REPEAT:
            return f"slip_repeat<{types}>({self._where(place)}, {plan.vector})"
        return (f"slip_gather<{types}>({self._where(place)}, {plan.vector}, "
                f"tail.step{place}s[{plan.outer + 1}])")

    def _element(self, place: int) -> str:
        if self.plan.kinds[place] == ACROSS:
            return f"{self.formula.pointers[place]}_shared[down_in][along_in + e]"
        return super()._element(place)

    def _stores(self) -> None:
        plan = self.plan
        for place in range(self.formula.outputs):
            where, held = self._where(place), self._held(place)
            if plan.kinds[place] == VECTOR:
                self.lines.add(f"slip_write({where}, {held}, {plan.vector}, slip_opaque(fits));")
            else:
                self.lines.add(f"slip_scatter({where}, {held}, {plan.vector}, "
                               f"tail.step{place}s[{plan.outer + 1}]);")

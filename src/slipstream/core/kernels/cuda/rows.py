"""Row kernels: a block (or a part of a warp, for short rows) reduces rows, and maps them.

A row's elements are numbered; a thread takes vectors of neighbours.  It keeps its vectors in
registers through all stages where they are few enough, else it reads the row again in every stage.
Where rows are few and long they are split between blocks.
"""

from __future__ import annotations

from slipstream.core.kernels.cuda import access
from slipstream.core.kernels.cuda.access import ONCE
from slipstream.core.kernels.cuda.reducing import ReduceWriter
from slipstream.core.kernels.cuda.stages import LINE, PLACES

# Values of a turn of a loop, about, up to which four turns are unrolled, not two.
LIGHT = 40


class RowWriter(ReduceWriter):
    """Writes a row kernel."""

    suffix = "_row"

    def start(self) -> None:
        """The thread's row, and where its operands are."""
        lines, plan, formula = self.lines, self.plan, self.formula
        lines.add("const int lane = threadIdx.x, lanes = blockDim.x;")
        if self.split:
            lines.add("const int64_t row = blockIdx.x;", "const bool mine = true;",
                      "const int64_t begin = blockIdx.y * tail.span;",
                      "const int64_t end = slip_least(begin + tail.span, tail.vectors);")
        elif plan.exact:
            lines.add("const int64_t row = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;",
                      "const bool mine = true;")
        else:
            lines.add("const int64_t own = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;",
                      "const bool mine = own < tail.rows;",
                      "const int64_t row = mine ? own : 0, begin = 0;",
                      "const int64_t end = mine ? tail.vectors : 0;")
        lines.add(*access.coordinates("row", plan.outer, "row", plan.wide))
        for place, name in enumerate(formula.pointers):
            const = "" if place < formula.outputs else "const "
            where = access.offset("row", plan.outer, place, wide=True)
            lines.add(f"{const}{formula.stored(place)}* {name}_row = {name} + ({where});")
        lines.add(f"const bool fits = {self.fits_checks()};")

    def declare_line_input(self, value: int) -> None:
        """Load an input that is one value a row."""
        formula = self.formula
        place = formula.outputs + value
        name = formula.pointers[place]
        self.lines.add(f"{formula.stored(place)} {name}_one = {{}};",
                       f"if (mine) {name}_one = {name}_row[0];")
        loaded = formula.loaded(value, f"{name}_one")
        self.lines.add(f"const {formula.type_of(value)} x{value} = {loaded};")

    def keep_inputs(self) -> None:
        """Load the vectors that are kept for all stages."""
        lines, formula, kept = self.lines, self.formula, self.inputs_kept()
        if not kept:
            return
        for value in kept:
            place = formula.outputs + value
            lines.add(f"{self.vector_type(place)} {formula.pointers[place]}_held"
                      f"[{self.plan.keep}];")
        opened = self.open_elements()
        for value in kept:
            place = formula.outputs + value
            lines.add(f"{formula.pointers[place]}_held[k] = {self.read(place)};")
        lines.close(opened)

    def open_elements(self) -> int:
        """Open the loop over the thread's vectors."""
        lines, plan = self.lines, self.plan
        opened = 1
        if plan.keep:
            lines.loop(f"for (int k = 0; k < {plan.keep}; k++)")
            lines.add("const int at = lane + k * lanes;")
            if not plan.exact:
                lines.open("if (at < end)")
                opened = 2
        else:
            lines.loop("for (int64_t at = begin + lane; at < end; at += lanes)",
                       f"#pragma unroll {self.unrolled()}")
        if plan.inner:
            lines.add(*access.coordinates("at", plan.inner, f"at * {plan.vector}", plan.wide))
        return opened

    def unrolled(self) -> int:
        """Vectors that a thread takes in one turn of a long loop."""
        work = self.plan.vector * len(self.formula.values)
        return 4 if work <= LIGHT else 2

    def place_of(self, operand: int) -> str:
        """Where the vector of an operand lies, seen from its row."""
        plan = self.plan
        if plan.kinds[operand] == access.FLAT:
            return f"(int64_t)at * {plan.vector}"
        return f"({access.offset('at', plan.inner, operand, plan.wide, plan.outer)})"

    def step_of(self, place: int) -> str:
        """The word of an operand's step along its vectors."""
        return f"tail.step{place}s[{self.plan.outer + self.plan.inner - 1}]"

    def index(self) -> str:
        """The number of element e in the row."""
        return f"(int64_t)at * {self.plan.vector} + e"

    def accumulator(self, value: int) -> str:
        """A reduction has one accumulator for each place in a vector."""
        return f"{self.formula.values[value]}_part[e]"

    def add_line_step(self, value: int) -> None:
        """Every thread computes the row's value."""
        self.formula.add_step(self.lines, value)

    def declare_divisor(self, value: int) -> None:
        """A row value made ready for many divisions by it."""
        name = self.formula.values[value]
        self.lines.add(f"const slip_divisor {name}_divisor = slip_make_divisor({name});")

    def declare_fold(self, value: int) -> None:
        """The accumulators of a reduction."""
        lines, name, vector = self.lines, self.formula.values[value], self.plan.vector
        lines.add(f"fold_{name}::type {name}_part[{vector}];")
        if self.starts() and self.stages.step(value).primitive not in PLACES:
            return
        lines.loop(f"for (int e = 0; e < {vector}; e++)")
        lines.add(f"{name}_part[e] = fold_{name}::identity();")
        lines.close()

    def _joined_lanes(self, name: str) -> str:
        return f"slip_fold_lanes<fold_{name}, {self.plan.vector}>({name}_part)"

    def _result(self, value: int, found: str) -> None:
        name = self.formula.values[value]
        place = ".index" if self.stages.step(value).primitive in PLACES else ""
        kind = self.formula.type_of(value)
        self.lines.add(f"const {kind} {name} = slip_fold_row<fold_{name}, {self.plan.warps}>"
                       f"({found}, lane, lanes){place};")

    def finish_fold(self, value: int) -> None:
        """Every thread gets the row's result."""
        self._result(value, self._joined_lanes(self.formula.values[value]))

    def leave_part(self, value: int) -> None:
        """Write the block's result to scratch memory."""
        lines, name = self.lines, self.formula.values[value]
        lines.add(f"const fold_{name}::type {name}_all = slip_fold_row<fold_{name}, "
                  f"{self.plan.warps}>({self._joined_lanes(name)}, lane, lanes);")
        lines.open("if (lane == 0)")
        self.write_part(value, "row * tail.chunks + blockIdx.y", f"{name}_all")
        lines.close()

    def join_parts(self, value: int) -> None:
        """Join the results of the blocks that shared the row, in order."""
        lines, name = self.lines, self.formula.values[value]
        lines.add(f"fold_{name}::type {name}_all = fold_{name}::identity();")
        lines.open("for (int64_t c = lane; c < tail.chunks; c += lanes)")
        part = self.part_value(value, "row * tail.chunks + c")
        lines.add(f"{name}_all = fold_{name}::join({name}_all, {part});")
        lines.close()
        self._result(value, f"{name}_all")

    def store_lines(self) -> None:
        """The first thread of a row writes its values."""
        formula, lines = self.formula, self.lines
        places = [place for place, output in enumerate(formula.program.outputs)
                  if self.stages.level[output.value] <= LINE]
        if not places:
            return
        if not self.stages.fold_values:
            # Nothing else made the threads wait for each other's reads of what is written here.
            lines.add("__syncthreads();")
        first = " && blockIdx.y == 0" if self.split else ""
        lines.open(f"if (mine && lane == 0{first})")
        for place in places:
            value = formula.program.outputs[place].value
            stored = formula.narrowed(place, self.names[value])
            lines.add(f"{formula.pointers[place]}_row[0] = {stored};")
        lines.close()


__all__ = ["ONCE", "RowWriter"]

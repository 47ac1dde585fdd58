"""Column kernels: what is reduced lies far apart, and its neighbours belong to other results.

A thread takes a vector of neighbouring columns and walks down; the rows of threads of a block
share the way between them.  Where columns are few the way is also split between blocks, or, where
it is short, blocks are narrow (`narrow`).
"""

from __future__ import annotations

from slipstream.core.kernels.cuda import access
from slipstream.core.kernels.cuda.access import ONCE, REPEAT, STEP, VECTOR
from slipstream.core.kernels.cuda.measures import MOST_PARTS, PART_BYTES
from slipstream.core.kernels.cuda.reducing import ReduceWriter
from slipstream.core.kernels.cuda.stages import LINE


class ColumnWriter(ReduceWriter):
    """Writes a column kernel; row values are arrays with one value for each of V columns."""

    suffix = "_column"

    def start(self) -> None:
        """The thread's columns, and where its operands are."""
        lines, plan, formula = self.lines, self.plan, self.formula
        tile = self.add_row()
        lines.add(f"const int64_t column = ((int64_t){tile} * blockDim.x "
                  f"+ threadIdx.x) * {plan.vector};",
                  "const bool mine = column < tail.columns;",
                  f"const int left = mine ? {plan.vector} : 0;")
        kind = self.count_type()
        if self.split:
            lines.add(f"const uint32_t chunk = {self.chunk()};",
                      f"const int64_t spot = (int64_t)(blockIdx.x % tiles) * (blockDim.x * "
                      f"{plan.vector}) + threadIdx.x;",
                      f"const {kind} begin = ({kind})(chunk * tail.span);",
                      f"const {kind} end = ({kind})slip_least(begin + tail.span, tail.length);")
        else:
            lines.add(f"const {kind} begin = 0, end = ({kind})tail.length;")
        lines.add(*access.coordinates("row", plan.outer, "row", plan.wide))
        for place, name in enumerate(formula.pointers):
            const = "" if place < formula.outputs else "const "
            where = access.offset("row", plan.outer, place, wide=True)
            step = self.step_of(place)
            lines.add(f"{const}{formula.stored(place)}* {name}_column = {name} + "
                      f"({where} + column * {step});")
        lines.add(f"const bool fits = {self.fits_checks()};")
        self._name_lines()

    def add_row(self) -> str:
        """Which of the batches is the block's; the word of its tile among the columns."""
        self.lines.add("const uint32_t tiles = (uint32_t)tail.tiles;",
                       "const int64_t row = blockIdx.x / tiles;")
        return "(blockIdx.x % tiles)"

    def down(self) -> str:
        """How many rows of threads a block has."""
        return "(int)blockDim.y"

    def _name_lines(self) -> None:
        """Row values are named by their column."""
        for value in (*self.once(), *self.line_values):
            member = self.stages.member(value) if self.stages.is_fold(value) else ""
            self.names[value] = f"{self.formula.values[value]}[e]{member}"

    def declare_line_input(self, value: int) -> None:
        """Load an input that is one value a column."""
        formula, lines, vector = self.formula, self.lines, self.plan.vector
        place = formula.outputs + value
        name = formula.pointers[place]
        lines.add(f"const {self.vector_type(place)} {name}_ones = {self._read_line(place)};",
                  f"{formula.type_of(value)} x{value}[{vector}];")
        lines.loop(f"for (int e = 0; e < {vector}; e++)")
        lines.add(f"x{value}[e] = {formula.loaded(value, f'{name}_ones.get(e)')};")
        lines.close()

    def _read_line(self, place: int) -> str:
        formula = self.formula
        types = f"{formula.stored(place)}, {self.plan.vector}"
        where = f"{formula.pointers[place]}_column"
        kind = self.plan.kinds[place]
        if kind == VECTOR:
            return f"slip_read<{types}>({where}, left, fits && mine)"
        return f"slip_gather<{types}>({where}, left, {self.step_of(place)})"

    def once(self) -> list[int]:
        """The inputs that are one value a column, by level; others are read down the way."""
        return [value for value in range(len(self.formula.program.inputs))
                if self.stages.level[value] == LINE]

    def open_batches(self) -> int:
        """Open the loop down the columns."""
        if self.plan.exact:
            self.lines.open("if (mine)")
            if self.plan.ahead:
                self._ask_first()
            self.open_walk("begin + (int)threadIdx.y", "(int)blockDim.y")
            return 2
        self.open_walk("mine ? begin + (int)threadIdx.y : end", "(int)blockDim.y")
        return 1

    def _ask_first(self) -> None:
        """Ask for the first batch."""
        lines, plan, formula = self.lines, self.plan, self.formula
        places = [formula.outputs + value for value in self.asked]
        for place in places:
            lines.add(f"{self.vector_type(place)} {formula.pointers[place]}_ahead[{plan.batch}];")
        lines.loop(f"for (int k = 0; k < {plan.batch}; k++)")
        lines.add(f"const {self.count_type()} j = begin + (int)threadIdx.y + k * (int)blockDim.y;",
                  *access.coordinates("at", plan.inner, "j", plan.wide))
        for place in places:
            lines.add(f"{formula.pointers[place]}_ahead[k] = {self.read(place)};")
        lines.close()

    def _ask_next(self) -> None:
        """Take a vector, and ask for the one in its place of the next batch."""
        lines, plan, formula = self.lines, self.plan, self.formula
        names = {formula.outputs + value: formula.pointers[formula.outputs + value]
                 for value in self.asked}
        for place, name in names.items():
            lines.add(f"const {self.vector_type(place)} {name}_held = {name}_ahead[k];")
        lines.add(f"const {self.count_type()} next = j + {plan.batch} * (int)blockDim.y;")
        lines.open("if (next < end)")
        lines.add(*access.coordinates("at", plan.inner, "next", plan.wide))
        for place, name in names.items():
            lines.add(f"{name}_ahead[k] = {self.read(place)};")
        lines.close()

    def read_batch(self, values: list[int]) -> None:
        """Ask for a whole batch, unless that was done before."""
        if not self.plan.ahead:
            super().read_batch(values)

    def held_name(self, value: int) -> str:
        """The vector of an input."""
        if self.plan.ahead and self.is_batched(value):
            return f"{self.formula.pointers[self.formula.outputs + value]}_held"
        return super().held_name(value)

    def open_vectors(self) -> int:
        """Open the loop over the vectors of a batch."""
        lines, plan = self.lines, self.plan
        lines.loop(f"for (int k = 0; k < {plan.batch}; k++)")
        lines.add(f"const {self.count_type()} j = first + k * {self.down()};")
        opened = 1
        if self.checks:
            lines.open("if (j < end)")
            opened = 2
        lines.add(*access.coordinates("at", plan.inner, "j", plan.wide))
        if plan.ahead:
            self._ask_next()
        return opened

    def place_of(self, operand: int) -> str:
        """Where the vector of an operand lies, seen from the top of its column."""
        plan = self.plan
        return f"({access.offset('at', plan.inner, operand, True, plan.outer + 1)})"

    def step_of(self, place: int) -> str:
        """The word of an operand's step from column to column."""
        return f"tail.step{place}s[{self.plan.outer}]"

    def mark(self) -> str:
        """The number of the vector on the way down."""
        return "j"

    def index(self, mark: str) -> str:
        """The number of an element on the way down."""
        return f"(int64_t){mark}"

    def by_vectors(self, value: int) -> bool:
        """Never: neighbours belong to different columns."""
        return False

    def accumulator(self, value: int) -> str:
        """A reduction has one accumulator for each column."""
        return f"{self.formula.values[value]}[e]"

    def add_line_step(self, value: int) -> None:
        """A value for each column."""
        formula, lines, vector = self.formula, self.lines, self.plan.vector
        name = formula.values[value]
        lines.add(f"{formula.type_of(value)} {name}[{vector}];")
        lines.loop(f"for (int e = 0; e < {vector}; e++)")
        lines.add(f"{name}[e] = {formula.expression(value, self.names)};")
        lines.close()

    def declare_divisor(self, value: int) -> None:
        """The columns' values made ready for many divisions by them."""
        lines, name, vector = self.lines, self.formula.values[value], self.plan.vector
        lines.add(f"slip_divisor {name}_divisor[{vector}];")
        lines.loop(f"for (int e = 0; e < {vector}; e++)")
        lines.add(f"{name}_divisor[e] = slip_make_divisor({self.names[value]});")
        lines.close()

    def declare_fold(self, value: int) -> None:
        """The accumulators of a reduction."""
        lines, name, vector = self.lines, self.formula.values[value], self.plan.vector
        lines.add(f"fold_{name}::type {name}[{vector}];")
        if self.is_settled(value):
            self.declare_walked(value)
            return
        lines.loop(f"for (int e = 0; e < {vector}; e++)")
        lines.add(f"{name}[e] = fold_{name}::identity();")
        lines.close()

    def finish_fold(self, value: int) -> None:
        """Every row of threads gets the results."""
        name, plan = self.formula.values[value], self.plan
        self.lines.add(f"slip_fold_columns<fold_{name}, {plan.vector}, {plan.threads}>({name});")

    def leave_part(self, value: int) -> None:
        """Write the block's results to scratch memory."""
        self.finish_fold(value)
        self._write(value, "chunk")

    def _write(self, value: int, chunk: str) -> None:
        lines = self.lines
        lines.open("if (mine && threadIdx.y == 0)")
        lines.loop(f"for (int e = 0; e < {self.plan.vector}; e++)")
        self.write_part(value, self._part(chunk), f"{self.formula.values[value]}[e]")
        lines.close(2)

    def _part(self, chunk: str) -> str:
        """Where a part lies: beside those of the neighbouring threads, whose columns are others."""
        return f"({chunk} * tail.rows + row) * tail.across + spot + e * (int)blockDim.x"

    def open_join(self) -> None:
        """The block that comes last of those that share the columns goes on."""
        self.lines.open("if (slip_is_last(tickets + blockIdx.x, (uint32_t)tail.chunks))")

    def join_parts(self, value: int) -> None:
        """Join the results of the blocks that shared the way, in order."""
        lines, name, vector = self.lines, self.formula.values[value], self.plan.vector
        lines.loop(f"for (int e = 0; e < {vector}; e++)")
        lines.add(f"{name}[e] = fold_{name}::identity();")
        lines.close()
        lines.open("if (mine)")
        at_once = self._joined_at_once(value)
        step = f"{at_once} * (int)blockDim.y"
        lines.loop(f"for (int64_t from = threadIdx.y; from < tail.chunks; from += {step})",
                   "#pragma unroll 1")
        # All are asked for before the first one is waited for.
        lines.add(f"fold_{name}::type asked[{at_once}][{vector}];")
        lines.loop(f"for (int k = 0; k < {at_once}; k++)")
        lines.add("const int64_t c = from + k * (int)blockDim.y;")
        lines.open("if (c < tail.chunks)")
        lines.loop(f"for (int e = 0; e < {vector}; e++)")
        lines.add(f"asked[k][e] = {self.part_value(value, self._part('c'))};")
        lines.close(3)
        lines.loop(f"for (int k = 0; k < {at_once}; k++)")
        lines.open("if (from + k * (int)blockDim.y < tail.chunks)")
        lines.loop(f"for (int e = 0; e < {vector}; e++)")
        lines.add(f"{name}[e] = fold_{name}::join({name}[e], asked[k][e]);")
        lines.close(5)
        self.finish_fold(value)

    def _joined_at_once(self, value: int) -> int:
        """How many parts a thread asks for at once: they have to fit the registers."""
        nbytes = self.plan.vector * self.formula.fold_bytes(value)
        return max(min(MOST_PARTS, PART_BYTES // nbytes), 1)

    def leave_joined(self, value: int) -> None:
        """Write the columns' results where the first parts were."""
        self._write(value, "0")

    def read_joined(self, value: int) -> None:
        """The columns' results, which an earlier kernel left."""
        lines, name = self.lines, self.formula.values[value]
        lines.add(f"fold_{name}::type {name}[{self.plan.vector}];")
        lines.open("if (mine)")
        lines.loop(f"for (int e = 0; e < {self.plan.vector}; e++)")
        lines.add(f"{name}[e] = {self.part_value(value, self._part('0'))};")
        lines.close(2)

    def store_lines(self) -> None:
        """The first row of threads writes the columns' values."""
        formula, lines, vector = self.formula, self.lines, self.plan.vector
        places = [place for place, output in enumerate(formula.program.outputs)
                  if self.stages.level[output.value] <= LINE]
        if not places:
            return
        if not self.stages.fold_values:
            lines.add("__syncthreads();")
        first = " && chunk == 0" if self.split and not self.joins else ""
        lines.open(f"if (mine && threadIdx.y == 0{first})")
        for place in places:
            name = formula.pointers[place]
            value = formula.program.outputs[place].value
            lines.add(f"{self.vector_type(place)} {name}_ones = {{}};")
            lines.loop(f"for (int e = 0; e < {vector}; e++)")
            lines.add(f"{name}_ones.set(e, {formula.narrowed(place, self.names[value])});")
            lines.close()
            if self.plan.kinds[place] == VECTOR:
                lines.add(f"slip_write({name}_column, {name}_ones, {vector}, fits);")
            else:
                lines.add(f"slip_scatter({name}_column, {name}_ones, {vector}, "
                          f"{self.step_of(place)});")
        lines.close()


__all__ = ["ONCE", "REPEAT", "STEP", "ColumnWriter"]

"""Row kernels: a block (or a part of a warp, for short rows) reduces rows, and maps them.

A row's elements are numbered; a thread takes vectors of neighbours.  It keeps its vectors in
registers through all stages where they are few enough, else in shared memory, else it reads the
row again in every stage; long rows are taken in batches of vectors that are all asked for before
the first one is used.
Where rows are few and long they are split between blocks; where they are short the same threads
take several at once.
"""

from __future__ import annotations

from slipstream.core.kernels.cuda import access
from slipstream.core.kernels.cuda.access import ONCE
from slipstream.core.kernels.cuda.shelves import ShelfWriter
from slipstream.core.kernels.cuda.stages import LINE, PLACES


class RowWriter(ShelfWriter):
    """Writes a row kernel."""

    def body(self) -> None:
        """The thread's row, or several at once: then all are asked for before one is used."""
        lines, plan = self.lines, self.plan
        turns = plan.turns
        # A row that takes several batches has all threads of the block.
        lanes = plan.threads if plan.again else "blockDim.x"
        if plan.cluster > 1:
            lines.add(f"const int lane = slip_rank() * {lanes} + threadIdx.x, "
                      f"lanes = {lanes * plan.cluster};", "int turn = 0;")
        else:
            lines.add(f"const int lane = threadIdx.x, lanes = {lanes};")
        if self.shelf:
            self.walk_rows()
            return
        self._declare_kept()
        if turns == 1:
            self.start()
            self.line_inputs()
            self._keep_inputs()
            self.reduce()
            return
        lines.loop(f"for (int r = 0; r < {turns}; r++)")
        self.start()
        self._keep_inputs()
        lines.close()
        lines.loop(f"for (int r = 0; r < {turns}; r++)")
        self.start()
        self.line_inputs()
        self.reduce()
        lines.close()

    def add_coordinates(self) -> None:
        """The coordinates of a vector in its row, where they are needed."""
        plan = self.plan
        if plan.inner:
            self.lines.add(*access.coordinates("at", plan.inner, f"at * {plan.vector}", plan.wide))

    def start(self) -> None:
        """The row, and where its operands are."""
        lines, plan = self.lines, self.plan
        group = "blockIdx.x" if plan.turns == 1 else f"(blockIdx.x * {plan.turns} + r)"
        kind = self.count_type()
        if self.split:
            lines.add("const int64_t row = blockIdx.x;", "const bool mine = true;",
                      f"const uint32_t chunk = {self.chunk()};",
                      f"const {kind} begin = ({kind})(chunk * tail.span);",
                      f"const {kind} end = ({kind})slip_least(begin + tail.span, tail.vectors);")
        elif plan.exact:
            lines.add(f"const int64_t row = (int64_t){group} * blockDim.y + threadIdx.y;",
                      f"const {kind} begin = 0, end = ({kind})tail.vectors;",
                      "const bool mine = true;")
        else:
            lines.add(f"const int64_t own = (int64_t){group} * blockDim.y + threadIdx.y;",
                      "const bool mine = own < tail.rows;",
                      "const int64_t row = mine ? own : 0;",
                      f"const {kind} begin = 0, end = mine ? ({kind})tail.vectors : 0;")
        self.add_pointers()
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

    def _declare_kept(self) -> None:
        """The vectors of the inputs that are kept for all stages."""
        turns = f"[{self.plan.turns}]" if self.plan.turns > 1 else ""
        for value in self.inputs_kept():
            place = self.formula.outputs + value
            self.lines.add(f"{self.vector_type(place)} {self.formula.pointers[place]}_held{turns}"
                           f"[{self.plan.batch}];")

    def _keep_inputs(self) -> None:
        """Load them."""
        kept = self.inputs_kept()
        if not kept:
            return
        lines = self.lines
        if not self.plan.exact:
            # Past the end the last vector is read once more, and not used.
            lines.open("if (end > 0)")
        lines.loop(f"for (int k = 0; k < {self.plan.batch}; k++)")
        at = "lane + k * lanes"
        lines.add(f"const int at = {at};" if self.plan.exact
                  else f"const int at = {at} < end ? {at} : end - 1;")
        self.add_coordinates()
        for value in kept:
            read = self.read(self.formula.outputs + value).replace("slip_opaque(fits)", "fits")
            lines.add(f"{self.held_name(value)} = {read};")
        lines.close(1 if self.plan.exact else 2)

    def open_batches(self) -> int:
        """Open the loop over the thread's batches."""
        if not self.plan.again:
            return 0
        self.open_walk("begin + lane", "lanes")
        return 1

    def open_vectors(self) -> int:
        """Open the loop over the vectors of a batch."""
        lines, plan = self.lines, self.plan
        opened = 1
        lines.loop(f"for (int k = 0; k < {plan.batch}; k++)")
        lines.add(f"const {self.count_type()} at = first + k * lanes;" if plan.again
                  else "const int at = lane + k * lanes;")
        if self.checks:
            lines.open("if (at < end)")
            opened = 2
        self.add_coordinates()
        return opened

    def place_of(self, operand: int) -> str:
        """Where the vector of an operand lies, seen from its row."""
        plan = self.plan
        if plan.kinds[operand] == access.FLAT:
            return f"(int64_t)at * {plan.vector}"
        return f"({access.offset('at', plan.inner, operand, plan.wide, plan.outer)})"

    def step_of(self, place: int) -> str:
        """The word of an operand's step along its vectors."""
        return f"tail.step{place}s[{self.plan.outer + self.plan.inner - 1}]"

    def mark(self) -> str:
        """The number of the vector in the row."""
        return "at"

    def index(self, mark: str) -> str:
        """The number of element e of a vector in the row."""
        return f"(int64_t){mark} * {self.plan.vector} + e"

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
        lines.add(f"fold_{name}::type {name}_part[{self.places_of(value)}];")
        if self.is_settled(value):
            self.declare_walked(value)
            return
        if self.starts(value):
            return
        lines.loop(f"for (int e = 0; e < {vector}; e++)")
        lines.add(f"{name}_part[e] = fold_{name}::identity();")
        lines.close()

    def by_vectors(self, value: int) -> bool:
        """Whether a reduction looks for the place of an extreme among an input's vectors."""
        stages, source = self.stages, self.stages.sources(value)[0]
        # A joined kernel's source may be a number, that of a fill.
        return (stages.step(value).primitive in PLACES and self.plan.vector > 1
                and source < len(self.formula.program.inputs) and source not in self.once()
                and self.formula.program.class_of(source) == stages.step(value).cls)

    def places_of(self, value: int) -> int:
        """How many accumulators of a reduction a thread has."""
        return 1 if self.by_vectors(value) else self.plan.vector

    def _joined_lanes(self, value: int) -> str:
        name = self.formula.values[value]
        return f"slip_fold_lanes<fold_{name}, {self.places_of(value)}>({name}_part)"

    def _result(self, value: int, found: str) -> None:
        name = self.formula.values[value]
        kind = self.formula.type_of(value)
        warps, cluster = self.plan.warps, self.plan.cluster
        fold = f"slip_fold_row<fold_{name}, {warps}>({found}, lane, lanes)"
        if cluster > 1:
            fold = f"slip_fold_cluster<fold_{name}, {warps}, {cluster}>({found}, lane, lanes, turn)"
        self.lines.add(f"const {kind} {name} = {fold}{self.stages.member(value)};")

    def finish_fold(self, value: int) -> None:
        """Every thread gets the row's result."""
        self._result(value, self._joined_lanes(value))

    def leave_part(self, value: int) -> None:
        """Write the block's result to scratch memory."""
        lines, name = self.lines, self.formula.values[value]
        lines.add(f"const fold_{name}::type {name}_all = slip_fold_row<fold_{name}, "
                  f"{self.plan.warps}>({self._joined_lanes(value)}, lane, lanes);")
        lines.open("if (lane == 0)")
        self.write_part(value, "row * tail.chunks + chunk", f"{name}_all")
        lines.close()

    def open_join(self) -> None:
        """The block that comes last of those that share the row goes on."""
        self.lines.open("if (slip_is_last(tickets + row, (uint32_t)tail.chunks))")

    def join_parts(self, value: int) -> None:
        """Join the results of the blocks that shared the row, in order."""
        lines, name = self.lines, self.formula.values[value]
        lines.add(f"fold_{name}::type {name}_joined = fold_{name}::identity();")
        lines.loop("for (int64_t c = lane; c < tail.chunks; c += lanes)", "#pragma unroll 8")
        part = self.part_value(value, "row * tail.chunks + c")
        lines.add(f"{name}_joined = fold_{name}::join({name}_joined, {part});")
        lines.close()
        if self.ends:
            self._result(value, f"{name}_joined")

    def leave_joined(self, value: int) -> None:
        """Write the row's result where the first part was."""
        lines, name = self.lines, self.formula.values[value]
        lines.add(f"{name}_joined = slip_fold_row<fold_{name}, {self.plan.warps}>"
                  f"({name}_joined, lane, lanes);")
        lines.open("if (lane == 0)")
        self.write_part(value, "row * tail.chunks", f"{name}_joined")
        lines.close()

    def read_joined(self, value: int) -> None:
        """The row's result, which an earlier kernel left."""
        kind, name = self.formula.type_of(value), self.formula.values[value]
        part = self.part_value(value, "row * tail.chunks")
        self.lines.add(f"const {kind} {name} = ({part})"
                       f"{self.stages.member(value)};")

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
        first = " && chunk == 0" if self.split and not self.joins else ""
        lines.open(f"if (mine && lane == 0{first})")
        for place in places:
            value = formula.program.outputs[place].value
            stored = formula.narrowed(place, self.names[value])
            lines.add(f"{formula.pointers[place]}_row[0] = {stored};")
        lines.close()


__all__ = ["ONCE", "RowWriter"]

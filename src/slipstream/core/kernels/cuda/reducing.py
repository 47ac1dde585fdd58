"""What row and column kernels have in common: the stages, one after the other.

A writer prints a whole program as one kernel, or (split) one kernel for each stage that reduces,
and one more where a full output follows.  The blocks of a split kernel share rows between them
and leave what they found of a reduction in scratch memory.  They count themselves on the row's
ticket: the last one joins all parts in order and goes on from there.
"""

from __future__ import annotations

from slipstream.core.kernels.cuda import access
from slipstream.core.kernels.cuda.access import FLAT, REPEAT, STEP, VECTOR
from slipstream.core.kernels.cuda.parts import PartWriter
from slipstream.core.kernels.cuda.stages import EACH, PLACES
from slipstream.core.kernels.cuda.turns import Turn
from slipstream.core.launch.cuda.launches import ROWS


class ReduceWriter(PartWriter):
    """Writes the kernel of a plan; the subclasses know where rows and columns lie."""

    # What follows a pointer's name where it points to the thread's row or column.
    suffix = ""
    fusion = ROWS

    # ---- what the subclasses print ----

    def start(self) -> None:
        """Which row or column is the thread's, and where its operands are."""
        raise NotImplementedError

    def declare_line_input(self, value: int) -> None:
        """Load an input that is one value a row."""
        raise NotImplementedError

    def open_batches(self) -> int:
        """Open the loop over batches of vectors; how many blocks were opened."""
        raise NotImplementedError

    def open_vectors(self) -> int:
        """Open the loop over the vectors of a batch; how many blocks were opened."""
        raise NotImplementedError

    def place_of(self, operand: int) -> str:
        """Where the vector of an operand lies, seen from its row."""
        raise NotImplementedError

    def add_line_step(self, value: int) -> None:
        """Compute a row value."""
        raise NotImplementedError

    def declare_fold(self, value: int) -> None:
        """The accumulators of a reduction."""
        raise NotImplementedError

    def finish_fold(self, value: int) -> None:
        """Join what the threads found of a reduction."""
        raise NotImplementedError

    def leave_part(self, value: int) -> None:
        """Write what a block found of a reduction to scratch memory."""
        raise NotImplementedError

    def open_join(self) -> None:
        """Open what the last block of a row does."""
        raise NotImplementedError

    def join_parts(self, value: int) -> None:
        """Join what the blocks of this kernel found."""
        raise NotImplementedError

    def leave_joined(self, value: int) -> None:
        """Write the joined result to scratch memory, in the place of the first part."""
        raise NotImplementedError

    def read_joined(self, value: int) -> None:
        """The result that an earlier kernel left."""
        raise NotImplementedError

    def store_lines(self) -> None:
        """Write the outputs that are one value a row."""
        raise NotImplementedError

    # ---- the kernel ----

    def text(self) -> str:
        """The source."""
        formula, lines = self.formula, self.lines
        # Told of one block, the compiler would take more registers than if told of none.
        least = f", {self.plan.least}" if self.plan.least > 1 else ""
        bounds = f"{self.plan.threads}{least}"
        lines.open(f'extern "C" __global__ void __launch_bounds__({bounds})\n'
                   f"{formula.name}({formula.parameters(self.part_parameters())})")
        formula.add_uniform(lines)
        self.body()
        lines.close()
        return access.struct_text(self.words) + formula.folds_text() + "\n" + lines.text()

    def body(self) -> None:
        """The row or column from its operands to its results."""
        self.start()
        self.line_inputs()
        self.reduce()

    def reduce(self) -> None:
        """All stages."""
        formula, lines = self.formula, self.lines
        for value in sorted(self.kept):
            lines.add(f"{formula.type_of(value)} {formula.values[value]}_kept"
                      f"[{self.plan.batch}][{self.plan.vector}];")
        if self.split:
            self._earlier()
        for stage in range(self.first, self.last + 1):
            self._stage(stage)
        if self.joins:
            self._join()
        elif self.ends:
            self.store_lines()

    def _join(self) -> None:
        """The last block joins the parts, and goes on as far as it can."""
        stage = self.plan.stage
        self.open_join()
        for value in self.stages.folds[stage]:
            self.join_parts(value)
        if self.ends:
            self._line_steps(stage + 1)
            self.store_lines()
        else:
            for value in self.stages.folds[stage]:
                self.leave_joined(value)
        self.lines.close()

    def fits_checks(self) -> str:
        """Whether all operands that are accessed in whole vectors are aligned for it."""
        formula, plan = self.formula, self.plan
        checks = [f"slip_aligned<{formula.stored(place)}>({name}, "
                  f"{formula.dtypes[place].itemsize * plan.vector})"
                  for place, name in enumerate(formula.pointers)
                  if plan.kinds[place] in (FLAT, VECTOR) and plan.vector > 1]
        return " && ".join(checks) or "true"

    def whole(self) -> str:
        """The condition of a whole access; long loops are better copied than tested inside."""
        return "fits" if self.plan.again else "slip_opaque(fits)"

    def vector_type(self, place: int) -> str:
        """The type of a vector of an operand."""
        return f"slip_vector<{self.formula.stored(place)}, {self.plan.vector}>"

    def line_inputs(self) -> None:
        """Load the inputs that are one value a row."""
        used = set(self.line_values)
        for stage in range(self.first, self.last + 1):
            used |= set(self.stages.full_values(stage))
        for value in self.once():
            if value in used:
                self.declare_line_input(value)

    def _earlier(self) -> None:
        """The results of earlier stages, from scratch memory."""
        for value in self.joined_values():
            self.read_joined(value)
        for stage in range(self.plan.stage):
            self._line_steps(stage)

    def _line_steps(self, stage: int) -> None:
        """The row values that can be had from a stage on."""
        for value in self.line_values:
            known = not self.stages.is_step(value) or self.stages.is_fold(value)
            if self.stages.ready[value] == stage and not known:
                self.add_line_step(value)

    def _stage(self, stage: int) -> None:
        stages, lines = self.stages, self.lines
        self._line_steps(stage)
        values = stages.full_values(stage, self.held)
        folds = stages.folds[stage]
        if not values and not folds:
            return
        what = ", ".join(stages.step(value).primitive for value in folds)
        lines.add(f"// Stage {stage}: {what or 'outputs'}.")
        self.declare_divisors(values)
        for value in folds:
            self.declare_fold(value)
        inputs = [value for value in values if not stages.is_step(value)
                  and value not in self.once()]
        leaving = [value for value in self.shelf if value in values and stage == max(
            [each for each in range(stages.last + 1) if value in stages.full_values(each)])]
        passes = self.passes()
        if len(passes) > 1:
            lines.open("")
        for full in passes:
            self.checks = not full
            opened = batches = self.open_batches()
            self.read_batch([value for value in inputs if self.is_batched(value)])
            opened += self.open_vectors()
            self._reads([value for value in inputs if not self.is_batched(value)])
            self._elements(stage, values)
            if leaving:
                lines.close(opened - batches)
                opened = batches + self.open_vectors()
                self.fill_shelf(leaving, "more")
            lines.close(opened)
        lines.close(len(passes) - 1)
        self.held |= self.kept & set(values)
        for value in folds:
            if stages.step(value).primitive in PLACES:
                self.settle_places(value)
            if self.split:
                self.leave_part(value)
            else:
                self.finish_fold(value)

    def passes(self) -> list[bool]:
        """The loops of a stage, and whether all batches of each are full.

        What full batches leave over is one more batch, each vector of which is checked.
        """
        return [True, False] if self.plan.again and not self.plan.exact else [self.plan.exact]

    def open_walk(self, first: str, step: str) -> None:
        """Open one of those loops over batches: from ``first`` on, neighbours ``step`` apart."""
        lines, batch = self.lines, self.plan.batch
        turn = f"first += {step} * {batch}"
        if self.plan.exact:
            lines.loop(f"for ({self.count_type()} first = {first}; first < end; {turn})",
                       "#pragma unroll 1")
        elif self.checks:
            lines.open("if (first < end)")
        else:
            lines.add(f"{self.count_type()} first = {first};")
            lines.loop(f"for (; first + {step} * {batch - 1} < end; {turn})", "#pragma unroll 1")

    def count_type(self) -> str:
        """The type that counts the vectors of a row or the elements down a column."""
        return "int64_t" if self.plan.wide else "int"

    def _reads(self, values: list[int]) -> None:
        """The vectors of inputs that are not kept."""
        for value in values:
            if value in self.inputs_kept():
                continue
            place = self.formula.outputs + value
            self.lines.add(f"const {self.vector_type(place)} {self.formula.pointers[place]}_held = "
                           f"{self.read(place)};")

    def read_batch(self, values: list[int]) -> None:
        """Ask for the vectors of inputs for a whole batch."""
        if not values:
            return
        lines, formula = self.lines, self.formula
        places = [formula.outputs + value for value in values]
        for place in places:
            lines.add(f"{self.vector_type(place)} {formula.pointers[place]}_held"
                      f"[{self.plan.batch}];")
        opened = self.open_vectors()
        for value, place in zip(values, places, strict=True):
            read = self.read_shelf(place) if value in self.shelf else self.read(place)
            lines.add(f"{self.held_name(value)} = {read};")
        lines.close(opened)

    def read_shelf(self, place: int) -> str:
        """The vector of an operand in shared memory."""
        formula, vector = self.formula, self.plan.vector
        return (f"slip_read<{formula.stored(place)}, {vector}>("
                f"{formula.pointers[place]}_shelf + at * {vector}, {vector}, true)")

    def fill_shelf(self, values: list[int], asked: str) -> None:
        """Have the vectors of the row that comes next put where this row's were, if ``asked``.

        A thread reads what it put there, and nobody else does.
        """
        formula, vector = self.formula, self.plan.vector
        for value in values:
            place = formula.outputs + value
            name, kind = formula.pointers[place], self.plan.kinds[place]
            shelf = f"{name}_shelf + at * {vector}"
            if kind in (FLAT, VECTOR):
                self.lines.add(f"if ({asked}) slip_copy_ahead<{formula.stored(place)}, {vector}>("
                               f"{shelf}, {name}_next + {self.place_of(place)}, fits);")
            else:
                read = self.read(place, "_next")
                self.lines.add(f"if ({asked}) slip_write({shelf}, {read}, {vector}, true);")

    def passes(self) -> list[bool]:
        """The loops of a stage, and whether all batches of each are full.

        What full batches leave over is one more batch, each vector of which is checked.
        """
        return [True, False] if self.plan.again and not self.plan.exact else [self.plan.exact]

    def open_walk(self, first: str, step: str) -> None:
        """Open one of those loops over batches: from ``first`` on, neighbours ``step`` apart."""
        lines, batch = self.lines, self.plan.batch
        turn = f"first += {step} * {batch}"
        if self.plan.exact:
            lines.loop(f"for ({self.count_type()} first = {first}; first < end; {turn})",
                       "#pragma unroll 1")
        elif self.checks:
            lines.open("if (first < end)")
        else:
            lines.add(f"{self.count_type()} first = {first};")
            lines.loop(f"for (; first + {step} * {batch - 1} < end; {turn})", "#pragma unroll 1")

    def count_type(self) -> str:
        """The type that counts the vectors of a row or the elements down a column."""
        return "int64_t" if self.plan.wide else "int"

    def _reads(self, values: list[int]) -> None:
        """The vectors of inputs that are not kept."""
        for value in values:
            if value in self.inputs_kept():
                continue
            place = self.formula.outputs + value
            self.lines.add(f"const {self.vector_type(place)} {self.formula.pointers[place]}_held = "
                           f"{self.read(place)};")

    def read_batch(self, values: list[int]) -> None:
        """Ask for the vectors of inputs for a whole batch."""
        if not values:
            return
        lines, formula = self.lines, self.formula
        places = [formula.outputs + value for value in values]
        for place in places:
            lines.add(f"{self.vector_type(place)} {formula.pointers[place]}_held"
                      f"[{self.plan.batch}];")
        opened = self.open_vectors()
        for value, place in zip(values, places, strict=True):
            read = self.read_shelf(place) if value in self.shelf else self.read(place)
            lines.add(f"{self.held_name(value)} = {read};")
        lines.close(opened)

    def read_shelf(self, place: int) -> str:
        """The vector of an operand in shared memory."""
        formula, vector = self.formula, self.plan.vector
        return (f"slip_read<{formula.stored(place)}, {vector}>("
                f"{formula.pointers[place]}_shelf + at * {vector}, {vector}, true)")

    def keep_on_shelf(self, values: list[int]) -> None:
        """Put vectors where later stages find them; every thread reads what it wrote."""
        for value in values:
            name, vector = self.formula.pointers[self.formula.outputs + value], self.plan.vector
            self.lines.add(f"slip_write({name}_shelf + at * {vector}, "
                           f"{self.held_name(value)}, {vector}, true);")

    def read(self, place: int, suffix: str = "") -> str:
        """The vector of an operand in memory, from the thread's row or another pointer on."""
        formula, plan = self.formula, self.plan
        types = f"{formula.stored(place)}, {plan.vector}"
        where = f"{formula.pointers[place]}{suffix or self.suffix} + {self.place_of(place)}"
        kind = plan.kinds[place]
        if kind in (FLAT, VECTOR):
            return f"slip_read<{types}>({where}, {plan.vector}, {self.whole()})"
        if kind == REPEAT:
            return f"slip_repeat<{types}>({where}, {plan.vector})"
        assert kind == STEP
        return f"slip_gather<{types}>({where}, {plan.vector}, {self.step_of(place)})"

    def step_of(self, place: int) -> str:
        """The word of an operand's step along its vectors."""
        raise NotImplementedError

    def write(self, place: int) -> str:
        """The line that writes the vector of an output."""
        formula, plan = self.formula, self.plan
        name = formula.pointers[place]
        where = f"{name}{self.suffix} + {self.place_of(place)}"
        if plan.kinds[place] in (FLAT, VECTOR):
            return f"slip_write({where}, {name}_held, {plan.vector}, {self.whole()});"
        return f"slip_scatter({where}, {name}_held, {plan.vector}, {self.step_of(place)});"

    def _elements(self, stage: int, values: list[int]) -> None:
        formula, lines, stages = self.formula, self.lines, self.stages
        outputs = []
        if stage == stages.last:
            outputs = [place for place, output in enumerate(formula.program.outputs)
                       if stages.level[output.value] == EACH]
        for place in outputs:
            lines.add(f"{self.vector_type(place)} {formula.pointers[place]}_held = {{}};")
        turn = Turn(self, values)
        turn.add_all()
        for value in stages.folds[stage]:
            turn.recall(stages.sources(value)[0])
            self.join(value)
        for place in outputs:
            value = formula.program.outputs[place].value
            turn.recall(value)
            stored = formula.narrowed(place, self.names[value])
            lines.add(f"{formula.pointers[place]}_held.set(e, {stored});")
        lines.close()
        for place in outputs:
            lines.add(self.write(place))

"""What row and column kernels have in common: the stages, one after the other.

A writer prints a whole program as one kernel, or (split) one kernel for each stage: the blocks of
such a kernel share rows between them, and leave what they found of a reduction in scratch memory
(``part7`` for value 7), where every block of the next stage's kernel joins it again in order.
"""

from __future__ import annotations

from slipstream.core.fuse.classes import C_TYPES
from slipstream.core.kernels.cuda import access
from slipstream.core.kernels.cuda.access import FLAT, REPEAT, STEP, VECTOR
from slipstream.core.kernels.cuda.stages import EACH, PLACES
from slipstream.core.kernels.cuda.turns import ElementWriter, Turn


class ReduceWriter(ElementWriter):
    """Writes the kernel of a plan; the subclasses know where rows and columns lie."""

    # What follows a pointer's name where it points to the thread's row or column.
    suffix = ""

    # ---- what the subclasses print ----

    def start(self) -> None:
        """Which row or column is the thread's, and where its operands are."""
        raise NotImplementedError

    def declare_line_input(self, value: int) -> None:
        """Load an input that is one value a row."""
        raise NotImplementedError

    def open_elements(self) -> int:
        """Open the loop over vectors of a stage; how many blocks were opened."""
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

    def join_parts(self, value: int) -> None:
        """Join what the blocks of an earlier kernel found."""
        raise NotImplementedError

    def store_lines(self) -> None:
        """Write the outputs that are one value a row."""
        raise NotImplementedError

    # ---- the kernel ----

    def text(self) -> str:
        """The source."""
        formula, lines = self.formula, self.lines
        lines.open(f'extern "C" __global__ void __launch_bounds__({self.plan.threads})\n'
                   f"{formula.name}({formula.parameters(self.part_parameters())})")
        formula.add_uniform(lines)
        self.start()
        self._line_inputs()
        self.keep_inputs()
        for value in sorted(self.kept):
            lines.add(f"{formula.type_of(value)} {formula.values[value]}_kept"
                      f"[{self.plan.keep}][{self.plan.vector}];")
        if self.split:
            self._earlier()
        for stage in range(self.first, self.last + 1):
            self._stage(stage)
        if self.last == self.stages.last:
            self.store_lines()
        lines.close()
        return access.struct_text(self.words) + formula.folds_text() + "\n" + lines.text()

    def keep_inputs(self) -> None:
        """Load the vectors that are kept for all stages; none where rows are read again."""

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
        return "slip_opaque(fits)" if self.plan.keep else "fits"

    def vector_type(self, place: int) -> str:
        """The type of a vector of an operand."""
        return f"slip_vector<{self.formula.stored(place)}, {self.plan.vector}>"

    def part_parameters(self) -> list[str]:
        """The pointers to scratch memory, in the order of `parts`."""
        return [("" if value in self._left() else "const ") + f"{kind}* {name}"
                for value, kind, name in self.parts()]

    def parts(self) -> list[tuple[int, str, str]]:
        """(value, C type, name) of each array in scratch memory that the kernel uses."""
        if not self.split:
            return []
        found = []
        for value in sorted({*self._joined(), *self._left()}):
            step = self.stages.step(value)
            kind = "uint8_t" if step.cls == "b1" else C_TYPES[step.cls]
            found.append((value, kind, f"part{value}"))
            if step.primitive in PLACES:
                found.append((value, "int64_t", f"spot{value}"))
        return found

    def _left(self) -> list[int]:
        """Reductions whose parts a split kernel writes."""
        return self.stages.folds[self.plan.stage] if self.split else []

    def _joined(self) -> list[int]:
        """Reductions whose parts a split kernel reads."""
        return [value for value in self.line_values if self.stages.is_fold(value)]

    def part_value(self, value: int, where: str) -> str:
        """A part in scratch memory as a reduction's type."""
        step = self.stages.step(value)
        if step.primitive in PLACES:
            kind = C_TYPES[step.cls]
            return f"slip_make_place<{kind}>(part{value}[{where}], spot{value}[{where}])"
        return f"part{value}[{where}] != 0" if step.cls == "b1" else f"part{value}[{where}]"

    def write_part(self, value: int, where: str, found: str) -> None:
        """Write a reduction's value to scratch memory."""
        if self.stages.step(value).primitive in PLACES:
            self.lines.add(f"part{value}[{where}] = {found}.value;",
                           f"spot{value}[{where}] = {found}.index;")
        else:
            self.lines.add(f"part{value}[{where}] = {found};")

    def _line_inputs(self) -> None:
        used = set(self.line_values)
        for stage in range(self.first, self.last + 1):
            used |= set(self.stages.full_values(stage))
        for value in self.once():
            if value in used:
                self.declare_line_input(value)

    def _earlier(self) -> None:
        """The results of earlier stages, from scratch memory."""
        for value in self._joined():
            self.join_parts(value)
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
        opened = self.open_elements()
        self._reads(values)
        self._elements(stage, values)
        lines.close(opened)
        self.held |= self.kept & set(values)
        for value in folds:
            if self.split:
                self.leave_part(value)
            else:
                self.finish_fold(value)

    def _reads(self, values: list[int]) -> None:
        """The vectors of inputs that are not kept."""
        absent = {*self.inputs_kept(), *self.once()}
        for value in values:
            if self.stages.is_step(value) or value in absent:
                continue
            place = self.formula.outputs + value
            self.lines.add(f"const {self.vector_type(place)} {self.formula.pointers[place]}_held = "
                           f"{self.read(place)};")

    def read(self, place: int) -> str:
        """The vector of an operand in memory."""
        formula, plan = self.formula, self.plan
        types = f"{formula.stored(place)}, {plan.vector}"
        where = f"{formula.pointers[place]}{self.suffix} + {self.place_of(place)}"
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

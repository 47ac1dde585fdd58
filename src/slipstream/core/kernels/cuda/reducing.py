"""What row and column kernels have in common: the stages, one after the other.

A writer prints a whole program as one kernel, or (split) one kernel for each stage that reduces,
and one more where a full output follows.  The blocks of a split kernel share rows between them
and leave what they found of a reduction in scratch memory.  They count themselves on the row's
ticket: the last one joins all parts in order and goes on from there.
"""

from __future__ import annotations

from slipstream.core.kernels.cuda import access
from slipstream.core.kernels.cuda.batches import BatchWriter
from slipstream.core.kernels.cuda.clusters import CLUSTERS
from slipstream.core.kernels.cuda.stages import EACH
from slipstream.core.kernels.cuda.turns import Turn
from slipstream.core.launch.cuda.launches import ROWS


class ReduceWriter(BatchWriter):
    """Writes the kernel of a plan; the subclasses know where rows and columns lie."""

    fusion = ROWS

    # ---- what the subclasses print ----

    def start(self) -> None:
        """Which row or column is the thread's, and where its operands are."""
        raise NotImplementedError

    def declare_line_input(self, value: int) -> None:
        """Load an input that is one value a row."""
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

    def early(self) -> list[int]:
        """The inputs of the last stage that are asked for before what it waits for is known."""
        return []

    def ask_early(self) -> None:
        """Ask for the first vectors of those inputs."""

    # ---- the kernel ----

    def text(self) -> str:
        """The source."""
        formula, lines = self.formula, self.lines
        # Told of one block, the compiler would take more registers than if told of none.
        least = f", {self.plan.least}" if self.plan.least > 1 else ""
        bounds = f"{self.plan.threads}{least}"
        shared = self.plan.cluster > 1
        dims = f"__cluster_dims__({self.plan.cluster}, 1, 1) " if shared else ""
        start = f'extern "C" __global__ void {dims}__launch_bounds__({bounds})\n{formula.name}'
        parameters = formula.parameters(self.part_parameters())
        if self.twice():
            self._both(start, parameters)
        else:
            lines.open(f"{start}({parameters})")
            formula.add_uniform(lines)
            self.body()
            lines.close()
        head = access.struct_text(self.words) + (CLUSTERS if shared else "")
        return head + formula.folds_text(self.plan.wide) + "\n" + lines.text()

    def twice(self) -> bool:
        """Whether the body is there twice: where operands are aligned nothing asks for it.

        What a loop would ask for every vector takes registers, of which blocks on the shelf have
        none left.
        """
        return bool(self.shelf) and self.fits_checks() != "true"

    def _both(self, start: str, parameters: str) -> None:
        """The body for operands that are aligned and for others, and the kernel."""
        lines = self.lines
        lines.open("template <bool fits> static __device__ __forceinline__ void\n"
                   f"rows_of({parameters})")
        self.formula.add_uniform(lines)
        self.body()
        lines.close()
        lines.open(f"{start}({parameters})")
        names = ", ".join([each.rpartition(" ")[2] for each in parameters.split(", ")])
        lines.open(f"if ({self.fits_checks()})")
        lines.add(f"rows_of<true>({names});", "return;")
        lines.close()
        lines.add(f"rows_of<false>({names});")
        lines.close()

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
        early = self.early() if stage == stages.last else []
        self.taken = [*early, *self.shelf] if early else []
        passes = self.passes()
        if len(passes) > 1:
            lines.open("")
        for full in passes:
            self.checks = not full
            self.asked = [value for value in inputs if self.is_batched(value)]
            opened = batches = self.open_batches()
            self.read_batch(self.asked)
            for value in folds:
                self.open_batch(value)
            opened += self.open_vectors()
            self.read_each([value for value in inputs if not self.is_batched(value)])
            self._elements(stage, values)
            lines.close(opened - batches)
            if leaving:
                opened = self.open_vectors()
                self.fill_shelf(leaving, "more")
                lines.close(opened)
            for value in folds:
                self.close_batch(value)
            lines.close(batches)
        lines.close(len(passes) - 1)
        self.held |= self.kept & set(values)
        if stage == stages.last - 1:
            self.ask_early()
        for value in folds:
            if self.is_settled(value):
                self.settle(value)
            if self.split:
                self.leave_part(value)
            else:
                self.finish_fold(value)

    def keep_on_shelf(self, values: list[int]) -> None:
        """Put vectors where later stages find them; every thread reads what it wrote."""
        for value in values:
            name, vector = self.formula.pointers[self.formula.outputs + value], self.plan.vector
            self.lines.add(f"slip_write({name}_shelf + at * {vector}, "
                           f"{self.held_name(value)}, {vector}, true);")

    def _elements(self, stage: int, values: list[int]) -> None:
        formula, lines, stages = self.formula, self.lines, self.stages
        outputs = []
        if stage == stages.last:
            outputs = [place for place, output in enumerate(formula.program.outputs)
                       if stages.level[output.value] == EACH]
        for place in outputs:
            lines.add(f"{self.vector_type(place)} {formula.pointers[place]}_held = {{}};")
        for value in stages.folds[stage]:
            self.enter_vector(value)
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

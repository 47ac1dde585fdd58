"""Batches of vectors: how a reducing kernel walks along a row or column, reads and writes.

A thread asks for a whole batch before it uses the first vector.  Full batches are walked without a
check; what they leave over is one more batch, each vector of which is checked.  A row that is read
again may lie on the shelf, in shared memory: then the next row is on its way there already.
"""

from __future__ import annotations

from slipstream.core.kernels.cuda.access import FLAT, REPEAT, STEP, VECTOR
from slipstream.core.kernels.cuda.parts import PartWriter


class BatchWriter(PartWriter):
    """Writes the loops over vectors, and how they are read and written."""

    # What follows a pointer's name where it points to the thread's row or column.
    suffix = ""

    def open_batches(self) -> int:
        """Open the loop over batches of vectors; how many blocks were opened."""
        raise NotImplementedError

    def open_vectors(self) -> int:
        """Open the loop over the vectors of a batch; how many blocks were opened."""
        raise NotImplementedError

    def place_of(self, operand: int) -> str:
        """Where the vector of an operand lies, seen from its row."""
        raise NotImplementedError

    def step_of(self, place: int) -> str:
        """The word of an operand's step along its vectors."""
        raise NotImplementedError

    def fits_checks(self) -> str:
        """Whether all operands that are accessed in whole vectors are aligned for it."""
        formula, plan = self.formula, self.plan
        checks = [f"slip_aligned<{formula.stored(place)}>({name}, "
                  f"{formula.dtypes[place].itemsize * plan.vector})"
                  for place, name in enumerate(formula.pointers)
                  if plan.kinds[place] in (FLAT, VECTOR) and plan.vector > 1]
        return " && ".join(checks) or "true"

    def chunk(self) -> str:
        """The block's share of a row that blocks split between them.

        Every other kernel begins where the one before it ended: caches hold what was read last.
        """
        return "gridDim.y - 1 - blockIdx.y" if self.plan.stage % 2 else "blockIdx.y"

    def whole(self) -> str:
        """The condition of a whole access; long loops are better copied than tested inside."""
        return "fits" if self.plan.again else "slip_opaque(fits)"

    def vector_type(self, place: int) -> str:
        """The type of a vector of an operand."""
        return f"slip_vector<{self.formula.stored(place)}, {self.plan.vector}>"

    def fill_shelf(self, values: list[int], asked: str) -> None:
        """Have the vectors of the row that comes next put where this row's were, if ``asked``.

        A thread reads what it put there, and nobody else does.
        """
        formula, vector = self.formula, self.plan.vector
        for value in values:
            place = formula.outputs + value
            name, kind = formula.pointers[place], self.plan.kinds[place]
            shelf = f"{name}_shelf + {self.shelf_place()} * {vector}"
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

    def read_each(self, values: list[int]) -> None:
        """The vectors of inputs that are not kept."""
        for value in values:
            if value in self.inputs_kept():
                continue
            if value in self.taken:
                self.take(value)
                continue
            place = self.formula.outputs + value
            self.lines.add(f"const {self.vector_type(place)} {self.formula.pointers[place]}_held = "
                           f"{self.read(place)};")

    def take(self, value: int) -> None:
        """A vector that was asked for long before, or lies on the shelf."""
        raise NotImplementedError

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
                f"{formula.pointers[place]}_shelf + {self.shelf_place()} * {vector}, {vector}, "
                "true)")

    def shelf_place(self) -> str:
        """Which vector of its shelf a thread has for a vector of the row.

        The blocks of a cluster take turns along a row, and each has what is its own side by side.
        """
        cluster = self.plan.cluster
        return f"((at - lane) / {cluster} + (int)threadIdx.x)" if cluster > 1 else "at"

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

    def write(self, place: int) -> str:
        """The line that writes the vector of an output."""
        formula, plan = self.formula, self.plan
        name = formula.pointers[place]
        where = f"{name}{self.suffix} + {self.place_of(place)}"
        if plan.kinds[place] in (FLAT, VECTOR):
            return f"slip_write({where}, {name}_held, {plan.vector}, {self.whole()});"
        return f"slip_scatter({where}, {name}_held, {plan.vector}, {self.step_of(place)});"

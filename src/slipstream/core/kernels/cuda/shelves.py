"""Rows that wait in shared memory: blocks stay and take row after row.

While one row is computed the next one is on its way to where this one lies.  The blocks of a
cluster share a row, each with a part of it (`clusters`).
"""

from __future__ import annotations

from slipstream.core.kernels.cuda import access
from slipstream.core.kernels.cuda.access import ONCE
from slipstream.core.kernels.cuda.reducing import ReduceWriter


class ShelfWriter(ReduceWriter):
    """Writes how blocks walk from row to row."""

    suffix = "_row"

    def add_coordinates(self) -> None:
        """The coordinates of a vector in its row, where they are needed."""
        raise NotImplementedError

    def walk_rows(self) -> None:
        """Row after row: while one is computed the next one is on its way to shared memory."""
        lines, formula, plan = self.lines, self.formula, self.plan
        for value in self.shelf:
            place = formula.outputs + value
            kind, name = formula.stored(place), formula.pointers[place]
            lines.add(f"SLIP_POINTER({kind}) {name}_shelf = "
                      f"slip_cast<{kind}>(slip_dynamic_shared() + tail.shelf{value});",
                      f"const {kind}* {name}_next = {name};")
        if not self.twice():
            lines.add(f"const bool fits = {self.fits_checks()};")
        cluster = plan.cluster
        first, step = [f"{name}.x / {cluster}" if cluster > 1 else f"{name}.x"
                       for name in ("blockIdx", "gridDim")]
        self._go_to(first)
        kind = self.count_type()
        lines.loop(f"for ({kind} at = lane; at < ({kind})tail.vectors; at += lanes)",
                   "#pragma unroll 4")
        self.add_coordinates()
        self.fill_shelf(self.shelf, "true")
        lines.close()
        if cluster > 1:
            # Nobody writes to a block's shared memory before it has begun.
            lines.add("slip_meet();")
        lines.loop(f"for (int64_t row = {first}; row < tail.rows; row += {step})",
                   "#pragma unroll 1")
        lines.add(f"const bool mine = true, more = row + {step} < tail.rows;",
                  f"const {kind} begin = 0, end = ({kind})tail.vectors;")
        self._go_to(f"more ? row + {step} : row")
        self.add_pointers()
        lines.add("slip_copies_done();")
        self.line_inputs()
        self.reduce()
        if cluster > 1:
            lines.add("turn ^= 1;")
        elif len(self.stages.fold_values) < 2:
            # A thread that is ahead must not write to the next row's fold what others still read.
            lines.add("__syncthreads();")
        lines.close()

    def early(self) -> list[int]:
        """What all rows share and only the last stage needs, beside one operand on the shelf.

        It comes from far away: its first vectors are asked for before the threads wait for each
        other, and the next ones while they are used.
        """
        stages, outputs = self.stages, self.formula.outputs
        if len(self.shelf) != 1:
            return []
        before = [set(stages.full_values(stage)) for stage in range(stages.last)]
        return [value for value in stages.full_values(stages.last)
                if not stages.is_step(value) and self.kind(value) != ONCE
                and self.plan.shared[outputs + value]
                and not any(value in each for each in before)]

    def ask_early(self) -> None:
        """Ask for a thread's first vectors of those inputs."""
        early = self.early()
        if not early:
            return
        lines, batch = self.lines, self.plan.batch
        for value in early:
            place = self.formula.outputs + value
            lines.add(f"{self.vector_type(place)} {self.formula.pointers[place]}_ahead[{batch}];")
        lines.loop(f"for (int k = 0; k < {batch}; k++)")
        lines.add(f"const {self.count_type()} at = begin + lane + k * lanes;")
        lines.open("if (at < end)")
        self._ask(early)
        lines.close(2)

    def _ask(self, early: list[int]) -> None:
        """Ask for the vectors at a place."""
        self.add_coordinates()
        for value in early:
            place = self.formula.outputs + value
            self.lines.add(f"{self.formula.pointers[place]}_ahead[k] = {self.read(place)};")

    def take(self, value: int) -> None:
        """Take a vector from the shelf, or one that was asked for; after the last ask for more."""
        lines, place = self.lines, self.formula.outputs + value
        name = self.formula.pointers[place]
        found = self.read_shelf(place) if value in self.shelf else f"{name}_ahead[k]"
        lines.add(f"const {self.vector_type(place)} {name}_held = {found};")
        early = self.early()
        if value != early[-1] or self.checks:
            return
        kind = self.count_type()
        lines.add(f"const {kind} next = at + {self.plan.batch} * lanes;")
        lines.open("if (next < end)")
        lines.add(f"const {kind} at = next;")
        self._ask(early)
        lines.close()

    def _go_to(self, row: str) -> None:
        """Where the row lies that is put on the shelf."""
        lines, plan = self.lines, self.plan
        lines.open("")
        lines.add(f"const int64_t ahead = {row};")
        lines.add(*access.coordinates("row", plan.outer, "ahead", plan.wide))
        for value in self.shelf:
            place = self.formula.outputs + value
            name = self.formula.pointers[place]
            where = access.offset("row", plan.outer, place, wide=True)
            lines.add(f"{name}_next = {name} + ({where});")
        lines.close()

    def add_pointers(self) -> None:
        """Where the row's operands lie."""
        lines, plan, formula = self.lines, self.plan, self.formula
        lines.add(*access.coordinates("row", plan.outer, "row", plan.wide))
        for place, name in enumerate(formula.pointers):
            const = "" if place < formula.outputs else "const "
            where = access.offset("row", plan.outer, place, wide=True)
            lines.add(f"{const}{formula.stored(place)}* {name}_row = {name} + ({where});")

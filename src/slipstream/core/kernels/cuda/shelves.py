"""Rows that wait in shared memory: blocks stay and take row after row.

While one row is computed the next one is on its way to where this one lies.  The blocks of a
cluster share a row, each with a part of it (`clusters`).
"""

from __future__ import annotations

from slipstream.core.kernels.cuda import access
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

"""Narrow blocks: of a few columns, with many rows of threads in each warp.

Where an array is small no block has much to read, and what takes time is that one waits for the
other.  A narrow block has its columns to itself, so that nothing is left to be joined between
blocks; its warps join what they found in registers and meet once.
"""

from __future__ import annotations

from slipstream.core.kernels.cuda import access
from slipstream.core.kernels.cuda.columns import ColumnWriter
from slipstream.core.kernels.cuda.measures import WARP

_WARPS = r"""
// Over the rows of threads of a warp, WIDE threads a row: what they found of N columns a thread.
// Every warp leaves one value a column; `parts` has a line for each column.
template <class F, int N, int WIDE, int WARPS>
SLIP_DEVICE void slip_leave_warps(typename F::type (&x)[N], typename F::type* parts) {
    const int mine = (int)threadIdx.y * WIDE + (int)threadIdx.x, lane = mine % 32;
#pragma unroll
    for (int half = 16; half >= WIDE; half /= 2) {
#pragma unroll
        for (int e = 0; e < N; e++) x[e] = F::join(x[e], slip_moved(slip_across{half}, x[e]));
    }
    if (lane >= WIDE) return;
#pragma unroll
    for (int e = 0; e < N; e++) parts[(lane * N + e) * (WARPS + 1) + mine / 32] = x[e];
}
// A warp takes a column and leaves the result in the place of the first part.  Other reductions
// begin with other warps, from `first` on.
template <class F, int COLUMNS, int WIDE, int WARPS>
SLIP_DEVICE void slip_join_warps(typename F::type* parts, int first) {
    const int mine = (int)threadIdx.y * WIDE + (int)threadIdx.x, lane = mine % 32;
    for (int at = (mine / 32 + WARPS - first % WARPS) % WARPS; at < COLUMNS; at += WARPS) {
        typename F::type* const line = parts + at * (WARPS + 1);
        typename F::type x = lane < WARPS ? line[lane] : F::identity();
        x = slip_fold_warp<F>(x, WARPS);
        if (lane == 0) line[0] = x;
    }
}
"""


class NarrowWriter(ColumnWriter):
    """Writes a column kernel of narrow blocks."""

    # Whether the loop that is printed is that of aligned operands.
    aligned = False

    def text(self) -> str:
        """The source."""
        return _WARPS + super().text()

    def add_row(self) -> str:
        """Which of the batches is the block's, without a division where there is one."""
        if self.plan.outer:
            return super().add_row()
        self.lines.add("const int64_t row = 0;")
        return "blockIdx.x"

    def down(self) -> str:
        """How many rows of threads a block has."""
        return str(self.plan.threads // self.plan.narrow)

    def passes(self) -> list[bool]:
        """One loop for operands that are aligned, one for others.

        A thread has so few batches that all may be checked.
        """
        return [False, False]

    def open_batches(self) -> int:
        """Open the next of the two loops.

        A load that depends on a condition would keep the next one waiting, which writes the same
        registers: no load does, and all are on their way at once.
        """
        self.aligned = not self.aligned
        kind, turn = self.count_type(), int(self.down()) * self.plan.batch
        self.lines.open(f"if (mine && {'' if self.aligned else '!'}fits)")
        self.lines.loop(f"for ({kind} first = begin + (int)threadIdx.y; first < end; "
                        f"first += {turn})", "#pragma unroll 1")
        return 2

    def whole(self) -> str:
        """The condition of a whole access."""
        return "true" if self.aligned else "false"

    def read_batch(self, values: list[int]) -> None:
        """Ask for a whole batch; past the end the last vector is read once more, and not used."""
        lines, plan, formula = self.lines, self.plan, self.formula
        places = [formula.outputs + value for value in values]
        for place in places:
            lines.add(f"{self.vector_type(place)} {formula.pointers[place]}_held[{plan.batch}];")
        lines.loop(f"for (int k = 0; k < {plan.batch}; k++)")
        lines.add(f"const {self.count_type()} own = first + k * {self.down()}, "
                  "j = own < end ? own : end - 1;",
                  *access.coordinates("at", plan.inner, "j", plan.wide))
        for place in places:
            lines.add(f"{formula.pointers[place]}_held[k] = {self.read(place)};")
        lines.close()

    def finish_fold(self, value: int) -> None:
        """Warps leave what they found; with the last reduction of a stage all are joined."""
        lines, plan = self.lines, self.plan
        name, warps = self.formula.values[value], plan.threads // WARP
        columns = plan.narrow * plan.vector
        lines.add(f"__shared__ fold_{name}::type {name}_parts[{columns * (warps + 1)}];",
                  f"slip_leave_warps<fold_{name}, {plan.vector}, {plan.narrow}, {warps}>"
                  f"({name}, {name}_parts);")
        folds = self.stages.folds[self.stages.ready[value] - 1]
        if value == folds[-1]:
            self._join_warps(folds, columns, warps)

    def _join_warps(self, folds: list[int], columns: int, warps: int) -> None:
        """Every row of threads gets the results of some reductions."""
        lines, plan = self.lines, self.plan
        names = [self.formula.values[value] for value in folds]
        lines.add("__syncthreads();")
        for place, name in enumerate(names):
            lines.add(f"slip_join_warps<fold_{name}, {columns}, {plan.narrow}, {warps}>"
                      f"({name}_parts, {place * columns});")
        lines.add("__syncthreads();")
        lines.loop(f"for (int e = 0; e < {plan.vector}; e++)")
        for name in names:
            lines.add(f"{name}[e] = {name}_parts[((int)threadIdx.x * {plan.vector} + e) * "
                      f"{warps + 1}];")
        lines.close()

"""Parts: what the blocks that share a row or column leave of its reductions in scratch memory.

Value 7 has an array ``part7``, and ``spot7`` where it is the place of an extreme.
"""

from __future__ import annotations

from slipstream.core.fuse.classes import C_TYPES
from slipstream.core.kernels.cuda.briefs import BRIEF
from slipstream.core.kernels.cuda.stages import PLACES
from slipstream.core.kernels.cuda.turns import ElementWriter


class PartWriter(ElementWriter):
    """Writes how parts are passed, written and read."""

    def part_parameters(self) -> list[str]:
        """The pointers to scratch memory, in the order of `parts`, and to the tickets."""
        found = [("" if value in self.left_values() else "const ") + f"{kind}* {name}"
                 for value, kind, name in self.parts()]
        return [*found, "uint32_t* tickets"] if self.joins else found

    def parts(self) -> list[tuple[int, str, str]]:
        """(value, C type, name) of each array in scratch memory that the kernel uses."""
        if not self.split:
            return []
        found = []
        for value in sorted({*self.joined_values(), *self.left_values()}):
            step = self.stages.step(value)
            kind = "uint8_t" if step.cls == "b1" else C_TYPES[step.cls]
            if step.primitive in BRIEF:
                kind = self.formula.fold_type(value)
            found.append((value, kind, f"part{value}"))
            if step.primitive in PLACES:
                found.append((value, "int64_t", f"spot{value}"))
        return found

    def left_values(self) -> list[int]:
        """Reductions whose parts a split kernel writes."""
        return self.stages.folds[self.plan.stage] if self.split else []

    def joined_values(self) -> list[int]:
        """Reductions of earlier kernels that a split kernel needs."""
        return [value for value in self.line_values
                if self.stages.is_fold(value) and self.stages.ready[value] <= self.plan.stage]

    def part_value(self, value: int, where: str) -> str:
        """A part in scratch memory as a reduction's type."""
        step = self.stages.step(value)
        if step.primitive in PLACES:
            return (f"fold_{self.formula.values[value]}::place(slip_fresh(part{value}, {where}), "
                    f"slip_fresh(spot{value}, {where}))")
        fresh = f"slip_fresh(part{value}, {where})"
        return f"{fresh} != 0" if step.cls == "b1" else fresh

    def write_part(self, value: int, where: str, found: str) -> None:
        """Write a reduction's value to scratch memory."""
        if self.stages.step(value).primitive in PLACES:
            self.lines.add(f"part{value}[{where}] = {found}.value;",
                           f"spot{value}[{where}] = {found}.index;")
        else:
            self.lines.add(f"part{value}[{where}] = {found};")

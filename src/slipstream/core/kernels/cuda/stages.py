"""Stages of a program: what must be known of whole rows before what.

A reduction of values that need no other reduction is done in stage 0; one whose operand needs
the results of stage s is done in stage s + 1; the last stage writes the outputs.  Full values are
computed anew in every stage that needs them, from inputs that are kept or read again; so a full
output is written in the last stage only, after everybody has read what may be its own memory.
"""

from __future__ import annotations

from collections.abc import Container

from slipstream.core.fuse.primitives import PRIMITIVES
from slipstream.core.kernels.cuda.briefs import BRIEF
from slipstream.core.vocab.programs import ROW, Program, Step

# Levels: the same in the whole domain; one value a row; one an element.
UNIFORM, LINE, EACH = 0, 1, 2
# Primitives cheap enough to be computed again in every stage that needs them.
CHEAP = frozenset(
    "add sub mul neg abs maximum minimum where cast eq ne lt le gt ge logical_and logical_or "
    "logical_xor logical_not bitwise_and bitwise_or bitwise_xor bitwise_not sign conj real imag "
    "isnan isinf isfinite fma".split())
PLACES = frozenset(("argmax", "argmin"))
FOLDS = frozenset((*BRIEF, *[name for name, primitive in PRIMITIVES.items()
                            if primitive.reduction and name != "count"]))
# What of a reduction's joined results is its value, where they are more than that.
MEMBERS = {"argmax": ".index", "argmin": ".index", **dict.fromkeys(BRIEF, ".value()")}


class Stages:
    """How a program is cut.

    ``level`` and ``ready`` have an entry for each value: its level, and the stage from which on
    it can be had.  ``folds[s]`` are the values of the reductions done in stage s; ``last`` is the
    number of the stage that writes the outputs.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.base = program.first_step()
        self.level: list[int] = []
        self.ready: list[int] = []
        self._set_levels()
        self.fold_values = [self.base + place for place, step in enumerate(program.steps)
                            if step.primitive in FOLDS]
        self.last = max([self.ready[value] for value in self.fold_values], default=0)
        self.folds = [[value for value in self.fold_values if self.ready[value] == stage + 1]
                      for stage in range(self.last + 1)]
        self.outputs = [output.value for output in program.outputs]
        self.ordered = any(step.primitive in PLACES for step in program.steps)
        self.full_outputs = any(self.level[value] == EACH for value in self.outputs)

    def step(self, value: int) -> Step:
        """The step that makes a value."""
        return self.program.steps[value - self.base]

    def is_step(self, value: int) -> bool:
        """Whether a value is made by a step."""
        return value >= self.base

    def sources(self, value: int) -> tuple[int, ...]:
        """What a value is computed from; nothing for inputs, numbers and constants."""
        return self.step(value).sources if value >= self.base else ()

    def _set_levels(self) -> None:
        program = self.program
        for operand in program.inputs:
            self.level.append(LINE if operand.level == ROW else EACH)
        self.level += [UNIFORM] * (self.base - len(program.inputs))
        self.ready += [0] * self.base
        for step in program.steps:
            fold = step.primitive in FOLDS
            ready = max([self.ready[source] for source in step.sources], default=0)
            self.ready.append(ready + fold)
            level = max([self.level[source] for source in step.sources], default=UNIFORM)
            self.level.append(LINE if fold else level)

    def needed(self, roots: list[int], level: int, held: Container[int] = ()) -> list[int]:
        """The values of one level that ``roots`` are computed from, themselves included, in order.

        The way ends at other levels, at reductions, and at values that are ``held`` already.
        """
        found: set[int] = set()
        stack = list(roots)
        while stack:
            value = stack.pop()
            if value in found or self.level[value] != level:
                continue
            found.add(value)
            if value not in held and not self.is_fold(value):
                stack.extend(self.sources(value))
        return sorted(found)

    def is_fold(self, value: int) -> bool:
        """Whether a value is the result of a reduction."""
        return value >= self.base and self.step(value).primitive in FOLDS

    def member(self, value: int) -> str:
        """What is to be written after a reduction's joined result to have its value."""
        return MEMBERS.get(self.step(value).primitive, "")

    def goals(self, stage: int) -> list[int]:
        """The full values that a stage is there for: operands of its reductions, or outputs."""
        roots = [self.sources(value)[0] for value in self.folds[stage]]
        if stage == self.last:
            roots += [value for value in self.outputs if self.level[value] == EACH]
        return roots

    def full_values(self, stage: int, held: Container[int] = ()) -> list[int]:
        """The full values (inputs too) that a stage computes or finds ``held``, in order."""
        return self.needed(self.goals(stage), EACH, held)

    def reread(self) -> list[int]:
        """The full inputs that several stages need."""
        uses = [set(self.full_values(stage)) for stage in range(self.last + 1)]
        return [value for value in range(len(self.program.inputs))
                if sum([value in used for used in uses]) > 1]

    def lines(self, stages: range) -> list[int]:
        """The row values (inputs and reductions too) that stages need, in order."""
        roots: list[int] = []
        for stage in stages:
            for value in self.full_values(stage):
                roots += [each for each in self.sources(value) if self.level[each] == LINE]
            roots += [self.sources(value)[0] for value in self.folds[stage]
                      if self.level[self.sources(value)[0]] == LINE]
        if self.last in stages:
            roots += [value for value in self.outputs if self.level[value] == LINE]
        return self.needed(roots, LINE)

    def kept(self) -> list[int]:
        """Full values worth keeping for later stages: dear to compute, and needed in several."""
        dear = {value for value in range(self.base, len(self.level))
                if self.level[value] == EACH and self.step(value).primitive not in CHEAP}
        held: set[int] = set()
        used: set[int] = set()
        for stage in range(self.last + 1):
            values = self.full_values(stage, held)
            used |= held & set(values)
            held |= dear & set(values)
        return sorted(used)


def is_map(program: Program) -> bool:
    """Whether a program reduces nothing, so that every element is computed by itself."""
    return not any(step.primitive in FOLDS for step in program.steps)

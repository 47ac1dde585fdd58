# cython: annotation_typing=False
"""Lowering: levels, phases, buffers and loops of a program, before any shape is known.

A program runs in phases.  Phase 0 streams over the rows and feeds the first reductions; their
results are row values, which full steps of phase 1 may use while they feed the next reductions;
and so on.  A full value that is used in a later phase than its own is kept for the whole row;
every other one lives in a block buffer (a slot) that later values take over.
"""

from __future__ import annotations

from slipstream.core.fuse.classes import natural_dtype
from slipstream.core.fuse.primitives import PRIMITIVES
from slipstream.core.vocab.programs import ROW, Program, Step

# Levels as the runner numbers them.  Uniform: the same in the whole domain.
UNIFORM, LINE, FULL = 0, 1, 2
SIZES = {"b1": 1, "i64": 8, "f32": 4, "f64": 8, "c64": 8, "c128": 16}
FOLDS = frozenset(name for name, primitive in PRIMITIVES.items()
                  if primitive.reduction and name != "count")
# Results that tell an element's place: the inner dims must run in their logical order.
PLACES = frozenset(("argmax", "argmin"))


class Lowered:
    """What the runner needs to know of a program.

    ``level``, ``size``, ``first``, ``last``, ``slot`` and ``expanded`` have an entry for each
    value (and one more for the number of inner elements, if a step counts them).  Steps are
    (loop's name, value, sources); ``uniform`` steps run once, ``rows`` and ``fulls`` are lists of
    them for each phase, ``folds`` lists of (reduction's name, source, value).  ``moves`` has, for
    each operand, outputs first, the name of the loop that loads or stores it, and whether it is
    stored as its class computes it.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.base = program.first_step()
        self.count = -1
        self.level: list[int] = []
        self.size: list[int] = []
        self.uniform: list[tuple[str, int, list[int]]] = []
        self._set_levels()
        self.first = [0] * len(self.level)
        self.users: list[list[int]] = [[] for _ in self.level]
        self._set_phases()
        self.rows: list[list[tuple[str, int, list[int]]]] = self._lists(1)
        self.fulls: list[list[tuple[str, int, list[int]]]] = self._lists(0)
        self.folds: list[list[tuple[str, int, int]]] = self._lists(0)
        self.expanded = [False] * len(self.level)
        self._distribute()
        self.last = [max(users) if users else -1 for users in self.users]
        self.slot = [-1] * len(self.level)
        self.slots = 0
        self._set_slots()
        self.early = [self._may_be_early(place) for place in range(len(program.outputs))]
        self.moves = self._raw_moves() if self._is_copy() else self._typed_moves()

    def _lists(self, more: int) -> list:
        return [[] for _ in range(self.phases + more)]

    # ---- levels ----

    def _set_levels(self) -> None:
        program = self.program
        level, size = self.level, self.size
        self.is_fold = [step.primitive in FOLDS for step in program.steps]
        self.reduces = sum(self.is_fold)
        names = {step.primitive for step in program.steps}
        self.ordered = not PLACES.isdisjoint(names)
        for operand in program.inputs:
            level.append(LINE if operand.level == ROW else FULL)
            size.append(SIZES[operand.cls])
        for cls in program.numbers:
            level.append(UNIFORM)
            size.append(SIZES[cls])
        for constant in program.constants:
            level.append(UNIFORM)
            size.append(SIZES[constant.cls])
        for step, folds in zip(program.steps, self.is_fold, strict=True):
            level.append(LINE if folds else self._level_of(step))
            size.append(SIZES[step.result])
        self.lined = self.reduces > 0 or (program.has_rows and any(
            level[output.value] != FULL for output in program.outputs))
        if not self.lined:
            self.level = [FULL if known == LINE else known for known in level]
        if "count" in names:
            self.count = len(level)
            self.level.append(UNIFORM)
            size.append(8)

    def _level_of(self, step: Step) -> int:
        for source in step.sources:
            if self.level[source] != UNIFORM:
                return LINE if step.level == ROW else FULL
        return UNIFORM

    # ---- phases ----

    def _set_phases(self) -> None:
        """The earliest phase of every value; then full values move to where they are used."""
        first, level = self.first, self.level
        self.phases = 1
        for place, step in enumerate(self.program.steps):
            value = self.base + place
            own = 0
            for source in step.sources:
                own = max(own, first[source])
            first[value] = own + self.is_fold[place]
            if self.is_fold[place] or level[value] == FULL:
                self.phases = max(self.phases, own + 1)
        for output in self.program.outputs:
            self.users[output.value].append(first[output.value])
        for place in range(len(self.program.steps) - 1, -1, -1):
            self._settle(place, self.program.steps[place])
        for value in range(len(self.program.inputs)):
            if level[value] == FULL:
                first[value] = min(self.users[value], default=-1)

    def _settle(self, place: int, step: Step) -> None:
        first = self.first
        value = self.base + place
        if self.level[value] == FULL:
            first[value] = max(first[value], min(self.users[value], default=0))
        phase = first[value] - self.is_fold[place]
        for source in step.sources:
            self.users[source].append(phase)

    def _distribute(self) -> None:
        """Puts every step into the list of its phase, under its loop's name."""
        for place, step in enumerate(self.program.steps):
            value = self.base + place
            if self.is_fold[place]:
                source = step.sources[0]
                name = f"{step.primitive}_{step.cls}"
                self.folds[self.first[value] - 1].append((name, source, value))
                self.expanded[source] = True
                continue
            entry = (self._loop_name(step), value, self._sources(step))
            if self.level[value] == UNIFORM:
                self.uniform.append(entry)
            elif self.level[value] == LINE:
                self.rows[self.first[value]].append(entry)
            else:
                self.fulls[self.first[value]].append(entry)
                for source in step.sources:
                    self.expanded[source] = True

    def _loop_name(self, step: Step) -> str:
        if step.primitive == "count":
            return f"cast_i64_{step.cls}"
        if step.primitive == "cast":
            return f"cast_{self.program.class_of(step.sources[0])}_{step.cls}"
        return f"{step.primitive}_{step.cls}"

    def _sources(self, step: Step) -> list[int]:
        return [self.count] if step.primitive == "count" else list(step.sources)

    # ---- operands ----

    def _is_copy(self) -> bool:
        """Whether every output is an input of the same dtype: then bits are moved, not values."""
        inputs = self.program.inputs
        if self.program.steps:
            return False
        return all(output.value < len(inputs) and inputs[output.value].dtype is output.dtype
                   for output in self.program.outputs)

    def _raw_moves(self) -> list[tuple[str, bool]]:
        for value, operand in enumerate(self.program.inputs):
            self.size[value] = operand.dtype.itemsize
        stores = [f"store_raw_{output.dtype.itemsize}" for output in self.program.outputs]
        loads = [f"load_raw_{operand.dtype.itemsize}" for operand in self.program.inputs]
        return [(name, True) for name in (*stores, *loads)]

    def _typed_moves(self) -> list[tuple[str, bool]]:
        moves = []
        for output in self.program.outputs:
            cls = self.program.class_of(output.value)
            moves.append((f"store_{cls}_{output.dtype.name}", output.dtype is natural_dtype(cls)))
        for operand in self.program.inputs:
            natural = operand.dtype is natural_dtype(operand.cls)
            moves.append((f"load_{operand.dtype.name}_{operand.cls}", natural))
        return moves

    # ---- buffers ----

    def _set_slots(self) -> None:
        """Block buffers by a linear scan; what is stored or folded at a block's end stays."""
        held = {output.value for output in self.program.outputs}
        for phase in range(self.phases):
            stays = held | {source for _, source, _ in self.folds[phase]}
            used = 0
            for value in range(len(self.program.inputs)):
                if self._needs_slot(value, phase):
                    self.slot[value] = used
                    used += 1
            self.slots = max(self.slots, self._scan(phase, stays, used))

    def _scan(self, phase: int, stays: set[int], used: int) -> int:
        """Slots for the steps of a phase, of which ``used`` are taken; how many there are then."""
        final = {source: place for place, (_, _, sources) in enumerate(self.fulls[phase])
                 for source in sources}
        free: list[int] = []
        for place, (_, value, sources) in enumerate(self.fulls[phase]):
            if self._needs_slot(value, phase):
                if not free:
                    free.append(used)
                    used += 1
                self.slot[value] = free.pop()
            # Only now: a result never takes the place of its step's own operands.
            free += [self.slot[source] for source in set(sources) - stays
                     if final[source] == place and self._needs_slot(source, phase)]
        return used

    def _needs_slot(self, value: int, phase: int) -> bool:
        return (self.level[value] == FULL and self.first[value] == phase
                and self.last[value] <= phase)

    def _may_be_early(self, place: int) -> bool:
        """Whether an output may be written where its step makes it.

        Its memory may be an input's, element for element: nothing may read an input after that.
        """
        program = self.program
        value = program.outputs[place].value
        inputs = len(program.inputs)
        if value < self.base or self.level[value] != FULL:
            return False
        values = [output.value for output in program.outputs]
        if value in values[:place] or min(values) < inputs:
            return False
        if self.phases == 1 and value == self.base + len(program.steps) - 1:
            return True
        order = [entry for phase in self.fulls for entry in phase]
        at = next(index for index, entry in enumerate(order) if entry[1] == value)
        later = [source for entry in order[at + 1:] for source in entry[2]]
        folded = [source for phase in self.folds[self.first[value]:] for _, source, _ in phase]
        return min(later + folded, default=inputs) >= inputs

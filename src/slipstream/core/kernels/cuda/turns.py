"""One turn of a reducing kernel's loops: the values of a vector's elements, in one loop or several.

What is printed here is the same for row and column kernels; the writers know the rest.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from slipstream.core.fuse.classes import C_TYPES
from slipstream.core.kernels.cuda.access import ONCE, Words
from slipstream.core.kernels.cuda.briefs import BRIEF, SPREAD
from slipstream.core.kernels.cuda.stages import EACH, LINE, PLACES
from slipstream.core.kernels.cuda.writing import Formula, Lines


class ReducePlan(NamedTuple):
    """What the text of a row or column kernel depends on, beside the program.

    ``kinds``: access of each operand, outputs first, along the dim of its vectors; ``shared``:
    which operands are the same for every row; ``vector``: elements of a vector; ``batch``: vectors
    of each operand that a thread asks for before it uses the first one; ``again``: a row takes
    several such batches, and is read again in every stage (else the one batch is kept); ``outer``
    and ``inner``: how many dims are taken apart; ``threads``: most threads of a block; ``wide``:
    64-bit index arithmetic; ``warps``: of a row's threads at most, 0 for a part of one; ``turns``:
    rows that the same threads take at once; ``exact``: all batches are full; ``stage``: the one
    stage of a split kernel, or -1; ``least``: blocks that a processor's registers must hold;
    ``shelf``: what a row is read again for lies in shared memory, and blocks take row after row;
    ``columns``: the schedule; ``brief``: the program is the one with fewer walks; ``cluster``:
    blocks that share a row, each with a part of it on its shelf; ``ahead``: the vectors of the next
    batch are asked for one by one, as those of this one are taken; ``narrow``: threads side by side
    of a block that has few columns to itself, and joins them by warps; 0: it does not.
    """

    columns: bool
    kinds: tuple[str, ...]
    shared: tuple[bool, ...]
    vector: int
    batch: int
    outer: int
    inner: int
    threads: int
    wide: bool
    again: bool = False
    warps: int = 0
    turns: int = 1
    exact: bool = False
    stage: int = -1
    least: int = 1
    shelf: bool = False
    brief: bool = False
    cluster: int = 1
    ahead: bool = False
    narrow: int = 0


# Plans by their fields: a launch of other sizes mostly has one that is known.
plans: dict[tuple[Any, ...], ReducePlan] = {}
MOST_PLANS = 4096


def plan_of(*fields: Any) -> ReducePlan:
    """The plan of these fields."""
    found = plans.get(fields)
    if found is None:
        if len(plans) >= MOST_PLANS:
            plans.clear()
        found = plans[fields] = ReducePlan(*fields)
    return found


def staged(plan: ReducePlan, stage: int) -> ReducePlan:
    """The plan of one stage of a split kernel."""
    key = (plan, stage)
    found = plans.get(key)
    if found is None:
        if len(plans) >= MOST_PLANS:
            plans.clear()
        found = plans[key] = plan._replace(stage=stage)
    return found


class ElementWriter:
    """The values of single elements, and what is known of them in the stages so far."""

    def __init__(self, formula: Formula, plan: ReducePlan, words: Words) -> None:
        self.formula = formula
        self.stages = formula.stages
        self.plan = plan
        self.words = words
        self.lines = Lines()
        self.names = list(formula.values)
        self.split = plan.stage >= 0
        self.kept = set() if plan.again else set(self.stages.kept())
        self.held: set[int] = set()
        # The inputs that a stage asks for by batches.
        self.asked: list[int] = []
        self.shelf = [value for value in self.stages.reread() if plan.shelf
                      and self.kind(value) != ONCE and not plan.shared[formula.outputs + value]]
        # Those that it takes one by one, and the shelf's beside them.
        self.taken: list[int] = []
        # Whether the vectors of the batch that is printed may lie past the end.
        self.checks = not plan.exact
        self.divisors: set[int] = set()
        stages = self.stages
        self.first = plan.stage if self.split else 0
        self.last = plan.stage if self.split else stages.last
        # Whether the last block to finish joins what all have found, and whether nothing follows.
        self.joins = self.split and bool(stages.folds[plan.stage])
        following = stages.last if stages.full_outputs else stages.last - 1
        self.ends = not self.split or plan.stage >= following
        self.line_values = stages.lines(range(self.first, self._last_line() + 1))

    def _last_line(self) -> int:
        """The last stage of which row values are computed."""
        return self.stages.last if self.ends else self.last

    def inputs_kept(self) -> list[int]:
        """The inputs whose vectors a thread keeps through all stages."""
        if self.plan.again:
            return []
        return [value for value in range(len(self.formula.program.inputs))
                if self.stages.level[value] == EACH and self.kind(value) != ONCE
                and not self.plan.shared[self.formula.outputs + value]]

    def held_name(self, value: int) -> str:
        """The vector of an input."""
        name = f"{self.formula.pointers[self.formula.outputs + value]}_held"
        if value in self.inputs_kept():
            return f"{name}{'[r]' if self.plan.turns > 1 else ''}[k]"
        return f"{name}[k]" if self.is_batched(value) else name

    def is_batched(self, value: int) -> bool:
        """Whether the vectors of an input are asked for by batches.

        What all rows share is so only beside a single operand that is on the shelf already.
        """
        near = len(self.shelf) == 1
        if value in self.taken:
            return False
        return self.plan.again and (near or not self.plan.shared[self.formula.outputs + value])

    def kind(self, value: int) -> str:
        """The kind of access of an input."""
        return self.plan.kinds[self.formula.outputs + value]

    def once(self) -> list[int]:
        """The inputs that are one value a row, by level or by stride."""
        return [value for value in range(len(self.formula.program.inputs))
                if self.stages.level[value] == LINE or self.kind(value) == ONCE]

    # ---- what the subclasses print ----

    def vector_type(self, place: int) -> str:
        """The type of a vector of an operand."""
        raise NotImplementedError

    def mark(self) -> str:
        """The number of the vector of element e: where an extreme was found."""
        raise NotImplementedError

    def index(self, mark: str) -> str:
        """The number of element e of a vector among all elements that are reduced."""
        raise NotImplementedError

    def accumulator(self, value: int) -> str:
        """The accumulator that takes element e of a reduction."""
        raise NotImplementedError

    def declare_divisor(self, value: int) -> None:
        """A row value made ready for many divisions by it."""
        raise NotImplementedError

    # ---- elements ----

    def add_element(self, value: int) -> None:
        """A full value of element e."""
        formula, lines = self.formula, self.lines
        name, kind = formula.values[value], formula.type_of(value)
        if not self.stages.is_step(value):
            loaded = formula.loaded(value, f"{self.held_name(value)}.get(e)")
            lines.add(f"const {kind} {name} = {loaded};")
        elif value in self.held:
            lines.add(f"const {kind} {name} = {name}_kept[k][e];")
        else:
            lines.add(f"const {kind} {name} = {formula.expression(value, self.names)};")
            if value in self.kept:
                lines.add(f"{name}_kept[k][e] = {name};")

    def is_shared_division(self, value: int) -> bool:
        """Whether a step divides full values by one that is the same for all of a row."""
        if not self.stages.is_step(value) or value in self.held:
            return False
        step = self.stages.step(value)
        if step.primitive != "div" or step.cls != "f32":
            return False
        above, below = [self.stages.level[source] for source in step.sources]
        return above == EACH and below == LINE and step.sources[0] not in self.once()

    def declare_divisors(self, values: list[int]) -> None:
        """The row values that these full values are divided by."""
        for value in values:
            if self.is_shared_division(value):
                divisor = self.stages.sources(value)[1]
                if divisor not in self.divisors:
                    self.divisors.add(divisor)
                    self.declare_divisor(divisor)

    def join(self, value: int) -> None:
        """Take element e into a reduction."""
        source = self.names[self.stages.sources(value)[0]]
        fold, part = f"fold_{self.formula.values[value]}", self.accumulator(value)
        if self.by_vectors(value):
            return
        if self.stages.step(value).primitive in PLACES:
            name = self.formula.values[value]
            self.lines.add(f"{fold}::enter({name}_best[e], {name}_mark[e], {source}, "
                           f"({self.mark_type()}){self.mark()});")
        elif self.stages.step(value).primitive == SPREAD:
            name = self.formula.values[value]
            self.lines.add(f"slip_gather_spread({name}_first[e], {name}_mean[e], {name}_sum[e], "
                           f"{name}_near[e], {source}, k == 0 && {name}_count == 1);")
        elif self.stages.step(value).primitive in BRIEF:
            self.lines.add(f"{fold}::enter({part}, {source});")
        elif self.starts(value):
            self.lines.add(f"{part} = k == 0 ? {source} : {fold}::join({part}, {source});")
        else:
            self.lines.add(f"{part} = {fold}::join({part}, {source});")

    def mark_type(self) -> str:
        """The type of marks: most loops count in 32 bits."""
        return "int64_t" if self.plan.wide else "int32_t"

    def is_settled(self, value: int) -> bool:
        """Whether a thread walks with other variables than what is joined in the end."""
        return self.stages.step(value).primitive in PLACES | {SPREAD}

    def declare_walked(self, value: int) -> None:
        """Those variables, one of each kind for each place in a vector."""
        if self.stages.step(value).primitive == SPREAD:
            self._declare_spread(value)
        else:
            self._declare_places(value)

    def settle(self, value: int) -> None:
        """They become what is joined."""
        if self.stages.step(value).primitive == SPREAD:
            name, kind = self.formula.values[value], C_TYPES[self.stages.step(value).cls]
            self.lines.loop(f"for (int e = 0; e < {self.plan.vector}; e++)")
            self.lines.add(f"{self.accumulator(value)} = slip_make_spread<{kind}>({name}_count, "
                           f"{name}_first[e], {name}_mean[e], {name}_square[e]);")
            self.lines.close()
        else:
            self._settle_places(value)

    def _declare_spread(self, value: int) -> None:
        """How many elements a thread has met at each place, and their moments."""
        name, vector = self.formula.values[value], self.plan.vector
        kind = C_TYPES[self.stages.step(value).cls]
        self.lines.add(f"{kind} {name}_count = 0, {name}_first[{vector}], {name}_mean[{vector}], "
                       f"{name}_square[{vector}];")
        self.lines.loop(f"for (int e = 0; e < {vector}; e++)")
        self.lines.add(f"{name}_first[e] = {name}_mean[e] = {name}_square[e] = 0;")
        self.lines.close()

    def by_vectors(self, value: int) -> bool:
        """Whether a vector's extreme alone is compared, and its place looked for in the end."""
        raise NotImplementedError

    def enter_vector(self, value: int) -> None:
        """What a reduction does once for a vector, before it looks at its elements."""
        if self.by_vectors(value):
            source = self.stages.sources(value)[0]
            name, kind = self.formula.values[value], C_TYPES[self.stages.step(value).cls]
            self.lines.add(f"{kind} {name}_top = fold_{name}::identity().value;")
            self.lines.loop(f"for (int e = 0; e < {self.plan.vector}; e++)")
            element = self.formula.loaded(source, f"{self.held_name(source)}.get(e)")
            self.lines.add(f"{name}_top = fold_{name}::extreme({name}_top, {element});")
            self.lines.close()
            self.lines.add(f"fold_{name}::enter({name}_best, {name}_mark, {name}_kept, "
                           f"{name}_top, ({self.mark_type()}){self.mark()}, "
                           f"{self.held_name(source)});")
        if self.stages.step(value).primitive == SPREAD:
            self.lines.add(f"{self.formula.values[value]}_count += 1;")

    def open_batch(self, value: int) -> None:
        """What a reduction gathers of a batch before it takes that in."""
        if self.stages.step(value).primitive == SPREAD:
            name, vector = self.formula.values[value], self.plan.vector
            kind = C_TYPES[self.stages.step(value).cls]
            self.lines.add(f"{kind} {name}_sum[{vector}] = {{}}, {name}_near[{vector}] = {{}};")

    def close_batch(self, value: int) -> None:
        """Take it in."""
        if self.stages.step(value).primitive == SPREAD:
            name, kind = self.formula.values[value], C_TYPES[self.stages.step(value).cls]
            self.lines.add(f"const {kind} {name}_rate = {name}_count == 0 ? 0 "
                           f": slip_rate({name}_count);")
            self.lines.loop(f"for (int e = 0; e < {self.plan.vector}; e++)")
            self.lines.add(f"slip_enter_spread({name}_mean[e], {name}_square[e], {name}_sum[e], "
                           f"{name}_near[e], {name}_rate);")
            self.lines.close()

    def _declare_places(self, value: int) -> None:
        """The extremes that a thread has found and their marks, one for each place in a vector."""
        name, vector = self.formula.values[value], self.plan.vector
        kind = C_TYPES[self.stages.step(value).cls]
        if self.by_vectors(value):
            held = self.vector_type(self.formula.outputs + self.stages.sources(value)[0])
            self.lines.add(f"{kind} {name}_best = fold_{name}::identity().value;",
                           f"{self.mark_type()} {name}_mark = 0;", f"{held} {name}_kept = {{}};")
            return
        self.lines.add(f"{kind} {name}_best[{vector}];",
                       f"{self.mark_type()} {name}_mark[{vector}];")
        self.lines.loop(f"for (int e = 0; e < {vector}; e++)")
        self.lines.add(f"{name}_best[e] = fold_{name}::identity().value;", f"{name}_mark[e] = 0;")
        self.lines.close()

    def _settle_places(self, value: int) -> None:
        """The marks become numbers of elements."""
        name = self.formula.values[value]
        if self.by_vectors(value):
            self._settle_vector(value)
            return
        self.lines.loop(f"for (int e = 0; e < {self.plan.vector}; e++)")
        index = self.index(f"{name}_mark[e]")
        self.lines.add(f"{self.accumulator(value)} = "
                       f"fold_{name}::place({name}_best[e], {index});")
        self.lines.close()

    def _settle_vector(self, value: int) -> None:
        """The first element of the vector that was kept which is its extreme."""
        name, source = self.formula.values[value], self.stages.sources(value)[0]
        element = self.formula.loaded(source, f"{name}_kept.get(e)")
        self.lines.add(f"int {name}_place = 0;")
        self.lines.loop(f"for (int e = {self.plan.vector - 1}; e >= 0; e--)")
        self.lines.add(f"const {C_TYPES[self.stages.step(value).cls]} x = {element};",
                       f"if (x == {name}_best || x != x) {name}_place = e;")
        self.lines.close()
        index = self.index(f"{name}_mark").replace("+ e", f"+ {name}_place")
        self.lines.add(f"{name}_part[0] = fold_{name}::place({name}_best, {index});")

    def starts(self, value: int) -> bool:
        """Whether a reduction's accumulators start with a thread's first elements."""
        return (self.plan.exact and not self.plan.again
                and self.stages.step(value).primitive not in BRIEF)


class Turn:
    """The values of one vector, in one loop over its elements or in several.

    Divisions by a row value go through a function for the whole vector, so that they end a loop;
    what a later loop needs of an earlier one is kept in arrays (``v7_all``).
    """

    def __init__(self, writer: ElementWriter, values: list[int]) -> None:
        self.writer = writer
        self.formula = writer.formula
        self.lines = writer.lines
        once = writer.once()
        self.values = [value for value in values if value not in once]
        self.groups: list[list[int]] = [[]]
        for value in self.values:
            if writer.is_shared_division(value):
                self.groups.append([value])
            else:
                self.groups[-1].append(value)
        self.known: set[int] = set()

    def add_all(self) -> None:
        """All values; the last loop over elements stays open."""
        for value in self.values if len(self.groups) > 1 else ():
            name, kind = self.formula.values[value], self.formula.type_of(value)
            self.lines.add(f"{kind} {name}_all[{self.writer.plan.vector}];")
        for place, group in enumerate(self.groups):
            if place:
                self.lines.close()
                self._divide(group.pop(0))
            self.lines.loop(f"for (int e = 0; e < {self.writer.plan.vector}; e++)")
            self.known = set()
            for value in group:
                self._add(value)

    def _divide(self, value: int) -> None:
        writer, name = self.writer, self.formula.values
        above, below = writer.stages.sources(value)
        self.lines.add(f"slip_divide({name[value]}_all, {name[above]}_all, {name[below]}_divisor);")
        if value in writer.kept:
            self.lines.loop(f"for (int e = 0; e < {writer.plan.vector}; e++)")
            self.lines.add(f"{name[value]}_kept[k][e] = {name[value]}_all[e];")
            self.lines.close()

    def _add(self, value: int) -> None:
        for source in self.writer.stages.sources(value) if value not in self.writer.held else ():
            self.recall(source)
        self.writer.add_element(value)
        self.known.add(value)
        if len(self.groups) > 1:
            name = self.formula.values[value]
            self.lines.add(f"{name}_all[e] = {name};")

    def recall(self, value: int) -> None:
        """Make a value known in the loop that is open, if an earlier one computed it."""
        if value in self.values and value not in self.known:
            self.known.add(value)
            name, kind = self.formula.values[value], self.formula.type_of(value)
            self.lines.add(f"const {kind} {name} = {name}_all[e];")

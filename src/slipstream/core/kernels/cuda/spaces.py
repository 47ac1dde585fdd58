"""What row and column schedules must know of a program, and a domain cut into rows."""

from __future__ import annotations

from collections.abc import Sequence

import cython

from slipstream.core.kernels.cuda import access
from slipstream.core.kernels.cuda.access import Ints
from slipstream.core.kernels.cuda.briefs import SPREAD
from slipstream.core.kernels.cuda.stages import EACH, PLACES, Stages
from slipstream.core.kernels.cuda.writing import SIZES, Formula
from slipstream.core.shapes.collapse import collapse


class Space:
    """A domain cut into rows: dims that stay and dims that are reduced, collapsed.

    ``outer_steps`` and ``inner_steps`` have a tuple for each operand, outputs first; there are
    ``rows`` rows of ``length`` elements.
    """

    outer: Ints
    inner: Ints
    outer_steps: tuple[Ints, ...]
    inner_steps: tuple[Ints, ...]
    rows: int
    length: int

    def __init__(self, outer: Ints, inner: Ints, outer_steps: tuple[Ints, ...],
                 inner_steps: tuple[Ints, ...]) -> None:
        self.outer = outer
        self.inner = inner
        self.outer_steps = outer_steps
        self.inner_steps = inner_steps
        self.rows = access.count_of(outer)
        # Of no rows the length may be any number.
        self.length = access.count_of(inner) if self.rows else 0

    def __repr__(self) -> str:
        return (f"Space(outer={self.outer}, inner={self.inner}, outer_steps={self.outer_steps}, "
                f"inner_steps={self.inner_steps})")


class Reduction:
    """What the schedules must know of a program, whatever the shapes."""

    stages: Stages
    itemsizes: list[int]
    levels: list[int]
    outputs: int
    places: bool
    part_bytes: int
    fold_bytes: int
    kept_bytes: int
    work: int
    full: list[int]
    itemsize: int
    single: bool
    steps: list[str]
    row_inputs: bool
    order: list[int]
    brief: Reduction | None
    spread: bool

    def __init__(self, formula: Formula) -> None:
        stages = formula.stages
        self.stages: Stages = stages
        self.itemsizes = [dtype.itemsize for dtype in formula.dtypes]
        levels = [stages.level[output.value] for output in formula.program.outputs]
        self.levels = levels + stages.level[:len(formula.program.inputs)]
        self.outputs = formula.outputs
        self.places = any(stages.step(value).primitive in PLACES for value in stages.fold_values)
        # As registers hold them: truths too, of which a kernel has more than predicates.
        self.part_bytes = sum([max(formula.part_bytes(value), 4) + 4 * (
            stages.step(value).primitive in PLACES) for value in stages.fold_values])
        # In shared memory, where each reduction has its own place.
        self.fold_bytes = sum([formula.fold_bytes(value) for value in stages.fold_values]) or 1
        self.kept_bytes = sum(SIZES[formula.program.class_of(value)] for value in stages.kept())
        self.work = sum([len(stages.full_values(stage)) for stage in range(stages.last + 1)])
        self.full = [place for place, level in enumerate(self.levels) if level == EACH]
        self.itemsize = max([self.itemsizes[place] for place in self.full], default=1)
        # Whether operands are read once only, for one round of reductions.
        self.single = stages.last == 1 and not stages.full_outputs
        self.steps = [f"step{place}s" for place in range(len(self.levels))]
        inputs = [place for place in self.full if place >= self.outputs]
        first = [*inputs, *[place for place in self.full if place < self.outputs]]
        # Whose strides decide the order of dims: the largest operands' first.
        self.order = first + [place for place in range(len(self.levels)) if place not in first]
        # The same program with fewer walks, if there is one.
        self.brief = None
        # Whether it has moments in place of a walk.
        self.spread = any(stages.step(value).primitive == SPREAD for value in stages.fold_values)
        self.row_inputs = min(stages.level[:len(formula.program.inputs)], default=EACH) < EACH


def space_of(reduction: Reduction, domain: Ints, reduced: Ints, strides: Sequence[Ints]) -> Space:
    """Cut a domain; the order of the dims that stay follows the largest operands."""
    kept = [dim for dim in range(len(domain)) if dim not in reduced]
    outer, outer_steps = _part(reduction, domain, kept, strides, True)
    inner, inner_steps = _part(reduction, domain, reduced, strides, not reduction.stages.ordered)
    return Space(outer, inner, outer_steps, inner_steps)


def _part(reduction: Reduction, domain: Ints, dims: Sequence[int], strides: Sequence[Ints],
          sort: bool) -> tuple[Ints, tuple[Ints, ...]]:
    """Some dims of a domain, collapsed, and the operands' steps along them."""
    if len(dims) == 1 and domain[dims[0]] > 1:
        # The usual case, quickly: there is nothing to collapse.
        dim = dims[0]
        return (domain[dim],), tuple([(own[dim],) for own in strides])
    if not dims:
        return (), ((),) * len(strides)
    order = reduction.order
    sizes = [domain[dim] for dim in dims]
    steps = [[strides[place][dim] for dim in dims] for place in order]
    found, columns = collapse(sizes, steps, sort=sort)
    back: list = [None] * len(order)
    number: cython.Py_ssize_t
    for number in range(len(order)):
        back[order[number]] = columns[number]
    return found, tuple(back)


def goes_down(reduction: Reduction, space: Space) -> bool:
    """Whether neighbours in memory belong to different rows: then a column kernel runs."""
    near: cython.longlong
    outer, inner = space.outer, space.inner
    if not outer or 0 in inner:
        return False
    for place in reduction.full:
        steps = space.inner_steps[place]
        if place < reduction.outputs or (inner and not any(steps)):
            continue
        near = abs(space.outer_steps[place][-1])
        return near > 0 and (not inner or abs(steps[-1]) > near)
    return False

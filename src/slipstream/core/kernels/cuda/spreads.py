"""Squared distances from a mean, summed in one walk over the elements.

The formula of a variance needs the mean before its first square, and so reads its operand twice.
Here a program that sums (x - mean(x))^2 becomes one with a reduction of its own, ``spread``, whose
partial results are joined as moments: number of elements, mean, and sum of squared distances from
it (T. F. Chan, G. H. Golub, R. J. LeVeque, "Updating formulae and a pairwise algorithm for
computing sample variances", 1979).  Schedules take it where a second walk would read memory again.
"""

from __future__ import annotations

from slipstream.core.vocab.programs import FULL, Program, Step

SPREAD = "spread"
CLASSES = ("f32", "f64")


def with_spreads(program: Program) -> Program | None:
    """The program with one reduction in place of two; None where it has no such sums."""
    first = program.first_step()
    steps = [_spread_of(program, step) or step for step in program.steps]
    if steps == list(program.steps):
        return None
    needed = {output.value for output in program.outputs}
    for place in reversed(range(len(steps))):
        if first + place in needed:
            needed.update(steps[place].sources)
    places = {value: value for value in range(first)}
    live: list[Step] = []
    for place, step in enumerate(steps, first):
        if place in needed:
            places[place] = first + len(live)
            live.append(step._replace(sources=tuple([places[each] for each in step.sources])))
    outputs = [output._replace(value=places[output.value]) for output in program.outputs]
    return program._replace(steps=tuple(live), outputs=tuple(outputs))


def _spread_of(program: Program, step: Step) -> Step | None:
    """The reduction in place of a step that sums squared distances from a mean."""
    if step.primitive != "sum" or step.cls not in CLASSES:
        return None
    square = _step(program, step.sources[0], "mul")
    if square is None or square.sources[0] != square.sources[1]:
        return None
    distance = _step(program, square.sources[0], "sub")
    if distance is None:
        return None
    x, mean = distance.sources
    share = _step(program, mean, "div")
    if share is None or program.level_of(x) != FULL:
        return None
    total, count = [_step(program, source, name)
                    for source, name in zip(share.sources, ("sum", "count"), strict=True)]
    if total is None or count is None or total.sources[0] != x:
        return None
    return step._replace(primitive=SPREAD, sources=(x,))


def _step(program: Program, value: int, primitive: str) -> Step | None:
    """The step that makes a value, if it is of this primitive."""
    place = value - program.first_step()
    if place < 0 or program.steps[place].primitive != primitive:
        return None
    return program.steps[place]

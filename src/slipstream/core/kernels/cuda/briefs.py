"""Programs with fewer walks over their elements: reductions that need no other one before them.

The formula of a variance needs the mean before its first square, and that of a softmax the largest
element before its first exponential, and so both read their operand once more.  Here a program that
sums (x - mean(x))^2 becomes one with a reduction of its own, ``spread``, whose partial results are
joined as moments: number of elements, mean, and sum of squared distances from it (T. F. Chan,
G. H. Golub, R. J. LeVeque, "Updating formulae and a pairwise algorithm for computing sample
variances", 1979).  One that sums exp(x - max(x)) gets ``grown``, joined as the largest element so
far and the sum by it (M. Milakov, N. Gimelshein, "Online normalizer calculation for softmax",
2018).  Schedules take them where a further walk would read memory again.
"""

from __future__ import annotations

from slipstream.core.vocab.programs import FULL, Program, Step

SPREAD = "spread"
# By the primitive that is summed.
GROWN = {"exp": "grown", "exp16": "grown16"}
BRIEF = frozenset((SPREAD, *GROWN.values()))
CLASSES = ("f32", "f64")


def with_fewer_walks(program: Program) -> Program | None:
    """The program with one reduction in place of two; None where it has no such sums."""
    first = program.first_step()
    steps = [_brief(program, step) or step for step in program.steps]
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


def _brief(program: Program, step: Step) -> Step | None:
    """The reduction in place of a sum of what another reduction shifts."""
    if step.primitive != "sum" or step.cls not in CLASSES:
        return None
    summed = _step(program, step.sources[0])
    if summed is None:
        return None
    shifted = _step(program, summed.sources[0], "sub") if summed.sources else None
    if shifted is None or program.level_of(shifted.sources[0]) != FULL:
        return None
    x, shift = shifted.sources
    if summed.primitive == "mul" and summed.sources[0] == summed.sources[1]:
        found = SPREAD if _is_mean(program, shift, x) else ""
    else:
        largest = _step(program, shift, "amax")
        grown = largest is not None and largest.sources == (x,) and step.cls == "f32"
        # What float64 needs for it does not fit a thread's registers.
        found = GROWN.get(summed.primitive, "") if grown else ""
    return step._replace(primitive=found, sources=(x,)) if found else None


def _is_mean(program: Program, value: int, x: int) -> bool:
    """Whether a value is the sum of x divided by how many there are."""
    share = _step(program, value, "div")
    if share is None:
        return False
    total, count = [_step(program, source, name)
                    for source, name in zip(share.sources, ("sum", "count"), strict=True)]
    return total is not None and count is not None and total.sources == (x,)


def _step(program: Program, value: int, primitive: str = "") -> Step | None:
    """The step that makes a value, if it is of this primitive; of any if that is left out."""
    place = value - program.first_step()
    if place < 0 or (primitive and program.steps[place].primitive != primitive):
        return None
    return program.steps[place]

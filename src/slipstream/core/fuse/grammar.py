"""The grammar of programs, as a function that runs: what printers and schedules may rely on.

A program is right if every value is of a known class and level, every step computes what its
primitive can from earlier values, and nothing is written down that no result needs, that another
step computes, or that could have been computed when the formula was traced.
"""

from __future__ import annotations

from collections.abc import Iterator

from slipstream.core.fuse.classes import NUMPY
from slipstream.core.fuse.primitives import PRIMITIVES
from slipstream.core.vocab.programs import COMPUTE_CLASSES, FULL, ROW, Program, Step

# The rules, by the pass that makes them hold: see `passes`.
TYPED, FOLDED, SHARED, DEAD = [frozenset((name,)) for name in (
    "typed", "folded", "shared", "dead")]
EVERY = TYPED | FOLDED | SHARED | DEAD


class Ungrammatical(ValueError):
    """A program that breaks a rule; the text says which, and where."""


def check(program: Program, rules: frozenset[str] = EVERY) -> None:
    """Raise Ungrammatical with all rules that a program breaks; ``rules``: those that must hold."""
    broken = [*_operands(program), *_steps(program), *_outputs(program)]
    if not broken:
        broken = [text for rule, find in NEEDLESS.items() if rule in rules
                  for text in find(program)]
    if broken:
        raise Ungrammatical("; ".join(broken))


def _operands(program: Program) -> Iterator[str]:
    for place, operand in enumerate(program.inputs):
        if operand.cls not in COMPUTE_CLASSES:
            yield f"input {place} is of no class: {operand.cls}"
        if operand.level not in (FULL, ROW):
            yield f"input {place} has no level: {operand.level}"
        if operand.level == ROW and not program.has_rows:
            yield f"input {place} is a row value of a program without rows"
    for place, cls in enumerate(program.numbers):
        if cls not in COMPUTE_CLASSES:
            yield f"number {place} is of no class: {cls}"
    for place, constant in enumerate(program.constants):
        if constant.cls not in NUMPY:
            yield f"constant {place} is of no class: {constant.cls}"
        elif not isinstance(constant.value, bool | int | float | complex):
            yield f"constant {place} is no number of Python: {constant.value!r}"


def _steps(program: Program) -> Iterator[str]:
    first = program.first_step()
    for place, step in enumerate(program.steps):
        name = f"step {first + place} ({step.primitive})"
        primitive = PRIMITIVES.get(step.primitive)
        if primitive is None:
            yield f"{name} is no primitive"
            continue
        if step.primitive != "cast" and step.cls not in primitive.classes:
            yield f"{name} does not compute in {step.cls}"
        if len(step.sources) != primitive.arity:
            yield f"{name} has {len(step.sources)} operands, not {primitive.arity}"
        elif any(not 0 <= source < first + place for source in step.sources):
            yield f"{name} needs a value that comes later: {step.sources}"
        else:
            yield from (f"{name} {text}" for text in _types(program, step))


def _types(program: Program, step: Step) -> Iterator[str]:
    found = [program.class_of(source) for source in step.sources]
    wanted = [step.cls] * len(found)
    if step.primitive == "where":
        wanted[0] = "b1"
    if step.primitive != "cast" and found != wanted:
        yield f"takes {found}, not {wanted}"
    primitive = PRIMITIVES[step.primitive]
    result = step.cls if step.primitive == "cast" else primitive.result_class(step.cls)
    if step.result != result:
        yield f"gives {step.result}, not {result}"
    level = _level(program, step)
    if step.level != level:
        yield f"is of level {step.level}, not {level}"


def _level(program: Program, step: Step) -> str:
    if not program.has_rows:
        return FULL
    if PRIMITIVES[step.primitive].reduction:
        return ROW
    levels = [program.level_of(source) for source in step.sources]
    return FULL if FULL in levels else ROW


def _outputs(program: Program) -> Iterator[str]:
    count = program.first_step() + len(program.steps)
    if not program.outputs:
        yield "there is no output"
    for place, output in enumerate(program.outputs):
        if not 0 <= output.value < count:
            yield f"output {place} is no value: {output.value}"
        elif program.class_of(output.value) != output.dtype.compute:
            yield (f"output {place} stores {program.class_of(output.value)} as "
                   f"{output.dtype.name}, which is computed in {output.dtype.compute}")


def _dead(program: Program) -> Iterator[str]:
    used = {output.value for output in program.outputs}
    used |= {source for step in program.steps for source in step.sources}
    yield from (f"value {value} is never used"
                for value in range(program.first_step() + len(program.steps)) if value not in used)


def _unshared(program: Program) -> Iterator[str]:
    seen: dict[tuple[str, str, tuple[int, ...]], int] = {}
    for place, step in enumerate(program.steps, program.first_step()):
        same = seen.setdefault((step.primitive, step.cls, step.sources), place)
        if same != place:
            yield f"step {place} ({step.primitive}) computes what step {same} does"


def _unfolded(program: Program) -> Iterator[str]:
    operands, first = len(program.inputs) + len(program.numbers), program.first_step()
    for place, step in enumerate(program.steps, first):
        if step.sources and all(operands <= source < first for source in step.sources):
            yield f"step {place} ({step.primitive}) computes with constants only"
        if step.primitive == "cast" and program.class_of(step.sources[0]) == step.cls:
            yield f"step {place} casts a value to its own class"


NEEDLESS = {"folded": _unfolded, "shared": _unshared, "dead": _dead}

__all__ = ["DEAD", "EVERY", "FOLDED", "SHARED", "TYPED", "Ungrammatical", "check"]

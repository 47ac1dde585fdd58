"""Printing programs for people, as Python that runs."""

from __future__ import annotations

from collections.abc import Sequence

from slipstream.core.fuse import classes as compute
from slipstream.core.fuse.primitives import PRIMITIVES
from slipstream.core.vocab.programs import Constant, Program, Step

_OPERATORS = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "pow": "**", "floor_divide": "//",
    "remainder": "%", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
    "bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^", "logical_and": "&",
    "logical_or": "|", "logical_xor": "^",
}
_PREFIXES = {"neg": "-", "bitwise_not": "~", "logical_not": "~"}


def describe(program: Program, names: Sequence[str] = ()) -> str:
    """``program`` as the Python function ``program``.

    ``names`` are those of the inputs and numbers, in order.  Operators are Python's; every other
    primitive is a function of its name (``cast`` takes the class, a reduction goes over the inner
    dims and keeps them).  Comments give the class of each value and the level of rows.
    """
    parameters = len(program.inputs) + len(program.numbers)
    values = list(names[:parameters])
    values += [f"x{place}" for place in range(len(values), parameters)]
    head = f"def program({', '.join(values)}):"
    values += [_literal(constant) for constant in program.constants]
    body = _signature(program, values)
    for step in program.steps:
        values.append(f"v{len(values)}")
        level = ", row" if step.level == "row" else ""
        body.append(f"{values[-1]} = {_expression(step, values)}  # {step.result}{level}")
    body.append(f"return {', '.join(values[output.value] for output in program.outputs)}"
                f"  # {', '.join(output.dtype.name for output in program.outputs)}")
    return "\n    ".join([head, *body]) + "\n"


def _signature(program: Program, values: Sequence[str]) -> list[str]:
    """Comments that say how each operand is stored and loaded."""
    lines = []
    for value, operand in zip(values, program.inputs, strict=False):
        level = ", row" if operand.level == "row" else ""
        lines.append(f"# {value}: {operand.dtype.name} as {operand.cls}{level}")
    numbers = values[len(program.inputs):]
    lines += [f"# {value}: number as {cls}"
              for value, cls in zip(numbers, program.numbers, strict=False)]
    return lines


def _literal(constant: Constant) -> str:
    # The shortest text that gives the same number in the constant's class.
    text = str(compute.to_class(constant.value, constant.cls))
    if text.lstrip("-") in ("inf", "nan"):
        return f"float('{text}')"
    return f"({text})" if text.startswith("-") else text


def _expression(step: Step, values: Sequence[str]) -> str:
    operands = [values[source] for source in step.sources]
    if step.primitive in _OPERATORS:
        return f"{operands[0]} {_OPERATORS[step.primitive]} {operands[1]}"
    if step.primitive in _PREFIXES:
        return _PREFIXES[step.primitive] + operands[0]
    if step.primitive in ("cast", "count"):
        operands.append(repr(step.cls))
    assert step.primitive in PRIMITIVES
    return f"{step.primitive}({', '.join(operands)})"

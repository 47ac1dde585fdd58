"""Printing programs for people, as Python that runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from slipstream.core.fuse import classes as compute
from slipstream.core.fuse import numerics
from slipstream.core.fuse.primitives import PRIMITIVES, Primitive
from slipstream.core.vocab.programs import Constant, Program, Step

_OPERATORS = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "eq": "==", "ne": "!=", "lt": "<", "le": "<=",
    "gt": ">", "ge": ">=",
    "bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^", "logical_and": "&",
    "logical_or": "|", "logical_xor": "^",
}
_PREFIXES = {"neg": "-", "bitwise_not": "~", "logical_not": "~"}


def describe(program: Program, names: Sequence[str] = ()) -> str:
    """``program`` as the Python function ``program``.

    ``names`` are those of the inputs and numbers, in order.  Operators are Python's where they
    compute the same bits; every other primitive is a function of its name (``cast`` takes the
    class, a reduction goes over the inner dims and keeps them).  Comments give the class of each
    value and the level of rows.  `vocabulary` has what the text needs to run.
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
        body.append(f"{values[-1]} = {_expression(program, step, values)}  # {step.result}{level}")
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
    number = compute.to_class(constant.value, constant.cls)
    if constant.cls in compute.REAL_PARTS and not np.isfinite(number):
        return f"complex({_real(number.real)}, {_real(number.imag)})"
    return _real(number)


def _real(number: Any) -> str:
    # The shortest text that gives the same number in the constant's class.
    text = str(number)
    if text.lstrip("-") in ("inf", "nan"):
        return f"float('{text}')"
    return f"({text})" if text.startswith("-") else text


def _expression(program: Program, step: Step, values: Sequence[str]) -> str:
    operands = [values[source] for source in step.sources]
    if step.primitive in _OPERATORS:
        return f"{operands[0]} {_OPERATORS[step.primitive]} {operands[1]}"
    if step.primitive in _PREFIXES:
        return _PREFIXES[step.primitive] + operands[0]
    if step.primitive in ("cast", "count"):
        operands.append(repr(step.cls))
    assert step.primitive in PRIMITIVES
    if step.primitive == "where" and all(_is_literal(program, each) for each in step.sources[1:]):
        # Two literals do not say in which class they are meant.
        operands[2] = f"{step.cls}({operands[2]})"
    return f"{step.primitive}({', '.join(operands)})"


def _is_literal(program: Program, value: int) -> bool:
    first = program.first_step()
    return first - len(program.constants) <= value < first


def vocabulary(inner: Sequence[int] = ()) -> dict[str, Any]:
    """The names that a program's text runs with, on NumPy arrays of the classes that it says.

    ``inner``: the sizes of the inner dims, the last axes of full values; row values have them as
    axes of size 1.  A result is of its class, not narrowed to the dtype that it is stored as.
    """
    found: dict[str, Any] = {name: _function(primitive, len(inner))
                             for name, primitive in PRIMITIVES.items()}
    found["cast"] = lambda x, cls: numerics.cast(np.asarray(x), compute.NUMPY[cls])
    found["count"] = lambda cls: compute.NUMPY[cls].type(math.prod(inner))
    return {**found, **{cls: dtype.type for cls, dtype in compute.NUMPY.items()}}


def _function(primitive: Primitive, inner: int) -> Callable[..., Any]:
    if primitive.reduction:
        return partial(_reduced, primitive.numpy, inner)
    return partial(_applied, primitive)


def _applied(primitive: Primitive, *operands: Any) -> Any:
    """A primitive of arrays and literals, which are of the arrays' class."""
    first = 1 if primitive.name == "where" else 0
    dtype = next(np.asarray(each).dtype for each in operands[first:]
                 if isinstance(each, np.ndarray | np.generic))
    typed = [each if isinstance(each, np.ndarray | np.generic) else dtype.type(each)
             for each in operands[first:]]
    return primitive.numpy(*operands[:first], *typed)


def _reduced(function: Callable[[Any], Any], inner: int, x: Any) -> Any:
    """A reduction over the last ``inner`` axes, which stay with size 1."""
    outer = x.shape[:x.ndim - inner]
    flat = np.ascontiguousarray(x).reshape((*outer, math.prod(x.shape[x.ndim - inner:])))
    return function(flat).reshape(outer + (1,) * inner)

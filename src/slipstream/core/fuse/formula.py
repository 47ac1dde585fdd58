"""Functions for formulas that read the same on symbols and on tensors.

A formula is called with symbols when it becomes a kernel and with tensors under ``create_graph``.
Each function calls a method of the first operand that is not a Python number.
"""

from __future__ import annotations

import math
from typing import Any

from slipstream.core.fuse.symbols import Symbol, select

Operand = Any
ROOT_HALF = math.sqrt(0.5)


def _is_number(operand: Operand) -> bool:
    return isinstance(operand, bool | int | float | complex)


def where(condition: Operand, a: Operand, b: Operand) -> Operand:
    """a where ``condition``, else b, elementwise; the result is of the common dtype of a and b."""
    if any(isinstance(operand, Symbol) for operand in (condition, a, b)):
        return select(condition, a, b)
    if _is_number(condition):
        return a if condition else b
    if not _is_number(a):
        return a.where(condition, b)
    if not _is_number(b):
        return b.where(condition.logical_not(), a)
    return (condition.logical_not() * 0 + b).where(condition.logical_not(), a)


def maximum(a: Operand, b: Operand) -> Operand:
    """The larger of a and b, elementwise; nan wins."""
    if _is_number(a):
        a, b = b, a
    return a.clamp(min=b) if _is_number(b) else a.maximum(b)


def minimum(a: Operand, b: Operand) -> Operand:
    """The smaller of a and b, elementwise; nan wins."""
    if _is_number(a):
        a, b = b, a
    return a.clamp(max=b) if _is_number(b) else a.minimum(b)


# Where all results of a formula have 16 bits, what is right for float32 is mostly rounded away:
# for such there are primitives, and ways, that cost less.


def _is_narrow(x: Operand) -> bool:
    return isinstance(x, Symbol) and x.is_narrow()


def exp(x: Operand) -> Operand:
    """e^x."""
    return x.exp16() if _is_narrow(x) else x.exp()


def share(x: Operand, total: Operand) -> Operand:
    """x / total, where many x have one total."""
    return x * total.reciprocal() if _is_narrow(x) else x / total


def normal_below(x: Operand) -> Operand:
    """The share of a normal distribution below x."""
    return x.ndtr16() if _is_narrow(x) else 0.5 * (1 + (x * ROOT_HALF).erf())


def fma(a: Operand, b: Operand, c: Operand) -> Operand:
    """a * b + c, rounded once where the dtype is float32 or float64."""
    if not _is_number(a):
        return a.fma(b, c)
    if not _is_number(b):
        return b.fma(a, c)
    return c + a * b

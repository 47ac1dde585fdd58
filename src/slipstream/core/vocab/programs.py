# cython: annotation_typing=False
"""Programs: what a formula becomes before a device prints or runs it.

A program computes over a domain of *outer* dims times *inner* dims.  The inner dims are those
that the formula reduces over; a program without reductions is a pure map and has no inner dims.
Every value has a compute class and a level: ``full`` (one element for each point of the domain)
or ``row`` (one for each point of the outer dims: a reduction's result, which later full steps
broadcast along the inner dims).

Values are numbered in this order: inputs, numbers, constants, steps.
"""

from __future__ import annotations

from typing import NamedTuple

from slipstream.core.vocab.dtypes import DType

FULL = "full"
ROW = "row"

# Compute classes: the arithmetic a value is computed in, whatever dtype it is stored in.
COMPUTE_CLASSES = ("b1", "i64", "f32", "f64", "c64", "c128")


class Input(NamedTuple):
    """A tensor operand: stored as ``dtype``, loaded as a value of class ``cls``."""

    dtype: DType
    cls: str
    level: str = FULL


class Constant(NamedTuple):
    """A literal of the formula (a Python bool, int, float or complex) of class ``cls``."""

    value: bool | int | float | complex
    cls: str


class Step(NamedTuple):
    """One primitive applied to earlier values.

    ``cls`` is the class the primitive computes in (the class of its operands; for ``cast`` the
    class it casts to).  ``result`` is the class of its value: ``b1`` for comparisons, ``i64`` for
    argmax and argmin, else ``cls``.  The primitive ``count`` has no sources and yields the number
    of elements of the inner dims, in class ``cls``, at level ``row``.
    """

    primitive: str
    cls: str
    sources: tuple[int, ...]
    result: str
    level: str


class Output(NamedTuple):
    """Value number ``value`` stored as ``dtype``; its level is the value's."""

    value: int
    dtype: DType


class Program(NamedTuple):
    """A typed, straight-line program over a domain; see the module's docstring."""

    inputs: tuple[Input, ...]
    numbers: tuple[str, ...]
    constants: tuple[Constant, ...]
    steps: tuple[Step, ...]
    outputs: tuple[Output, ...]

    @property
    def has_rows(self) -> bool:
        """Whether any step reduces, so that the domain has inner dims."""
        return any(step.level == ROW for step in self.steps)

    def first_step(self) -> int:
        """The value number of the first step."""
        return len(self.inputs) + len(self.numbers) + len(self.constants)

    def class_of(self, value: int) -> str:
        """The compute class of value number ``value``."""
        return self._described(value)[0]

    def level_of(self, value: int) -> str:
        """The level of value number ``value`` (numbers and constants count as row)."""
        return self._described(value)[1]

    def _described(self, value: int) -> tuple[str, str]:
        if value < len(self.inputs):
            operand = self.inputs[value]
            return operand.cls, operand.level
        value -= len(self.inputs)
        if value < len(self.numbers):
            return self.numbers[value], ROW
        value -= len(self.numbers)
        if value < len(self.constants):
            return self.constants[value].cls, ROW
        step = self.steps[value - len(self.constants)]
        return step.result, step.level

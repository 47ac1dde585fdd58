"""Signatures: one line of text tells the parameters of an op.

``add(Tensor self, Tensor|Number other, *, Number alpha=1)``: types are Tensor, Tensor? (may be
None), Tensor|Number, Tensor|Static (a number on which plans depend), Tensor[], Tensor... (also as
separate arguments), Number (a run-time value: plans do not depend on it), Number?, Offset (integers
that only move a view's offset: run-time values too), Generator?, and static ones, on which plans
depend: int, int?, int[], int[]?, int... (also as separate arguments), dtype|int...
(one dtype or such ints), bool, bool?, float, str, dtype, device, any.
"""

from __future__ import annotations

import ast
import functools
import re
from dataclasses import dataclass
from typing import Any, NamedTuple

# How an argument enters the key of a plan.
TENSOR = 0
TENSOR_OR_NUMBER = 1
OPTIONAL_TENSOR = 2
TENSORS = 3
NUMBER = 4
STATIC = 5
OFFSET = 6
GENERATOR = 7
STATIC_NUMBER = 8

_KINDS = {
    "Tensor": TENSOR, "Tensor|Number": TENSOR_OR_NUMBER, "Tensor?": OPTIONAL_TENSOR,
    "Tensor[]": TENSORS, "Tensor...": TENSORS, "Number": NUMBER, "Number?": NUMBER,
    "Offset": OFFSET, "Generator?": GENERATOR, "Tensor|Static": STATIC_NUMBER,
}
_STATIC = ("dtype", "device", "int", "int?", "int[]", "int[]?", "int...",
           "dtype|int...", "bool", "bool?",
           "float", "str", "str?", "dtype?", "device?", "any")
_REQUIRED = object()


class Parameter(NamedTuple):
    """One parameter: its name, type as written, kind, default and whether it is keyword-only."""

    name: str
    type: str
    kind: int
    default: Any
    keyword_only: bool

    @property
    def required(self) -> bool:
        """Whether the parameter has no default."""
        return self.default is _REQUIRED


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Signature:
    """A parsed signature."""

    name: str
    parameters: tuple[Parameter, ...]
    text: str

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters in order."""
        return tuple(p.name for p in self.parameters)

    def index(self, name: str) -> int:
        """Position of a parameter."""
        return self.names.index(name)


def parse(text: str) -> Signature:
    """Parse ``name(Type parameter=default, *, ...)``; raises ValueError for bad text."""
    match = re.fullmatch(r"\s*([\w.]+)\((.*)\)\s*", text, re.DOTALL)
    if match is None:
        raise ValueError(f"not a signature: {text!r}")
    parameters = []
    keyword_only = False
    for part in _split(match.group(2)):
        if part == "*":
            keyword_only = True
        else:
            parameters.append(_parameter(part, keyword_only))
    return Signature(match.group(1), tuple(parameters), text)


def _split(text: str) -> list[str]:
    if "(" not in text and "[" not in text:
        return [part.strip() for part in text.split(",") if part.strip()]
    parts, depth, start = [], 0, 0
    for place, character in enumerate(text):
        depth += (character in "([") - (character in ")]")
        if character == "," and depth == 0:
            parts.append(text[start:place].strip())
            start = place + 1
    parts.append(text[start:].strip())
    return [part for part in parts if part]


@functools.cache
def _parameter(text: str, keyword_only: bool) -> Parameter:
    """A parameter; most entries have some in common."""
    declared, equals, default = text.partition("=")
    kind_name, _, name = declared.strip().rpartition(" ")
    if kind_name not in _KINDS and kind_name not in _STATIC:
        raise ValueError(f"unknown type {kind_name!r} in {text!r}")
    value = ast.literal_eval(default.strip()) if equals else _REQUIRED
    return Parameter(name, kind_name, _KINDS.get(kind_name, STATIC), value, keyword_only)

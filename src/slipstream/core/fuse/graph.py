# cython: annotation_typing=False
"""Formula graphs: the values that a traced formula computes, each written once."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from slipstream.core.fuse import classes as compute
from slipstream.core.fuse.primitives import PRIMITIVES
from slipstream.core.vocab.programs import FULL, ROW

# Level of what depends on numbers and constants only: it has no elements of its own.
SCALAR = "scalar"
INPUT = "input"
NUMBER = "number"
CONSTANT = "constant"
STEP = "step"


class Node(NamedTuple):
    """One value.  ``label`` is an input's or number's name, or a step's primitive."""

    kind: str
    label: str
    cls: str
    sources: tuple[int, ...]
    result: str
    level: str
    literal: compute.Number = 0


class Graph:
    """Values in the order of their making.

    ``folds``: steps of constants, and by one, are rewritten when they are asked for (`fold`);
    ``shares``: asking twice for the same value gives the same one.  Both are passes that run while
    a formula is traced; `passes` runs them one after the other.
    ``reduced`` holds the dims that the formula's reductions go over, counted from the right, and
    ``reduced_rank`` the rank of what they reduce; both are None before the first reduction.
    ``typed`` tells whether the formula asked which dtype an operand or result is stored as;
    ``narrow`` whether all results are stored as floats of 16 bits.
    """

    def __init__(self, folds: bool = True, shares: bool = True) -> None:
        self.folds = folds
        self.shares = shares
        self.nodes: list[Node] = []
        self.known: dict[tuple[object, ...], int] = {}
        self.reduced: tuple[int, ...] | None = None
        self.reduced_rank: int | None = None
        self.typed = False
        self.narrow = False

    def input(self, name: str, cls: str, level: str) -> int:
        """The tensor operand ``name``."""
        return self._put(Node(INPUT, name, cls, (), cls, level))

    def number(self, name: str, cls: str) -> int:
        """The run-time number ``name``."""
        return self._put(Node(NUMBER, name, cls, (), cls, SCALAR))

    def constant(self, value: compute.Number, cls: str) -> int:
        """A literal, rounded to class ``cls``."""
        literal = compute.to_class(value, cls).item()
        return self._put(Node(CONSTANT, "", cls, (), cls, SCALAR, literal))

    def cast(self, value: int, cls: str) -> int:
        """``value`` in class ``cls``."""
        return value if self.nodes[value].result == cls else self.step("cast", cls, (value,))

    def step(self, name: str, cls: str, sources: tuple[int, ...]) -> int:
        """Primitive ``name`` of ``sources``, which have class ``cls`` (but for cast and where)."""
        primitive = PRIMITIVES[name]
        result = primitive.result_class(cls)
        nodes = [self.nodes[source] for source in sources]
        if self.folds:
            if nodes and all(node.kind == CONSTANT for node in nodes):
                return self.constant(fold(name, cls, nodes), result)
            if name in ("mul", "div") and _is_one(nodes[1]):
                return sources[0]
            if name == "mul" and _is_one(nodes[0]):
                return sources[1]
        level = ROW if primitive.reduction else _level(nodes)
        return self._put(Node(STEP, name, cls, sources, result, level))

    def _put(self, node: Node) -> int:
        if not self.shares:
            self.nodes.append(node)
            return len(self.nodes) - 1
        # repr tells 0.0 from -0.0 and finds nan equal to itself, which == does not.
        key = (node.kind, node.label, node.cls, node.sources, repr(node.literal))
        value = self.known.setdefault(key, len(self.nodes))
        if value == len(self.nodes):
            self.nodes.append(node)
        return value


def fold(name: str, cls: str, nodes: list[Node]) -> compute.Number:
    """The value of primitive ``name`` of constants."""
    operands: list[Any] = [compute.to_class(node.literal, node.cls) for node in nodes]
    with np.errstate(all="ignore"):
        if name == "cast":
            value = compute.to_class(operands[0].item(), cls)
        else:
            value = PRIMITIVES[name].numpy(*operands)
    number: compute.Number = np.asarray(value).item()
    return number


def _is_one(node: Node) -> bool:
    # x * 1 and x / 1 are x to the bit, for every x of every class.
    return node.kind == CONSTANT and node.literal == 1 and node.cls not in ("c64", "c128")


def _level(nodes: list[Node]) -> str:
    levels = {node.level for node in nodes}
    if FULL in levels:
        return FULL
    return ROW if ROW in levels else SCALAR

"""What is known of an op, and what was made for its calls so far."""

from __future__ import annotations

from typing import Any

import cython

from slipstream.core.dispatch.entry import FORMULA_KINDS, POINTWISE
from slipstream.core.dispatch.numbers import StoredNumbers
from slipstream.core.dispatch.signature import (
    NUMBER,
    TENSOR_OR_NUMBER,
    Parameter,
    Signature,
    parse,
)
from slipstream.core.dispatch.ways import Keywords, Ways
from slipstream.core.vocab.autocast import BITS, MODE
from slipstream.core.vocab.records import KERNEL, VIEW, OpBase, Plan, TensorBase

__all__ = ["Keywords", "OpFacts", "Plan", "Ways"]


def unkeyed_place(entry: Any, names: tuple[str, ...]) -> int:
    """Where the sizes are of what a plain formula makes, or -1.

    It does not name them, so that no recipe depends on them.
    """
    plain = entry.kind == POINTWISE and entry.check is None and "size" in names
    return names.index("size") if plain else -1


def numeric_places(parameters: tuple[Parameter, ...]) -> int:
    """The places of numbers that enter keys by their types, as bits."""
    return sum([1 << place for place, parameter in enumerate(parameters)
                if parameter.kind in (NUMBER, TENSOR_OR_NUMBER) and place < 31])


def takes_one(op: OpFacts) -> bool:
    """Whether a call with one tensor alone may be carried out the short way."""
    return op.count == 1 or (op.required == 1 and op.variadic < 0 and op.device_at < 0
                             and not op.compound and not op.refuses)


class OpFacts(OpBase):
    """What is known of an op: its entry, its signature, and what was made for its calls."""

    entry: Any
    signature: Signature
    builder: Any
    function: Any
    names: tuple[str, ...]
    kinds: tuple[int, ...]
    defaults: tuple[Any, ...]
    tails: tuple[tuple[Any, ...], ...]
    count: int
    positional: int
    required: int
    variadic: int
    device_at: int
    compound: bool
    refuses: bool
    pointwise: bool
    lone: bool
    plans: dict[Any, Plan]
    binary: dict[Any, Plan]
    recipes: dict[Any, Any]
    programs: dict[Any, Any]
    rules: dict[Any, Any]
    kernels: dict[Any, Any]
    recent: Plan | None
    recent_left: Any
    recent_right: Any
    recent_flags: int
    lists: dict[Any, Any]
    drops: int
    unkeyed: int
    policies: dict[str, str]
    heeds: int
    keywords: Keywords
    ways: Ways

    def __init__(self, entry: Any, builder: Any) -> None:
        signature = parse(entry.signature)
        self.name = signature.name
        self.entry = entry
        self.signature = signature
        self.builder = builder
        self.function = entry.function
        self.names = signature.names
        self.kinds = tuple([p.kind for p in signature.parameters])
        self.defaults = tuple([None if p.required else p.default for p in signature.parameters])
        self.count = len(self.names)
        self.positional = sum([not p.keyword_only for p in signature.parameters])
        self.required = sum([p.required for p in signature.parameters])
        self.tails = tuple([self.defaults[n:] for n in range(self.count + 1)])
        variadic = [i for i, p in enumerate(signature.parameters) if p.type.endswith("...")]
        self.variadic = variadic[0] if variadic else -1
        self.device_at = self.names.index("device") if "device" in self.names else -1
        self.compound = entry.function is not None
        # Kernels of formulas take whatever elements there are.
        self.refuses = entry.kind not in FORMULA_KINDS
        self.pointwise = entry.kind == POINTWISE
        self.lone = takes_one(self)
        self.plans = {}
        self.binary = {}
        self.recipes = {}
        self.programs = {}
        self.rules = {}
        self.kernels = {}
        self.recent = self.recent_left = self.recent_right = None
        self.recent_flags = 0
        self.keywords = Keywords()
        self.ways = Ways(numeric_places(signature.parameters), self.defaults)
        self.lists = {}
        self.drops = 0
        self.unkeyed = unkeyed_place(entry, self.names)
        self.policies = entry.policies
        # What of ``special`` concerns the op: modes always, autocast of types with a policy.
        self.heeds = -MODE | sum([BITS[kind] for kind in self.policies])

    def __repr__(self) -> str:
        return f"<op {self.signature.text}>"

    def _is_bare(self, plan: Plan) -> bool:
        """Whether a call of the plan needs nothing but its operands."""
        return (plan.rule is None and plan.prepare is None and not plan.numbers
                and (plan.kind == KERNEL or (plan.kind == VIEW and plan.binding is None)))

    def _is_short(self, plan: Plan, count: cython.Py_ssize_t) -> bool:
        """Whether a call of the plan needs nothing but so many of its first arguments."""
        place: cython.Py_ssize_t
        if plan.kind != KERNEL or plan.rule is not None:
            return self._is_bare(plan)
        if plan.prepare is not None and not isinstance(plan.prepare, StoredNumbers):
            return False
        for each in plan.operands + plan.numbers:
            place = each
            if place >= count:
                return False
        return True

    def _is_pair(self, plan: Plan) -> bool:
        """Whether the short way of two operands can carry out a plan, of two tensors."""
        return (plan.kind == KERNEL and plan.outputs == 1 and plan.operands == (0, 1)
                and not plan.numbers and plan.prepare is None and not self.refuses)

    def _is_recent(self, pair: tuple[Any, ...]) -> bool:
        """Whether these are operands such as those of the plan that was found last."""
        if not cython.compiled:
            return False
        a, b = pair
        if not isinstance(a, TensorBase):
            return False
        x: TensorBase = a
        if x.spec is not self.recent_left:
            return False
        if not isinstance(b, TensorBase):
            return type(b) is self.recent_right
        x = b
        return x.spec is self.recent_right

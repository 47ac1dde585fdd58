"""Gradients as formulas: what a rule saves, and how it runs as one plan.

An entry's gradient is a formula for each differentiable parameter, over ``g`` (the gradient of
the result), the op's parameters, ``out`` (the result), ``out_1`` (the second result, without its
history) and ``<parameter>_spec``.  What it names is what the tape saves.  First order: the formulas
of all inputs that want gradients are traced into one program with several results, an op of its
own that the door calls like any other.  Where a formula calls more than primitives (views,
products), and under ``create_graph``, the same functions are called with tensors.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from slipstream.core.dispatch.entry import COMPOSITE, Entry
from slipstream.core.dispatch.op import PLAIN, Op
from slipstream.core.dispatch.signature import NUMBER, TENSORS
from slipstream.core.engine.tape import Rule, SavedTensor
from slipstream.core.fuse.symbols import NotAFormula
from slipstream.core.vocab.dtypes import promote
from slipstream.core.vocab.modes import ModeState, ModeTable, modes
from slipstream.core.vocab.records import GradRecord, Node, Spec, TensorBase

__all__ = ["FormulaRule", "ModeState", "ModeTable", "Node", "Op", "Rule", "SavedTensor", "Spec",
           "gradient_op", "hooks", "parameters_of", "rule_for"]

Formula = Callable[..., Any]


class Hooks:
    """The builder of formula plans, which imports this module; set by wiring."""

    formula_builder: Any = None


hooks = Hooks()

# Where an argument of a gradient's formula comes from, if not from what the tape saved: the
# gradient, those of all results, the result, the inputs' dtypes; from KEPT on, what it kept.
G = -1
GRADS = -2
RESULT = -3
DTYPES = -4
KEPT = 1 << 16


class FormulaRule(Rule):
    """The gradient of one op for one choice of inputs that want it.

    ``calls``: each formula and where its arguments come from: a place among what the tape saved,
    `KEPT` and a place among what it kept, or one of the marks below.
    """

    op: Op
    formulas: list[Formula]
    calls: list[tuple[Formula, tuple[int, ...]]]
    sources: dict[str, int]
    program: Op | None
    program_sources: tuple[int, ...]
    eager: bool
    multiple: bool
    wanted: tuple[str, ...]
    joint: Any
    upstream: Any

    def __init__(self, op: Op, positions: tuple[int, ...]) -> None:
        super().__init__(f"{_title(op.name)}Backward0", positions)
        self.op = op
        self.casts = op.name == "to_dtype"
        self.widens = op.entry.widens
        names = op.names
        self.formulas = [op.entry.gradient[names[position]] for position in positions]
        self.upstream = op.entry.upstream
        shared = [] if self.upstream is None else [self.upstream]
        # Where ``grads`` are named, a result without gradient has None there.
        self.materializes = self.upstream is None
        wanted = {name for formula in (*self.formulas, *shared) for name in parameters_of(formula)}
        self.wanted = tuple([names[position] for position in positions])
        self.joint = op.entry.joint if len(positions) > 1 else None
        self.saves_output = "out" in wanted
        self.saves_second = "out_1" in wanted
        tensors: list[tuple[int, bool]] = []
        others: list[tuple[int, bool]] = []
        for place, name in enumerate(names):
            if f"{name}_spec" in wanted:
                others.append((place, True))
            if name in wanted:
                (tensors if _holds_tensors(op, place) else others).append((place, False))
        self.saves = tuple([place for place, _ in tensors])
        self.keeps = tuple(others)
        self.sources = {"g": G, "grads": GRADS, "out": RESULT, "result_dtypes": DTYPES}
        for place, position in enumerate(self.saves):
            self.sources[names[position]] = place
        self.sources["out_1"] = len(self.saves)
        for place, (position, spec) in enumerate(others):
            self.sources[f"{names[position]}_spec" if spec else names[position]] = KEPT + place
        self.calls = [(formula, self.sources_of(parameters_of(formula)))
                      for formula in self.formulas]
        self.program = None
        self.program_sources = ()
        # Gradients of several results come as a list, which no formula takes.
        self.eager = _calls_ops(op, positions) or "grads" in wanted
        self.multiple = len(positions) == 1 and op.kinds[positions[0]] == TENSORS

    def sources_of(self, names: tuple[str, ...]) -> tuple[int, ...]:
        """Where the arguments of these names come from."""
        return tuple([self.sources[name] for name in names])

    def apply(self, node: Node, grads: list[Any], create_graph: bool) -> list[Any]:
        """Gradients of the inputs; raises RuntimeError for a saved tensor that changed."""
        held = self._held(node)
        if self.upstream is not None:
            sources = self.sources_of(parameters_of(self.upstream))
            grads = [self.upstream(*self._values(sources, node, grads, held)), *grads[1:]]
        if create_graph or self.eager or _lacks(grads):
            return self._with_tensors(node, grads, held)
        if self.joint is not None:
            dtypes = dict(zip(self.wanted, _dtypes_of(node.inputs), strict=True))
            results = self.joint(dtypes, self._known(node, grads, held))
            if results is not None:
                return list(results)
        try:
            return self._with_program(node, grads, held)
        except NotAFormula:
            self.eager = True
            return self._with_tensors(node, grads, held)

    def _held(self, node: Node) -> list[Any]:
        """What the tape saved, each taken out once (a user's hook may compute it), the result last.
        """
        held: list = []
        for saved in node.saved or ():
            held.append(_unpack(saved, node))
        if self.saves_output:
            output: SavedTensor = node.extra
            held.append(output.unpack(node, _record_of(node)))
        return held

    def _value(self, source: int, node: Node, grads: list[Any], held: list[Any]) -> Any:
        """What a formula's argument is for this node."""
        if source >= KEPT:
            return node.values[source - KEPT]
        if source >= 0:
            return held[source]
        if source == G:
            return grads[0]
        if source == RESULT:
            return held[len(held) - 1]
        if source == GRADS:
            return grads
        return _dtypes_of(node.inputs)

    def _values(self, sources: tuple[int, ...], node: Node, grads: list[Any],
                held: list[Any]) -> tuple[Any, ...]:
        found: list = []
        for source in sources:
            found.append(self._value(source, node, grads, held))
        return tuple(found)

    def _with_tensors(self, node: Node, grads: list[Any], held: list[Any]) -> list[Any]:
        results: list = []
        for formula, sources in self.calls:
            results.append(formula(*self._values(sources, node, grads, held)))
        return list(results[0]) if self.multiple else results

    def _with_program(self, node: Node, grads: list[Any], held: list[Any]) -> list[Any]:
        if self.program is None:
            self._make_program(node, grads, held)
        program: Op = self.program  # type: ignore[assignment]  # it was made
        values = self._values(self.program_sources, node, grads, held)
        results = program.dispatch(modes.current(), values, None, PLAIN)
        return list(results) if isinstance(results, tuple) else [results]

    def _known(self, node: Node, grads: list[Any], held: list[Any]) -> dict[str, Any]:
        """Everything that a formula may ask for, by name."""
        return {name: self._value(source, node, grads, held)
                for name, source in self.sources.items()
                if (name != "out" or self.saves_output) and (name != "out_1" or self.saves_second)}

    def _make_program(self, node: Node, grads: list[Any], held: list[Any]) -> None:
        program = gradient_op(self, self._known(node, grads, held))
        self.program_sources = self.sources_of(program.names)
        self.program = program


def _lacks(grads: list[Any]) -> bool:
    """Whether a gradient is None; ``in`` would ask tensors whether they equal it."""
    lacks = False
    for grad in grads:
        lacks = lacks or grad is None
    return lacks


def _dtypes_of(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    found: list = []
    spec: Spec
    for each in inputs:
        spec = each
        found.append(spec.dtype)
    return tuple(found)


def _unpack(saved: Any, node: Node) -> Any:
    if isinstance(saved, SavedTensor):
        known: SavedTensor = saved
        return known.unpack(node, None)
    if isinstance(saved, list):
        return [_unpack(each, node) for each in saved]
    return saved


def _record_of(node: Node) -> Any:
    """The record that gives an unpacked output its history back."""
    if not modes.current().grad_enabled:
        return None
    record = GradRecord()
    record.requires_grad = True
    record.node = node
    return record


def _title(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("."))[:60].replace("_", "")


@functools.lru_cache(maxsize=4096)
def parameters_of(formula: Formula) -> tuple[str, ...]:
    """The names that a formula asks for."""
    return tuple(inspect.signature(formula).parameters)


def _holds_tensors(op: Op, place: int) -> bool:
    return "Tensor" in op.signature.parameters[place].type


def _calls_ops(op: Op, positions: tuple[int, ...]) -> bool:
    """Gradients of kernels and views are calls of ops; only formulas can be one program."""
    return op.entry.kind not in ("pointwise", "reduction", "composite")


def rule_for(op: Op, flags: int, call: Any) -> Rule | None:
    """The rule for the inputs that ``flags`` marks; None where none of them is differentiable."""
    gradient, values = op.entry.gradient, call.values
    positions = tuple([
        place for place, name in enumerate(op.names)
        if flags >> place & 1 and name in gradient and _differentiable(values[place])
    ])
    if not positions:
        return None
    # A scalar number and a tensor in the same place save differently.
    kinds = tuple([isinstance(value, TensorBase) for value in values])
    rule = op.rules.get((positions, kinds))
    if rule is None:
        rule = op.rules[positions, kinds] = FormulaRule(op, positions)
    return rule


def _differentiable(value: Any) -> bool:
    if isinstance(value, TensorBase):
        return value.spec.dtype.category >= 2
    return value is not None


def gradient_op(rule: FormulaRule, known: dict[str, Any]) -> Op:
    """The op that computes all of a rule's gradients as one program."""
    wanted = dict.fromkeys(name for formula in rule.formulas for name in parameters_of(formula))
    declared = []
    for name in wanted:
        declared.append(f"{_type_in_gradient(rule.op, name, known[name])} {name}")
    declared.append("any result_dtypes")
    signature = f"{rule.op.name}_backward({', '.join(declared)})"
    entry = Entry(signature, COMPOSITE, formula=_joint(rule.formulas, tuple(wanted)),
                  promotion=_gradient_dtypes)
    return Op(entry, hooks.formula_builder)


def _type_in_gradient(op: Op, name: str, value: Any) -> str:
    if isinstance(value, TensorBase):
        return "Tensor"
    if name in op.names and op.kinds[op.names.index(name)] in (NUMBER, 1):
        return "Number?"
    return "any"


def _gradient_dtypes(call: Any) -> Any:
    common = None
    for tensor in call.tensors():
        dtype = tensor.spec.dtype
        if dtype.category >= 2:
            common = dtype if common is None else promote(common, dtype)
    return common, call["result_dtypes"]


def _joint(formulas: list[Formula], names: tuple[str, ...]) -> Formula:
    def joint(**known: Any) -> tuple[Any, ...]:
        return tuple([formula(*[known[name] for name in parameters_of(formula)])
                      for formula in formulas])

    parameters = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names]
    joint.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return joint

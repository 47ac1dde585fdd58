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

import cython

from slipstream.core.dispatch.entry import COMPOSITE, Entry, passed_on, times_alpha
from slipstream.core.dispatch.op import PLAIN, Op
from slipstream.core.dispatch.signature import NUMBER, STATIC, TENSORS
from slipstream.core.engine.tape import Rule, SavedTensor
from slipstream.core.fuse.symbols import NotAFormula
from slipstream.core.launch.door import LaunchDoor, door
from slipstream.core.vocab.dtypes import promote
from slipstream.core.vocab.modes import ModeState, ModeTable, modes
from slipstream.core.vocab.records import KERNEL, GradRecord, Node, Plan, Spec, TensorBase

__all__ = ["FormulaRule", "LaunchDoor", "ModeState", "ModeTable", "Node", "Op", "Passing", "Rule",
           "SavedTensor", "Spec", "gradient_op", "hooks", "parameters_of", "rule_for"]

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
MISSING = -5
KEPT = 1 << 16


class Passing:
    """How gradients passed the calls of one plan: the program's plan, found without its key.

    It serves gradients of the spec ``upstream`` and saved tensors of the specs ``held``; all else
    that the program's key holds follows from the plan of the call.  ``operands`` and ``numbers``:
    where they come from.  ``plan``: None where every call has to go the long way.
    """

    upstream: Spec
    held: tuple[Spec, ...]
    plan: Plan | None
    operands: tuple[int, ...]
    numbers: tuple[int, ...]

    def __init__(self, plan: Plan | None) -> None:
        self.plan = plan
        self.held = ()
        self.operands = ()
        self.numbers = ()


# Stands where a gradient has passed once.
once = Passing(None)


class FormulaRule(Rule):
    """The gradient of one op for one choice of inputs that want it.

    ``calls``: each formula and where its arguments come from: a place among what the tape saved,
    `KEPT` and a place among what it kept, or one of the marks below.  ``passes``: there is one,
    and what it computes is the gradient itself, or a number times it.
    """

    op: Op
    formulas: list[Formula]
    calls: list[tuple[Formula, tuple[int, ...]]]
    sources: dict[str, int]
    program: Op | None
    program_sources: tuple[int, ...]
    eager: bool
    multiple: bool
    passes: bool
    wanted: tuple[str, ...]
    joint: Any
    upstream: Any
    upstream_sources: tuple[int, ...]
    joint_sources: tuple[int, ...]

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
        self.constant = all([spec or op.kinds[place] == STATIC for place, spec in others])
        self.sources = {"g": G, "grads": GRADS, "out": RESULT, "result_dtypes": DTYPES}
        for place, position in enumerate(self.saves):
            self.sources[names[position]] = place
        self.sources["out_1"] = len(self.saves)
        for place, (position, spec) in enumerate(others):
            self.sources[f"{names[position]}_spec" if spec else names[position]] = KEPT + place
        self.calls = [(formula, self.sources_of(parameters_of(formula)))
                      for formula in self.formulas]
        self.upstream_sources = (() if self.upstream is None
                                 else self.sources_of(parameters_of(self.upstream)))
        # After what is wanted; what no wanted gradient names is None.
        self.joint_sources = (() if self.joint is None else tuple([
            self.sources.get(name, MISSING) for name in parameters_of(self.joint)[1:]]))
        self.program = None
        self.program_sources = ()
        # Gradients of several results come as a list, which no formula takes.
        self.eager = _calls_ops(op, positions) or "grads" in wanted
        self.multiple = len(positions) == 1 and op.kinds[positions[0]] == TENSORS
        self.passes = self.upstream is None and self.formulas in ([passed_on], [times_alpha])

    def sources_of(self, names: tuple[str, ...]) -> tuple[int, ...]:
        """Where the arguments of these names come from."""
        return tuple([self.sources[name] for name in names])

    def apply(self, node: Node, grads: list[Any], create_graph: bool) -> list[Any]:
        """Gradients of the inputs; raises RuntimeError for a saved tensor that changed."""
        held = self._held(node)
        if self.upstream is not None:
            values = self._values(self.upstream_sources, node, grads, held)
            grads = [self.upstream(*values), *grads[1:]]
        if create_graph or _lacks(grads):
            return self._with_tensors(node, grads, held)
        if self.passes and self._is_wanted_as_it_is(node, grads):
            return grads.copy()
        if self.joint is not None and not (self.eager and _declined(node, grads)):
            results = self.joint((self.wanted, _dtypes_of(node.inputs)),
                                 *self._values(self.joint_sources, node, grads, held))
            if results is not None:
                return results if type(results) is list else list(results)
            if self.eager:
                _note_declined(node, grads)
        if self.eager:
            return self._with_tensors(node, grads, held)
        try:
            return self._with_program(node, grads, held)
        except NotAFormula:
            self.eager = True
            return self._with_tensors(node, grads, held)

    def _is_wanted_as_it_is(self, node: Node, grads: list[Any]) -> bool:
        """Whether the gradient has the dtype of the one input, which was added once."""
        upstream: TensorBase = grads[0]
        wanted: Spec = node.inputs[0]
        if len(grads) != 1 or upstream.spec.dtype is not wanted.dtype:
            return False
        return self.formulas[0] is passed_on or bool(node.values[0] == 1)

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
        if source == MISSING:
            return None
        return _dtypes_of(node.inputs)

    def _values(self, sources: tuple[int, ...], node: Node, grads: list[Any],
                held: list[Any]) -> tuple[Any, ...]:
        count: cython.Py_ssize_t = len(sources)
        if count == 1:
            return (self._value(sources[0], node, grads, held),)
        if count == 2:
            return (self._value(sources[0], node, grads, held),
                    self._value(sources[1], node, grads, held))
        if count == 3:
            return (self._value(sources[0], node, grads, held),
                    self._value(sources[1], node, grads, held),
                    self._value(sources[2], node, grads, held))
        if count == 5:
            return (self._value(sources[0], node, grads, held),
                    self._value(sources[1], node, grads, held),
                    self._value(sources[2], node, grads, held),
                    self._value(sources[3], node, grads, held),
                    self._value(sources[4], node, grads, held))
        found: list = []
        place: cython.Py_ssize_t
        for place in range(count):
            found.append(self._value(sources[place], node, grads, held))
        return tuple(found)

    def _with_tensors(self, node: Node, grads: list[Any], held: list[Any]) -> list[Any]:
        results: list
        if len(self.calls) == 1:
            formula, sources = self.calls[0]
            results = [formula(*self._values(sources, node, grads, held))]
        else:
            results = []
            for formula, sources in self.calls:
                results.append(formula(*self._values(sources, node, grads, held)))
        return list(results[0]) if self.multiple else results

    def _with_program(self, node: Node, grads: list[Any], held: list[Any]) -> list[Any]:
        call: Plan | None = node.plan
        if call is None:
            return self._looked_up(node, grads, held)
        passing: Passing | None = call.passing
        if passing is not None and passing is not once:
            if passing.plan is None:
                return self._looked_up(node, grads, held)
            if _serves(passing, grads, held):
                return self._again(passing, node, grads, held)
        results = self._looked_up(node, grads, held)
        if modes.listeners is None and not modes.current().grad_enabled:
            # A call of sizes that are met once only is not worth a note.
            call.passing = once if passing is None else self._note_passing(node, grads, held)
        return results

    def _again(self, passing: Passing, node: Node, grads: list[Any],
               held: list[Any]) -> list[Any]:
        """Launch the program's known plan."""
        plan: Plan = passing.plan  # type: ignore[assignment]  # it was asked before
        program: Op = self.program  # type: ignore[assignment]  # a plan of it is known
        plan.used = True
        results: list = []
        if plan.outputs == 1:
            results.append(program._new(plan.out_spec, plan.backend))
        else:
            for spec in plan.out_specs:
                results.append(program._new(spec, plan.backend))
        operands: list = results.copy()
        for source in passing.operands:
            operands.append(self._value(source, node, grads, held))
        numbers: tuple = ()
        if passing.numbers:
            numbers = self._values(passing.numbers, node, grads, held)
        door.submit(plan, tuple(operands), numbers)
        return results

    def _note_passing(self, node: Node, grads: list[Any], held: list[Any]) -> Passing:
        """What `_again` needs, for what has just been computed."""
        program: Op = self.program  # type: ignore[assignment]  # it was made
        values = self._values(self.program_sources, node, grads, held)
        plan = program.plan_for(modes.current(), values, None, PLAIN)
        plain = (plan.kind == KERNEL and plan.prepare is None and plan.rule is None
                 and len(grads) == 1
                 and all([isinstance(each, TensorBase) for each in held])
                 and all([isinstance(values[place], TensorBase) for place in plan.operands]))
        if not plain:
            return Passing(None)
        passing = Passing(plan)
        passing.upstream = grads[0].spec
        passing.held = tuple([each.spec for each in held])
        passing.operands = tuple([self.program_sources[place] for place in plan.operands])
        passing.numbers = tuple([self.program_sources[place] for place in plan.numbers])
        return passing

    def _looked_up(self, node: Node, grads: list[Any], held: list[Any]) -> list[Any]:
        """What the program gives, whose plan is found by its key."""
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


def _declined(node: Node, grads: list[Any]) -> bool:
    """Whether a joint rule left a call of the plan, and a gradient like this, to the formulas."""
    call: Plan | None = node.plan
    if call is None or call.passing is None:
        return False
    passing: Passing = call.passing
    tensor: TensorBase = grads[0]
    return passing.plan is None and passing.upstream is tensor.spec


def _note_declined(node: Node, grads: list[Any]) -> None:
    """Note that a joint rule of an op without a program declined; specs alone decide that."""
    call: Plan | None = node.plan
    if call is not None:
        passing: Passing = Passing(None)
        passing.upstream = grads[0].spec
        call.passing = passing


def _serves(passing: Passing, grads: list[Any], held: list[Any]) -> bool:
    """Whether a known plan is that of these gradients and saved tensors."""
    plan: Plan = passing.plan  # type: ignore[assignment]  # it was asked before
    # A plan that its op has dropped has no key.
    if plan.key is None or modes.listeners is not None or modes.current().grad_enabled:
        return False
    count: cython.Py_ssize_t = len(held)
    place: cython.Py_ssize_t
    if len(grads) != 1 or count != len(passing.held):
        return False
    tensor: TensorBase = grads[0]
    if tensor.spec is not passing.upstream:
        return False
    for place in range(count):
        tensor = held[place]
        if tensor.spec is not passing.held[place]:
            return False
    return True


def _lacks(grads: list[Any]) -> bool:
    """Whether a gradient is None; ``in`` would ask tensors whether they equal it."""
    lacks = False
    for grad in grads:
        lacks = lacks or grad is None
    return lacks


def _dtypes_of(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    spec: Spec
    second: Spec
    third: Spec
    count: cython.Py_ssize_t = len(inputs)
    if 0 < count < 4:
        spec = inputs[0]
        second = inputs[count // 2]
        third = inputs[count - 1]
        dtypes: tuple
        if count == 1:
            dtypes = (spec.dtype,)
        elif count == 2:
            dtypes = (spec.dtype, third.dtype)
        else:
            dtypes = (spec.dtype, second.dtype, third.dtype)
        # The same object for the same dtypes: calls are known again by what they are given.
        return _alike.setdefault(dtypes, dtypes)
    found: list = []
    for each in inputs:
        spec = each
        found.append(spec.dtype)
    return tuple(found)


_alike: dict[tuple[Any, ...], tuple[Any, ...]] = {}


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


def rule_for(op: Op, flags: int, values: Any) -> Rule | None:
    """The rule for the inputs that ``flags`` marks; None where none of them is differentiable."""
    place: cython.Py_ssize_t
    wanted: cython.longlong = flags
    found: list = []
    kinds: list = []
    gradient = op.entry.gradient
    for place in range(op.count):
        value = values[place]
        # A scalar number and a tensor in the same place save differently.
        kinds.append(isinstance(value, TensorBase))
        if wanted >> place & 1 and op.names[place] in gradient and _differentiable(value):
            found.append(place)
    if not found:
        return None
    positions = tuple(found)
    key = (positions, tuple(kinds))
    rule = op.rules.get(key)
    if rule is None:
        rule = op.rules[key] = FormulaRule(op, positions)
    return rule


def _differentiable(value: Any) -> bool:
    if isinstance(value, TensorBase):
        tensor: TensorBase = value
        return tensor.spec.differentiable
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

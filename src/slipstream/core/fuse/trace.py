# cython: annotation_typing=False
"""Tracing: a formula, called once with symbols, becomes a program."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from slipstream.core.fuse import classes as compute
from slipstream.core.fuse.graph import CONSTANT, INPUT, NUMBER, SCALAR, STEP, Graph, Node
from slipstream.core.fuse.primitives import PRIMITIVES
from slipstream.core.fuse.symbols import NotAFormula, Symbol, lift, operate, tensor_symbol
from slipstream.core.vocab import dtypes
from slipstream.core.vocab.dtypes import DType
from slipstream.core.vocab.programs import FULL, ROW, Constant, Input, Output, Program, Step

# The formula writer's re-export: dispatch asks for the dtype of an output that it leaves open.
natural_dtype = compute.natural_dtype
NARROW = (dtypes.bfloat16, dtypes.float16)


class TensorArgument(NamedTuple):
    """A tensor: stored as ``dtype``, loaded as class ``cls``, with ``rank`` dims.

    ``level`` is row for the saved result of a reduction (with keepdim): it has the domain's rank,
    and the program reads one element of it for each point of the outer dims.  ``rounded`` names
    the 16-bit float that its elements are rounded to first.
    """

    dtype: DType
    cls: str
    rank: int
    level: str = FULL
    rounded: str = ""


class NumberArgument(NamedTuple):
    """A Python number given at run time, of the class (b1, i64, f64, c128) that Python uses.

    ``rounded`` names the 16-bit float that it is rounded to first.
    """

    cls: str
    rounded: str = ""


class Traced(NamedTuple):
    """A traced formula.

    ``operands`` names the tensors in the order of ``program.inputs``, ``number_names`` the numbers
    in the order of ``program.numbers``.  ``reduced_dims`` are the inner dims, counted from the left
    of the domain, whose rank is ``rank``.  ``keepdims`` tells of each output whether it has the
    reduced dims; ``single`` whether the formula returned one value and not a tuple.
    ``output_operands`` names the tensors whose shapes make each output's shape, and
    ``reduction_operands`` those that make the shape of each reduction's source: broadcast together
    they must fill the domain's inner dims, or the reduction would count repeated elements.
    """

    program: Program
    operands: tuple[str, ...]
    number_names: tuple[str, ...]
    reduced_dims: tuple[int, ...]
    rank: int
    keepdims: tuple[bool, ...]
    single: bool
    output_operands: tuple[tuple[str, ...], ...]
    reduction_operands: tuple[tuple[str, ...], ...]


@lru_cache(maxsize=4096)
def _parameters(formula: Callable[..., Any]) -> tuple[inspect.Parameter, ...]:
    return tuple(inspect.signature(formula).parameters.values())


def parameter_names(formula: Callable[..., Any]) -> tuple[str, ...]:
    """The names of the formula's parameters."""
    return tuple(parameter.name for parameter in _parameters(formula))


def trace(formula: Callable[..., Any], arguments: Mapping[str, Any],
          outputs: Sequence[DType | None] | None = None) -> Traced:
    """Call ``formula`` with a symbol for each tensor and number among ``arguments``.

    Arguments go to the parameters of the same name; anything but TensorArgument and NumberArgument
    is passed as it is.  ``outputs`` are the dtypes of the results; None leaves them to the class.

    Raises NotAFormula if the formula uses what no formula has, TypeError if a parameter has no
    argument, ValueError if the number of results differs from that of ``outputs``.
    """
    given = matched(formula, arguments)
    key = _structure(formula, given, outputs)
    known = structures.get(key)
    if known is not None:
        return _retyped(known, given, outputs)
    graph = Graph()
    traced = write(decompose(graph, formula, given, outputs))
    if key is not None and not graph.typed:
        if len(structures) >= MOST:
            structures.clear()
        structures[key] = traced
    return traced


# What formulas were traced to, by what their structure depends on.
structures: dict[Any, Traced] = {}
MOST = 4096
# Arguments that are compared with their type are told apart exactly; a float's 0.0 is its -0.0.
PLAIN = (type(None), bool, int, str, DType)


def _structure(formula: Callable[..., Any], matched: Mapping[str, Any],
               outputs: Sequence[DType | None] | None) -> tuple[Any, ...] | None:
    """What a traced formula depends on but for the dtypes that its operands are stored as."""
    parts: list[Any] = [formula]
    for argument in matched.values():
        if isinstance(argument, TensorArgument):
            parts.append((argument.cls, argument.rank, argument.level, argument.rounded))
        elif isinstance(argument, NumberArgument):
            parts.append((argument.cls, argument.rounded))
        elif type(argument) in PLAIN:
            parts.append((type(argument), argument))
        else:
            return None
    for dtype in outputs or ():
        parts.append(None if dtype is None else dtype.compute)
    return tuple(parts)


def _retyped(traced: Traced, arguments: Mapping[str, Any],
             outputs: Sequence[DType | None] | None) -> Traced:
    """The same program over operands that are stored as other dtypes."""
    program = traced.program
    dtypes: Sequence[DType | None] = outputs or [None] * len(program.outputs)
    inputs = tuple([Input(arguments[name].dtype, each.cls, each.level)
                    for name, each in zip(traced.operands, program.inputs, strict=True)])
    results = tuple([Output(each.value, each.dtype if dtype is None else dtype)
                     for each, dtype in zip(program.outputs, dtypes, strict=True)])
    again = Program(inputs, program.numbers, program.constants, program.steps, results)
    return Traced(again, traced.operands, traced.number_names, traced.reduced_dims, traced.rank,
                  traced.keepdims, traced.single, traced.output_operands,
                  traced.reduction_operands)


class Draft(NamedTuple):
    """A formula that was called, before it is a program.

    ``values`` are those of its results in ``graph``, ``stored`` their dtypes; ``arguments`` has the
    formula's parameters in order; ``keepdims`` and ``single`` as in `Traced`.
    """

    graph: Graph
    arguments: dict[str, Any]
    values: list[int]
    stored: list[DType]
    keepdims: tuple[bool, ...]
    single: bool


def decompose(graph: Graph, formula: Callable[..., Any], arguments: dict[str, Any],
              outputs: Sequence[DType | None] | None) -> Draft:
    """Call a formula with symbols: what it does is in ``graph`` then, as primitives."""
    graph.narrow = bool(outputs) and all([each in NARROW for each in outputs or ()])
    bound = {name: _bind(graph, name, argument) for name, argument in arguments.items()}
    results = formula(**bound)
    single = not isinstance(results, tuple | list)
    symbols = [lift(graph, each) for each in ((results,) if single else results)]
    dtypes = [None] * len(symbols) if outputs is None else list(outputs)
    if len(dtypes) != len(symbols):
        raise ValueError(f"the formula returned {len(symbols)} results, not {len(dtypes)}")
    stored = [_output_dtype(symbol, dtype) for symbol, dtype in zip(symbols, dtypes, strict=True)]
    values = [graph.cast(symbol.value, dtype.compute)
              for symbol, dtype in zip(symbols, stored, strict=True)]
    return Draft(graph, arguments, values, stored,
                 tuple([not symbol.squeezed for symbol in symbols]), single)


def write(draft: Draft) -> Traced:
    """The live values of a draft as a program, and what its caller must know to bind it."""
    return _Writer(draft.graph, draft.values, draft.arguments).traced(draft)


def write_all(draft: Draft) -> Program:
    """All values of a draft as a program, those that no result needs too."""
    writer = _Writer(draft.graph, draft.values, draft.arguments)
    writer.live, writer.narrowed = list(range(len(writer.nodes))), {}
    writer.reducing = any([writer._reduces(node) for node in writer.nodes])
    return writer.program(draft.arguments, draft.stored)


def matched(formula: Callable[..., Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a formula's parameters, in order; raises TypeError where one is missing."""
    found = {}
    for parameter in _parameters(formula):
        if parameter.name in arguments:
            found[parameter.name] = arguments[parameter.name]
        elif parameter.default is inspect.Parameter.empty:
            raise TypeError(f"the formula's parameter '{parameter.name}' has no argument")
    return found


def _bind(graph: Graph, name: str, argument: Any) -> Any:
    symbol = _symbol(graph, name, argument)
    if symbol is argument or not argument.rounded:
        return symbol
    return operate(f"as_{argument.rounded}", symbol.to_class("f32"))


def _symbol(graph: Graph, name: str, argument: Any) -> Any:
    if isinstance(argument, TensorArgument):
        return tensor_symbol(graph, name, argument.cls, argument.rank, level=argument.level,
                             narrow=argument.dtype)
    if isinstance(argument, NumberArgument):
        return Symbol(graph, graph.number(name, argument.cls), 0, weak=True)
    return argument


def _output_dtype(symbol: Symbol, dtype: DType | None) -> DType:
    if dtype is not None:
        return dtype
    # A number alone makes a tensor of the default dtype of its kind.
    cls = {"f64": "f32", "c128": "c64"}.get(symbol.cls, symbol.cls) if symbol.weak else symbol.cls
    return compute.natural_dtype(cls)


class _Writer:
    """Numbers the live values of a graph in a program's order and writes them down."""

    def __init__(self, graph: Graph, outputs: Sequence[int], names: Mapping[str, Any]) -> None:
        self.nodes = graph.nodes
        self.reduced = graph.reduced or ()
        self.reduced_rank = graph.reduced_rank
        self.outputs = list(outputs)
        self.order = {name: place for place, name in enumerate(names)}
        self.live = self._reach(self.outputs)
        self.narrowed = self._narrow_numbers()
        self.reducing = any(self._reduces(self.nodes[value]) for value in self.live)

    @staticmethod
    def _reduces(node: Node) -> bool:
        return node.kind == STEP and PRIMITIVES[node.label].reduction

    def _reach(self, roots: Sequence[int], through_rows: bool = True) -> list[int]:
        """The values that ``roots`` are computed from, in order."""
        found: set[int] = set()
        stack = list(roots)
        while stack:
            value = stack.pop()
            if value in found:
                continue
            found.add(value)
            node = self.nodes[value]
            if through_rows or node.level == FULL:
                stack.extend(node.sources)
        return sorted(found)

    def _narrow_numbers(self) -> dict[int, int]:
        """Numbers that are only ever cast to one class: (cast step -> number) for each such cast.

        The program then takes the number in that class, which saves the step.
        """
        uses: dict[int, list[int]] = {}
        for value in self.live:
            for source in self.nodes[value].sources:
                uses.setdefault(source, []).append(value)
        # Casts of one value to one class are one value, so a single use means a single class.
        return {used[0]: value for value, used in uses.items()
                if self.nodes[value].kind == NUMBER and value not in self.outputs
                and len(used) == 1 and self.nodes[used[0]].label == "cast"}

    def _kind(self, kind: str) -> list[int]:
        found = [value for value in self.live if self.nodes[value].kind == kind]
        if kind in (INPUT, NUMBER):
            found.sort(key=lambda value: self.order[self.nodes[value].label])
        return found

    def _level(self, node: Node) -> str:
        if not self.reducing:
            return FULL
        return ROW if node.level == SCALAR else node.level

    def _names(self, roots: Sequence[int], through_rows: bool = True) -> tuple[str, ...]:
        return tuple(self.nodes[value].label for value in self._reach(roots, through_rows)
                     if self.nodes[value].kind == INPUT
                     and (through_rows or self.nodes[value].level == FULL))

    def program(self, arguments: Mapping[str, Any], stored: Sequence[DType]) -> Program:
        """The program of the live values."""
        nodes = self.nodes
        steps = [value for value in self._kind(STEP) if value not in self.narrowed]
        order = self._kind(INPUT) + self._kind(NUMBER) + self._kind(CONSTANT) + steps
        place = {value: index for index, value in enumerate(order)}
        number_cls = {value: nodes[value].cls for value in self._kind(NUMBER)}
        for cast, number in self.narrowed.items():
            place[cast] = place[number]
            number_cls[number] = nodes[cast].cls
        return Program(
            inputs=tuple(Input(arguments[nodes[value].label].dtype, nodes[value].cls,
                               self._level(nodes[value])) for value in self._kind(INPUT)),
            numbers=tuple(number_cls[value] for value in self._kind(NUMBER)),
            constants=tuple(Constant(nodes[value].literal, nodes[value].cls)
                            for value in self._kind(CONSTANT)),
            steps=tuple(self._step(nodes[value], place) for value in steps),
            outputs=tuple(Output(place[value], dtype)
                          for value, dtype in zip(self.outputs, stored, strict=True)))

    def _step(self, node: Node, place: Mapping[int, int]) -> Step:
        sources = tuple(place[source] for source in node.sources)
        return Step(node.label, node.cls, sources, node.result, self._level(node))

    def _domain_rank(self, ranks: Mapping[str, int]) -> int:
        inputs = [self.nodes[value] for value in self._kind(INPUT)]
        rank = max([ranks[node.label] for node in inputs], default=0)
        if not self.reducing:
            return rank
        if all(node.level == ROW for node in inputs):
            raise NotAFormula("a count without the values that it counts")
        if rank != self.reduced_rank:
            raise NotAFormula(f"two domains: a value of rank {self.reduced_rank} is reduced beside "
                              f"operands of rank {rank}")
        return rank

    def traced(self, draft: Draft) -> Traced:
        """The program and what its caller must know to bind it."""
        ranks = {name: argument.rank for name, argument in draft.arguments.items()
                 if isinstance(argument, TensorArgument)}
        rank = self._domain_rank(ranks)
        reductions = [self.nodes[value].sources for value in self.live
                      if self._reduces(self.nodes[value]) and self.nodes[value].sources]
        return Traced(
            program=self.program(draft.arguments, draft.stored),
            operands=tuple(self.nodes[value].label for value in self._kind(INPUT)),
            number_names=tuple(self.nodes[value].label for value in self._kind(NUMBER)),
            reduced_dims=tuple(dim + rank for dim in self.reduced) if self.reducing else (),
            rank=rank,
            keepdims=draft.keepdims,
            single=draft.single,
            output_operands=tuple(self._names([value]) for value in self.outputs),
            reduction_operands=tuple(dict.fromkeys(
                self._names(sources, through_rows=False) for sources in reductions)))

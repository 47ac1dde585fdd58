"""The passes that make a program of a formula, one after the other.

`trace` runs the same rules, in one walk and for each value when it is asked for: a recipe is made
in tens of microseconds.  Here every pass takes what the one before it gave, so that each can be
looked at, and checked, by itself; both ways end at the same program, which a test compares for the
whole catalogue.  What comes after these, for a card, is in `kernels.cuda.passes`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from slipstream.core.fuse.grammar import DEAD, FOLDED, SHARED, TYPED
from slipstream.core.fuse.graph import CONSTANT, INPUT, NUMBER, Graph, Node
from slipstream.core.fuse.trace import Draft, Traced, decompose, matched, write, write_all
from slipstream.core.vocab.dtypes import DType
from slipstream.core.vocab.programs import Program


class Work(NamedTuple):
    """What passes hand on: ``draft`` until there is a program, ``traced`` from then on."""

    formula: Callable[..., Any]
    arguments: Mapping[str, Any]
    outputs: Sequence[DType | None] | None = None
    draft: Draft | None = None
    traced: Traced | None = None

    @property
    def program(self) -> Program:
        """The program so far; raises ValueError before the formula was called."""
        if self.traced is not None:
            return self.traced.program
        if self.draft is None:
            raise ValueError("the formula was not called yet: run the pass 'decompose' first")
        return write_all(self.draft)


class Pass(NamedTuple):
    """One pass: its name, what it does, the function, and which rules of the grammar hold then."""

    name: str
    what: str
    run: Callable[[Any], Any]
    rules: frozenset[str] = frozenset()


def call_formula(work: Work) -> Work:
    """Call the formula with symbols, and write down every primitive that it asks for."""
    graph = Graph(folds=False, shares=False)
    given = matched(work.formula, work.arguments)
    return work._replace(draft=decompose(graph, work.formula, given, work.outputs))


def fold(work: Work) -> Work:
    """Compute what depends on constants only; leave out products and quotients by one."""
    return _again(work, Graph(folds=True, shares=False))


def share(work: Work) -> Work:
    """Make one value of those that are computed alike."""
    return _again(work, Graph(folds=False, shares=True))


def drop_dead(work: Work) -> Work:
    """Leave out what no result needs, and take numbers in the class that they are used in."""
    assert work.draft is not None, "the formula was not called yet"
    return work._replace(traced=write(work.draft))


def _again(work: Work, graph: Graph) -> Work:
    """Ask another graph for all values of a draft, in their order."""
    draft = work.draft
    assert draft is not None, "the formula was not called yet"
    places: list[int] = []
    for node in draft.graph.nodes:
        places.append(_asked(graph, node, places))
    graph.reduced, graph.reduced_rank = draft.graph.reduced, draft.graph.reduced_rank
    graph.typed = draft.graph.typed
    values = [places[value] for value in draft.values]
    return work._replace(draft=draft._replace(graph=graph, values=values))


def _asked(graph: Graph, node: Node, places: list[int]) -> int:
    if node.kind == INPUT:
        return graph.input(node.label, node.cls, node.level)
    if node.kind == NUMBER:
        return graph.number(node.label, node.cls)
    if node.kind == CONSTANT:
        return graph.constant(node.literal, node.cls)
    return graph.step(node.label, node.cls, tuple([places[each] for each in node.sources]))


PASSES = (
    Pass("decompose", "the formula, called with symbols, as primitives", call_formula, TYPED),
    Pass("fold", "steps of constants, products and quotients by one", fold, TYPED | FOLDED),
    Pass("common subexpressions", "what is computed alike is one value", share,
         TYPED | FOLDED | SHARED),
    Pass("dead code", "what no result needs goes: a program", drop_dead,
         TYPED | FOLDED | SHARED | DEAD),
)


def run_passes(work: Work, passes: Sequence[Pass] = PASSES) -> list[tuple[Pass, Any]]:
    """Run passes one after the other: each with what it gave."""
    found = []
    for each in passes:
        work = each.run(work)
        found.append((each, work))
    return found


def describe_passes(passes: Sequence[Pass] = PASSES) -> str:
    """The list of passes, a line for each."""
    return "".join(f"{number}. {each.name}: {each.what}\n"
                   for number, each in enumerate(passes, 1))

"""An op on every tensor of a list: by one launch where that can be, else call by call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from slipstream.core.dispatch.listing import Task, gathered
from slipstream.core.dispatch.lists import TensorList
from slipstream.core.dispatch.op import IN_PLACE, PLAIN, Op
from slipstream.core.dispatch.signature import NUMBER, TENSOR_OR_NUMBER
from slipstream.core.engine.tape import tape
from slipstream.core.fuse.symbols import NotAFormula
from slipstream.core.vocab.modes import ModeState, modes
from slipstream.core.vocab.records import TensorBase

# Fitted lists that an op keeps.
MOST = 64
Parts = tuple[list[tuple[TensorList, list[int]]], list[int]]


def each(op: Op, title: str, tensors: Sequence[Any], named: dict[str, Any],
         in_place: bool) -> Any:
    """Call ``op`` on each tensor; arguments that are lists have one entry for each.

    Returns the list of results, or in place None.  Raises RuntimeError for an empty list and for
    lists of different lengths.
    """
    tensors = list(tensors)
    check_lengths(title, tensors, named)
    several = {name: list(value) for name, value in named.items()
               if isinstance(value, (list, tuple))}
    results: list[Any] = list(tensors) if in_place else [None] * len(tensors)
    state = modes.current()
    rest: Sequence[int] = range(len(tensors))
    if not state.stack and not wants_gradient(state, tensors, named):
        rest = together(op, tensors, (named, several), (state, results, in_place))
    for place in rest:
        mine = {name: value[place] if name in several else value for name, value in named.items()}
        call = op.call_inplace if in_place else op.call
        results[place] = call((tensors[place],), mine)
    return None if in_place else results


def check_lengths(title: str, tensors: list[Any], named: dict[str, Any]) -> None:
    """Raise RuntimeError for no tensors and other lengths, TypeError for what is no tensor."""
    if not tensors:
        raise RuntimeError(f"{title}(): Tensor list must have at least one tensor.")
    for place, tensor in enumerate(tensors):
        if not isinstance(tensor, TensorBase):
            raise TypeError(f"{title}(): argument 'self' must be a list of Tensors, but its entry "
                            f"{place} is {type(tensor).__name__}")
    for name, value in named.items():
        if isinstance(value, (list, tuple)) and len(value) != len(tensors):
            raise RuntimeError(
                f"{title}(): Tensor lists must have the same number of tensors, got "
                f"{len(tensors)} and {len(value)} (argument '{name}')")


def wants_gradient(state: ModeState, tensors: list[Any], named: dict[str, Any]) -> bool:
    """Whether a call has to be recorded."""
    if not state.grad_enabled:
        return False
    lists = [tensors, *[value if isinstance(value, (list, tuple)) else [value]
                        for value in named.values()]]
    return any(tape.requires_grad(tensor) for each in lists for tensor in each
               if isinstance(tensor, TensorBase))


def together(op: Op, tensors: list[Any], arguments: Any, facts: Any) -> Sequence[int]:
    """Carry out what goes together; the places of what does not."""
    named, several = arguments
    state, results, in_place = facts
    every = range(len(tensors))
    columns = [tensors, *several.values()]
    if not all(isinstance(tensor, TensorBase) for column in columns for tensor in column):
        return every
    values = values_of(op, named, several)
    key = (in_place, kinds_of(op, values), tuple(several),
           *[tuple([tensor.spec for tensor in column]) for column in columns])
    try:
        parts = op.lists.get(key)
    except TypeError:
        return every
    if parts is None:
        parts = made(op, columns, (values, several), (state, in_place))
        if len(op.lists) >= MOST:
            op.lists.clear()
        op.lists[key] = parts
    modes.note_site(state)
    shared = tuple([value for value in values if isinstance(value, TensorBase)])
    rest = list(parts[1])
    for part, places in parts[0]:
        rows = [[column[place] for place in places] for column in columns]
        if not in_place:
            rows.insert(0, part.new_column())
        numbers = tuple([values[place] for place in part.plan.numbers])
        if not part.run(state, tuple(rows), numbers, shared):
            rest += places
        elif not in_place:
            for place, result in zip(places, rows[0], strict=True):
                results[place] = result
    return rest


def made(op: Op, columns: list[list[Any]], arguments: Any, facts: Any) -> Parts:
    """The fitted lists of a call; what a list cannot have goes call by call and says so there."""
    values, several = arguments
    state, in_place = facts
    places = (0, *[op.names.index(name) for name in several])
    shared = tuple([place for place, value in enumerate(values) if isinstance(value, TensorBase)])
    if any(values[place].spec.ndim for place in shared):
        return [], list(range(len(columns[0])))
    task = Task(op, IN_PLACE if in_place else PLAIN, values, places, shared=shared)
    before = state.grad_enabled
    state.grad_enabled = False
    try:
        lists, rest = gathered(task, state, columns)
    except (RuntimeError, TypeError, ValueError, NotAFormula):
        return [], list(range(len(columns[0])))
    finally:
        state.grad_enabled = before
    return [(part, part.places) for part in lists], rest


def values_of(op: Op, named: dict[str, Any], several: dict[str, Any]) -> tuple[Any, ...]:
    """The op's arguments, with None where the lists' tensors go."""
    values = list(op.defaults)
    values[0] = None
    for name, value in named.items():
        values[op.names.index(name)] = None if name in several else value
    return tuple(values)


def kinds_of(op: Op, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """What a plan depends on: of run-time numbers their type, and whether they are defaults."""
    return tuple([
        value.spec if isinstance(value, TensorBase) else
        (type(value), value is op.defaults[place])
        if op.kinds[place] in (NUMBER, TENSOR_OR_NUMBER) else
        (type(value), repr(value) if isinstance(value, float) else value)
        for place, value in enumerate(values)])

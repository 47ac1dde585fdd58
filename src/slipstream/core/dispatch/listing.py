"""Fits updates to lists of tensors: which tensors go together, and the kernel of each group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from slipstream.core.dispatch.calls import Call
from slipstream.core.dispatch.formulas import make_recipe
from slipstream.core.dispatch.lists import TensorList
from slipstream.core.dispatch.op import OUT
from slipstream.core.dispatch.updating import UpdateOp
from slipstream.core.kernels.cpu import lists as cpu_lists
from slipstream.core.shapes.strides import is_dense_non_overlapping
from slipstream.core.vocab import optional
from slipstream.core.vocab.modes import ModeState
from slipstream.core.vocab.records import KERNEL, Plan, Spec, TensorBase

Column = list[TensorBase] | None
Row = tuple[TensorBase, ...]


@dataclass(frozen=True)
class Task:
    """What is to be done with a list.

    ``shared``: tensors of one number that the formula reads for every tensor; ``numbers``: the
    run-time numbers, of which the values count for nothing here; ``guard``: whether one more such
    tensor is looked at, with which nothing is written where it is not 0; ``heeds``: whether a bad
    index that a kernel met keeps the list from being written.
    """

    op: UpdateOp
    shared: Row
    numbers: tuple[float, ...]
    guard: bool = False
    heeds: bool = False


def row_of(columns: Sequence[Column], place: int) -> Row | None:
    """The operands of one tensor; None where the gradient that is asked for is not there."""
    found = []
    for column in columns:
        tensor = columns[0][place] if column is None else column[place]  # type: ignore[index]
        if column is None:
            tensor = None if tensor.record is None else tensor.record.grad
        if tensor is None:
            return None
        found.append(tensor)
    return tuple(found)


def gathered(task: Task, state: ModeState,
             columns: Sequence[Column]) -> tuple[list[TensorList], list[int]]:
    """The lists of what can go together, and the numbers of the tensors that go by themselves."""
    assert columns[0] is not None
    groups: dict[Any, list[tuple[int, Row]]] = {}
    rest = []
    for place in range(len(columns[0])):
        row = row_of(columns, place)
        if row is None or not is_flat([each.spec for each in row]):
            rest.append(place)
            continue
        key = (row[0].spec.device, *[each.spec.dtype for each in row])
        groups.setdefault(key, []).append((place, row))
    lists = []
    for rows in groups.values():
        made = make_list(task, state, rows)
        if made is None:
            rest += [place for place, _ in rows]
        else:
            lists.append(made)
    return lists, rest


def is_flat(specs: list[Spec]) -> bool:
    """Whether operands of one device have the same elements in the same order of memory."""
    first = specs[0]
    if any(spec.shape != first.shape or spec.device is not first.device for spec in specs):
        return False
    if all(spec.contiguous for spec in specs):
        return True
    return (all(spec.strides == first.strides for spec in specs) and min(first.strides) >= 0
            and is_dense_non_overlapping(first.shape, first.strides))


def make_list(task: Task, state: ModeState, rows: list[tuple[int, Row]]) -> TensorList | None:
    """A list of tensors alike but for their shapes; None where their device has no such kernel."""
    op, first = task.op, rows[0][1]
    device = first[0].spec.device
    if device.type not in ("cpu", "cuda"):
        return None
    values = (*first, *task.shared, *task.numbers)
    call = Call(op, state, values, first[:op.targets], OUT)
    recipe = make_recipe(call, call.device())
    plan = Plan(op, recipe, KERNEL)
    plan.operands, plan.numbers = recipe.operands, recipe.numbers
    assert recipe.backend is not None
    plan.backend = recipe.backend
    specs = [row[column].spec for column in range(len(first)) for _, row in rows]
    made = TensorList(plan, specs, op.targets, [place for place, _ in rows])
    # Outputs first: the targets are the first columns.
    columns = [*range(op.targets), *recipe.operands]
    numels = [row[0].spec.numel for _, row in rows]
    return made if _bind(task, made, [
        column if column < len(first) else len(first) - 1 - column for column in columns],
        numels) else None


def _bind(task: Task, made: TensorList, columns: list[int], numels: list[int]) -> bool:
    """Give a list its kernel; ``columns``: its own from 0 on, shared tensors from -1 down."""
    plan = made.plan
    program = plan.recipe.traced.program
    if plan.backend.on_host:
        found = None if task.guard else cpu_lists.bound(program, columns, numels, made.words)
        if found is not None:
            plan.kernel, plan.binding = found
        return found is not None
    kernels = optional.load("core.kernels.cuda.lists")
    places = tuple([None if column < 0 else column for column in columns])
    found = kernels.bound(plan.backend, program, places, (numels, task.guard, task.heeds))
    if found is not None:
        plan.kernel, plan.binding, made.tables = found
    return found is not None

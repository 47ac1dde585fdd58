"""Fits ops to lists of tensors: which tensors go together, and the kernel of each group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from slipstream.core.dispatch.calls import Call
from slipstream.core.dispatch.formulas import Recipe, make_recipe
from slipstream.core.dispatch.lists import TensorList
from slipstream.core.dispatch.op import IN_PLACE, OUT, PLAIN, Op
from slipstream.core.kernels.cpu import lists as cpu_lists
from slipstream.core.shapes.specs import specs
from slipstream.core.shapes.strides import is_dense_non_overlapping
from slipstream.core.vocab import optional
from slipstream.core.vocab.modes import ModeState
from slipstream.core.vocab.records import KERNEL, Plan, Spec, TensorBase

Column = Sequence[Any] | None
Row = tuple[TensorBase, ...]


class Task(NamedTuple):
    """What is done with each tensor of a list: a call of ``op`` in one of its forms.

    ``values``: its arguments, with None where those are that come from the list's columns, and
    run-time numbers of which the value counts for nothing here; ``columns``: their places among
    the arguments; ``targets``: how many columns the form OUT writes; ``shared``: the places of
    tensors of one number that all calls read; ``flag``: the place of the one among them that the
    form OUT writes last, with 1 where any element's value is not 0; ``heeds``: whether a bad index
    that a kernel met keeps the list from being written.
    """

    op: Op
    form: int
    values: tuple[Any, ...]
    columns: tuple[int, ...]
    targets: int = 1
    shared: tuple[int, ...] = ()
    flag: int = -1
    heeds: bool = False

    def call(self, state: ModeState, row: Row) -> Call:
        """The call for one tensor."""
        values = list(self.values)
        for place, tensor in zip(self.columns, row, strict=True):
            values[place] = tensor
        flag = () if self.flag < 0 else (values[self.flag],)
        target: Any = {PLAIN: None, IN_PLACE: row[0], OUT: (*row[:self.targets], *flag)}[self.form]
        return Call(self.op, state, tuple(values), target, self.form)


def row_of(columns: Sequence[Column], place: int) -> Row | None:
    """The operands of one tensor; None where one is no tensor, as a gradient that is not there."""
    found = []
    for column in columns:
        tensor = columns[0][place] if column is None else column[place]  # type: ignore[index]
        if column is None:
            tensor = None if tensor.record is None else tensor.record.grad
        if not isinstance(tensor, TensorBase):
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
        # Ops promote scalar tensors in a way of their own; updates do not.
        scalar = task.form != OUT and row[0].spec.ndim == 0
        key = (row[0].spec.device, scalar, *[each.spec.dtype for each in row])
        groups.setdefault(key, []).append((place, row))
    lists = []
    for rows in groups.values():
        made = make_list(task, state, rows)
        if made is None:
            rest += [place for place, _ in rows]
        else:
            lists.append(made)
    return lists, rest


def is_flat(operands: list[Spec]) -> bool:
    """Whether operands of one device have the same elements in the same order of memory."""
    first = operands[0]
    if any(spec.shape != first.shape or spec.device is not first.device for spec in operands):
        return False
    if all(spec.contiguous for spec in operands):
        return True
    return (all(spec.strides == first.strides for spec in operands) and min(first.strides) >= 0
            and is_dense_non_overlapping(first.shape, first.strides))


def make_list(task: Task, state: ModeState, rows: list[tuple[int, Row]]) -> TensorList | None:
    """A list of tensors alike but for their shapes; None where their device has no such kernel."""
    first = rows[0][1]
    device = first[0].spec.device
    if device.type not in ("cpu", "cuda"):
        return None
    call = task.call(state, first)
    recipe: Recipe = make_recipe(call, call.device())
    if len(recipe.results) != (task.targets + (task.flag >= 0) if task.form == OUT else 1):
        return None
    plan = Plan(task.op, recipe, KERNEL)
    plan.operands, plan.numbers = recipe.operands, recipe.numbers
    assert recipe.backend is not None
    plan.backend = recipe.backend
    columns = [[row[column].spec for _, row in rows] for column in range(len(first))]
    if task.form == PLAIN:
        columns.insert(0, [result_spec(spec, recipe) for spec in columns[0]])
    made = TensorList(plan, [spec for column in columns for spec in column],
                      task.targets if task.form == OUT else 1, [place for place, _ in rows])
    return made if _bind(task, made, operand_columns(task, recipe)) else None


def result_spec(spec: Spec, recipe: Recipe) -> Spec:
    """The spec of a new result beside an operand."""
    if spec.contiguous:
        return specs.contiguous(spec.device, recipe.results[0], spec.shape)
    return specs.intern(spec.device, recipe.results[0], spec.shape, spec.strides)


def operand_columns(task: Task, recipe: Recipe) -> list[int]:
    """The program's operands, outputs first, as columns from 0 on, or shared ones from -1 down."""
    new = 1 if task.form == PLAIN else 0
    places = {place: column + new for column, place in enumerate(task.columns)}
    places |= {place: -1 - number for number, place in enumerate(task.shared)}
    outputs = list(range(len(recipe.results)))
    if task.flag >= 0:
        outputs[-1] = places[task.flag]
    return [*outputs, *[places[place] for place in recipe.operands]]


def _bind(task: Task, made: TensorList, columns: list[int]) -> bool:
    """Give a list its kernel; False where there is none."""
    plan = made.plan
    program = plan.recipe.traced.program
    numels = [spec.numel for spec in made.specs[:made.count]]
    if plan.backend.on_host:
        found = cpu_lists.bound(program, columns, numels, made.words) if task.flag < 0 else None
        if found is not None:
            plan.kernel, plan.binding = found
        return found is not None
    kernels = optional.load("core.kernels.cuda.lists")
    places = tuple([None if column < 0 else column for column in columns])
    order = [column for column in columns if column < 0]
    if order != [-1 - number for number in range(len(task.shared))]:
        # Shared tensors become parameters in the order in which the program reads them.
        return False
    found = kernels.bound(plan.backend, program, places, (numels, task.heeds))
    if found is not None:
        plan.kernel, plan.binding, made.tables = found
    return found is not None

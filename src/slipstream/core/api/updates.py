"""Updates: a formula from old values to new ones, written in place as one kernel."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from slipstream.core.dispatch.entry import COMPOSITE, Entry
from slipstream.core.dispatch.formulas import formula_builder
from slipstream.core.dispatch.listing import Task, gathered
from slipstream.core.dispatch.lists import Snapshot, Steps, TensorList, drop_gradients
from slipstream.core.dispatch.op import OUT
from slipstream.core.dispatch.updating import UpdateOp, make_update
from slipstream.core.launch.door import door
from slipstream.core.vocab.dtypes import promote
from slipstream.core.vocab.modes import ModeState, modes

__all__ = ["ListUpdate", "Snapshot", "Steps", "advance", "apply_update", "drop_gradients",
           "end_step", "is_capturing", "recording_state", "update_op"]

Update = Callable[[Any], tuple[Any, ...]]
_ops: dict[Any, UpdateOp] = {}


def apply_update(formula: Update, targets: Mapping[str, Any], inputs: Mapping[str, Any],
                 numbers: Mapping[str, Any]) -> None:
    """Write what ``formula`` makes of all tensors and numbers into ``targets``, in place.

    ``formula`` is called with one namespace holding targets, inputs and numbers by name, and
    returns the new values of the targets in their order.  All operands have one shape or
    broadcast to that of the targets; numbers are run-time values, so another learning rate makes
    no new kernel.  Raises RuntimeError for shapes that differ.
    """
    op = update_op(formula, tuple(targets), tuple(inputs), tuple(numbers))
    state = modes.current()
    before = state.grad_enabled
    state.grad_enabled = False
    modes.note_site(state)
    try:
        op.update(state, (*targets.values(), *inputs.values()),
                  tuple([float(number) for number in numbers.values()]))
    finally:
        state.grad_enabled = before


class ListUpdate:
    """`apply_update` for many tensors: one launch for all of a device and dtype.

    ``targets`` and ``inputs``: under each name a list with an entry for each tensor; None stands
    for the gradients of the first target's tensors, whatever they are at the time of a call.
    A target is not written on a device where an earlier kernel met a bad index.
    """

    def __init__(self, formula: Update, targets: Mapping[str, list[Any]],
                 inputs: Mapping[str, list[Any] | None]) -> None:
        self.formula = formula
        self.names = (tuple(targets), tuple(inputs))
        self.columns = (*targets.values(), *inputs.values())
        self.count = len(next(iter(targets.values())))
        self.parts: list[tuple[TensorList, tuple[Any, ...], list[int]]] | None = None
        # Names of numbers and shared tensors, and what these are: an option may become a tensor.
        self.kinds: tuple[Any, ...] = ()
        self.rest: list[int] = []

    def run(self, numbers: Mapping[str, Any],
            shared: Mapping[str, Any] | None = None) -> list[int]:
        """Write the new values; the numbers of those tensors that have to go by themselves.

        ``shared``: tensors of one number, by name, that the formula reads for every tensor.
        """
        state = modes.current()
        modes.note_site(state)
        if state.stack:
            return list(range(self.count))
        values = tuple([float(number) for number in numbers.values()])
        kinds = tuple(numbers)
        if shared:
            kinds = (*kinds, *shared, *[each.spec for each in shared.values()])
        if self.parts is None or kinds != self.kinds:
            self.kinds = kinds
            self._gather(state, numbers, values, shared or {})
        left = self.rest
        rest = tuple(shared.values()) if shared else ()
        stale = False
        for part, columns, picks in self.parts or ():
            # A formula may leave numbers out, as those of a decay that is 0.
            if not part.run(state, columns, tuple([values[place] for place in picks]), rest):
                left = left + part.places
                stale = True
        if stale:
            # Something is of another kind than it was: looked at anew in the next call.
            self.parts = None
        return left

    def _gather(self, state: ModeState, numbers: Mapping[str, Any], values: tuple[float, ...],
                shared: Mapping[str, Any]) -> None:
        targets, inputs = self.names
        op = update_op(self.formula, targets, (*inputs, *shared), tuple(numbers))
        before = state.grad_enabled
        state.grad_enabled = False
        try:
            width = len(self.columns)
            numbers_at = width + len(shared)
            task = Task(op, OUT, (*(None,) * width, *shared.values(), *values),
                        tuple(range(width)), len(targets), tuple(range(width, numbers_at)),
                        heeds=True)
            lists, self.rest = gathered(task, state, self.columns)
        finally:
            state.grad_enabled = before
        self.parts = [(each, self._rows(each.places),
                       [place - numbers_at for place in each.plan.numbers]) for each in lists]

    def _rows(self, places: list[int]) -> tuple[Any, ...]:
        return tuple([column if column is None else [column[place] for place in places]
                      for column in self.columns])


def advance(steps: Steps) -> bool:
    """Count one step more in all counters; False, with nothing changed, where they differ."""
    state = modes.current()
    modes.note_site(state)
    return steps.advance(state)


def recording_state() -> ModeState:
    """The thread's state, whose ``grad_enabled`` says whether its ops are recorded for backward.

    Whoever sets that sets it back without a call, for which a full stack may have no room.
    """
    return modes.current()


def is_capturing() -> bool:
    """Whether a current stream of the thread captures a graph; makes no context."""
    if not door.captures:
        return False
    backends: tuple[Any, ...] = door.windowed
    found = False
    for backend in backends:
        found = found or backend.queue().capture is not None
    return found


def end_step() -> None:
    """Tell devices that gather launches that an optimizer's step ends here."""
    door.boundary()


def update_op(formula: Update, targets: tuple[str, ...], inputs: tuple[str, ...],
              numbers: tuple[str, ...]) -> UpdateOp:
    """The op of an update whose operands have these names."""
    key = (formula, *targets, None, *inputs, None, *numbers)
    op = _ops.get(key)
    if op is None:
        op = _ops[key] = _update_op(formula, (*targets, *inputs), numbers, len(targets))
    return op


def _update_op(formula: Update, tensors: tuple[str, ...], numbers: tuple[str, ...],
               targets: int) -> UpdateOp:
    declared = [f"Tensor {name}" for name in tensors] + [f"Number {name}" for name in numbers]

    def joint(**known: Any) -> tuple[Any, ...]:
        return tuple(formula(SimpleNamespace(**known)))

    joint.__signature__ = inspect.Signature([  # type: ignore[attr-defined]
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in (*tensors, *numbers)])
    name = getattr(formula, "__name__", "update")
    entry = Entry(f"{name}({', '.join(declared)})", COMPOSITE, formula=joint,
                  promotion=_update_dtypes)
    return make_update(entry, formula_builder, targets)


def _update_dtypes(call: Any) -> Any:
    common = None
    for tensor in call.tensors():
        dtype = tensor.spec.dtype
        common = dtype if common is None else promote(common, dtype)
    return common, tuple(target.spec.dtype for target in call.target)

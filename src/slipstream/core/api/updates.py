"""Updates: a formula from old values to new ones, written in place as one kernel."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from slipstream.core.dispatch.entry import COMPOSITE, Entry
from slipstream.core.dispatch.formulas import formula_builder
from slipstream.core.dispatch.updating import UpdateOp, make_update
from slipstream.core.launch.door import door
from slipstream.core.vocab.dtypes import promote
from slipstream.core.vocab.modes import modes

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
    key = (formula, *targets, None, *inputs, None, *numbers)
    op = _ops.get(key)
    if op is None:
        op = _ops[key] = _update_op(formula, (*targets, *inputs), tuple(numbers), len(targets))
    state = modes.current()
    before = state.grad_enabled
    state.grad_enabled = False
    modes.note_site(state)
    try:
        op.update(state, (*targets.values(), *inputs.values()),
                  tuple([float(number) for number in numbers.values()]))
    finally:
        state.grad_enabled = before


def is_capturing() -> bool:
    """Whether a current stream of the thread captures a graph; makes no context."""
    backends: tuple[Any, ...] = door.windowed
    return any(backend.queue().capture is not None for backend in backends)


def end_step() -> None:
    """Tell devices that gather launches that an optimizer's step ends here."""
    door.boundary()


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

# cython: annotation_typing=False
"""Plans of entries that hold kernels: library, index, random and creation kinds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from slipstream.core.dispatch.binding import binder
from slipstream.core.dispatch.calls import Call
from slipstream.core.dispatch.entry import LIBRARY
from slipstream.core.dispatch.gradients import rule_for
from slipstream.core.dispatch.numbers import guard
from slipstream.core.dispatch.op import PLAIN, Op
from slipstream.core.dispatch.plans import remember
from slipstream.core.dispatch.registry import (
    considered_kernels,
    number_positions,
    tensor_positions,
)
from slipstream.core.dispatch.writing import check_apart, check_target, fit_out
from slipstream.core.launch.door import backend_of
from slipstream.core.shapes.specs import specs
from slipstream.core.vocab.devices import Device
from slipstream.core.vocab.dtypes import can_cast
from slipstream.core.vocab.modes import ModeState
from slipstream.core.vocab.records import KERNEL, Plan, Spec, TensorBase


@dataclass(slots=True, eq=False, repr=False)
class KernelRecipe:
    """The kernel chosen for a call, and those considered."""

    op: Op
    considered: list[tuple[str, str]] = field(default_factory=list)


class KernelBuilder:
    """Makes plans from an entry's shape rule and registered kernels."""

    def plan(self, op: Op, state: ModeState, values: Any, target: Any, form: int,
             flags: int) -> Plan:
        """The plan of a call; raises the op's errors for operands that do not fit."""
        key = _sized_key(op, state, values, form)
        sized = None if key is None else op.recipes.get(key)
        if sized is not None and flags in sized.rules:
            plan = sized.bind(values, flags)
            if plan is not None:
                return plan
        drops = op.drops
        call = Call(op, state, values, target, form)
        device = call.device()
        if op.entry.check is not None:
            op.entry.check(call)
        shapes = op.entry.shape(call)
        outs = [_spec(device, result) for result in shapes]
        recipe = KernelRecipe(op)
        plan = Plan(op, recipe, KERNEL)
        if form != PLAIN:
            outs = [_target(call, outs[0], plan)]
        plan.out_spec = outs[0]
        plan.out_specs = tuple(outs)
        plan.outputs = len(outs)
        plan.backend = backend_of(device)
        plan.operands = tensor_positions(op, values)
        plan.numbers = number_positions(op, values)
        candidate, recipe.considered = considered_kernels(op, call, device)
        plan.kernel = candidate.make(plan, call)
        if op.entry.stores:
            guard(plan, op.entry.stores, values, outs[0].dtype)
        if flags:
            plan.rule = rule_for(op, flags, values)
        if key is not None:
            if sized is None:
                sized = candidate.sizes(plan, call)
                if drops == op.drops:
                    remember(op.recipes, key, sized)
            if sized is not None:
                sized.rules[flags] = plan.rule
        return plan


kernel_builder = KernelBuilder()


def _sized_key(op: Op, state: ModeState, values: Any, form: int) -> Any:
    """What plans of other sizes have in common, for plain calls of products."""
    if form != PLAIN or op.entry.kind != LIBRARY or op.entry.check is not None:
        return None
    try:
        key = binder.key(op, state, values, None, form)
        hash(key)
    except (TypeError, AttributeError):
        # An argument of a wrong kind: the long way says which.
        return None
    return key


def _spec(device: Device, result: Any) -> Spec:
    if len(result) == 3:
        dtype, shape, strides = result
        return specs.intern(device, dtype, shape, strides)
    dtype, shape = result
    return specs.contiguous(device, dtype, tuple(shape))


def _target(call: Call, natural: Spec, plan: Plan) -> Spec:
    target: TensorBase = call.target
    dtype = target.spec.dtype
    moves = call.op.entry.kind in ("library", "index") and not call.op.entry.recasts
    if not can_cast(natural.dtype, dtype) or (moves and dtype is not natural.dtype):
        raise call.error(RuntimeError,
                         f"Expected out tensor to have dtype {natural.dtype.name}, but got "
                         f"{dtype.name} instead")
    if target.spec.shape != natural.shape:
        if call.form == 1:
            raise call.error(RuntimeError,
                             f"output with shape {list(target.spec.shape)} doesn't match the "
                             f"result's shape {list(natural.shape)}")
        check_target(call.op, call.values, target)
        # An operand that changed its shape would be read as what it no longer is.
        check_apart(call.op, call.values, target)
        fit_out(target, natural.shape)
        plan.key = ()
    return target.spec

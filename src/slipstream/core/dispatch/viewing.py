# cython: annotation_typing=False
"""Plans of views: another geometry over the same storage."""

from __future__ import annotations

from typing import Any

from slipstream.core.dispatch.calls import Call
from slipstream.core.dispatch.gradients import rule_for
from slipstream.core.dispatch.op import PLAIN, Op
from slipstream.core.dispatch.signature import OFFSET
from slipstream.core.shapes.specs import specs
from slipstream.core.vocab.modes import ModeState
from slipstream.core.vocab.records import COMPOUND, VIEW, Plan


class ViewBuilder:
    """Makes plans from an entry's geometry rule."""

    def plan(self, op: Op, state: ModeState, values: Any, target: Any, form: int,
             flags: int) -> Plan:
        """The plan of a call; raises the op's errors for arguments that do not fit."""
        call = Call(op, state, values, target, form)
        if form != PLAIN:
            raise call.error(RuntimeError, f"{op.name} has no in-place or out= form")
        spec = values[0].spec
        if op.entry.check is not None:
            op.entry.check(call)
        try:
            found = op.entry.geometry(spec, *values[1:])
        except (RuntimeError, ValueError, IndexError, TypeError) as failure:
            raise call.error(type(failure), str(failure)) from None
        if found is None:
            plan = Plan(op, None, COMPOUND)
            plan.binding = op.entry.otherwise
            return plan
        plan = Plan(op, None, VIEW)
        if not op.entry.gradient:
            # detach: what has no gradient has no base either.
            plan.statics = None
        if isinstance(found, list):
            pieces = [specs.intern(spec.device, spec.dtype, shape, strides)
                      for shape, strides, _ in found]
            plan.out_specs = tuple(pieces)
            plan.binding = tuple(move for _, _, move in found)
            plan.outputs = -1
        else:
            shape, strides, move = found
            if OFFSET in op.kinds:
                # The call says where the view starts: by how many elements each start moves it.
                plan.steps, move = move, 0
                plan.numbers = (op.kinds.index(OFFSET),)
            plan.out_spec = specs.intern(spec.device, spec.dtype, tuple(shape), tuple(strides))
            plan.out_specs = (plan.out_spec,)
            plan.outputs = 1
            plan.offset = move
        if flags:
            plan.rule = rule_for(op, flags, call)
        return plan


view_builder = ViewBuilder()

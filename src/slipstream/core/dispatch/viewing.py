# cython: annotation_typing=False
"""Plans of views: another geometry over the same storage."""

from __future__ import annotations

from typing import Any

from slipstream.core.dispatch.arguments import check_types
from slipstream.core.dispatch.calls import Call
from slipstream.core.dispatch.gradients import rule_for
from slipstream.core.dispatch.op import PLAIN, Op
from slipstream.core.dispatch.signature import OFFSET
from slipstream.core.shapes.specs import specs
from slipstream.core.vocab.modes import ModeState
from slipstream.core.vocab.records import COMPOUND, VIEW, Plan


class Rescaled:
    """How far a view of another dtype starts from its source; offsets count own elements."""

    def __init__(self, before: int, after: int, move: int) -> None:
        self.before = before
        self.after = after
        self.move = move

    def __call__(self, values: Any) -> tuple[int]:
        """The distance; RuntimeError where the source does not start at a whole element."""
        start = values[0].offset * self.before
        if start % self.after:
            raise RuntimeError(f"self.storage_offset() must be divisible by "
                               f"{self.after // self.before} to view {values[0].spec!r} as a dtype "
                               f"of {self.after} bytes, but got {values[0].offset}\n"
                               "  mend: clone() first")
        return (start // self.after + self.move - values[0].offset,)


class ViewBuilder:
    """Makes plans from an entry's geometry rule."""

    def plan(self, op: Op, state: ModeState, values: Any, target: Any, form: int,
             flags: int) -> Plan:
        """The plan of a call; raises the op's errors for arguments that do not fit."""
        check_types(op, values)
        if form != PLAIN:
            raise Call(op, state, values, target, form).error(
                RuntimeError, f"{op.name} has no in-place or out= form")
        spec = values[0].spec
        if op.entry.check is not None:
            op.entry.check(Call(op, state, values, target, form))
        try:
            found = op.entry.geometry(spec, *values[1:])
        except (RuntimeError, ValueError, IndexError, TypeError) as failure:
            # The call is described only now: most views are made for new sizes without a word.
            raise Call(op, state, values, target, form).error(
                type(failure), str(failure)) from None
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
            shape, strides, move, *other = found
            dtype = other[0] if other else spec.dtype
            if OFFSET in op.kinds:
                # The call says where the view starts: by how many elements each start moves it.
                plan.steps, move = move, 0
                plan.numbers = (op.kinds.index(OFFSET),)
            if dtype.itemsize != spec.itemsize:
                plan.binding, move = Rescaled(spec.itemsize, dtype.itemsize, move), 0
            plan.out_spec = specs.intern(spec.device, dtype, tuple(shape), tuple(strides))
            plan.out_specs = (plan.out_spec,)
            plan.outputs = 1
            plan.offset = move
        if flags:
            plan.rule = rule_for(op, flags, values)
        return plan


view_builder = ViewBuilder()

"""Ops that make tensors, called with sizes alone: ``zeros(2, 3)``, ``rand((8,))``.

Such a call comes down to one call of another op (memory of a size, filled), whose plan is found by
the size at once.  Every other call goes the long way.
"""

from __future__ import annotations

from typing import Any

import cython

from slipstream.core.dispatch.op import PLAIN, Op
from slipstream.core.vocab.modes import ModeState, ModeTable, modes
from slipstream.core.vocab.records import Plan

__all__ = ["ModeTable", "SizedOp"]


class SizedOp(Op):
    """A compound op whose entry's ``memory`` tells the op and the arguments that a size stands for.

    Plans lie in that op's table, and leave it as its other plans do.  Its run-time arguments are
    the same for every size, so those of the first call serve all.
    """

    below: Op
    values: tuple[Any, ...]

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
        """The boxed call: positional and keyword arguments in containers."""
        state: ModeState = modes.current()
        if kwargs or state.special & self.heeds or modes.listeners is not None:
            return Op.call(self, args, kwargs)
        size: tuple = args
        if len(args) == 1 and type(args[0]) is tuple:
            size = args[0]
        for each in size:
            if type(each) is not int:
                return Op.call(self, args, kwargs)
        modes.note_site(state)
        key: tuple = (size, state.device)
        below: Op = self.below
        found = below.binary.get(key) if below is not None else None
        if found is None:
            return self._first(state, key)
        plan: Plan = found
        plan.used = True
        return below._launch(plan, state, self.values)

    def _first(self, state: ModeState, key: tuple[Any, ...]) -> Any:
        below: Op
        below, values = self.entry.memory(key[0])
        self.below = below
        self.values = values
        plan: Plan = below.plan_for(state, values, None, PLAIN)
        if plan.key and plan.short_key is None:
            below.binary[key] = plan
            plan.short_key = key
        return below._carry_out(plan, state, values, None, PLAIN)


if not cython.compiled:
    # A compiled instance starts with None in this field; an uncompiled one finds it here.
    SizedOp.below = None  # type: ignore[assignment]

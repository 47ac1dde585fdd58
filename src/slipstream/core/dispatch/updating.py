"""Updates in place of several tensors by one kernel: what an optimizer does for each parameter."""

from __future__ import annotations

from typing import Any

from slipstream.core.dispatch.op import OUT, Op
from slipstream.core.launch.door import LaunchDoor, door
from slipstream.core.vocab.modes import ModeState
from slipstream.core.vocab.records import Plan, Spec, Storage, TensorBase

__all__ = ["LaunchDoor", "ModeState", "Plan", "Spec", "Storage", "TensorBase", "UpdateOp"]

# Plans kept for combinations of specs.
MOST = 4096


class UpdateOp(Op):
    """An op whose first ``targets`` operands are written too.

    Where targets are whole, writable and in storages of their own, a known plan is launched at
    once; every other call goes the long way, which looks closer.
    """

    targets: int
    known: dict[tuple[Any, ...], Plan]

    def update(self, state: ModeState, tensors: tuple[Any, ...],
               numbers: tuple[Any, ...]) -> None:
        """Write the new values of the first tensors, which are the targets."""
        key: tuple = tuple([tensor.spec for tensor in tensors])
        plan: Plan | None = self.known.get(key)
        values: tuple = tensors + numbers
        if (plan is None or state.special & self.heeds or not self.plain(tensors)
                or not self.fits(plan, values)):
            self.long_way(state, key, values)
            return
        written: tuple = tensors[:self.targets]
        operands: list = list(written)
        for place in plan.operands:
            operands.append(values[place])
        door.submit(plan, tuple(operands), tuple([values[place] for place in plan.numbers]))
        target: TensorBase
        for each in written:
            target = each
            target.storage.version += 1
            target.storage.write_site = (state.code, state.instruction)

    def long_way(self, state: ModeState, key: tuple[Any, ...], values: tuple[Any, ...]) -> None:
        """The call as any op's, which also finds the plan."""
        targets: tuple = values[:self.targets]
        self.dispatch(state, values, targets, OUT)
        if len(self.known) >= MOST:
            self.known.clear()
        if not state.special & self.heeds:
            self.known[key] = self.plan_for(state, values, targets, OUT)

    def fits(self, plan: Plan, values: tuple[Any, ...]) -> bool:
        """Whether the run-time numbers are floats, as the plan was made for."""
        fits = True
        for place in plan.numbers:
            fits = fits and type(values[place]) is float
        return fits

    def plain(self, tensors: tuple[Any, ...]) -> bool:
        """Whether nothing is shared, read-only, a view or on the tape."""
        target: TensorBase
        other: TensorBase
        place = 0
        for each in tensors:
            target = each
            if place >= self.targets:
                break
            if not target.spec.contiguous or target.storage.read_only or target.base is not None:
                return False
            if target.record is not None and target.record.node is not None:
                return False
            for another in tensors:
                other = another
                if other is not target and other.storage is target.storage:
                    return False
            place += 1
        return True


def make_update(entry: Any, builder: Any, targets: int) -> UpdateOp:
    """The op of an update."""
    made = UpdateOp(entry, builder)
    made.targets = targets
    made.known = {}
    return made

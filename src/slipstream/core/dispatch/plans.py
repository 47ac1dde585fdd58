"""How many plans there are, and how they are forgotten."""

from __future__ import annotations

from typing import Any

from slipstream.core.dispatch.carrying import OpCore
from slipstream.core.vocab.records import Plan, TensorBase

# Recipes and programs of an op, beyond which it begins anew.
MOST_RECIPES = 4096


class PlanTable:
    """Bounds the number of plans: a clock that drops what was not used since its last turn."""

    ring: list[Plan]
    limit: int
    hand: int
    made: int

    def __init__(self, limit: int) -> None:
        self.ring = []
        self.limit = limit
        self.hand = 0
        self.made = 0

    def keep(self, op: OpCore, plan: Plan) -> None:
        """Take in a new plan, dropping an unused one when the table is full."""
        if len(self.ring) < self.limit:
            self.ring.append(plan)
            return
        while True:
            old: Plan = self.ring[self.hand]
            if not old.used:
                break
            old.used = False
            self.hand = (self.hand + 1) % self.limit
        self.ring[self.hand] = plan
        self.hand = (self.hand + 1) % self.limit
        forget(old)


def drop_plans(op: OpCore) -> None:
    """Forget every plan and recipe of an op, whose kernels changed."""
    op.drops += 1
    for each in list(op.plans.values()):
        # It stays in the ring until the clock passes; with other keys it takes no new plan along.
        disown(each)
    op.plans.clear()
    op.binary.clear()
    op.recent = op.recent_left = op.recent_right = None
    op.ways.clear()
    op.recipes.clear()
    op.lists.clear()


def disown(plan: Plan) -> None:
    """Let no table take a plan in, as it is of before its op's kernels changed."""
    plan.key = plan.short_key = ()


def remember(table: dict[Any, Any], key: Any, made: Any) -> None:
    """Keep what plans are made from, so long as static numbers do not change for ever."""
    if len(table) >= MOST_RECIPES:
        table.clear()
    table[key] = made


def forget(plan: Plan) -> None:
    """Take a plan out of its op's tables."""
    op: OpCore = plan.op  # type: ignore[assignment]  # every plan is an op's
    op.plans.pop(plan.key, None)
    if plan.short_key:
        op.binary.pop(plan.short_key, None)
    if op.recent is plan:
        op.recent = op.recent_left = op.recent_right = None
    op.ways.clear()


def target_key(target: Any) -> Any:
    """What a key holds of the memory that a call writes into."""
    if isinstance(target, TensorBase):
        return target.spec
    if isinstance(target, (tuple, list)):
        return tuple([target_key(each) for each in target])
    return type(target)

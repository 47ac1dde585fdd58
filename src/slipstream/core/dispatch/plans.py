"""How many plans there are, and how they are forgotten."""

from __future__ import annotations

from slipstream.core.dispatch.carrying import OpCore
from slipstream.core.vocab.records import Plan


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
    plan: Plan
    for each in list(op.plans.values()):
        plan = each
        # It stays in the ring until the clock passes; with other keys it takes no new plan along.
        plan.key = None
        plan.short_key = None
    op.plans.clear()
    op.binary.clear()
    op.recent = op.recent_left = op.recent_right = None
    op.ways.clear()
    op.recipes.clear()
    op.lists.clear()


def forget(plan: Plan) -> None:
    """Take a plan out of its op's tables."""
    op: OpCore = plan.op  # type: ignore[assignment]  # every plan is an op's
    op.plans.pop(plan.key, None)
    if plan.short_key is not None:
        op.binary.pop(plan.short_key, None)
    if op.recent is plan:
        op.recent = op.recent_left = op.recent_right = None
    op.ways.clear()

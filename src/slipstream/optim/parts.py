"""Parameters that are updated together: parted by group and step, known again in the next step."""

from __future__ import annotations

from typing import Any

import slipstream as ss
from slipstream.core.api.updates import ListUpdate, Snapshot, Steps, advance
from slipstream.optim.optimizer import Group

Rule = Any
Member = tuple[ss.Tensor, Group, dict[str, Any], Any]


class Part:
    """Parameters of one group at the same step; ``kind``: what else tells them from others."""

    def __init__(self, group: Group, kind: Any) -> None:
        self.group = group
        self.kind = kind
        self.params: list[ss.Tensor] = []
        self.states: list[dict[str, Any]] = []
        self.steps: Steps | None = None
        self.counts = False
        # Real and imaginary part are updated as numbers of their own, one parameter at a time.
        self.complex = False
        self.updates: dict[Any, ListUpdate] = {}

    def close(self) -> None:
        """All members are there: count their steps together where their counters are alike."""
        self.complex = any(each.is_complex() for each in self.params)
        counters: list[Any] = [state.get("step") for state in self.states]
        self.counts = counters[0] is not None
        if Steps.alike(counters):
            self.steps = Steps(counters)

    def advance(self) -> bool:
        """Count one step more; False, with nothing counted, where not all are at the same one."""
        if self.steps is not None:
            return advance(self.steps)
        return not self.counts

    def run(self, rule: Rule, names: tuple[str, ...], numbers: dict[str, float]) -> list[int]:
        """Carry out a formula; the places of those that have to go by themselves."""
        update = self.updates.get((rule, names))
        if update is None:
            targets = {"parameter": self.params,
                       **{name: [state[name] for state in self.states] for name in names}}
            update = self.updates[rule, names] = ListUpdate(rule, targets, {"gradient": None})
        return update.run(numbers)


class Lists:
    """The parts of an optimizer's parameters, as long as nothing is added or replaced."""

    def __init__(self, groups: list[Group], state: Any, members: list[Member]) -> None:
        parts: dict[Any, Part] = {}
        for parameter, group, values, kind in members:
            key = (id(group), step_of(values), kind)
            part = parts.get(key)
            if part is None:
                part = parts[key] = Part(group, kind)
            part.params.append(parameter)
            part.states.append(values)
        self.parts = list(parts.values())
        for part in self.parts:
            part.close()
        self.snapshot = Snapshot(groups, state)

    def same(self, groups: list[Group], state: Any) -> bool:
        """Whether the parts are those of these groups and this state."""
        return self.snapshot.same(groups, state)


def step_of(state: dict[str, Any]) -> Any:
    """The step that a parameter is at, by which parts are told from each other."""
    counter = state.get("step")
    if not isinstance(counter, ss.Tensor):
        return counter
    return counter.item(), counter.dtype, str(counter.device)

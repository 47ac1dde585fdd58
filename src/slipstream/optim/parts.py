"""Parameters that are updated together: parted by group and step, known again in the next step."""

from __future__ import annotations

from typing import Any

import slipstream as ss
from slipstream.core.api.updates import ListUpdate, Snapshot, Steps, advance
from slipstream.optim.gating import counters_to
from slipstream.optim.optimizer import Group

Rule = Any
Member = tuple[ss.Tensor, Group, dict[str, Any], Any]


class Part:
    """Parameters of one group at the same step; ``kind``: what else tells them from others.

    A kind that is a device says that their steps are counted there.
    """

    def __init__(self, group: Group, kind: Any) -> None:
        self.group = group
        self.kind = kind
        self.params: list[ss.Tensor] = []
        self.states: list[dict[str, Any]] = []
        self.steps: Steps | None = None
        self.counts = False
        # Counters on a device, which advance there.
        self.counters: list[ss.Tensor] | None = None
        # Real and imaginary part are updated as numbers of their own, one parameter at a time.
        self.complex = False
        self.updates: dict[Any, ListUpdate] = {}
        # The rule and names of the last step, and their update.
        self.latest: tuple[Any, Any, ListUpdate | None] = (None, None, None)

    def close(self) -> None:
        """All members are there: count their steps together where their counters are alike."""
        self.complex = any(each.is_complex() for each in self.params)
        counters: list[Any] = [state.get("step") for state in self.states]
        self.counts = counters[0] is not None
        if Steps.alike(counters):
            self.steps = Steps(counters)
        elif all(is_on_card(each, self.params[0].device) for each in counters):
            self.counters = counters

    def advance(self, gate: ss.Tensor | None) -> bool:
        """Count one step more; False, with nothing counted, where not all are at the same one.

        A ``gate`` that is not 0 keeps counters on a device as they are.
        """
        if self.counters is not None:
            ss._foreach_add_(self.counters, 1 if gate is None else 1 - gate)
            return True
        if self.steps is not None:
            return advance(self.steps)
        return not self.counts

    def run(self, rule: Rule, names: tuple[str, ...], numbers: dict[str, float],
            shared: dict[str, Any]) -> list[int]:
        """Carry out a formula; the places of those that have to go by themselves.

        ``shared``: tensors of one number, by name, that every member reads.
        """
        last_rule, last_names, latest = self.latest
        if latest is not None and rule is last_rule and names is last_names:
            return latest.run(numbers, shared)
        update = self.updates.get((rule, names))
        if update is None:
            targets = {"parameter": self.params,
                       **{name: [state[name] for state in self.states] for name in names}}
            update = self.updates[rule, names] = ListUpdate(rule, targets, {"gradient": None})
        self.latest = (rule, names, update)
        return update.run(numbers, shared)


class Lists:
    """The parts of an optimizer's parameters, as long as nothing is added or replaced.

    ``device``: where their steps shall be counted, the host by default.
    """

    def __init__(self, groups: list[Group], state: Any, members: list[Member],
                 device: Any = None) -> None:
        parts: dict[Any, Part] = {}
        for parameter, group, values, kind in members:
            key = (id(group), step_of(values), kind)
            part = parts.get(key)
            if part is None:
                part = parts[key] = Part(group, kind)
            part.params.append(parameter)
            part.states.append(values)
        self.parts = list(parts.values())
        self.gated = device is not None
        for part in self.parts:
            where = device or (part.kind if isinstance(part.kind, ss.device) else None)
            if where is not None:
                counters_to(where, part.states)
            part.close()
        self.snapshot = Snapshot(groups, state)

    def same(self, groups: list[Group], state: Any) -> bool:
        """Whether the parts are those of these groups and this state."""
        return self.snapshot.same(groups, state)


def is_on_card(counter: Any, device: Any) -> bool:
    """Whether a counter is one float32 of a card's memory."""
    return (isinstance(counter, ss.Tensor) and counter.device == device
            and device.type == "cuda" and counter.dtype is ss.float32 and counter.ndim == 0)


def step_of(state: dict[str, Any]) -> Any:
    """The step that a parameter is at, by which parts are told from each other."""
    counter = state.get("step")
    if not isinstance(counter, ss.Tensor):
        return counter
    return counter.item(), counter.dtype, str(counter.device)

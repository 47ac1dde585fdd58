"""Which kind of fusion made the kernels of a plan, and what left a card by graph replay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from slipstream.core.launch.door import door

# What a kernel that no fusion made is called.
BY_HAND = "one op, by hand"
# Launches lie in attributes of kernels and bindings, or of what these hold.
DEPTH = 3


@dataclass
class KernelReport:
    """One launch of a plan on a card: its function, the kind of fusion that made it, its source."""

    name: str
    fusion: str
    source: str


def kernels_of(plan: Any) -> list[KernelReport]:
    """What a card's plan launches."""
    codes = {id(each.code): each.code for each in launches_of(plan)}
    return [KernelReport(code.name, code.fusion or BY_HAND, code.source)
            for code in codes.values()]


def launches_of(plan: Any) -> list[Any]:
    """A card's plan's launches: found in its binding, and in what its kernel holds."""
    found: dict[int, Any] = {}
    for holder in (plan.binding, plan.kernel):
        _gather(holder, found, DEPTH)
    return list(found.values())


def _gather(value: Any, found: dict[int, Any], depth: int) -> None:
    code = getattr(value, "code", None)
    if hasattr(code, "fusion"):
        found[id(value)] = value
    elif isinstance(value, list | tuple):
        for each in value:
            _gather(each, found, depth)
    elif depth:
        inner = [*vars(value).values()] if hasattr(value, "__dict__") else []
        for each in [*inner, getattr(value, "launches", None)]:
            _gather(each, found, depth - 1)


def sent() -> dict[str, tuple[int, int]]:
    """Of each card: how many launches left it since the start, and how many by graph replay."""
    windowed: tuple[Any, ...] = door.windowed
    return {each.name: (each.counts.launches, each.counts.replayed) for each in windowed}


def sent_since(before: dict[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    """The same since an earlier look, of the cards that anything left."""
    found = {}
    for device, (launches, replayed) in sent().items():
        first = before.get(device, (0, 0))
        if launches > first[0]:
            found[device] = (launches - first[0], replayed - first[1])
    return found

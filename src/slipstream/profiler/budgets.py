"""The dispatch budget of a recording: the model that `slipstream budget` has too, as measured here.

What a launch saves that is replayed and not sent alone is measured where the recording has both;
`slipstream budget`, which listens to no launch, takes what it is on an H100 machine.
"""

from __future__ import annotations

from slipstream.core.api.budget import Budget
from slipstream.core.api.recording import Recording

# Layers of the host that are not launching.
NOT_LAUNCHING = ("waits", "copies", "data", "making plans", "host kernels")
# Reasons to launch alone that go away with the mend, and what a launch in a graph takes of the host
# as a part of one by itself.
MENDABLE = ("exported storage", "wait", "too short", "copy")
GRAPHED = 0.2
# µs: less is not measured.
LEAST = 0.01


def steps_of(recording: Recording) -> int:
    """How many steps were profiled; 1 where none was marked."""
    return max(len(recording.of("step")), 1)


def alone_cost(recording: Recording, reasons: tuple[str, ...] | None = MENDABLE) -> float:
    """ns of the host that launches took more because they went alone, for these reasons (or all).

    What a replayed one takes is measured where there are any; else it is a small part of it.
    """
    spent = {True: 0, False: 0}
    count = {True: 0, False: 0}
    for event in recording.of("send"):
        if event.replayed or reasons is None or event.name in reasons:
            spent[event.replayed] += event.end - event.start
            count[event.replayed] += event.value
    if not count[False]:
        return 0.0
    each = spent[True] / count[True] if count[True] else GRAPHED * spent[False] / count[False]
    return max(spent[False] - each * count[False], 0.0)


def budget_of(recording: Recording, reasons: tuple[str, ...] | None = MENDABLE) -> Budget | None:
    """Host and card of an op, in µs, without waits, copies, loading and plans.

    ``reasons``: the launches that would be replayed went alone for one of these (None: for any).
    None where no kernel ran on a card.
    """
    kernels = sum(event.end - event.start for event in recording.of("kernel"))
    if not kernels or not recording.calls:
        return None
    layers = recording.layers
    calls = recording.threads[0][1] if recording.threads else recording.calls
    host = sum(layers.values()) - sum(layers.get(name, 0) for name in NOT_LAUNCHING)
    host_us = max(host / 1000 / max(calls, 1), LEAST)
    saved = alone_cost(recording, reasons) / 1000 / recording.calls
    # The Python of each op stays.
    return Budget(recording.calls / steps_of(recording), host_us,
                  max(kernels / 1000 / recording.calls, LEAST), min(saved, host_us - LEAST))

"""What tests of joined launches share: the device's chains, the modes, the bits of results."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import slipstream as ss
from slipstream.core.kernels.cuda import half_products, products, programs
from slipstream.core.launch.door import backend_of
from slipstream.core.vocab.devices import Device
from slipstream.core.vocab.settings import settings

# What `settings.join` and `Chains.mode` say.
NEVER, PAYS, ALWAYS = range(3)
# Where sizes are counted that may be joined.
COUNTING: tuple[Any, ...] = (half_products, products, programs)
TRIES = 10


@contextmanager
def joined_at_once(request: pytest.FixtureRequest) -> Iterator[None]:
    """Chains are joined at first sight: on a driver of its own, or anew on the card."""
    settings.join = ALWAYS
    limits = [each.LEADING for each in COUNTING]
    try:
        if settings.driver == "real":
            # Other tests' sizes are counted there too.
            for each in COUNTING:
                each.LEADING = 1 << 30
            ss.cuda.synchronize()
            found = chains()
            found.mode = ALWAYS
            for known in (found.bound, found.families, found.outcomes):
                known.clear()
            found.held = 0
        else:
            request.getfixturevalue("restart")()
        yield
    finally:
        settings.join = NEVER
        for each, limit in zip(COUNTING, limits, strict=True):
            each.LEADING = limit
        # A card's backend lives on.
        chains().mode = NEVER


def chains() -> Any:
    """Those of the device."""
    backend: Any = backend_of(Device("cuda", 0))
    return backend.chains


def warmed(*calls: Callable[[], Any]) -> None:
    """Have the kernels of calls made: while a card's are compiled, what is recorded goes out."""
    found = chains()
    mode, found.mode = found.mode, NEVER
    for call in calls:
        call()
        ss.cuda.synchronize()
    found.mode = mode


def drained() -> int:
    """Launches that went out before their window's end, as the host was too slow for the watchdog.

    The simulated driver's is not by the clock.
    """
    alone: dict[str, dict[str, int]] = ss.cuda.launch_stats()["single"]
    return sum(alone.get("drained", {}).values()) if settings.driver == "real" else 0


def launched(call: Callable[[], Any]) -> tuple[int, Any]:
    """How many launches a call makes, and what it gives; once more where the host was held up.

    What the collector frees meanwhile may be other tests', whose streams and graphs wait.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        for _ in range(TRIES):
            ss.cuda.synchronize()
            before, late = ss.cuda.launch_stats()["launches"], drained()
            result = call()
            ss.cuda.synchronize()
            count = ss.cuda.launch_stats()["launches"] - before
            if drained() == late:
                break
    finally:
        if collects:
            gc.enable()
    return count, result


def counted(call: Callable[[], Any], count: int, apart: int | None = None) -> None:
    """Joined a call makes so many launches, and gives the same bits as apart, again and again.

    Nothing wants gradients.  ``apart``: how many it makes apart.
    """
    found = chains()
    found.mode = NEVER
    with ss.no_grad():
        alone, results = launched(call)
        assert apart is None or alone == apart
        wanted = [bits(each) for each in results]
        found.mode = ALWAYS
        for _ in range(4):
            made, results = launched(call)
            assert made == count, ss.cuda.launch_stats()["single"]
            assert [bits(each) for each in results] == wanted


def bits(tensor: Any) -> bytes:
    """The bytes of a tensor."""
    raw = tensor.detach().contiguous().cpu()
    return bytes(raw.view(ss.uint8).numpy()) if raw.numel() else b""

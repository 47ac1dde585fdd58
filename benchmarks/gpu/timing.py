"""How the benchmarks measure: bursts, wall time of loops, device time by events."""

from __future__ import annotations

import time
from typing import NamedTuple

from bursts import milliseconds

import slipstream as ss
from gpu import peers
from gpu.models import Step

# Seconds over which rounds are spread: what is slow for so long is slow for both sides.
SPAN = 2.0


class Row(NamedTuple):
    """A figure: what was measured, ours, the peer's, their ratio, and the bar for the ratio.

    ``bar`` is an upper bound; a negative one is a lower bound of its size.
    """

    what: str
    ours: float
    peer: float | None
    value: float
    bar: float | None
    unit: str

    @property
    def met(self) -> bool:
        """Whether the bar is met."""
        if self.bar is None:
            return True
        return self.value <= self.bar if self.bar > 0 else self.value >= -self.bar


def ratio(what: str, ours: float, peer: float, bar: float | None, unit: str = "µs") -> Row:
    """A row whose value is ours over the peer's."""
    return Row(what, ours, peer, ours / peer, bar, unit)


def enqueue(step: Step, wait: Step, calls: int = 192, bursts: int = 60) -> float:
    """Microseconds of the host for one call: the least of bursts, the queue drained before each.

    They are spread over a second, for the reason that `loop` tells; the calls before each fill the
    processor's caches again, which it lost while it slept.
    """
    times = []
    for _ in range(bursts):
        time.sleep(1 / bursts)
        for _ in range(calls):
            step()
        wait()
        start = time.perf_counter_ns()
        for _ in range(calls):
            step()
        times.append((time.perf_counter_ns() - start) / calls)
    wait()
    return min(times) / 1e3


def loop(step: Step, wait: Step, steps: int = 200, warm: int = 200,
         rounds: int = 10) -> tuple[float, float]:
    """Microseconds a step: (host side, wall), each the least of so many rounds.

    The device is drained behind each round.  A virtual machine's neighbours can halve the speed of
    its processor for a second: the least leaves them out, of ours as of the peer's, as there are
    rounds for `SPAN` seconds at least.  ``rounds``: 1 where steps differ, so that all of them
    count.
    """
    for _ in range(warm):
        step()
    wait()
    hosts, walls = [], []
    count = max(steps // rounds, 1)
    begin = time.perf_counter()
    while len(hosts) < rounds or (rounds > 1 and time.perf_counter() - begin < SPAN):
        start = time.perf_counter()
        for _ in range(count):
            step()
        hosts.append(time.perf_counter() - start)
        wait()
        walls.append(time.perf_counter() - start)
    return min(hosts) / count * 1e6, min(walls) / count * 1e6


def device_time(step: Step) -> float:
    """Microseconds of our device for one step."""
    return milliseconds(ss, step) * 1e3


def peer_time(step: Step) -> float:
    """The same on the peer."""
    return milliseconds(peers.torch(), step) * 1e3


def ours_wait() -> None:
    """Wait for our device."""
    ss.cuda.synchronize()


def peer_wait() -> None:
    """Wait for the peer's."""
    peers.torch().cuda.synchronize()


def launches(step: Step, warm: int = 3) -> float:
    """How many launches a call makes."""
    for _ in range(warm):
        step()
    ours_wait()
    before = ss.cuda.launch_stats()["launches"]
    step()
    ours_wait()
    return float(ss.cuda.launch_stats()["launches"] - before)

"""The dispatch budget of a program: what an op costs the host, what it costs the device."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from slipstream.core.api.explain import OwnTime
from slipstream.core.launch.door import backends, door
from slipstream.core.launch.waiting import watching
from slipstream.core.vocab import optional
from slipstream.core.vocab.modes import modes

# Seconds between two looks.
TICK = 0.01
# Looks for which a kernel is heard to its end.  No kernel takes more than so many times the longest
# one so far: a longer stretch without an op is none.
PATIENCE, PATIENT = 100, 2
FOREVER = 1 << 63
# Microseconds, on the H100 machine of the README: the host's part of an op whose launch is
# gathered and replayed, of one launch by the driver, of launching a graph of 16 to 256 kernels.
REPLAYED, LAUNCH, GRAPH = 1.5, 3.9, 2.7
# Closer than this neither side waits for the other in earnest.
EVEN = 0.1
# A smaller gain is not worth a word.
NO_GAIN = 1.05


@dataclass
class Budget:
    """A step of ``ops``; ``host`` and ``device``: microseconds an op.

    ``saved``: what the host would save of an op if every launch were replayed, where it is known.
    """

    ops: float
    host: float
    device: float
    saved: float | None = None

    @property
    def step(self) -> float:
        """A step as it is: the device works beside the host, the slower of them decides."""
        return self.ops * max(self.host, self.device)

    @property
    def verdict(self) -> str:
        """CPU-bound, GPU-bound or even."""
        if abs(self.host - self.device) <= EVEN * max(self.host, self.device):
            return "even"
        return "CPU-bound" if self.host > self.device else "GPU-bound"

    @property
    def factor(self) -> float:
        """How many times longer the slower side takes."""
        return max(self.host, self.device) / min(self.host, self.device)

    def gathered(self) -> float:
        """A step whose windows are replayed: the host still runs the Python of every op."""
        host = min(self.host, REPLAYED) if self.saved is None else self.host - self.saved
        return self.ops * max(host, self.device)

    def captured(self) -> float:
        """A step that is one graph: the host launches it, the kernels follow at once."""
        return max(GRAPH, self.ops * self.device)

    def words(self) -> str:
        """Which side waits, and by how much."""
        idle = 100 * max(0.0, 1 - self.device / self.host)
        return {
            "CPU-bound": f"CPU-bound by {self.factor:.1f} times: the host dispatches slower than "
                         f"the device computes, which is idle {idle:.0f} % of the time",
            "GPU-bound": f"GPU-bound by {self.factor:.1f} times: the device decides, the host has "
                         f"{100 * (1 - self.host / self.device):.0f} % of its time left",
            "even": "even: host and device take about as long; less on one side alone gains "
                    "little",
        }[self.verdict]

    def outcomes(self) -> list[tuple[str, float, str]]:
        """(what, µs of a step, what it gains) for replayed windows and one graph."""
        found = []
        for name, step in (("windows replayed", self.gathered()), ("one graph", self.captured())):
            gain = self.step / step
            found.append((name, step, f"{gain:.1f} times faster" if gain > NO_GAIN
                          else "no gain to speak of"))
        return found

    def facts(self) -> dict[str, Any]:
        """The budget as plain data."""
        return {"ops": self.ops, "host_us_per_op": self.host, "device_us_per_op": self.device,
                "step_us": self.step, "verdict": self.verdict, "factor": self.factor,
                "device_idle_share": max(0.0, 1 - self.device / self.host),
                "windows_replayed_step_us": self.gathered(),
                "one_graph_step_us": self.captured()}


@dataclass
class Look:
    """Counts at one moment; nanoseconds.  ``ops``: plans submitted; ``waited``: of the host."""

    now: int
    ops: int
    launches: int
    replayed: int
    waited: int


@dataclass
class Measured:
    """What was measured of a program while it was busy; times in microseconds.

    ``ops`` in ``elapsed``, of which the host ``waited``; ``launches`` on cards, of which
    ``replayed`` went out inside graphs; ``device``: what the card took for ``timed`` of them
    (``alone``: none of these was replayed, so that gaps between them count too); ``kernels``: what
    the CPU took for the ``listened`` kernels of ops of its own.  ``failure``: what the wait for the
    cards raised at the end.
    """

    device_name: str = "cpu"
    simulated: bool = False
    ops: int = 0
    elapsed: float = 0.0
    waited: float = 0.0
    launches: int = 0
    replayed: int = 0
    timed: int = 0
    device: float = 0.0
    alone: bool = False
    listened: int = 0
    kernels: float = 0.0
    failure: Exception | None = None
    spans: list[tuple[Look, Look]] = field(default_factory=list)


class _Sampler:
    """Looks at the counts from a thread of its own; the program runs as it always does.

    Where no card is in use, every other stretch listens to launches, to tell kernels from the
    rest: what these stretches take in all is not counted, unless kernels are long: then the others
    alone would see too little of them.
    """

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.run, name="slipstream budget", daemon=True)
        self.plain: list[tuple[Look, Look]] = []
        self.timers: dict[Any, Any] = {}
        # What each card had launched before.
        self.began: dict[Any, int] = {}
        self.own = OwnTime()
        self.listened = 0
        self.kernels = 0
        self.longest = 0
        # The two counts so far at the end of each stretch that listened.
        self.heard: list[tuple[int, int]] = []
        # Kernels that began later are not counted, and the first of them is noted.
        self.until = FOREVER
        self.heard_out = threading.Event()
        self.dice = random.Random(0)
        self.main = threading.get_ident()
        self.failure: Exception | None = None

    def run(self) -> None:
        """Look until it is over."""
        turn, before = 0, self.look()
        while not self.stop.is_set():
            listening = turn % 2 == 1 and not self.cards()
            if listening:
                self.listen()
            else:
                # Listening ends with a kernel: always as long after it the same ones would be next.
                drawn = self.dice.uniform(0, PATIENT * self.longest / 1e9) if self.long else 0
                self.stop.wait(TICK + drawn)
            after = self.look()
            turn += 1
            if after.ops == before.ops and self.goes_on(before, after):
                continue
            if after.ops > before.ops and (self.long or not listening):
                self.plain.append((before, after))
            before = after

    @property
    def long(self) -> bool:
        """Whether kernels outlast half a look: listening takes nothing beside them."""
        return 2 * self.longest > TICK * 1e9

    def goes_on(self, before: Look, after: Look) -> bool:
        """Whether a stretch without an op may be the middle of a kernel, and goes on."""
        return self.long and after.now - before.now < PATIENT * self.longest

    def listen(self) -> None:
        """Listen to what is launched in a stretch, and to the last of it until it ends.

        Long kernels seldom begin and end in one stretch: without that they would be missing.
        """
        self.until = FOREVER
        self.heard_out.clear()
        modes.listeners = [*(modes.listeners or ()), self.hear]
        self.stop.wait(TICK)
        self.until = time.perf_counter_ns()
        for _ in range(PATIENCE):
            # Where a card is used by now, kernels of the CPU do not matter any more.
            if self.stop.is_set() or self.cards() or self.heard_out.wait(TICK):
                break
        self.heard.append((self.listened, self.kernels))
        left = [each for each in modes.listeners or () if each != self.hear]
        modes.listeners = left or None

    def hear(self, event: Any) -> None:
        """Add up a kernel of the CPU."""
        if event.kind != "launch" or threading.get_ident() != self.main:
            return
        if event.end > self.until:
            self.heard_out.set()
        if event.start > self.until:
            return
        spent = self.own.of(event.start, event.end)
        self.listened += 1
        self.kernels += spent
        self.longest = max(self.longest, spent)

    def cards(self) -> list[Any]:
        """The cards in use, whose windows are measured from now on."""
        found: list[Any] = [backend for device, backend in tuple(backends.items())
                            if device.type == "cuda"]
        for backend in found:
            if backend not in self.timers:
                timing = optional.load("core.launch.cuda.window_times")
                self.timers[backend] = timing.WindowTimer(backend.driver)
            for queue in tuple(backend.queues):
                queue.timer = self.timers[backend]
        return found

    def look(self) -> Look:
        """The counts now."""
        counts = [backend.counts for backend in self.cards()]
        return Look(time.perf_counter_ns(), door.launches,
                    sum(each.launches for each in counts), sum(each.replayed for each in counts),
                    watching.waited())

    def finish(self) -> None:
        """End; the timers of windows go."""
        self.stop.set()
        self.thread.join()
        # Of the second half, as all else, where anything was heard in it.
        listened, kernels = self.heard[len(self.heard) // 2] if self.heard else (0, 0)
        if listened < self.listened:
            self.listened -= listened
            self.kernels -= kernels
        for backend, timer in self.timers.items():
            try:
                backend.finish_all()
            except Exception as failure:
                self.failure = failure
            for queue in tuple(backend.queues):
                queue.timer = None
            timer.close()


@contextmanager
def measure_budget() -> Iterator[Measured]:
    """Measure the program that runs inside; the record is filled at the end.

    The second half of the stretches in which ops ran is taken: kernels are compiled by then.
    """
    found = Measured()
    sampler = _Sampler()
    start = sampler.look()
    sampler.began = {backend: backend.counts.launches for backend in sampler.timers}
    sampler.thread.start()
    try:
        yield found
    finally:
        end = sampler.look()
        sampler.finish()
        spans = sampler.plain[len(sampler.plain) // 2:] or [(start, end)]
        fill(found, sampler, spans)


def fill(found: Measured, sampler: Any, spans: list[tuple[Look, Look]]) -> None:
    """Add up what a sampler saw in some stretches."""
    for before, after in spans:
        found.ops += after.ops - before.ops
        found.launches += after.launches - before.launches
        found.replayed += after.replayed - before.replayed
        found.elapsed += (after.now - before.now) / 1e3
        # Of a wait that goes on behind a stretch only the part within it: what is cut off lies in
        # stretches of their own.  Of several threads that wait at a time one is enough.
        waited = min(after.waited - before.waited, after.now - before.now)
        found.waited += max(waited, 0) / 1e3
    found.spans, found.failure = spans, sampler.failure
    found.listened, found.kernels = sampler.listened, sampler.kernels / 1e3
    for backend, timer in sampler.timers.items():
        if backend.counts.launches == sampler.began.get(backend, 0):
            # The script left this card alone.
            continue
        found.simulated = backend.driver.name == "simulated"
        found.device_name = f"{backend.device}, {backend.driver.properties(backend.ordinal).name}"
        found.alone = not timer.replayed[0]
        chosen = timer.single if found.alone else timer.replayed
        found.timed += chosen[0]
        found.device += chosen[1]

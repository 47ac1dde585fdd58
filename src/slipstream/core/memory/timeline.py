"""What a program held over time: the curve of bytes in use, its peak, and who held the peak.

The blocks in use are summed by stack while the program runs.  At a new peak nothing is copied:
the sums are kept when the first block comes back after it, so that a loop that repeats itself
costs a copy only while its peak still grows.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from slipstream.core.memory import graphs
from slipstream.core.memory.history import Stack, stack_now

# Points of a curve, and frames of a stack.
POINTS = 512
FRAMES = 8
# Who keeps graphs is looked at from so many bytes on, and again where they have grown by so much: a
# look takes some ten milliseconds in a large program.
FIRST_LOOK, GROWN = 64 << 10, 1.125
# What was seen is looked at once more where so much is left.
FALLEN = 0.75

Key = tuple[Stack, str]


class Curve:
    """The largest value in each of at most `POINTS` equal stretches of time."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.width = 1000
        self.values: list[int] = [0]

    def add(self, now: int, value: int) -> None:
        """A value that holds from ``now``, in nanoseconds, on."""
        place = (now - self.start) // self.width
        while place >= POINTS:
            self.fold()
            place = (now - self.start) // self.width
        values = self.values
        while len(values) <= place:
            # Nothing happened in between: what was in use stays so.
            values.append(self.last)
        values[place] = max(values[place], value)
        self.last = value

    last = 0

    def fold(self) -> None:
        """Make the stretches twice as long."""
        values = self.values
        self.values = [max(values[place:place + 2]) for place in range(0, len(values), 2)]
        self.width *= 2


class Timeline:
    """Watches one allocator from now on; ``op()`` names the op that runs.

    ``held``: [bytes, blocks] by (stack, op), of the blocks handed out since; ``at_peak``: the same
    when most was in use; ``reserved``: what was reserved then.  Bytes are those asked for.
    ``kept``: the graphs that held much at the last look, their bytes, and all that was in use then;
    ``in_graphs``: [bytes, blocks] of what they hold, ``leaves`` of leaves that want gradients, and
    ``saved`` of what was kept for backward.  ``walks()``: how many walks backward began, -1 while
    one is under way; ``unused``: what was saved came back, or was left, without one.
    """

    def __init__(self, allocator: Any, name: str, op: Callable[[], str],
                 walks: Callable[[], int] = lambda: -1) -> None:
        self.allocator = allocator
        self.name = name
        self.op = op
        self.walks = walks
        self.walked = -1
        self.unused = False
        # Blocks that were saved at the last look and are still there; bytes of them that may go
        # until it is told whether a walk was what they were saved for.
        self.saving: set[int] = set()
        self.untried = 0
        self.start = time.perf_counter_ns()
        self.curve = Curve(self.start)
        self.blocks: dict[int, tuple[Key, int]] = {}
        self.held: dict[Key, list[int]] = {}
        self.at_peak: dict[Key, list[int]] = {}
        self.live = self.peak = self.peak_at = self.reserved = 0
        self.requests = 0
        # Of each (stack, op) with blocks in use: the first and the last request that made them.
        self.spans: dict[Key, list[int]] = {}
        self.rising = False
        self.kept: tuple[graphs.Kept, int, int] | None = None
        self.in_graphs: dict[Key, list[int]] = {}
        self.leaves: dict[Key, list[int]] = {}
        self.saved: dict[Key, list[int]] = {}
        self.looked = 0
        self.proved = True
        self.lock = threading.RLock()

    def attach(self) -> None:
        """Begin."""
        if hasattr(self.allocator, "watch"):
            self.allocator.watch(self.see)
        else:
            self.allocator.listen(self.hear)

    def detach(self) -> None:
        """End."""
        self.allocator.settled()
        self.look(1.0)
        if self.untried > 0:
            self.try_saved()
        self.keep_peak()
        if hasattr(self.allocator, "unwatch"):
            self.allocator.unwatch(self.see)
        else:
            self.allocator.listen(None)

    def hear(self, kind: str, address: int, nbytes: int) -> None:
        """A block of host memory was handed out or became free."""
        self.see(kind, address, nbytes, nbytes)

    def see(self, kind: str, address: int, size: int, nbytes: int) -> None:
        """A block was handed out or became free."""
        with self.lock:
            self.note(kind, address, nbytes)

    def note(self, kind: str, address: int, nbytes: int) -> None:
        """`see`, one thread at a time."""
        if kind == "allocate":
            # Before the block is counted: no tensor has it yet.
            self.look()
            self.requests += 1
            key = (stack_now()[:FRAMES], self.op())
            self.blocks[address] = (key, nbytes)
            entry = self.held.setdefault(key, [0, 0])
            entry[0] += nbytes
            entry[1] += 1
            self.spans.setdefault(key, [self.requests, 0])[1] = self.requests
            self.live += nbytes
            self.note_peak()
        else:
            self.forget(address)
        self.curve.add(time.perf_counter_ns(), self.live)

    def forget(self, address: int) -> None:
        """A block became free; those from before are not ours."""
        found = self.blocks.pop(address, None)
        if found is None:
            return
        self.keep_peak()
        key, nbytes = found
        entry = self.held[key]
        entry[0] -= nbytes
        entry[1] -= 1
        if not entry[1]:
            del self.held[key]
            del self.spans[key]
        self.live -= nbytes
        if address in self.saving:
            self.saving.discard(address)
            self.untried -= nbytes
            if self.untried <= 0 < self.untried + nbytes:
                self.try_saved()
        if not self.proved and self.live < FALLEN * self.looked:
            self.prove()

    def note_peak(self) -> None:
        """Remember that there never was more in use, where that is so."""
        if self.live > self.peak:
            self.peak = self.live
            self.peak_at = time.perf_counter_ns() - self.start
            self.reserved = self.allocator.pieces.held()
            self.rising = True

    def look(self, grown: float = GROWN) -> None:
        """Find who keeps graphs, where that was not done since much less was in use."""
        if self.live < max(FIRST_LOOK, grown * self.looked):
            return
        self.looked = self.live
        seen = graphs.look()
        sizes = {address: nbytes for address, (_, nbytes) in self.blocks.items()}
        found = graphs.largest(seen.kept, sizes, self.live)
        self.kept = None if found is None else (*found, self.live)
        self.proved = found is None
        self.in_graphs = self.sums(() if found is None else found[0].addresses)
        self.leaves = self.sums(seen.leaves)
        self.saved = self.sums(seen.saved)
        self.walked, self.saving = self.walks(), {each for each in seen.saved if each in sizes}
        self.untried = sum(sizes[each] for each in self.saving) // 2

    def try_saved(self) -> None:
        """Half of what was saved came back, or all is over: tell whether a walk has used it."""
        self.untried = 0
        self.unused = self.walked == self.walks() >= 0

    def prove(self) -> None:
        """As memory comes back: results that went into others were a step's, and kept for it."""
        self.proved = True
        if self.kept is None or self.kept[0].summed:
            return
        site, seen = self.kept[0].site, graphs.look()
        if site in seen.used and all(each.site != site for each in seen.kept):
            self.kept, self.in_graphs = None, {}

    def sums(self, addresses: Iterable[int]) -> dict[Key, list[int]]:
        """[bytes, blocks] by (stack, op) of the blocks at some addresses."""
        found: dict[Key, list[int]] = {}
        for address in addresses:
            if address in self.blocks:
                key, nbytes = self.blocks[address]
                entry = found.setdefault(key, [0, 0])
                entry[0] += nbytes
                entry[1] += 1
        return found

    def keep_peak(self) -> None:
        """Keep who held the peak, before the first block of it goes."""
        if self.rising:
            self.rising = False
            self.at_peak = {key: list(entry) for key, entry in self.held.items()}

# cython: nonecheck=False
"""Blocks for several streams: who used a block, and who has to wait for whom.

With one stream nothing of this runs.  From `StreamAllocator.several` on it is followed which stream
used which block; blocks that are clean for the stream that asks are preferred, and where there is
none, that stream waits on the device for the last uses of the block that it gets.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

import cython

from slipstream.core.memory.blocks import Allocator, announce
from slipstream.core.memory.ladder import climb
from slipstream.core.memory.pieces import LOCK
from slipstream.core.memory.slabs import Judge, Shelf
from slipstream.core.memory.uses import Clean, Own, Uses

# Before this version the collector may run wherever an object is made.
COLLECTS_ANYWHERE = sys.version_info < (3, 12)


def default_stream() -> int:
    """The number of the stream that a request is for, until somebody knows better."""
    return 0


class StreamAllocator(Allocator):
    """Hands out blocks for streams, which are numbered.

    Set from outside: ``current()`` is the number of the running thread's stream;
    ``covered(stream, other)`` how far recorded order covers the launches of ``other`` for
    ``stream``, and where both are the same what it has recorded so far;
    ``order(stream, other, sequence)`` lets ``stream`` wait for a launch of ``other`` on the device.
    """

    def __init__(self, provider: Any) -> None:
        Allocator.__init__(self, provider)
        self.uses: Uses | None = None
        self.owns: list[Own] = []
        self.streams = 1
        self.current: Callable[[], int] = default_stream
        self.covered: Callable[[int, int], int] | None = None
        self.order: Callable[[int, int, int], Any] | None = None

    def several(self, home: int = 0) -> None:
        """From here on there are several streams; until now only ``home`` used any block."""
        if self.uses is None and self.covered is not None:
            self.uses = Uses(home, self.covered(home, home))
            self.large.uses = self.uses

    def used(self, address: cython.size_t, stream: cython.int, sequence: cython.longlong) -> None:
        """Note that a stream's launch number ``sequence`` uses the live block at an address."""
        if stream >= self.streams:
            self.streams = stream + 1
        if self.uses is None:
            self.several()
        if self.uses is not None:
            self.uses.note(address, stream, sequence)

    def judge(self, stream: int) -> Clean:
        """What tells which free blocks are clean for a stream now."""
        covered, others = self.covered, [n for n in range(self.streams) if n != stream]
        if covered is None or self.uses is None:
            raise RuntimeError("the order of several streams is not known")
        return Clean(self.uses, stream, {other: covered(stream, other) for other in others},
                     {other: covered(other, other) for other in others})

    def allocate_among(self, nbytes: int, stream: int) -> int:
        """A block for a stream: a clean one, else one that the stream waits for."""
        address: int = self.take_own(nbytes, stream) if nbytes <= self.small else 0
        return address or self.allocate_clean(nbytes, stream)

    def take_own(self, nbytes: cython.Py_ssize_t, stream: cython.int) -> int:
        """Take a small block that only this stream used: nothing has to be asked."""
        address: cython.size_t = 0
        uses: Uses | None = self.uses
        own: Own
        if uses is None:
            return 0
        if not cython.compiled and self.busy:
            return 0
        if stream >= len(self.owns):
            self.make_owns(uses, stream)
        own = self.owns[stream]
        if cython.compiled:
            if COLLECTS_ANYWHERE and self.pending:
                self.alone(self.settle_now)
            address = self.take_small(nbytes, own)
        else:
            address = self.alone(self.take_small, nbytes, own) or 0
        if address:
            uses.hand_on(address)
            if self.listener is not None:
                announce(self, address, nbytes)
        return address

    def make_owns(self, uses: Uses, stream: int) -> None:
        """What tells the blocks of each stream, up to this one."""
        # Threads that use new streams at once would each add one at the same place.
        with LOCK:
            while stream >= len(self.owns):
                self.owns.append(Own(uses, len(self.owns)))

    def take_small(self, nbytes: cython.Py_ssize_t, judge: Judge) -> int:
        """Take the lowest slot that ``judge`` accepts, 0 where there is none."""
        self.settle()
        shelf: Shelf = self.table[(nbytes + self.round_up) >> self.shift]
        address: cython.size_t = shelf.take_where(judge)
        if address:
            self.live_bytes += shelf.size
            if self.live_bytes > self.peak_bytes:
                self.peak_bytes = self.live_bytes
            self.requested_taken += nbytes
        return address

    def allocate_clean(self, nbytes: int, stream: int) -> int:
        """A block for a stream that other streams may have used."""
        self.streams = max(self.streams, stream + 1)
        judge = self.judge(stream)
        address: int = self.alone(self.take_clean, nbytes, judge) or 0
        if not address:
            address = self.retake(nbytes) if cython.compiled else self.take_alone(nbytes)
        if not address:
            address = climb(self, nbytes)
        try:
            self.claim(address, stream, judge)
        except BaseException:
            self.free(address, nbytes)
            raise
        if self.listener is not None:
            announce(self, address, nbytes)
        return address

    def take_clean(self, nbytes: int, judge: Clean) -> int:
        """Take the best block that ``judge`` accepts, 0 where there is none."""
        if nbytes <= self.small:
            return self.take_small(nbytes, judge)
        self.settle()
        grain = self.large.grain
        size = (nbytes + grain - 1) // grain * grain
        address: int = self.large.take_where(size, judge)
        if address:
            self.count_large(size, nbytes)
        return address

    def claim(self, address: int, stream: int, judge: Clean) -> None:
        """Hand a block that was taken to a stream, which waits for its uses elsewhere."""
        uses = self.uses
        if uses is None or self.order is None:
            return
        for other, sequence in sorted(judge.missing(uses.find(address)).items()):
            self.order(stream, other, sequence)
        uses.hand_out(address, stream)

    # -- steps that nothing may come between --

    def alone(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Do ``work`` as one step; see `Allocator.alone`.

        With several streams it makes objects, at which an older Python would let the collector in.
        """
        if not cython.compiled:
            return Allocator.alone(self, work, *arguments)
        if not COLLECTS_ANYWHERE or self.uses is None or not gc.isenabled():
            return work(*arguments)
        gc.disable()
        try:
            return work(*arguments)
        finally:
            gc.enable()

    def retake(self, nbytes: cython.Py_ssize_t) -> int:
        """Look again for a free block."""
        return self.alone(self.take_plainly, nbytes) or 0

    def take_plainly(self, nbytes: cython.Py_ssize_t) -> int:
        """`take`, as a step."""
        return self.take(nbytes)

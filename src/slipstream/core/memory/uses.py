# cython: nonecheck=False
"""Which streams used a block, and how far: kept where a program uses several streams.

A stream's launches are numbered.  A block is *clean* for a stream when recorded order (an event
wait, a host wait) covers every other stream's last use of it.  Whether the work happens to be done
never decides, so that the same program always meets the same addresses.
"""

from __future__ import annotations

import cython

from slipstream.core.memory.slabs import Judge

# A use whose number nobody told: all that the stream has recorded when somebody asks.
OPEN = 1 << 62


class Use:
    """The uses of one block: ``owner``, the stream it was handed out to, used it last at
    ``sequence``; ``others``: last use by stream since then; ``inherited``: uses before it was
    handed out, which the owner waited for, so that its first own use stands for them.
    """

    def __init__(self, owner: int, sequence: int) -> None:
        self.owner = owner
        self.sequence = sequence
        self.others: dict[int, int] | None = None
        self.inherited: dict[int, int] | None = None

    def all(self) -> dict[int, int]:
        """The last use of each stream."""
        found = dict(self.inherited or {})
        for stream, sequence in (self.others or {}).items():
            found[stream] = max(sequence, found.get(stream, 0))
        found[self.owner] = max(self.sequence, found.get(self.owner, 0))
        return found


def merged(first: Use, second: Use) -> Use:
    """The uses of two free blocks that become one."""
    if first is second:
        return first
    both = Use(first.owner, first.sequence)
    uses = first.all()
    for stream, sequence in second.all().items():
        uses[stream] = max(sequence, uses.get(stream, 0))
    both.sequence = uses.pop(first.owner)
    both.others = uses or None
    return both


class Uses:
    """The uses of blocks by address.

    What is not written down was used by the stream ``home`` alone, at ``floor`` at the latest: it
    was the only stream until then.
    """

    def __init__(self, home: int, floor: int) -> None:
        self.marks: dict[int, Use] = {}
        self.home = home
        self.floor = floor

    def find(self, address: cython.size_t) -> Use:
        """The uses of the block at an address."""
        use: Use | None = self.marks.get(address)
        return Use(self.home, self.floor) if use is None else use

    def note(self, address: cython.size_t, stream: cython.int, sequence: cython.longlong) -> None:
        """Write down that a stream used a live block."""
        use: Use | None = self.marks.get(address)
        if use is None:
            use = Use(self.home, self.floor)
            self.marks[address] = use
        if use.owner == stream:
            use.sequence = sequence
            use.inherited = None
        elif use.others is None:
            use.others = {stream: sequence}
        else:
            use.others[stream] = sequence

    def hand_out(self, address: int, stream: int) -> None:
        """A block goes to a stream, which waited for its uses so far."""
        use = self.find(address)
        fresh = Use(stream, OPEN)
        if use.owner != stream or use.others or use.inherited:
            fresh.inherited = use.all()
        self.marks[address] = fresh

    def hand_on(self, address: cython.size_t) -> None:
        """A block goes to the stream that alone used it so far."""
        use: Use | None = self.marks.get(address)
        if use is None:
            self.marks[address] = Use(self.home, OPEN)
        else:
            use.sequence = OPEN

    def leave(self, address: cython.size_t, rest: cython.size_t) -> None:
        """A hole is split: what stays a hole, at ``rest``, has the same uses."""
        use = self.marks.get(address)
        if use is None:
            self.marks.pop(rest, None)
        else:
            self.marks[rest] = use

    def join(self, address: cython.size_t, after: cython.size_t) -> None:
        """Two free neighbours become one block at the first one's address."""
        self.marks[address] = merged(self.find(address), self.find(after))
        self.marks.pop(after, None)

    def forget(self, kept: set[int]) -> None:
        """Keep the uses of blocks at these addresses only."""
        for address in tuple(self.marks):
            if address not in kept:
                self.marks.pop(address, None)


class Own(Judge):
    """Accepts the free blocks that one stream alone used: they are clean for it."""

    def __init__(self, uses: Uses, stream: int) -> None:
        self.uses = uses
        self.stream = stream

    def accepts(self, address: cython.size_t) -> bool:
        """Tell whether no other stream used the free block at an address."""
        use: Use | None = self.uses.marks.get(address)
        if use is None:
            return self.stream == self.uses.home
        return use.owner == self.stream and use.others is None and use.inherited is None


class Clean(Judge):
    """Accepts the free blocks that are clean for ``stream``.

    ``covered``: how far recorded order covers each other stream; ``latest``: what it recorded.
    """

    def __init__(self, uses: Uses, stream: int, covered: dict[int, int],
                 latest: dict[int, int]) -> None:
        self.marks = uses.marks
        self.stream = stream
        self.covered = covered
        self.latest = latest
        self.plain = self.is_covered(uses.home, uses.floor)

    def is_covered(self, stream: cython.int, sequence: cython.longlong) -> bool:
        """Tell whether one use is over for the stream that asks."""
        if stream == self.stream:
            return True
        covered: cython.longlong = self.covered.get(stream, -1)
        if sequence <= covered:
            return True
        if sequence < OPEN:
            # A thread may have used the block since ``latest`` was asked for.
            return False
        latest: cython.longlong = self.latest.get(stream, OPEN)
        return latest <= covered

    def accepts(self, address: cython.size_t) -> bool:
        """Tell whether the free block at an address is clean."""
        use: Use | None = self.marks.get(address)
        if use is None:
            return self.plain
        if not self.is_covered(use.owner, use.sequence):
            return False
        for uses in (use.others, use.inherited):
            for stream, sequence in (uses or {}).items():
                if not self.is_covered(stream, sequence):
                    return False
        return True

    def missing(self, use: Use) -> dict[int, int]:
        """The uses that are not over, as stream -> how far to wait for it."""
        return {
            stream: min(sequence, self.latest.get(stream, sequence))
            for stream, sequence in use.all().items()
            if not self.is_covered(stream, sequence)
        }

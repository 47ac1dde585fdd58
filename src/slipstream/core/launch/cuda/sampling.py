"""Which launches CUPTI times kernel by kernel, and what times the others' kernels take.

That makes the driver take the kernels of a graph one by one, which costs the host more than all
else of a profile.  So it is done while something is new, now and then afterwards, and wherever
kernels are long enough that it does not matter.  Other launches have the times of the events around
them, between which each kernel takes the mean of its measured times.
"""

from __future__ import annotations

from statistics import fmean
from typing import Any

# Launches of the same ops of the same lines that are timed kernel by kernel at first.
FIRST = 3
# After so many launches with nothing new that stops; after twice as many each time that something
# new came, up to the most: turning it off and on costs about as much as timing a graph.
CALM, MOST_CALM = 1, 32
# So many of so many launches are timed kernel by kernel all the same.  A prime: a loop of some
# windows would always show the same ones.
AGAIN, PERIOD = 2, 127
# Kernels that are reckoned to take longer on average (ns): what it costs is little beside them.
LONG = 12_000


class Sampler:
    """Turns CUPTI's records of kernels off and on.

    ``library``: CUPTI; ``every``: they are not turned any more; ``off``: whether they are off;
    ``open``: sends that are under way.
    """

    def __init__(self, library: Any, every: bool) -> None:
        self.library = library
        self.every = every
        self.off = False
        self.open = 0
        self.calm = 0
        self.patience = CALM
        self.sends = 0
        # By content: how many of its sends were timed kernel by kernel.
        self.seen: dict[int, int] = {}

    def begin(self, content: int, count: int, cost: float) -> bool:
        """Launches are about to be sent; whether CUPTI does not tell of them.

        ``content``: a number for what they are, ``count`` kernels, reckoned to take ``cost`` ns; 0
        where they are always to be told of.
        """
        self.open += 1
        if self.every:
            return self.off
        self.sends += 1
        seen = self.seen.get(content, 0) if content else 0
        needed = seen < FIRST or cost > LONG * count
        self.calm = 0 if needed else self.calm + 1
        wanted = needed or self.sends % PERIOD < AGAIN
        # What another thread is about to launch is told of as that thread was answered.
        if wanted == self.off and (wanted or self.calm > self.patience) and self.open == 1:
            self.turn(needed)
        if not self.off:
            self.seen[content] = seen + 1
        return self.off

    def end(self) -> None:
        """They were sent."""
        self.open -= 1

    def turn(self, needed: bool) -> None:
        """Turn the records off or on; for good where CUPTI does not."""
        if not self.library.time_kernels(self.off):
            self.every = True
            return
        self.off = not self.off
        if needed:
            self.patience = min(2 * self.patience, MOST_CALM)


class Content:
    """Sends of the same ops of the same lines.

    ``timed``: for each that was timed kernel by kernel, when its kernels began and ended;
    ``others``: the work of the others, with a ``span`` each: when the events around it happened,
    and whether work before it was under way until then.
    """

    def __init__(self) -> None:
        self.timed: list[list[Any]] = []
        self.others: list[Any] = []

    def fill(self) -> int:
        """Give the others' kernels their times; how many have them."""
        if not self.timed or not self.others:
            return 0
        lengths = means([[end - start for start, end in times] for times in self.timed])
        begins = means([[start - min(times)[0] for start, _ in times] for times in self.timed])
        last = max(begin + length for begin, length in zip(begins, lengths, strict=True))
        # What a graph takes at most once it has begun: where the stream was empty, the event before
        # it happens long before the first kernel.
        most = max(min(last, *(end - start for start, end, _ in map(span_of, self.others))), 1)
        for noted in self.others:
            start, end, busy = noted.span
            if noted.graph and not busy:
                start = max(start, end - round(most))
            if noted.graph and sum(lengths) > last:
                # Side by side: they begin where the graph is as far.
                noted.times = [(round(start + begin * (end - start) / last),
                                round(start + begin * (end - start) / last + length))
                               for begin, length in zip(begins, lengths, strict=True)]
            else:
                noted.times = chain(start, end, lengths)
        return sum(len(noted.times) for noted in self.others)


def span_of(noted: Any) -> tuple[int, int, bool]:
    """When the events around work happened."""
    found: tuple[int, int, bool] = noted.span
    return found


def means(rows: list[list[int]]) -> list[float]:
    """The mean of each column."""
    return [fmean(column) for column in zip(*rows, strict=True)]


def chain(start: int, end: int, lengths: list[float]) -> list[tuple[int, int]]:
    """Kernels one behind the other until an end, with the same gap before each.

    Where they would take longer than there is, each takes less in proportion.
    """
    span, total = end - start, max(sum(lengths), 1.0)
    scale = min(span / total, 1.0)
    gap = (span - total * scale) / len(lengths)
    found, at = [], float(start)
    for length in lengths:
        at += gap
        found.append((round(at), round(at + length * scale)))
        at += length * scale
    return found

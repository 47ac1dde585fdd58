"""Which launches of graphs CUPTI times kernel by kernel.

That makes the driver launch a graph's kernels one by one, which costs the host more than all else
of a profile.  So it is done while something is new, now and then afterwards, and wherever kernels
are long enough that it does not matter; other launches of a graph are one record, from its begin
to its end, in which each kernel has the mean of its times (`activities`).
"""

from __future__ import annotations

from statistics import fmean
from typing import Any

# Launches of the same ops of the same lines that are timed kernel by kernel at first.
FIRST = 3
# After so many launches with nothing new that stops.
CALM = 2
# So many of so many launches of graphs are timed kernel by kernel all the same.  A prime: a loop of
# some windows would always show the same ones.
AGAIN, PERIOD = 2, 61
# Kernels that are reckoned to take longer on average (ns): what it costs is little beside them.
LONG = 12_000


class Sampler:
    """Turns the records of single kernels in graphs off and on.

    ``library``: CUPTI; ``every``: they are not turned any more; ``whole``: they are off now.
    """

    def __init__(self, library: Any, every: bool) -> None:
        self.library = library
        self.every = every
        self.whole = False
        self.calm = 0
        self.launches = 0
        # By content: how many launches were timed kernel by kernel.
        self.seen: dict[int, int] = {}

    def choose(self, content: int, count: int, cost: float) -> bool:
        """A graph is about to be launched; whether its launch is one record.

        ``content``: the number of what it holds, ``count`` kernels, reckoned to take ``cost`` ns.
        """
        if self.every:
            return self.whole
        self.launches += 1
        seen = self.seen.get(content, 0)
        wanted = seen < FIRST or cost > LONG * count
        if not wanted:
            self.calm += 1
            wanted = self.launches % PERIOD < AGAIN
        else:
            self.calm = 0
        if wanted == self.whole and (wanted or self.calm > CALM):
            # Where CUPTI does not turn, it stays as it is for good.
            self.every = not self.library.whole_graphs(not wanted)
            self.whole = self.whole if self.every else not wanted
        if not self.whole:
            self.seen[content] = seen + 1
        return self.whole


class Content:
    """Launches of the same ops of the same lines in a graph.

    ``timed``: for each that was timed kernel by kernel, when its kernels began and ended;
    ``whole``: the work of the others, whose ``span`` is known.
    """

    def __init__(self) -> None:
        self.timed: list[list[Any]] = []
        self.whole: list[Any] = []

    def fill(self) -> int:
        """Give the others' kernels their times; how many have them."""
        if not self.timed or not self.whole:
            return 0
        lengths = means([[end - start for start, end in times] for times in self.timed])
        begins = means([[start - min(times)[0] for start, _ in times] for times in self.timed])
        last = max(begin + length for begin, length in zip(begins, lengths, strict=True))
        total = max(sum(lengths), 1.0)
        side_by_side = total > last
        # What lies between kernels is less than where each is timed: what their times leave over.
        # What one launch takes longer than another is its kernels'.
        gaps = 0.0 if side_by_side else max(fmean(
            noted.span[1] - noted.span[0] for noted in self.whole) - total, 0.0)
        for noted in self.whole:
            start, end = noted.span
            if side_by_side:
                scale = 1.0
                first = [start + begin * (end - start) / last for begin in begins]
            else:
                scale = max(end - start - gaps, 0.0) / total
                first = chain(start, end, [length * scale for length in lengths])
            noted.times = [(round(begin), round(begin + length * scale))
                           for begin, length in zip(first, lengths, strict=True)]
        return sum(len(noted.times) for noted in self.whole)


def means(rows: list[list[int]]) -> list[float]:
    """The mean of each column."""
    return [fmean(column) for column in zip(*rows, strict=True)]


def chain(start: int, end: int, lengths: list[float]) -> list[float]:
    """When kernels begin that follow one another from start to end, as far apart as one another."""
    gap = (end - start - sum(lengths)) / max(len(lengths) - 1, 1)
    found, at = [], float(start)
    for length in lengths:
        found.append(at)
        at += length + gap
    return found

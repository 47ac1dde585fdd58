"""Which launches CUPTI times kernel by kernel, and what times the others' kernels take.

That makes the driver take the kernels of a graph one by one, which costs the host more than all
else of a profile.  So it is done while something is new, at steady intervals afterwards that
are long by what it was measured to cost this host, and wherever kernels are long enough that it
does not matter.  Other launches have the times of the events around them, between which each kernel
takes the mean of its times where it was measured just before and just after: a card's clocks drift.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from statistics import fmean, median_low
from typing import Any, NamedTuple

import cython

# Launches of the same ops of the same lines that are timed kernel by kernel at first.
FIRST = 3
# After so many launches with nothing new that stops; after twice as many each time that something
# new came, up to the most: turning it off and on costs about as much as timing a graph.
CALM, MOST_CALM = 1, 32
# Then all contents are timed again, one after the other, where at least so many times as many sends
# as there are contents were not, and so many ns have passed; at most so many sends in a row.
SHARE, INTERVAL, MOST_AGAIN = 16, 4_000_000, 16
# And so many times as long as such a lap was measured to cost the host: 3 % of its time at most.
# The median of so many laps counts, as a neighbour may have the processor in one of them.
BUDGET, PRICES = 32, 3
# Sends that were timed, before a send and behind it, of which its kernels take the mean.
BESIDE = 2
# Kernels that are reckoned to take longer on average (ns): what it costs is little beside them.
LONG = 12_000
# The same for C code, which would look a module's own up as objects (see the .pxd).
_first, _share, _interval, _most_again, _budget = FIRST, SHARE, INTERVAL, MOST_AGAIN, BUDGET
_long = LONG


class Sampler:
    """Turns CUPTI's records of kernels off and on.

    ``library``: CUPTI; ``every``: they are not turned any more; ``off``: whether they are off;
    ``open``: sends that are under way; ``price``: ns by which a lap of timed sends is longer for
    the host, with the turns before and behind it; 0 while that is not known.
    """

    def __init__(self, library: Any, every: bool) -> None:
        self.library = library
        self.every = every
        self.off = False
        self.open = 0
        self.calm = 0
        self.patience = CALM
        # By content: how many of its sends were timed kernel by kernel.
        self.seen: dict[int, int] = {}
        # Since all were timed again: when that was, sends and contents; sends still to be timed.
        self.last = 0
        self.sends = 0
        self.contents: set[int] = set()
        self.again = 0
        # The send under way: its content, when it began, whether the records were turned for it.
        self.content = 0
        self.begun = 0
        self.turned = False
        # The least ns of late that sends take which are not timed, by content.
        self.usual: dict[int, int] = {}
        self.price = 0
        self.prices: deque[int] = deque(maxlen=PRICES)
        self.spent = 0
        self.lapped = False

    def begin(self, content: int, count: int, cost: float, now: int) -> bool:
        """Launches are about to be sent, at ``now`` ns; whether CUPTI does not tell of them.

        ``content``: a number for what they are, ``count`` kernels, reckoned to take ``cost`` ns; 0
        where they are always to be told of.
        """
        self.open += 1
        if self.every:
            return self.off
        self.content, self.begun, self.turned = content, now, False
        seen: cython.Py_ssize_t = self.seen.get(content, 0) if content else 0
        needed: cython.bint = seen < _first or cost > _long * count
        self.calm = 0 if needed else self.calm + 1
        wanted: cython.bint = self.is_due(content, now) or needed
        # What another thread is about to launch is told of as that thread was answered.
        if wanted == self.off and (wanted or self.calm > self.patience) and self.open == 1:
            self.turn(needed)
        if not self.off:
            self.seen[content] = seen + 1
        return self.off

    def is_due(self, content: int, now: int) -> bool:
        """Whether it is time to time all contents again."""
        if self.again:
            self.again -= 1
            if not self.again:
                self.last, self.sends = now, 0
                self.contents.clear()
            return True
        self.last = self.last or now
        self.sends += 1
        self.contents.add(content)
        count: cython.Py_ssize_t = len(self.contents)
        due: cython.longlong = max(_interval, _budget * self.price)
        if self.sends >= _share * count and now - self.last >= due:
            # One more: the first may be told of wrongly, right behind the turn.
            self.again = min(count, _most_again) + 1
            self.lapped, self.spent = self.off, 0
        return False

    def end(self, now: int = 0) -> None:
        """They were sent, at ``now`` ns; 0 where nobody knows."""
        self.open -= 1
        # Beside another thread's no send shows what it takes.
        if not now or self.every or self.open:
            return
        took: cython.longlong = now - self.begun
        usual: cython.longlong = self.usual.get(self.content, took)
        if not self.off or self.turned:
            self.spent += max(took - usual, 0)
        else:
            self.usual[self.content] = min(took, usual + (usual >> 6) + 1)
        if self.lapped and self.off and self.turned:
            self.lapped = False
            self.prices.append(self.spent)
            self.price = median_low(self.prices)

    def turn(self, needed: bool) -> None:
        """Turn the records off or on; for good where CUPTI does not."""
        if not self.library.time_kernels(self.off):
            self.every = True
            return
        self.off = not self.off
        self.turned = True
        if needed:
            self.patience = min(2 * self.patience, MOST_CALM)


class Shape(NamedTuple):
    """How long the kernels of a send take and when each begins after the first; when all is over.
    """

    lengths: list[float]
    begins: list[float]
    last: float

    def place(self, noted: Any, most: float) -> None:
        """Give a send's kernels their times; ``most``: what it takes at most once it has begun."""
        start, end, busy = noted.span
        whole = sum(self.lengths)
        if noted.graph and not busy:
            # The event before it happened long before the first kernel.
            start = max(start, end - round(max(min(self.last, most), min(whole, self.last), 1)))
        if noted.graph and whole > self.last:
            # Side by side: they begin where the graph is as far.
            noted.times = [(round(start + begin * (end - start) / self.last),
                            round(start + begin * (end - start) / self.last + length))
                           for begin, length in zip(self.begins, self.lengths, strict=True)]
        else:
            noted.times = chain(start, end, self.lengths)


def shape_of(timed: list[list[Any]]) -> Shape:
    """The mean of sends that were timed kernel by kernel."""
    lengths = means([[end - start for start, end in times] for times in timed])
    begins = means([[start - min(times)[0] for start, _ in times] for times in timed])
    return Shape(lengths, begins, max(
        begin + length for begin, length in zip(begins, lengths, strict=True)))


class Content:
    """Sends of the same ops of the same lines.

    ``timed``: for each that was timed kernel by kernel its number among all sends, and when its
    kernels began and ended; ``others``: number and work of the others, with a ``span`` each: when
    the events around it happened, and whether work before it was under way until then.
    """

    def __init__(self) -> None:
        self.timed: list[tuple[int, list[Any]]] = []
        self.others: list[tuple[int, Any]] = []

    def fill(self) -> int:
        """Give the others' kernels their times; how many have them."""
        if not self.timed or not self.others:
            return 0
        numbers = [number for number, _ in self.timed]
        most = min(end - start for start, end, _ in (span_of(noted) for _, noted in self.others))
        shapes: dict[int, Shape] = {}
        for number, noted in self.others:
            place = bisect_left(numbers, number)
            if place not in shapes:
                near = self.timed[max(place - BESIDE, 0):place + BESIDE]
                shapes[place] = shape_of([times for _, times in near])
            shapes[place].place(noted, most)
        return sum(len(noted.times) for _, noted in self.others)


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

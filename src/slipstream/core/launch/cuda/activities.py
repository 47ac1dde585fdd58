"""Whose each of CUPTI's records is: the launches of a profile, matched with what the card tells.

Launches are noted in the order of the driver's calls, and the records' correlation numbers grow in
that order, the same for all kernels of a graph's launch.  So of the launches that hold the same
kernels, the n-th is the n-th such group of records.  Where there are not as many of one as of the
other, none of these is believed: they keep their times by events, and the profile says why.

Where the same launches come back, most are not told of (`sampling`): their kernels take the mean of
the times that were told of the same ops of the same lines.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any, NamedTuple

from slipstream.core.launch.cuda.sampling import Content, Sampler
from slipstream.core.launch.cuda.sends import MOST_NOTED, Noted, Notes
from slipstream.core.native.cupti import (
    COPIES,
    KERNEL,
    Activity,
    Clock,
    Cupti,
    CuptiError,
    opened,
    version_text,
)
from slipstream.core.vocab.ring import AVERAGED, ESTIMATED

# How much longer than between the events around it work may last by CUPTI, and ns beside that.
FITS, SLACK = 1.1, 5_000
# What a library's launches stand for, whose kernels are not known by name.
LIBRARY = ("library call",)
COPY = "copy"
# Behind every correlation number.
LAST = 1 << 62
Key = tuple[Any, ...]
# When something began and ended.
Times = tuple[int, int]


def is_plausible(noted: Noted) -> bool:
    """Whether its times fit between the events around it.

    Of launches next to which records were turned on or off, CUPTI has been seen to tell times
    that began long before.
    """
    if noted.span is None or not all(noted.times):
        return True
    told: Any = noted.times
    first, last = min(start for start, _ in told), max(end for _, end in told)
    longest = max(last - first, *(end - start for start, end in told))
    start, end, _ = noted.span
    return bool(longest <= (end - start) * FITS + SLACK)


def keys_of(noted: Noted) -> list[Key]:
    """What its calls launch: for each the kernels by name, or the bytes of a copy."""
    if noted.untold:
        return []
    if noted.copied >= 0:
        return [(COPY, noted.copied)]
    if not noted.symbols:
        return [LIBRARY]
    return [tuple(sorted(noted.symbols))] if noted.graph else [(each,) for each in noted.symbols]


class Call(NamedTuple):
    """One call that launched: its work, and its place among the work's rows."""

    noted: Noted
    place: int
    key: Key


class Group(NamedTuple):
    """The records of one call, by their begin."""

    correlation: int
    records: list[Activity]

    @property
    def key(self) -> Key:
        """What it launched."""
        if self.records[0].kind != KERNEL:
            return (COPY, self.records[0].nbytes)
        return tuple(sorted(record.name for record in self.records))


class Verdict(NamedTuple):
    """What came of a profile's records.

    ``source``: what told the times; ``missing``: why some or all are by events, or empty;
    ``foreign``: (kernel's name, how many, ns) of what this process launched beside us;
    ``averaged``: kernels that take the mean of others' times.
    """

    source: str = "events"
    missing: str = ""
    foreign: tuple[tuple[str, int, int], ...] = ()
    averaged: int = 0


class Activities(Notes):
    """CUPTI's records for one profile.  Making it begins them; raises CuptiError without them.

    ``every``: each kernel is to have its own.
    """

    def __init__(self, ring: Any, every: bool = False) -> None:
        library: Cupti = opened.library()
        library.begin()
        super().__init__(library, Sampler(library, every))
        self.ring = ring
        self.clock = Clock(library, ring.now)

    def finish(self) -> Verdict:
        """Stop, and put the times that CUPTI tells into the ring; all work is done."""
        for noted in self.notes:
            noted.times = [None] * len(noted.rows)
        try:
            self.clock.stop()
            records, lost = self.library.end()
        except CuptiError as failure:
            return Verdict(missing=str(failure))
        cut = self.left <= 0 or self.library.collector.refused() > 0
        matcher = Matcher(self.notes, grouped(records), cut)
        matcher.match()
        averaged = fill(self.notes)
        told = sum(self.write(noted) for noted in self.notes)
        count = sum(len(noted.rows) for noted in self.notes) + self.beyond
        source = version_text(self.library.version) if told else "events"
        return Verdict(source, missing_text(matcher, count - told, count, lost),
                       matcher.foreign(), averaged)

    def write(self, noted: Noted) -> int:
        """Write the times of work into its records; how many."""
        told, flag = 0, AVERAGED if noted.untold else 0
        for place, times in enumerate(noted.times):
            if times is None:
                continue
            start = times[0] if noted.untold else self.clock.of(times[0])
            end = start + max(times[1] - times[0], 1)
            if noted.first >= 0:
                self.ring.amend(noted.first + place, start, end, flag)
            else:
                what, name, site, value, *_ = noted.rows[place]
                self.ring.write(what & ~(ESTIMATED << 8) | flag << 8, name, site, start, end,
                                value)
                self.ring.timer.lost -= 1
            told += 1
        return told


def grouped(records: Iterable[Activity]) -> list[Group]:
    """Kernels and copies by the call that launched them, in the order of the calls.

    Kernels and copies of one graph are two groups.
    """
    found: dict[tuple[int, bool], list[Activity]] = defaultdict(list)
    for record in records:
        if record.kind == KERNEL or record.kind in COPIES:
            found[record.correlation, record.kind == KERNEL].append(record)
    return [Group(correlation, sorted(parts, key=lambda record: record.start))
            for (correlation, _), parts in sorted(found.items(), key=lambda item: item[0])]


class Matcher:
    """Gives each launch the records that are its own.

    ``cut``: records of the last launches were not made; ``wrong``: what was launched another number
    of times than told, with both numbers.
    """

    def __init__(self, notes: list[Noted], groups: list[Group], cut: bool = False) -> None:
        self.notes = notes
        self.cut = cut
        self.calls: dict[Key, list[Call]] = defaultdict(list)
        # Library calls that follow one another, behind the call before them.
        self.unnamed: list[tuple[Call | None, list[Call]]] = []
        self.groups: dict[Key, list[Group]] = defaultdict(list)
        self.correlations: dict[int, int] = {}
        self.wrong: list[tuple[Key, int, int]] = []
        self.left: list[Group] = []
        for group in groups:
            self.groups[group.key].append(group)
        self.sort()

    def sort(self) -> None:
        """Sort the calls by what they launch."""
        before: Call | None = None
        between = True
        for noted in self.notes:
            for place, key in enumerate(keys_of(noted)):
                call = Call(noted, place, key)
                if key != LIBRARY:
                    self.calls[key].append(call)
                    before, between = call, True
                    continue
                if between:
                    self.unnamed.append((before, []))
                self.unnamed[-1][1].append(call)
                between = False

    def match(self) -> None:
        """Match all calls: those whose kernels are known by name, then the library's."""
        for key, calls in self.calls.items():
            groups = self.groups.pop(key, [])
            if len(groups) == len(calls) or (self.cut and len(groups) < len(calls)):
                for call, group in zip(calls, groups, strict=False):
                    self.give(call, group)
            else:
                self.wrong.append((key, len(groups), len(calls)))
        self.left = sorted((group for groups in self.groups.values() for group in groups),
                           key=lambda group: group.correlation)
        self.match_library()

    def give(self, call: Call, group: Group) -> None:
        """These records are the call's."""
        self.correlations[id(call)] = group.correlation
        noted = call.noted
        if not noted.graph or noted.copied >= 0:
            noted.times[call.place] = span_of(group.records)
            return
        # In a graph kernels of one name began in the order in which they were recorded.
        waiting: dict[str, list[int]] = defaultdict(list)
        for place in reversed(range(len(noted.symbols))):
            waiting[noted.symbols[place]].append(place)
        for record in group.records:
            noted.times[waiting[record.name].pop()] = span_of([record])

    def match_library(self) -> None:
        """Library calls have the kernels that lie between their neighbours' and are nobody's."""
        known = sorted(self.correlations.values())
        rest = [group for group in self.left if group.records[0].kind == KERNEL]
        places = [group.correlation for group in rest]
        taken: set[int] = set()
        for before, calls in self.unnamed:
            low = -1 if before is None else self.correlations.get(id(before), LAST)
            after = bisect_right(known, low)
            high = known[after] if after < len(known) else LAST
            groups = rest[bisect_right(places, low):bisect_right(places, high)]
            if len(groups) < len(calls):
                self.wrong.append((LIBRARY, len(groups), len(calls)))
                continue
            for place, call in enumerate(calls):
                mine = groups[place * len(groups) // len(calls):
                              (place + 1) * len(groups) // len(calls)]
                call.noted.times[call.place] = span_of(
                    [record for group in mine for record in group.records])
            taken.update(group.correlation for group in groups)
        self.left = [group for group in self.left if group.correlation not in taken]

    def foreign(self) -> tuple[tuple[str, int, int], ...]:
        """Kernels that were none of ours, the longest first."""
        ours = {name for noted in self.notes for name in noted.symbols}
        count: Counter[str] = Counter()
        spent: Counter[str] = Counter()
        for group in self.left:
            for record in group.records:
                if record.kind == KERNEL and record.name not in ours:
                    count[record.name] += 1
                    spent[record.name] += record.end - record.start
        return tuple((name, count[name], ns) for name, ns in spent.most_common())


def span_of(records: list[Activity]) -> Times | None:
    """When work began, and how long its kernels took; None where CUPTI had no times for it.

    Gaps between several kernels of one call are left out.
    """
    if any(not record.end for record in records):
        return None
    start = min(record.start for record in records)
    return start, start + sum(record.end - record.start for record in records)


def fill(notes: list[Noted]) -> int:
    """Give the kernels that CUPTI did not tell of their times; how many have them."""
    contents: dict[int, Content] = defaultdict(Content)
    for number, noted in enumerate(notes):
        if not noted.untold and not is_plausible(noted):
            noted.untold, noted.times = True, [None] * len(noted.rows)
        if not noted.untold and all(noted.times):
            contents[id(noted.rows)].timed.append((number, noted.times))
        elif noted.untold and noted.span is not None:
            contents[id(noted.rows)].others.append((number, noted))
    return sum(content.fill() for content in contents.values())


class Sums(NamedTuple):
    """ns of the same kernels by ``sampled`` times and by those that CUPTI ``told``.

    ``kernels``: how many there are, of which ``averaged`` take the mean where they are sampled.
    """

    sampled: int
    told: int
    kernels: int
    averaged: int


class _Still:
    """In CUPTI's place where all is told already."""

    def time_kernels(self, wanted: bool) -> bool:
        """Nothing is to be turned."""
        return True


def resampled(notes: list[Noted], price: int = 0) -> Sums:
    """What sampling makes of launches that were all told of, as in `Session(every_kernel=True)`.

    ``price``: what a lap of timed sends costs the host, as a sampler that ran found it.
    Both sums are of the very same launches: what a card's clocks do between two runs, or because
    CUPTI looks on, is in both of them.
    """
    sampler = Sampler(_Still(), False)
    sampler.price = price
    whole = [noted for noted in notes if noted.copied < 0 and all(noted.times)]
    copies = []
    for noted in whole:
        content = id(noted.rows) if noted.symbols else 0
        untold = sampler.begin(content, len(noted.rows), noted.cost, noted.begun)
        sampler.end()
        copy = Noted(noted.rows, noted.symbols, noted.graph, -1, untold)
        copy.span = noted.span
        copy.times = [None] * len(noted.rows) if untold else list(noted.times)
        copies.append(copy)
    averaged = fill(copies)
    return Sums(spent_in(copies), spent_in(whole), sum(len(each.rows) for each in whole), averaged)


def spent_in(notes: list[Noted]) -> int:
    """ns of all kernels that have a time."""
    return sum(times[1] - times[0] for noted in notes for times in noted.times if times)


def missing_text(matcher: Matcher, missing: int, count: int, lost: int) -> str:
    """Why some launches have no times by CUPTI; empty where all have."""
    if not missing:
        return ""
    parts = [f"{missing:,} of {count:,} launches are by events"]
    if matcher.wrong:
        key, told, made = max(matcher.wrong, key=lambda each: each[2])
        name = f"copies of {key[1]:,} bytes" if key[0] == COPY else " + ".join(
            dict.fromkeys(map(str, key[:3])))
        parts.append(f"CUPTI told of {told:,} launches of {name} where {made:,} were made")
    elif matcher.cut:
        parts.append(f"CUPTI's records are kept for the first {MOST_NOTED:,} at most")
    if lost:
        parts.append(f"it dropped {lost:,} records")
    return "; ".join(parts)

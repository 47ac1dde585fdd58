# cython: nonecheck=False
"""Neighbouring launches that become one: what a window holds is joined when it is sent.

Where a launch that computes each element by itself reads what the launch before it wrote, over as
many elements in the same order, both can be one kernel: a value stays in registers between them,
rounded as a store and a load would round it.  It is written too, as others may read it, but where
its storage was released before anything else was recorded.  Which launches may be joined depends
on their operands' addresses alone: those of two launches are the same or do not overlap, or the
later one starts anew.

A kernel is made when the chain came back so often that what it would have saved is worth while.
"""

from __future__ import annotations

from typing import Any

import cython

from slipstream.core.launch.cuda.families import Family, joined_moment, make_key
from slipstream.core.launch.cuda.launches import Launch, Part
from slipstream.core.launch.cuda.memo import Window
from slipstream.core.launch.cuda.words import MASK, Words
from slipstream.core.native.driver import CompileError, DriverError
from slipstream.core.vocab.records import Release, Spec, Storage, TensorBase

__all__ = ["Chains", "Group", "Launch", "Part", "Release", "Spec", "Storage", "TensorBase",
           "Window", "Words"]

# Launches, and their operands, that one kernel has at most.
MOST_PARTS = 8
MOST_OPERANDS = 16
# A kernel is made for a chain that was seen so often, and would have saved so many bytes of the
# card's traffic; a launch less counts as so many, which is what the card moves meanwhile.
LEAST_SEEN = 3
WORTH = 512 << 20
LAUNCH_BYTES = 8 << 20
# The same of a chain around a row kernel or behind a large product, of which a model's first step
# has many: those that come again in the next ones are worth the tenths of a second that such a
# kernel takes to be made.
OFTEN_SEEN = 24
# When a storage that is not released is.
LIVES = 1 << 62
# Chains that are remembered.
MOST_CHAINS = 4096
# Windows of which is remembered what was made of them, and those with the same launches.
MOST_OUTCOMES = 512
MOST_ALIKE = 32
# What `SLIPSTREAM_JOIN` says: never (0), where it pays, at first sight (2).
NEVER, ALWAYS = 0, 2
# Launches of fewer elements stay apart where it has to pay: joining a chain takes the host some
# microseconds the first time, and half a one whenever it comes back.
FEWEST = 1 << 18


class Group:
    """The operands of launches that may become one.

    ``codes`` has four bits for each: the number of the first operand with the same address.
    ``deaths``: how many launches the window held when the memory of what a launch wrote was
    released: those that came later find something else there.
    """

    starts: Words
    ends: Words
    kinds: Words
    deaths: Words
    codes: int
    count: int

    def __init__(self) -> None:
        self.starts = Words()
        self.ends = Words()
        # Twice what the part says, and one more for an output.
        self.kinds = Words()
        self.deaths = Words()
        self.codes = 0
        self.count = 0

    def clear(self) -> None:
        """Begin anew."""
        self.cut(0)
        self.codes = 0

    def cut(self, count: cython.Py_ssize_t) -> None:
        """Keep the first operands only."""
        for held in (self.starts, self.ends, self.kinds, self.deaths):
            held.cut(count)
        self.count = count

    def add(self, window: Window, number: cython.Py_ssize_t, releases: list[Any]) -> bool:
        """Take in a launch of a window, if its operands allow it."""
        launch: Launch = window.launches[number]
        words: Words = window.words
        start: cython.Py_ssize_t = window.ends.get(number - 1) if number else 0
        part: Part = launch.part
        codes: cython.ulonglong = self.codes
        place: cython.Py_ssize_t
        kept: cython.Py_ssize_t = self.count
        total: cython.Py_ssize_t = part.outputs + part.inputs
        if kept + total > MOST_OPERANDS:
            return False
        for place in range(total):
            size: cython.longlong = part.sizes[place]
            kind: cython.ulonglong = part.kinds[place]
            begin: cython.ulonglong = words.get(start + place) if size else 0
            end: cython.ulonglong = begin + (size * launch.count if size > 0 else -size)
            kind = 2 * kind + (place < part.outputs)
            code: cython.longlong = self.code_of(begin, end, kind, number)
            if code < 0:
                self.cut(kept)
                return False
            codes |= cython.cast(cython.ulonglong, code) << (4 * self.count)
            death: cython.ulonglong = LIVES
            if place < part.outputs:
                death = death_of(releases, number, place)
            elif code < self.count:
                death = self.death_at(begin, number)
            self.starts.append(begin)
            self.ends.append(end)
            self.kinds.append(kind)
            self.deaths.append(death)
            self.count += 1
        self.codes = codes
        return True

    def code_of(self, begin: cython.ulonglong, end: cython.ulonglong, kind: cython.ulonglong,
                number: cython.ulonglong) -> int:
        """The first operand with the same address; -1 where another overlaps."""
        found: cython.longlong = self.count
        other: cython.Py_ssize_t
        for other in range(self.count):
            if (begin >= self.ends.get(other) or self.starts.get(other) >= end
                    or self.deaths.get(other) <= number):
                continue
            same: cython.ulonglong = self.kinds.get(other)
            if self.starts.get(other) == begin and same >> 1 == kind >> 1:
                found = min(found, other)
            elif (same | kind) & 1:
                return -1
        return found

    def death_at(self, begin: cython.ulonglong, number: cython.ulonglong) -> int:
        """When what was written last at an address is released; of what was read, never."""
        found: cython.ulonglong = LIVES
        other: cython.Py_ssize_t
        for other in range(self.count):
            if (self.starts.get(other) == begin and self.kinds.get(other) & 1
                    and self.deaths.get(other) > number):
                found = self.deaths.get(other)
        return found


def suits(window: Window, begin: cython.Py_ssize_t, place: cython.Py_ssize_t) -> cython.bint:
    """Whether a launch's kind may be of the group that begins at another place."""
    launch: Launch = window.launches[place]
    before: Launch
    part: Part = launch.part
    if part is None:
        return False
    other: cython.Py_ssize_t
    for other in range(begin, place):
        before = window.launches[other]
        ahead: Part = before.part
        if part.heads or before.count != launch.count or (ahead.heads and not part.follows):
            return False
        if ahead.reduces and (not part.follows or part.widest > ahead.widest):
            return False
        if part.reduces and (not ahead.follows or ahead.widest > part.widest):
            return False
    return True


def leader(launches: tuple[Any, ...]) -> Part:
    """The part that makes the kernel of a group: the one that reduces, or the first."""
    launch: Launch
    for launch in launches:
        if launch.part.reduces:
            return launch.part
    launch = launches[0]
    return launch.part


def death_of(releases: list[Any], number: cython.Py_ssize_t, output: cython.Py_ssize_t) -> int:
    """How many launches there were when the storage of an output was released."""
    release: Release
    for release in releases:
        if release.place == number + 1 and release.output == output and release.after >= 0:
            return release.after
    return LIVES


class Outcome:
    """What joining made of a window, for windows of the same launches that hold the same words.

    ``launches``, ``releases`` (as `signs_of` has them) and ``words``: of the window as it was
    recorded; ``spans``: the words from one place up to another, by twos, on which the outcome
    depends; ``joined``, ``ends``, ``key``: of the window as it is sent; ``kept``: whose notes each
    of its launches has; ``lasts``: the last that each stands for; ``count``: how many of them
    stand for several.
    """

    launches: list[Launch]
    releases: Words
    words: Words
    spans: Words
    joined: list[Launch]
    ends: Words
    key: int
    kept: list[int]
    lasts: list[int]
    count: int

    def __init__(self, window: Window, releases: Words) -> None:
        self.launches = window.launches
        self.releases = releases
        self.words = window.words.copy()
        self.spans = Words()
        self.ends = Words()
        self.joined = []
        self.kept = []
        self.lasts = []
        self.key = 0
        self.count = 0

    def fits(self, window: Window, releases: Words) -> cython.bint:
        """Whether a window comes to the same."""
        place: cython.Py_ssize_t
        count: cython.Py_ssize_t = len(self.launches)
        words: Words = window.words
        if len(window.launches) != count or self.releases.length != releases.length:
            return False
        if not words.same(0, self.words, 0, words.length) and not self.spans_fit(words):
            return False
        for place in range(count):
            if window.launches[place] is not self.launches[place]:
                return False
        return releases.same(0, self.releases, 0, releases.length)

    def spans_fit(self, words: Words) -> cython.bint:
        """Whether the words are the same on which the outcome depends."""
        place: cython.Py_ssize_t
        for place in range(0, self.spans.length, 2):
            start: cython.Py_ssize_t = self.spans.get(place)
            end: cython.Py_ssize_t = self.spans.get(place + 1)
            if not words.same(start, self.words, start, end - start):
                return False
        return True


class Chains:
    """The chains of a device.

    ``outcomes``: what was made of windows, by their keys, and ``held``, how many; ``doubts``: how
    often something was found that may come out otherwise the next time.
    """

    bound: dict[Any, Any]
    families: dict[Any, Any]
    owner: int
    mode: int
    fewest: int
    joined: int
    outcomes: dict[int, list[Outcome]]
    held: int
    doubts: int

    def __init__(self, owner: int, mode: int) -> None:
        # (launches, codes, dead outputs) -> the launch; or, where there is none yet, the family and
        # the bytes that one would save.
        self.bound = {}
        self.families = {}
        # The number of the allocator whose storages tell of their end.
        self.owner = owner
        self.mode = mode
        self.fewest = FEWEST
        self.joined = 0
        self.outcomes = {}
        self.held = self.doubts = 0

    def link(self, window: Window, launch: Launch, operands: tuple[Any, ...],
             note: bool) -> cython.bint:
        """Whether a launch reads what the last one of a window wrote; ``note`` it there."""
        count: cython.Py_ssize_t = len(window.launches)
        start: cython.Py_ssize_t = window.start
        before: Launch | None = window.last
        if before is None and count:
            before = window.launches[count - 1]
            start = window.ends.get(count - 2) if count > 1 else 0
        if (self.mode == NEVER or before is None or before.part is None
                or before.count != launch.count or not self.may_pay(window, before, launch)):
            return False
        tensor: TensorBase
        storage: Storage
        place: cython.Py_ssize_t
        output: cython.int
        part: Part = launch.part
        ahead: Part = before.part
        found: cython.bint = False
        for place in range(part.outputs, part.outputs + part.inputs):
            tensor = operands[place]
            storage = tensor.storage
            address: cython.ulonglong = storage.address + tensor.offset * tensor.spec.itemsize
            for output in range(ahead.outputs):
                if window.words.get(start + output) != address:
                    continue
                before.leads = found = True
                if note:
                    self.note(window, storage, output)
        return found

    def may_pay(self, window: Window, before: Launch, launch: Launch) -> cython.bint:
        """Whether two launches may be neighbours in a chain, and so many elements are worth it."""
        ahead: Part = before.part
        part: Part = launch.part
        if part.heads:
            return False
        if ahead.heads or ahead.reduces:
            return part.follows
        if part.reduces:
            return ahead.follows
        if launch.count >= self.fewest or self.mode == ALWAYS:
            return True
        # A chain that a head began goes on.
        noted: cython.Py_ssize_t = len(window.releases)
        if not noted or not part.follows:
            return False
        release: Release = window.releases[noted - 1]
        return release.place == len(window.launches) - 1

    def note(self, window: Window, storage: Storage, output: cython.int) -> None:
        """Let a storage between two launches tell of its end."""
        # As its constructor makes it, which takes longer to be called.
        release: Release = Release.__new__(Release)
        release.launches = window.launches
        release.place = len(window.launches)
        release.output = output
        release.after = -1
        window.releases.append(release)
        if storage.owner == self.owner and not storage.exported:
            storage.release = release

    def join(self, window: Window) -> BaseException | None:
        """Join what can be of a window that is sealed; what stopped it, before anything changed."""
        if not window.releases:
            return None
        try:
            self.join_groups(window)
        except (RecursionError, MemoryError):
            # There may be room for a kernel the next time.
            return None
        except BaseException as failure:
            return failure
        return None

    def join_groups(self, window: Window) -> None:
        """Put one launch in the place of each group of neighbours that allows it."""
        releases: list = window.releases
        window.releases = []
        signs: Words = signs_of(releases)
        outcome: Outcome | None = self.recall(window, signs)
        if outcome is None:
            doubts: cython.Py_ssize_t = self.doubts
            outcome = Outcome(window, signs)
            groups: list = self.groups_of(window, releases, outcome.spans)
            if groups:
                plan_rebuilt(window, groups, outcome)
            if self.doubts == doubts:
                self.remember(window.key, outcome)
        self.joined += outcome.count
        if outcome.count:
            rebuild(window, outcome)

    def recall(self, window: Window, signs: Words) -> Outcome | None:
        """What was made of such a window before."""
        outcome: Outcome
        known: list | None = self.outcomes.get(window.key)
        if known is not None:
            for each in known:
                outcome = each
                if outcome.fits(window, signs):
                    return outcome
        return None

    def remember(self, key: int, outcome: Outcome) -> None:
        """Keep an outcome, in the place of an old one where there are many."""
        if self.held >= MOST_OUTCOMES:
            self.outcomes.clear()
            self.held = 0
        known = self.outcomes.setdefault(key, [])
        if len(known) >= MOST_ALIKE:
            del known[0]
            self.held -= 1
        known.append(outcome)
        self.held += 1

    def groups_of(self, window: Window, releases: list[Any], spans: Words) -> list[Any]:
        """The groups of neighbours that become one launch; ``spans`` gets the words looked at."""
        release: Release
        groups: list = []
        place: cython.Py_ssize_t = 0
        count: cython.Py_ssize_t = len(window.launches)
        while place < len(releases):
            begin: cython.Py_ssize_t = place
            release = releases[place]
            first: cython.Py_ssize_t = release.place - 1
            last: cython.Py_ssize_t = release.place
            while place < len(releases):
                release = releases[place]
                if release.place > last + 1:
                    break
                last = release.place
                place += 1
            if last < count:
                spans.append(window.ends.get(first - 1) if first else 0)
                spans.append(window.ends.get(last))
                self.split(window, first, last, releases[begin:place], groups)
        return groups

    def split(self, window: Window, first: cython.Py_ssize_t, last: cython.Py_ssize_t,
              releases: list[Any], groups: list[Any]) -> None:
        """Cut neighbours into groups whose operands allow one kernel: (first, last, launch)."""
        # Of this call alone: other streams' windows are joined by other threads meanwhile.
        group: Group = Group()
        place: cython.Py_ssize_t = first
        while place < last:
            begin: cython.Py_ssize_t = place
            group.clear()
            while place <= last and place - begin < MOST_PARTS:
                if not suits(window, begin, place) or not group.add(window, place, releases):
                    break
                place += 1
            if place - begin > 1:
                found = self.find(window, begin, place - 1, group)
                if found is not None:
                    groups.append((begin, place - 1, found))
            elif place == begin:
                place += 1

    def find(self, window: Window, first: cython.Py_ssize_t, last: cython.Py_ssize_t,
             group: Group) -> Launch | None:
        """The launch of a group; None where it is not made yet."""
        dead: cython.ulonglong = 0
        one: cython.ulonglong = 1
        place: cython.Py_ssize_t
        for place in range(group.count):
            if group.kinds.get(place) & 1 and group.deaths.get(place) <= last + 1:
                dead |= one << place
        launches: tuple = tuple(window.launches[first:last + 1])
        key = (launches, group.codes, dead)
        found = self.bound.get(key)
        if found is None or not isinstance(found, Launch):
            found = self.consider(key, found)
        return found

    def consider(self, key: Any, known: Any) -> Launch | None:
        """Make the launch of a group, if it is worth a kernel by now."""
        family, gain = self.meet(key) if known is None else known
        family.seen += 1
        family.saved += gain
        launches = key[0]
        part: Part = leader(launches)
        if family.make is None and not self.worth(family, part):
            self.doubts += not family.refused
            return None
        try:
            if family.make is None:
                family.make = part.joined(*make_key(key))
            made: Launch | None = family.make and family.make(launches[0].count)
        except (CompileError, DriverError):
            made = None
        except Exception as fault:  # One of ours is told once.
            family.make, family.refused = None, not isinstance(fault, RecursionError | MemoryError)
            raise
        if made is None:
            family.refused = True
            family.make = None
            return None
        self.bound[key] = made
        return made

    def meet(self, key: Any) -> tuple[Any, int]:
        """The family of a group that was not seen before, and the bytes that a kernel saves it."""
        launches, _, dead = key
        if len(self.families) >= MOST_CHAINS:
            self.families.clear()
        family = self.families.setdefault(make_key(key), Family())
        sizes = [size for launch in launches for size in launch.part.sizes]
        # What is not written is not read either.
        saved = sum([2 * size for place, size in enumerate(sizes) if dead >> place & 1])
        if len(self.bound) >= MOST_CHAINS:
            self.bound.clear()
        known = (family, saved * launches[0].count + (len(launches) - 1) * LAUNCH_BYTES)
        self.bound[key] = known
        return known

    def worth(self, family: Any, part: Part) -> bool:
        """Whether a chain has come, and would have saved, enough for a kernel of its own.

        ``part``: its leader.  Where that is a head, or reduces, the saving is sure: coming is
        enough, and more often where its kernel is dear.
        """
        if family.refused or self.mode == NEVER:
            return False
        if self.mode == ALWAYS:
            return True
        if part.dear:
            return family.seen > OFTEN_SEEN
        return family.seen > LEAST_SEEN and (part.heads or family.saved >= WORTH)


def signs_of(releases: list[Any]) -> Words:
    """What releases tell, written down."""
    release: Release
    signs: Words = Words()
    for release in releases:
        # Places are few: none has more than 24 bits.
        place: cython.ulonglong = release.place
        output: cython.ulonglong = release.output
        after: cython.ulonglong = release.after + 1
        signs.append(place | after << 24 | output << 48)
    return signs


def plan_rebuilt(window: Window, groups: list[Any], outcome: Outcome) -> None:
    """Note how a window looks with one launch in the place of each group."""
    launch: Launch
    launches: list = []
    kept: list = []
    lasts: list = []
    place: cython.Py_ssize_t = 0
    for first, last, joined in groups:
        kept += [*range(place, first), main_of(window, first, last)]
        lasts += [*range(place, first), last]
        launches.extend(window.launches[place:first])
        launches.append(joined)
        place = last + 1
    rest = range(place, len(window.launches))
    kept.extend(rest)
    lasts.extend(rest)
    launches.extend(window.launches[place:])
    prime: cython.ulonglong = 1099511628211
    key: cython.ulonglong = 0
    for launch in launches:
        if cython.compiled:
            key = key * prime + launch.mark
        else:
            key = (key * prime + launch.mark) & MASK
    outcome.joined = launches
    outcome.kept = kept
    outcome.lasts = lasts
    for place in lasts:
        outcome.ends.append(window.ends.get(place))
    outcome.key = key
    outcome.count = len(groups)


def main_of(window: Window, first: cython.Py_ssize_t, last: cython.Py_ssize_t) -> int:
    """Whose line and op a group has: that of the product or the row kernel, else of the last."""
    launch: Launch
    part: Part
    place: cython.Py_ssize_t
    for place in range(first, last):
        launch = window.launches[place]
        part = launch.part
        if part.heads or part.reduces:
            return place
    return last


def rebuild(window: Window, outcome: Outcome) -> None:
    """Put one launch in the place of each group; its words are theirs, one after the other."""
    count: cython.Py_ssize_t = len(window.launches)
    # Where the next window begins, it is asked for.
    window.last = window.launches[count - 1]
    window.start = window.ends.get(count - 2) if count > 1 else 0
    note_kept(window, outcome)
    ends: Words = outcome.ends
    window.ends.put(0, ends, 0, ends.length)
    window.ends.cut(ends.length)
    window.kept = outcome.kept
    window.launches = outcome.joined
    window.key = outcome.key


def note_kept(window: Window, outcome: Outcome) -> None:
    """Keep what a window notes beside its launches: one trace, and one moment, of each group."""
    traces: Words | None = window.traces
    if traces is not None and traces.length:
        missing = len(window.launches) - traces.length
        some = Words()
        for place, last in zip(outcome.kept, outcome.lasts, strict=True):
            if last >= missing:
                # A profile may have begun in the middle of a group.
                some.append(traces.get(max(place, missing) - missing))
        window.traces = some
    if window.moments:
        before = [-1, *outcome.lasts]
        window.moments = [joined_moment(window.moments[earlier + 1:place + 1])
                          for earlier, place in zip(before, outcome.lasts, strict=False)]

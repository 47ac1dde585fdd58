# cython: nonecheck=False
"""The profiler's ring: records of one size, and counts by line and layer kept while it is written.

A record is seven words of 8 bytes: kind, thread and name; site and stack; start; end; a value
(bytes); where it ran; its number.  The oldest are overwritten; what was counted of them stays.
Nothing here runs, and nothing is allocated, while `modes.ring` is None.
"""

# The .pxd declares the C functions.
# mypy: disable-error-code="name-defined"
# ruff: noqa: F821

from __future__ import annotations

import threading
import time
from typing import Any, NamedTuple

import cython

from slipstream.core.vocab.cells import CELL, Cells

if cython.compiled:
    from cython.cimports.slipstream.core.vocab.cells import slip_count
    from cython.cimports.slipstream.core.vocab.ticking import slip_nanoseconds

# Kinds of records.
OP, VIEW, SPAN, KERNEL, COPY, FILL, WAIT, DATA, SEND, STEP, MEMORY, PLAN, HOST_COPY = range(13)
KINDS = 16
KIND_NAMES = ("op", "view", "span", "kernel", "copy", "fill", "wait", "data", "send", "step",
              "memory", "plan", "host copy")
# Layers of the host: where its time goes.
(PYTHON, DISPATCH, TAPE, ALLOCATION, LAUNCH, DRIVER, HOST_KERNEL, WAITING, COPYING, LOADING,
 PLANNING) = range(11)
LAYERS = ("Python", "dispatch", "tape", "allocation", "launch", "driver", "host kernels",
          "waits", "copies", "data", "making plans")
WIDTH = 7
# The same for C code, which would look a module's own up as objects (see the .pxd).
_width, _kinds, _op, _view = WIDTH, KINDS, OP, VIEW
_dispatch, _launch, _host_kernel = DISPATCH, LAUNCH, HOST_KERNEL
# So many calls of a plan have the clock looked at where their launch begins, and one in EACH of
# the later ones: in the others what came before takes as long as it did at the last look.
LOOKED_AT, EACH = 32, 8
_looked_at, _each = LOOKED_AT, EACH
# Distinct names and lines that are kept; the rest are counted together as number 0.
MOST_NAMES = 1 << 18
# Names and lines that C code finds again by their address: words of each, how many of the last.
_words, _near = 4, 1 << 12
# Records that are counted together, before they are overwritten.
_bunch = 1024
# Numbers of a part of a span, and what stands for all of the span in them.
_part, _whole = 6, 1 << 52
OTHER = "(other)"
LOW = _low = (1 << 32) - 1
# Bits of a record's ``where``, above the device (8 bits) and the stream (16 bits).
REPLAYED, ESTIMATED, AVERAGED = 1 << 32, 1 << 33, 1 << 34
# Device memory that left by address: (address, bytes, code, instruction), the last ones.
MOST_EXPORTS = 64
exports: dict[int, tuple[int, Any, int]] = {}


class Record(NamedTuple):
    """A decoded record.  Times in ns; ``name`` and ``site`` are places in the ring's lists."""

    kind: int
    thread: int
    name: int
    site: int
    stack: int
    start: int
    end: int
    value: int
    where: int
    number: int


class Book:
    """Names, lines and records of one size.

    ``written``: records so far; ``stacks``: gives the number of the running stack, or None;
    ``names`` holds strings and plans.
    """

    capacity: int
    written: int
    stacks: Any
    names: list[Any]
    sites: list[tuple[Any, int]]
    by_site: Cells
    by_name: Cells
    _names: dict[Any, int]
    _sites: dict[int, int]
    _threads: dict[int, int]
    _near_names: Cells
    _near_sites: Cells
    _cells: Cells
    _place: int
    _counted: int
    _site_key: int
    _site: int

    def __init__(self, capacity: int) -> None:
        self.capacity = max(capacity, 1)
        self.written = 0
        self.stacks = None
        self.names = [OTHER]
        self.sites = [(None, 0)]
        self.by_site = Cells(64 * KINDS * CELL)
        self.by_name = Cells(64 * KINDS * CELL)
        self._names = {OTHER: 0}
        self._sites = {}
        self._threads = {}
        self._near_names = Cells(_words * _near)
        self._near_sites = Cells(_words * _near)
        self._cells = Cells(self.capacity * WIDTH)
        self._place = 0
        # The records before it are in the counts by line and name.
        self._counted = 0
        # The last line that was asked for: it is twice in a row.
        self._site_key = self._site = 0

    def _running(self) -> int:
        if cython.compiled:
            return slip_running()
        return self._threads.setdefault(threading.get_ident(), len(self._threads) + 1)

    def name_of(self, name: object) -> int:
        """The number of a string or plan; it is kept, so that its address stays its own."""
        if not cython.compiled:
            return self._number_of(name)
        address: cython.longlong = slip_pointer(name)
        near: cython.p_longlong = self._near_names.data + slip_near(address)
        number: cython.Py_ssize_t = near[1]
        if near[0] != address:
            number = self._number_of(name)
            # An equal string of another address is not kept.
            if self.names[number] is name:
                self._near_names.keep(address, number)
        return number

    def _number_of(self, name: object) -> int:
        key: object = name
        if not isinstance(name, str):
            key = slip_pointer(name) if cython.compiled else id(name)
        found = self._names.get(key)
        if found is not None:
            return found
        if len(self.names) >= MOST_NAMES:
            return 0
        found = self._names[key] = len(self.names)
        self.names.append(name)
        return found

    def site_of(self, code: object, instruction: cython.int) -> int:
        """The number of a line, as (code, instruction); 0 for none."""
        if code is None:
            return 0
        # Addresses of objects are multiples of 16; hashing a code object walks all of it.
        address: cython.longlong = slip_pointer(code) if cython.compiled else id(code)
        address = ((address >> 4) << 20) + instruction
        if not cython.compiled:
            return self._place_of(code, instruction, address)
        if address == self._site_key:
            return self._site
        near: cython.p_longlong = self._near_sites.data + slip_near(address)
        number: cython.Py_ssize_t = near[1]
        if near[0] != address:
            number = self._place_of(code, instruction, address)
            if number:
                self._near_sites.keep(address, number)
        self._site_key, self._site = address, number
        return number

    def _place_of(self, code: object, instruction: cython.int, address: cython.longlong) -> int:
        found = self._sites.get(address)
        if found is None and len(self.sites) < MOST_NAMES:
            found = self._sites[address] = len(self.sites)
            self.sites.append((code, instruction))
        return found or 0

    # -- records --

    def write(self, what: cython.longlong, name: cython.Py_ssize_t, site: cython.Py_ssize_t,
              start: cython.longlong, end: cython.longlong, value: cython.longlong) -> None:
        """Add a record, and count it for its line and name.

        ``what``: its kind, and above these 8 bits where it ran.
        """
        self._put(what, name, site, start, end, value)

    def write_parts(self, parts: Cells, start: cython.Py_ssize_t, length: cython.Py_ssize_t,
                    share: cython.double) -> int:
        """Add the records of a span that its kernels share; the number of the first.

        ``parts``: as `packed` makes them; of each part's share, the last ``share`` is shown.
        """
        last: cython.double
        first: cython.double
        begin: cython.longlong
        end: cython.longlong
        what: cython.longlong
        place: cython.Py_ssize_t = 0
        if cython.compiled:
            data: cython.p_longlong = parts.data
        else:
            data = parts.items
        number: cython.Py_ssize_t = self.written
        stack: cython.longlong = 0 if self.stacks is None else self.stacks() << 32
        thread: cython.longlong = self._running() << 8
        # A power of two: the product is what division would give.
        whole: cython.double = 1.0 / _whole
        while place + _part <= parts.room:
            what = data[place]
            first = data[place + 4] * whole
            last = data[place + 5] * whole
            begin = start + cython.cast(
                cython.longlong, (last - (last - first) * share) * length)
            # Nothing takes no time, however short the span that is shared.
            end = max(start + cython.cast(cython.longlong, last * length), begin + 1)
            self._store((what & 255) + thread + (data[place + 1] << 32),
                        data[place + 2] + stack, begin, end, data[place + 3], what >> 8)
            place += _part
        return number

    def _put(self, what: cython.longlong, name: cython.Py_ssize_t, site: cython.Py_ssize_t,
             start: cython.longlong, end: cython.longlong, value: cython.longlong) -> int:
        second: cython.longlong = site
        if self.stacks is not None:
            second += self.stacks() << 32
        return self._store((what & 255) + (self._running() << 8) + (name << 32), second, start,
                           end, value, what >> 8)

    def _store(self, first: cython.longlong, second: cython.longlong, start: cython.longlong,
               end: cython.longlong, value: cython.longlong, where: cython.longlong) -> int:
        """Write the words of a record; it is counted before it is overwritten."""
        if cython.compiled:
            cell: cython.p_longlong = self._cells.data + self._place * _width
            cell[0] = first
            cell[1] = second
            cell[2] = start
            cell[3] = end
            cell[4] = value
            cell[5] = where
            cell[6] = self.written
        else:
            place = self._place * WIDTH
            self._cells.items[place:place + WIDTH] = [
                first, second, start, end, value, where, self.written]
        self.written += 1
        self._place += 1
        if self._place == self.capacity:
            self._place = 0
        if self.written - self._counted == self.capacity:
            self._count(min(self._counted + _bunch, self.written))
        return 0

    def _count(self, until: cython.Py_ssize_t) -> int:
        """Count the records before a number for their lines and names."""
        if cython.compiled:
            cells: cython.p_longlong = self._cells.data
        else:
            cells = self._cells.items
        number: cython.Py_ssize_t = self._counted
        place: cython.Py_ssize_t = number % self.capacity * _width
        while number < until:
            first: cython.longlong = cells[place]
            site: cython.longlong = cells[place + 1] & _low
            duration: cython.longlong = cells[place + 3] - cells[place + 2]
            kind: cython.longlong = first & 255
            value: cython.longlong = cells[place + 4]
            row: cython.Py_ssize_t = site * _kinds + kind
            if cython.compiled and 3 * row + 3 <= self.by_site.room:
                slip_count(self.by_site.data + 3 * row, duration, value)
            else:
                self.by_site.add(row, duration, value)
            row = (first >> 32) * _kinds + kind
            if cython.compiled and 3 * row + 3 <= self.by_name.room:
                slip_count(self.by_name.data + 3 * row, duration, value)
            else:
                self.by_name.add(row, duration, value)
            number += 1
            self._counted = number
            place += _width
            if place == self.capacity * _width:
                place = 0
        return 0

    def amend(self, number: cython.Py_ssize_t, start: cython.longlong, end: cython.longlong,
              flag: cython.longlong = 0) -> None:
        """Set when a record began and ended, now that it is known and not estimated any more.

        ``flag``: what is added to where it ran.  What was overwritten stays counted as it was.
        """
        if number < self.dropped or number >= self.written:
            return
        cells: Cells = self._cells
        place: cython.Py_ssize_t = number % self.capacity * _width
        more: cython.longlong = end - start + cells.at(place + 2) - cells.at(place + 3)
        where: cython.longlong = cells.at(place + 5)
        estimated: cython.longlong = ESTIMATED
        if where & estimated:
            where -= estimated
        cells.set(place + 2, start)
        cells.set(place + 3, end)
        cells.set(place + 5, where | flag)
        if number < self._counted:
            first: cython.longlong = cells.at(place)
            site: cython.longlong = cells.at(place + 1) & _low
            self.by_site.lengthen(site * _kinds + (first & 255), more)
            self.by_name.lengthen((first >> 32) * _kinds + (first & 255), more)

    @property
    def dropped(self) -> int:
        """How many records were overwritten."""
        return max(self.written - self.capacity, 0)

    def record(self, number: int) -> Record:
        """The record of a number from ``dropped`` to ``written``."""
        place = number % self.capacity * WIDTH
        words = [self._cells.get(place + step) for step in range(WIDTH)]
        return Record(words[0] & 255, (words[0] >> 8) & 0xFFFFFF, words[0] >> 32, words[1] & LOW,
                      words[1] >> 32, *words[2:])

    def records(self) -> list[Record]:
        """The records that are kept, in the order in which they were written."""
        return [self.record(number) for number in range(self.dropped, self.written)]

    def totals(self, cells: Cells, row: int, kind: int) -> tuple[int, int, int]:
        """(count, ns, value) of a site or name, the overwritten records too."""
        self._count(self.written)
        place = (row * KINDS + kind) * CELL
        return cells.get(place), cells.get(place + 1), cells.get(place + 2)


class Ring(Book):
    """Written at both doors, the allocator, the tape, sends and waits while a profile is on.

    ``launching``: the name of the op whose launches are recorded; ``virtual``: the clock of the
    simulated driver, or None; ``timer``: what measures devices.

    Of the thread that was here last, ``thread``: ``state`` has its modes, None where these are not
    known (to compare them asks less of the interpreter), ``layer`` is what it is in, ``outside``
    what it is in between ops, ``entered`` when it came to the door, ``last`` the time up to which
    ``layers`` are counted, ``calls`` how many ops it called; of the time since, ``owed`` ns are
    those of the layer ``owing``, if it was so long.  ``others`` keeps the same of other threads.
    """

    launching: int
    layer: int
    outside: int
    entered: int
    last: int
    owed: int
    owing: int
    thread: int
    state: Any
    virtual: Any
    timer: Any
    layers: Cells
    calls: int
    others: dict[int, tuple[Any, ...]]
    threads: dict[int, str]

    def __init__(self, capacity: int, virtual: Any = None) -> None:
        super().__init__(capacity)
        self.launching = 0
        self.virtual = virtual
        self.timer = None
        self.layers = Cells(len(LAYERS))
        self.calls = 0
        self.layer = self.outside = PYTHON
        self.entered = self.owed = self.owing = 0
        self.others = {}
        self.state = None
        self.thread = self._running()
        self.threads = {self.thread: threading.current_thread().name}
        self.last = self.now()

    def now(self) -> int:
        """Nanoseconds of `time.perf_counter_ns`, or of the simulated driver's clock."""
        if self.virtual is not None:
            return self.virtual.now()
        if cython.compiled:
            return slip_nanoseconds()
        return time.perf_counter_ns()

    # -- layers --

    def turn(self) -> None:
        """Another thread than last time is here: its layers are those that are counted."""
        self.others[self.thread] = (self.layer, self.outside, self.entered, self.last,
                                    self.layers, self.calls, self.owed, self.owing)
        self.thread = self._running()
        self.state = None
        known = self.others.pop(self.thread, None)
        if known is None:
            self.threads[self.thread] = threading.current_thread().name
            known = (PYTHON, PYTHON, 0, self.now(), Cells(len(LAYERS)), 0, 0, 0)
        self.layer, self.outside, self.entered, self.last, self.layers, self.calls = known[:6]
        self.owed, self.owing = known[6:]

    def counted(self) -> list[tuple[str, Cells, int]]:
        """(thread's name, layers, calls of ops) of each thread that called any, the most first.

        Where none did, of the one that was here last.
        """
        found = [(self.threads[thread], kept[4], kept[5]) for thread, kept in self.others.items()]
        found.append((self.threads[self.thread], self.layers, self.calls))
        called = [each for each in found if each[2]] or found[-1:]
        return sorted(called, key=lambda each: -each[2])

    def meet(self, state: object) -> int:
        """A thread is here that is not known to be the one that was here last."""
        if self._running() != self.thread:
            self.turn()
        self.state = state
        return 0

    def enter(self, state: object) -> None:
        """A thread comes to the door."""
        if state is not self.state:
            self.meet(state)
        if self.virtual is not None:
            self.virtual.call()
        self._turn_to(_dispatch)
        self.entered = self.last

    def switch(self, layer: cython.int) -> int:
        """Count the time so far for the layer that ends, and begin another; which one ended."""
        if self._running() != self.thread:
            self.turn()
        return self._turn_to(layer)

    def _turn_to(self, layer: cython.int) -> int:
        """Switch; ``thread`` is the running one."""
        now: cython.longlong
        before: cython.int = self.layer
        if cython.compiled and self.virtual is None:
            now = slip_nanoseconds()
        else:
            now = self.now()
        if cython.compiled:
            layers: cython.p_longlong = self.layers.data
        else:
            layers = self.layers.items
        spent: cython.longlong = now - self.last
        if self.owed:
            part: cython.longlong = min(self.owed, spent)
            layers[self.owing] += part
            self.owed = 0
            spent -= part
        layers[before] += spent
        self.last = now
        self.layer = layer
        return before

    def surround(self, layer: cython.int) -> int:
        """Let time between ops count for a layer: the tape's while it is walked."""
        if self._running() != self.thread:
            self.turn()
        before: cython.int = self.outside
        self.switch(layer)
        self.outside = layer
        return before

    # -- the doors --

    def begin(self, plan: object, immediate: bool, state: object) -> int:
        """A plan is about to be launched; when its call began."""
        if state is not self.state:
            self.meet(state)
        layer: cython.int = _host_kernel if immediate else _launch
        if cython.compiled and self.virtual is None:
            self._launch_from(plan, layer)
            return self.entered or self.last
        self.launching = self.name_of(plan)
        if self.virtual is not None:
            self._turn_to(_dispatch)
            self.virtual.dispatched()
        self._turn_to(layer)
        return self.entered or self.last

    def _launch_from(self, plan: object, layer: cython.int) -> int:
        """Turn to a plan's launches, compiled, most times without a look at the clock.

        Beside a name's number are kept the launches, and the ns of the layer before the last one at
        which the clock was looked at.
        """
        address: cython.longlong = slip_pointer(plan)
        row: cython.Py_ssize_t = slip_near(address)
        if self._near_names.data[row] != address:
            self.launching = self.name_of(plan)
        kept: cython.p_longlong = self._near_names.data + row
        if kept[0] != address:
            self._turn_to(layer)
            return 0
        self.launching = kept[1]
        kept[2] += 1
        if kept[2] > _looked_at and kept[2] % _each and not self.owed:
            self.owing = self.layer
            self.owed = max(kept[3], 1)
            self.layer = layer
            return 0
        before: cython.longlong = self.last
        self._turn_to(layer)
        kept[3] = self.last - before
        return 0

    def finish(self, name: cython.Py_ssize_t, code: object, instruction: cython.int,
               start: cython.longlong, state: object) -> None:
        """It was launched."""
        if state is not self.state:
            self.meet(state)
        self._turn_to(self.outside)
        self.entered = 0
        self.calls += 1
        if self.stacks is not None:
            self._put(_op, name, self.site_of(code, instruction), start, self.last, 0)
        else:
            self._store(_op + (self.thread << 8) + (name << 32),
                        self.site_of(code, instruction), start, self.last, 0, 0)

    def viewed(self, plan: object, code: object, instruction: cython.int) -> None:
        """A view was made: there is nothing to launch."""
        if self._running() != self.thread:
            self.turn()
        start: cython.longlong = self.entered or self.last
        self._turn_to(self.outside)
        self.entered = 0
        self.calls += 1
        self._put(_view, self.name_of(plan), self.site_of(code, instruction), start, self.last, 0)


def packed(rows: list[Any]) -> Cells:
    """Parts of a span for `Ring.write_parts`.

    ``rows``: for each (what, name, site, value, where it begins and ends as shares of the span).
    """
    found: Cells = Cells(_part * len(rows))
    place: cython.Py_ssize_t = 0
    share: cython.double
    step: cython.Py_ssize_t
    for row in rows:
        for step in range(4):
            found.set(place + step, row[step])
        for step in range(4, 6):
            share = row[step]
            found.set(place + step, cython.cast(cython.longlong, share * _whole))
        place += _part
    return found


def note_export(address: int, nbytes: int, code: Any, instruction: int) -> None:
    """Remember the line from which other code got device memory."""
    # The latest is the last: memory that came back may be handed out at another line.
    exports.pop(address, None)
    if len(exports) >= MOST_EXPORTS:
        exports.pop(next(iter(exports)))
    exports[address] = (nbytes, code, instruction)


def exported_at(addresses: tuple[int, ...]) -> tuple[Any, int] | None:
    """The line that handed out the memory of one of these addresses."""
    for address in addresses:
        for start, (nbytes, code, instruction) in reversed(exports.items()):
            if start <= address < start + max(nbytes, 1):
                return code, instruction
    return None

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

if cython.compiled:
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
CELL = 3
# The same for C code, which would look a module's own up as objects (see the .pxd).
_width, _cell, _kinds, _op, _view = WIDTH, CELL, KINDS, OP, VIEW
_dispatch, _launch, _host_kernel = DISPATCH, LAUNCH, HOST_KERNEL
# Distinct names and lines that are kept; the rest are counted together as number 0.
MOST_NAMES = 1 << 18
# Names and lines that C code finds again by their address: two words each, one of the last.
_near = 1 << 12
# Numbers of a part of a span, and what stands for all of the span in them.
_part, _whole = 6, 1 << 52
OTHER = "(other)"
LOW = (1 << 32) - 1
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


class Cells:
    """A growing table of 64-bit numbers, zero at first: C memory compiled, a list uncompiled."""

    room: int
    items: list[int]
    data: Any

    def __init__(self, room: int) -> None:
        self.items = []
        if cython.compiled:
            self.room = 0
            self.data = cython.NULL
        else:
            self.room = 0
        self.widen(room)

    def __del__(self) -> None:
        if cython.compiled:
            free(self.data)
            self.data = cython.NULL
            self.room = 0

    def widen(self, room: cython.Py_ssize_t) -> None:
        """Make room for so many numbers."""
        if room <= self.room:
            return
        if cython.compiled:
            data: cython.p_longlong = slip_more_cells(self.data, self.room, room)
            if data == cython.NULL:
                raise MemoryError
            self.data = data
        else:
            self.items.extend([0] * (room - self.room))
        self.room = room

    def add(self, row: cython.Py_ssize_t, duration: cython.longlong,
            value: cython.longlong) -> None:
        """Count one more in a row of (count, ns, value)."""
        self.count(row, duration, value)

    def count(self, row: cython.Py_ssize_t, duration: cython.longlong,
              value: cython.longlong) -> int:
        """The same, for C code."""
        place: cython.Py_ssize_t = row * _cell
        if place + _cell > self.room:
            self.widen(2 * (place + _cell))
        if cython.compiled:
            slip_count(self.data + place, duration, value)
        else:
            self.items[place] += 1
            self.items[place + 1] += duration
            self.items[place + 2] += value
        return 0

    def lengthen(self, row: cython.Py_ssize_t, duration: cython.longlong) -> None:
        """Let what a row counts have taken so much longer."""
        if cython.compiled:
            self.data[row * _cell + 1] += duration
        else:
            self.items[row * CELL + 1] += duration

    def lengthen_at(self, place: cython.Py_ssize_t, duration: cython.longlong) -> int:
        """Add to the number at a place, for C code."""
        if cython.compiled:
            self.data[place] += duration
        else:
            self.items[place] += duration
        return 0

    def found(self, key: cython.longlong) -> int:
        """What was kept for a key other than 0 of late, compiled; -1 where nothing was."""
        row: cython.Py_ssize_t = slip_near(key)
        return self.data[row + 1] if self.data[row] == key else -1

    def keep(self, key: cython.longlong, number: cython.Py_ssize_t) -> int:
        """Keep a number for a key, where it takes another's place."""
        row: cython.Py_ssize_t = slip_near(key)
        self.data[row] = key
        self.data[row + 1] = number
        return 0

    def set(self, place: cython.Py_ssize_t, value: cython.longlong) -> None:
        """Write a number that is there already."""
        if cython.compiled:
            self.data[place] = value
        else:
            self.items[place] = value

    def get(self, place: cython.Py_ssize_t) -> int:
        """The number at a place; 0 where none was written."""
        if place >= self.room:
            return 0
        if cython.compiled:
            return self.data[place]
        return self.items[place]


class Ring:
    """Written at both doors, the allocator, the tape, sends and waits while a profile is on.

    ``written``: records so far; ``launching``: the name of the op whose launches are recorded;
    ``virtual``: the clock of the simulated driver, or None; ``timer``: what measures devices;
    ``stacks``: gives the number of the running stack, or None; ``names`` holds strings and plans.

    Of the thread that was here last, ``thread``: ``layer`` is what it is in, ``outside`` what it is
    in between ops, ``entered`` when it came to the door, ``last`` the time up to which ``layers``
    are counted, ``calls`` how many ops it called.  ``others`` keeps the same of other threads.
    """

    capacity: int
    written: int
    launching: int
    layer: int
    outside: int
    entered: int
    last: int
    thread: int
    virtual: Any
    timer: Any
    stacks: Any
    names: list[Any]
    sites: list[tuple[Any, int]]
    by_site: Cells
    by_name: Cells
    layers: Cells
    calls: int
    others: dict[int, tuple[Any, ...]]
    threads: dict[int, str]
    _names: dict[Any, int]
    _sites: dict[int, int]
    _threads: dict[int, int]
    _near_names: Cells
    _near_sites: Cells
    _cells: Cells
    _place: int

    def __init__(self, capacity: int, virtual: Any = None) -> None:
        self.capacity = max(capacity, 1)
        self.written = 0
        self.launching = 0
        self.virtual = virtual
        self.timer = None
        self.stacks = None
        self.names = [OTHER]
        self.sites = [(None, 0)]
        self.by_site = Cells(64 * KINDS * CELL)
        self.by_name = Cells(64 * KINDS * CELL)
        self.layers = Cells(len(LAYERS))
        self.calls = 0
        self._names = {OTHER: 0}
        self._sites = {}
        self._threads = {}
        self._near_names = Cells(2 * _near)
        self._near_sites = Cells(2 * _near)
        self._cells = Cells(self.capacity * WIDTH)
        self._place = 0
        self.layer = self.outside = PYTHON
        self.entered = 0
        self.others = {}
        self.thread = self._running()
        self.threads = {self.thread: threading.current_thread().name}
        self.last = self.now()

    def _running(self) -> int:
        if cython.compiled:
            return slip_running()
        return self._threads.setdefault(threading.get_ident(), len(self._threads) + 1)

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
                                    self.layers, self.calls)
        self.thread = self._running()
        known = self.others.pop(self.thread, None)
        if known is None:
            self.threads[self.thread] = threading.current_thread().name
            known = (PYTHON, PYTHON, 0, self.now(), Cells(len(LAYERS)), 0)
        self.layer, self.outside, self.entered, self.last, self.layers, self.calls = known

    def counted(self) -> list[tuple[str, Cells, int]]:
        """(thread's name, layers, calls of ops) of each thread that called any, the most first.

        Where none did, of the one that was here last.
        """
        found = [(self.threads[thread], kept[4], kept[5]) for thread, kept in self.others.items()]
        found.append((self.threads[self.thread], self.layers, self.calls))
        called = [each for each in found if each[2]] or found[-1:]
        return sorted(called, key=lambda each: -each[2])

    def enter(self) -> None:
        """A thread comes to the door."""
        if self._running() != self.thread:
            self.turn()
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
        now: cython.longlong = self.now()
        before: cython.int = self.layer
        self.layers.lengthen_at(before, now - self.last)
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

    def begin(self, plan: object, immediate: bool) -> int:
        """A plan is about to be launched; when its call began."""
        if self._running() != self.thread:
            self.turn()
        self.launching = self.name_of(plan)
        if self.virtual is not None:
            self._turn_to(_dispatch)
            self.virtual.dispatched()
        self._turn_to(_host_kernel if immediate else _launch)
        return self.entered or self.last

    def finish(self, name: cython.Py_ssize_t, code: object, instruction: cython.int,
               start: cython.longlong) -> None:
        """It was launched."""
        if self._running() != self.thread:
            self.turn()
        self._turn_to(self.outside)
        self.entered = 0
        self.calls += 1
        self._put(_op, name, self.site_of(code, instruction), start, self.last, 0)

    def viewed(self, plan: object, code: object, instruction: cython.int) -> None:
        """A view was made: there is nothing to launch."""
        if self._running() != self.thread:
            self.turn()
        start: cython.longlong = self.entered or self.last
        self._turn_to(self.outside)
        self.entered = 0
        self.calls += 1
        self._put(_view, self.name_of(plan), self.site_of(code, instruction), start, self.last, 0)

    # -- names and lines --

    def name_of(self, name: object) -> int:
        """The number of a string or plan; it is kept, so that its address stays its own."""
        if not cython.compiled:
            return self._number_of(name)
        address: cython.longlong = slip_pointer(name)
        number: cython.Py_ssize_t = self._near_names.found(address)
        if number < 0:
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
        number: cython.Py_ssize_t = self._near_sites.found(address)
        if number < 0:
            number = self._place_of(code, instruction, address)
            if number:
                self._near_sites.keep(address, number)
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
        begin: cython.longlong
        end: cython.longlong
        place: cython.Py_ssize_t = 0
        number: cython.Py_ssize_t = self.written
        whole: cython.double = _whole
        while place + _part <= parts.room:
            last = parts.get(place + 5) / whole
            begin = start + cython.cast(
                cython.longlong, (last - (last - parts.get(place + 4) / whole) * share) * length)
            # Nothing takes no time, however short the span that is shared.
            end = max(start + cython.cast(cython.longlong, last * length), begin + 1)
            self._put(parts.get(place), parts.get(place + 1), parts.get(place + 2), begin, end,
                      parts.get(place + 3))
            place += _part
        return number

    def _put(self, what: cython.longlong, name: cython.Py_ssize_t, site: cython.Py_ssize_t,
             start: cython.longlong, end: cython.longlong, value: cython.longlong) -> int:
        kind: cython.Py_ssize_t = what & 255
        second: cython.longlong = site
        if self.stacks is not None:
            second += self.stacks() << 32
        first: cython.longlong = kind + (self._running() << 8) + (name << 32)
        if cython.compiled:
            cell: cython.p_longlong = self._cells.data + self._place * _width
            cell[0] = first
            cell[1] = second
            cell[2] = start
            cell[3] = end
            cell[4] = value
            cell[5] = what >> 8
            cell[6] = self.written
        else:
            place = self._place * WIDTH
            self._cells.items[place:place + WIDTH] = [
                first, second, start, end, value, what >> 8, self.written]
        self.written += 1
        self._place += 1
        if self._place == self.capacity:
            self._place = 0
        self.by_site.count(site * _kinds + kind, end - start, value)
        self.by_name.count(name * _kinds + kind, end - start, value)
        return 0

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
        place = (row * KINDS + kind) * CELL
        return cells.get(place), cells.get(place + 1), cells.get(place + 2)


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


def amend(ring: Ring, number: cython.Py_ssize_t, start: cython.longlong,
          end: cython.longlong, flag: cython.longlong = 0) -> None:
    """Set when a record began and ended, now that it is known and not estimated any more.

    ``flag``: what is added to where it ran.  What was overwritten stays counted as it was.
    """
    if number < ring.dropped or number >= ring.written:
        return
    cells: Cells = ring._cells
    place: cython.Py_ssize_t = number % ring.capacity * _width
    first: cython.longlong = cells.get(place)
    site: cython.longlong = cells.get(place + 1) & LOW
    more: cython.longlong = end - start + cells.get(place + 2) - cells.get(place + 3)
    where: cython.longlong = cells.get(place + 5)
    estimated: cython.longlong = ESTIMATED
    if where & estimated:
        where -= estimated
    cells.set(place + 2, start)
    cells.set(place + 3, end)
    cells.set(place + 5, where | flag)
    kind: cython.longlong = first & 255
    ring.by_site.lengthen(site * _kinds + kind, more)
    ring.by_name.lengthen((first >> 32) * _kinds + kind, more)


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

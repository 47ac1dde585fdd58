# cython: nonecheck=False
"""A growing table of numbers that a profile counts in."""

# The .pxd declares the C functions.
# mypy: disable-error-code="name-defined"
# ruff: noqa: F821

from __future__ import annotations

from typing import Any

import cython

CELL = 3
# The same for C code, which would look a module's own up as objects (see the .pxd).
_cell = CELL


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

    def keep(self, key: cython.longlong, number: cython.Py_ssize_t) -> int:
        """Keep a number for a key, where it takes another's place, and two more that are 0."""
        row: cython.Py_ssize_t = slip_near(key)
        self.data[row] = key
        self.data[row + 1] = number
        self.data[row + 2] = self.data[row + 3] = 0
        return 0

    def set(self, place: cython.Py_ssize_t, value: cython.longlong) -> None:
        """Write a number that is there already."""
        if cython.compiled:
            self.data[place] = value
        else:
            self.items[place] = value

    def at(self, place: cython.Py_ssize_t) -> int:
        """The number at a place that is there, for C code."""
        if cython.compiled:
            return self.data[place]
        return self.items[place]

    def get(self, place: cython.Py_ssize_t) -> int:
        """The number at a place; 0 where none was written."""
        if place >= self.room:
            return 0
        if cython.compiled:
            return self.data[place]
        return self.items[place]

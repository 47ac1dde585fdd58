"""Argument words: the 8-byte parameters of a window's launches, one after the other."""

# The .pxd declares the C functions.
# mypy: disable-error-code="name-defined"
# ruff: noqa: F821

from __future__ import annotations

import struct
from typing import Any

import cython

MASK = (1 << 64) - 1
LEAST = -(1 << 63)
# Of the hash FNV-1a with 64 bits.
BASIS, PRIME = 0xCBF29CE484222325, 0x100000001B3
# Integers up to here are taken as they are.
SIMPLE = 1 << 62


class Words:
    """A growing row of 64-bit words: C memory compiled, a list of integers uncompiled.

    Words hold addresses, and numbers as the kernel reads them: int64 for bool and int, the bits
    of a double for float, two doubles for complex; a user's kernel also takes a float's bits.
    """

    length: int
    room: int
    data: Any
    items: list[int]

    def __init__(self) -> None:
        self.length = 0
        # What there is uncompiled.
        self.items = []
        if cython.compiled:
            self.room = 0
            self.data = cython.NULL

    def __del__(self) -> None:
        if cython.compiled:
            free(self.data)
            self.data = cython.NULL
            self.room = self.length = 0

    def append(self, word: cython.ulonglong) -> None:
        """Add an address."""
        if cython.compiled:
            if self.length == self.room:
                self.widen()
            self.data[self.length] = word
        else:
            self.items.append(word & MASK)
        self.length += 1

    def get(self, place: cython.Py_ssize_t) -> int:
        """The word at a place that is there."""
        if cython.compiled:
            return self.data[place]
        return self.items[place]

    def replace(self, place: cython.Py_ssize_t, word: cython.ulonglong) -> bool:
        """Write the word at a place that is there; whether it was another."""
        if cython.compiled:
            if self.data[place] == word:
                return False
            self.data[place] = word
            return True
        before = self.items[place]
        self.items[place] = word & MASK
        return before != self.items[place]

    def append_number(self, cls: str, value: Any) -> None:
        """Add a run-time number of a class that numbers have.

        b1, i64, f32, f64, c128; seed and base of a stream of random numbers.
        """
        if cls[0] == "f":
            if cls[1] == "6":
                self.append_double(value)
            else:
                self.append_float(value)
        elif cls[0] == "c":
            self.append_double(value.real)
            self.append_double(value.imag)
        elif cls == "b1":
            self.append(1 if value else 0)
        else:
            self.append_whole(value)

    def append_numbers(self, classes: tuple[str, ...], numbers: tuple[Any, ...],
                       whole: cython.Py_ssize_t) -> None:
        """Add numbers; where one does not fit, no word behind ``whole`` stays: else the next
        launch would take it for one of its own.
        """
        place: cython.Py_ssize_t = 0
        try:
            for value in numbers:
                self.append_number(classes[place], value)
                place += 1
        except BaseException:
            self.cut(whole)
            raise

    def append_whole(self, value: Any) -> None:
        """Add an integer, or what stands for one; OverflowError where 64 bits do not hold it."""
        if cython.compiled and type(value) is int and -SIMPLE < value < SIMPLE:
            whole: cython.longlong = value
            self.append(cython.cast(cython.ulonglong, whole))
            return
        number = int(value)
        if number.bit_length() > 63 + (number > 0) and number != LEAST:
            raise OverflowError(f"int too big to convert: {value}")
        self.append(number & MASK)

    def append_double(self, value: cython.double) -> None:
        """Add the bits of a double."""
        if cython.compiled:
            self.append(slip_bits(value))
        else:
            self.append(struct.unpack("<Q", struct.pack("<d", float(value)))[0])

    def append_float(self, value: cython.double) -> None:
        """Add the bits of a float in the word's low half."""
        if cython.compiled:
            self.append(slip_float_bits(value))
        else:
            self.append(struct.unpack("<I", struct.pack("<f", float(value)))[0])

    def widen(self) -> None:
        """Make room for more words."""
        if cython.compiled:
            room: cython.Py_ssize_t = max(64, 2 * self.room)
            data: cython.p_ulonglong = slip_widen(self.data, room)
            if data == cython.NULL:
                raise MemoryError
            self.data = data
            self.room = room

    def address(self, start: cython.Py_ssize_t) -> int:
        """Where the word at a place lies until the next is added; 0 where they are a list."""
        if cython.compiled:
            return cython.cast(cython.size_t, self.data + start)
        return 0

    def same(self, start: cython.Py_ssize_t, other: Words, place: cython.Py_ssize_t,
             count: cython.Py_ssize_t) -> bool:
        """Whether ``count`` words from ``start`` equal those of ``other`` from ``place``."""
        if start + count > self.length or place + count > other.length:
            return False
        if cython.compiled:
            return slip_same(self.data, start, other.data, place, count)
        return self.items[start:start + count] == other.items[place:place + count]

    def digest(self) -> int:
        """A hash of the words: FNV-1a, a word at a time."""
        return self.digest_of(0, self.length)

    def digest_of(self, start: cython.Py_ssize_t, count: cython.Py_ssize_t) -> int:
        """The same of ``count`` words from ``start``."""
        if cython.compiled:
            return slip_digest(self.data + start, count)
        found = BASIS
        for word in self.items[start:start + count]:
            found = (found ^ word) * PRIME & MASK
        return found

    def take(self, start: cython.Py_ssize_t, count: cython.Py_ssize_t) -> tuple[int, ...]:
        """``count`` words from ``start``."""
        if cython.compiled:
            return tuple([self.data[start + i] for i in range(count)])
        return tuple(self.items[start:start + count])

    def put(self, start: cython.Py_ssize_t, other: Words, place: cython.Py_ssize_t,
            count: cython.Py_ssize_t) -> None:
        """Write ``count`` words of ``other`` from ``place`` over those from ``start``."""
        if cython.compiled:
            i: cython.Py_ssize_t
            for i in range(count):
                self.data[start + i] = other.data[place + i]
        else:
            self.items[start:start + count] = other.items[place:place + count]

    def block(self, start: cython.Py_ssize_t, count: cython.Py_ssize_t, tail: bytes) -> bytes:
        """A parameter block: ``count`` words from ``start``, then the tail."""
        if cython.compiled:
            return slip_bytes(self.data, start, count) + tail
        return struct.pack(f"<{count}Q", *self.items[start:start + count]) + tail

    def patched(self, start: cython.Py_ssize_t, block: bytes, places: Any) -> bytes:
        """A parameter block with words from ``start`` written into it.

        ``places``: (word, place in bytes, what is added to the word), and where the parameter is
        narrower than a word, its bytes: the word's low ones.
        """
        if not cython.compiled:
            made = bytearray(block)
            for word, place, more, *narrow in places:
                width = narrow[0] if narrow else 8
                value = (self.items[start + word] + more) & MASK
                made[place:place + width] = value.to_bytes(8, "little")[:width]
            return bytes(made)
        copy: bytes = slip_copy(block)
        for each in places:
            fields: tuple = each
            number: cython.Py_ssize_t = fields[0]
            added: cython.longlong = fields[2]
            size: cython.Py_ssize_t = fields[3] if len(fields) > 3 else 8
            slip_put(copy, fields[1], self.data[start + number] + added, size)
        return copy

    def copy(self) -> Words:
        """The same words in memory of their own."""
        made = Words()
        if cython.compiled:
            i: cython.Py_ssize_t
            for i in range(self.length):
                made.append(self.data[i])
        else:
            made.items = list(self.items)
            made.length = self.length
        return made

    def cut(self, length: cython.Py_ssize_t) -> None:
        """Keep the first words only."""
        self.length = length
        if not cython.compiled:
            del self.items[length:]

    def clear(self) -> None:
        """Forget the words, keep the room."""
        self.length = 0
        if not cython.compiled:
            self.items = []

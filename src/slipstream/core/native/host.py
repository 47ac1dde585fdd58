"""The host's memory, in large pieces: what the host's allocator is built on."""

# The .pxd declares the C functions.
# mypy: disable-error-code="name-defined"
# ruff: noqa: F821

from __future__ import annotations

import mmap
import sys
from typing import Any

import cython
import numpy as np

PAGE = 4096
# The size of a transparent huge page: larger pieces begin at a multiple of it.
HUGE = 1 << 21
LIMIT = 1 << 47
# Addresses set aside for a piece that grows.  They cost nothing until they are written to.
WINDOW = 1 << 38
NO_RESERVE = 0x4000


class HostMemory:
    """Reserves and releases pieces of the host's memory, as any provider of an allocator does.

    ``granularity``: sizes are rounded up to multiples of it, and pieces begin at one;
    ``minimum``: the smallest block, in bytes, that an allocator should make of a piece;
    ``pieces``: what is reserved, by address; ``windows``: size of the pieces that may grow.
    """

    def __init__(self) -> None:
        self.granularity = PAGE
        self.minimum = 64
        self.pieces: dict[int, Any] = {}
        self.windows: dict[int, int] = {}

    def reserve(self, nbytes: cython.Py_ssize_t) -> int:
        """Return the address of a new piece of at least ``nbytes`` bytes, 0 where there is none.

        Pieces of 2 MiB and more are aligned to 2 MiB and ask for huge pages: the page faults of
        fresh memory are what a large result costs.
        """
        if nbytes <= 0 or nbytes > LIMIT:
            return 0
        size: cython.Py_ssize_t = (nbytes + PAGE - 1) & -PAGE
        address: cython.size_t
        if cython.compiled:
            address = slip_reserve(size)
            if address:
                self.pieces[address] = size
        else:
            address = self.reserve_buffer(size)
        return address

    def reserve_buffer(self, nbytes: int) -> int:
        """A piece, uncompiled: NumPy asks for huge pages too, but does not align."""
        alignment = HUGE if nbytes >= HUGE else PAGE
        try:
            buffer = np.empty(nbytes + alignment, np.uint8)
        except MemoryError:
            return 0
        start = buffer.__array_interface__["data"][0]
        address = (start + alignment - 1) & -alignment
        self.pieces[address] = buffer
        return address

    def reserve_growing(self, nbytes: cython.Py_ssize_t) -> int:
        """Return the address of a new piece that `extend` can make longer, 0 for none."""
        if nbytes <= 0 or nbytes > WINDOW:
            return 0
        address: cython.size_t
        if cython.compiled:
            address = slip_window(WINDOW)
            if address:
                self.pieces[address] = WINDOW
        else:
            address = self.reserve_map() if sys.platform == "linux" else 0
        if address:
            self.windows[address] = nbytes
        return address

    def reserve_map(self) -> int:
        """A window, uncompiled."""
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE
        try:
            window = mmap.mmap(-1, WINDOW + HUGE, flags=flags)
        except (OSError, ValueError):
            return 0
        window.madvise(mmap.MADV_HUGEPAGE)
        start = np.frombuffer(window, np.uint8).__array_interface__["data"][0]
        address = (start + HUGE - 1) & -HUGE
        self.pieces[address] = window
        return address

    def extend(self, address: cython.size_t, nbytes: cython.Py_ssize_t) -> bool:
        """Make a growing piece ``nbytes`` longer; False where its window is full."""
        size: cython.Py_ssize_t = self.windows[address]
        if nbytes > WINDOW - size:
            return False
        self.windows[address] = size + nbytes
        return True

    def shrink(self, address: cython.size_t, nbytes: cython.Py_ssize_t) -> None:
        """Give back what a growing piece holds behind its first ``nbytes`` bytes."""
        size: cython.Py_ssize_t = self.windows[address]
        # The page in which the piece now ends stays.
        first: cython.Py_ssize_t = (nbytes + PAGE - 1) & -PAGE
        self.windows[address] = nbytes
        if first >= size:
            return
        if cython.compiled:
            slip_forget(address + first, size - first)
        else:
            window = self.pieces[address]
            start = np.frombuffer(window, np.uint8).__array_interface__["data"][0]
            window.madvise(mmap.MADV_DONTNEED, address - start + first, size - first)

    def release(self, address: cython.size_t) -> None:
        """Give a piece back; ValueError where ``address`` is no piece of ours."""
        piece = self.pieces.pop(address, None)
        if piece is None:
            raise ValueError(f"no piece of host memory was reserved at {address:#x}")
        self.windows.pop(address, None)
        if cython.compiled:
            slip_release(address, piece)

"""Sizes that change from call to call, and the kernels that sizes near them would ask for.

A kernel's text holds classes of sizes (how many threads take a row, how wide its vectors are), not
sizes.  Where a dim has had many sizes, others will follow: sizes from half to four times as large
are bound on paper, and what they need is compiled ahead (`launch.cuda.ahead`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import log2
from typing import Any

import cython

from slipstream.core.kernels.cuda.access import Ints
from slipstream.core.launch.cuda.modules import modules
from slipstream.core.vocab.devices import Device
from slipstream.core.vocab.settings import settings

# Sizes that a dim of a program of fixed sizes may have had: nothing is made ahead for it.
FIXED = 8
# How often a kernel is thought of, at most.
MOST_KNOWN = 64
# Sizes that are looked at in every doubling, and beside every other one: how far vectors and whole
# batches go depends on the powers of two that divide a size.
STEPS = 8
BESIDE = (0, 1, 2, 4, 8)
LARGEST = 1 << 31


class Foresight:
    """Watches the sizes that a kernel is bound to, and thinks ahead where they change."""

    dims: dict[int, list[Any]]
    met: list[tuple[Ints, Any]]
    known: set[Ints]

    def __init__(self) -> None:
        # By rank, the sizes that each dim has had; None once there were many.
        self.dims = {}
        # What was met while no dim had many.
        self.met = []
        # Sizes, or the doublings that they lie in: each is thought of once.
        self.known = set()

    def meet(self, device: Device, sizes: Ints, codes: Any, more: Any) -> None:
        """The kernel is bound to ``sizes``; ``codes(others, sizes, more)`` lists what others need.
        """
        dim: cython.Py_ssize_t
        several: cython.bint = False
        if not settings.ahead:
            return
        dims: list | None = self.dims.get(len(sizes))
        if dims is None:
            dims = self.dims[len(sizes)] = [set() for _ in sizes]
        for dim in range(len(sizes)):
            own = dims[dim]
            if own is not None:
                own.add(sizes[dim])
                if len(own) <= FIXED:
                    continue
                dims[dim] = None
            several = True
        if several:
            self._think(device, sizes, codes, more)
            if self.met:
                met = self.met
                self.met = []
                for before, rest in met:
                    self._think(device, before, codes, rest)
        elif len(self.met) < MOST_KNOWN:
            self.met.append((sizes, more))

    def _think(self, device: Device, sizes: Ints, codes: Any, more: Any) -> None:
        dims: list = self.dims[len(sizes)]
        key: list = []
        dim: cython.Py_ssize_t
        for dim in range(len(sizes)):
            key.append(sizes[dim] if dims[dim] is not None else -doubling(sizes[dim]))
        found = tuple(key)
        if found in self.known or len(self.known) >= MOST_KNOWN:
            return
        self.known.add(found)
        changing: list = []
        for dim in range(len(sizes)):
            if dims[dim] is None:
                changing.append(dim)
        if changing:
            modules.think_ahead(device, needed, sizes, tuple(changing), codes, more)


def doubling(size: int) -> int:
    """How many bits a size has."""
    left: cython.longlong = size
    bits: cython.longlong = 0
    while left > 0:
        left >>= 1
        bits += 1
    return bits


def needed(sizes: Ints, dims: Ints, codes: Any, more: Any) -> Iterator[Any]:
    """The kernels of sizes near these, the nearest first."""
    for others in nearby(sizes, dims):
        yield from codes(others, sizes, more)


def nearby(sizes: Ints, dims: Ints) -> Iterator[Ints]:
    """Sizes from half to four times as large, the nearest first; equal ones change alike."""
    found = []
    for value in {sizes[dim] for dim in dims}:
        for other in around(value):
            alike = [dim for dim in dims if sizes[dim] == value]
            others = tuple([other if dim in alike else size for dim, size in enumerate(sizes)])
            found.append((abs(log2(other / value)), others))
    yield from [others for _, others in sorted(found)]


def around(size: int) -> Iterable[int]:
    """The sizes that stand for all in the doubling of a size, the one before and the one after."""
    if not 0 < size < LARGEST:
        return ()
    first = max(doubling(size) - 2, 0)
    return {(1 << bits) + (1 << bits) * step // STEPS + beside
            for bits in range(first, first + 3) for step in range(STEPS)
            for beside in (BESIDE if not step % 2 else (0,))}


def restrided(sizes: Ints, steps: Ints, others: Ints) -> Ints:
    """The strides of an operand that fills its memory, for other sizes; else the same."""
    found = list(steps)
    old, new = 1, 1
    for dim in sorted([dim for dim in range(len(sizes)) if steps[dim] and sizes[dim] > 1],
                      key=lambda dim: steps[dim]):
        if steps[dim] != old:
            return steps
        found[dim] = new
        old *= sizes[dim]
        new *= others[dim]
    return tuple(found)

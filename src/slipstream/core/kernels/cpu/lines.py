"""Compiled loops over lines, the elements along one axis: scans, sorts, the best, the k-th.

Scans add up in float64, each line from its first element to its last, whatever runs beside it.
Orders are those of a stable sort in which nan is the largest and zeros are equal: keys (unsigned
numbers in the order of the elements) are sorted with their places, by digits of eight bits.
The NumPy kernels of `scanning` and `sorting` give the same bits.
"""

# The C functions are declared in the .pxd.
# ruff: noqa: F821
# mypy: disable-error-code="name-defined"
from __future__ import annotations

import struct
from math import prod
from typing import Any

import cython

from slipstream.core.shapes.collapse import collapse
from slipstream.core.vocab.records import Kernel, Plan, TensorBase

__all__ = ["BEST", "HIGHEST", "KTH", "LOGSUM", "LOWEST", "PRODUCT", "SORT", "SUM", "LineKernel",
           "TensorBase", "Work", "order_refusal", "scan_refusal"]

SUM, PRODUCT, LOGSUM, HIGHEST, LOWEST, SORT, BEST, KTH = range(8)
DOWN, NANS, VALUES_ONLY = 1, 2, 4
# Below this many elements letting go of the GIL, and other threads, cost more than they give.
SMALL = 32768
# A line's places are counted in 32 bits.
LONGEST = 2**32 - 1
_SCANNED = ("uint8", "int8", "int16", "int32", "int64", "float32", "float64")
_ORDERED = ("bool", "uint8", "int8", "int16", "int32", "float16", "bfloat16", "float32", "int64",
            "float64")


def scan_refusal(source: Any, result: Any = None) -> str:
    """Why the loops do not scan a dtype, or ""; ``result``: that of its sums or products."""
    if not cython.compiled:
        return "the core is not compiled"
    if source.name not in _SCANNED:
        return f"no loops for {source.name}"
    if result is not None and result.name != ("int64" if source.kind == "int" else source.name):
        return f"no loops from {source.name} to {result.name}"
    return ""


def order_refusal(spec: Any) -> str:
    """Why the loops do not sort lines of a tensor, or ""."""
    if not cython.compiled:
        return "the core is not compiled"
    if spec.dtype.name not in _ORDERED or spec.numel > LONGEST:
        return f"no loops for {spec!r}"
    return ""


class Work:
    """What is done along a dim: the way, how many entries are kept, flags."""

    def __init__(self, way: int, dim: int, kept: int = 0, flags: int = 0) -> None:
        self.way = way
        self.dim = dim
        self.kept = kept
        self.flags = flags


def _apart(spec: Any, dim: int, rank: int) -> tuple[int, tuple[int, ...]]:
    """The step along the dim and the other strides, in bytes; a lost dim has step 0."""
    item = spec.itemsize
    strides = tuple([stride * item for stride in spec.strides])
    if len(strides) < rank:
        return 0, strides
    return strides[dim] if rank else 0, strides[:dim] + strides[dim + 1:]


class LineKernel(Kernel):
    """A work on all lines of a tensor; ``specs``: its own, then those of the results.

    One result is that of values; of two the first is that of places.
    """

    def __init__(self, name: str, work: Work, specs: tuple[Any, ...]) -> None:
        self.name = name
        source, *results = specs
        self.outputs = len(results)
        shape, dim, rank = source.shape, work.dim, source.ndim
        length = shape[dim] if rank else 1
        outer = shape[:dim] + shape[dim + 1:]
        scan = work.way < SORT
        # A scan's first result comes second, an order's only one third.
        places = [results[0], results[-1]] if scan or self.outputs == 2 else [results[0]] * 2
        steps, walks = zip(*[_apart(spec, dim, rank) for spec in (source, *places)], strict=True)
        sizes, strides = collapse(outer, walks, True)
        self.numel = max(source.numel, 1) if all(spec.numel for spec in results) else 0
        self.lines = prod(sizes)
        names = _SCANNED if scan else _ORDERED
        flags = work.flags | (VALUES_ONLY if not scan and self.outputs == 1 else 0)
        words = [work.way, names.index(source.dtype.name), length, work.kept or length, flags,
                 source.itemsize, *steps, len(sizes), *sizes]
        words += [step for walk in strides for step in walk]
        self.packed = struct.pack(f"={len(words)}q", *words)

    def run(self, plan: Plan, operands: tuple[Any, ...], numbers: tuple[Any, ...]) -> None:
        """Operands: the results, the source; MemoryError where there is none for the keys."""
        if cython.compiled:
            if self.numel == 0:
                return
            at: cython.size_t[3]
            place: cython.Py_ssize_t
            tensor: TensorBase
            for place in range(self.outputs + 1):
                tensor = operands[place]
                # The results after the source.
                at[0 if place == self.outputs else place + 1] = (
                    tensor.storage.address + tensor.offset * tensor.spec.itemsize)
            if self.outputs == 1:
                at[2] = at[1]
            packed: cython.p_char = self.packed
            tasks: cython.size_t = pool.parallel
            failed: cython.int
            if self.numel < SMALL:
                failed = slip_lines(packed, self.lines, at, tasks, 1)
            else:
                threads: cython.int = pool.threads
                with cython.nogil:
                    failed = slip_lines(packed, self.lines, at, tasks, threads)
            if failed:
                raise MemoryError

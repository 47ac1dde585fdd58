"""The table of interned specs: live equal specs are one object."""

from __future__ import annotations

import weakref
from typing import Any

import cython

from slipstream.core.vocab import records
from slipstream.core.vocab.records import Spec

# Sizes beyond this many bytes cannot be addressed.
LIMIT = 2**63 - 1
# Fewer elements than these, and nearer ones, are counted in C.
ORDINARY = 2**30
FAR = 2**50


class SpecTable:
    """Makes specs; a singleton, `specs`.

    The table holds specs weakly: a spec lives as long as a tensor, plan or graph holds it.
    """

    def __init__(self) -> None:
        self._table = records.table

    def intern(
        self, device: Any, dtype: Any, shape: tuple[int, ...], strides: tuple[int, ...]
    ) -> Spec:
        """The spec of these fields; raises RuntimeError where its bytes cannot be counted."""
        key: tuple = (device, dtype, shape, strides)
        held = self._table.get(key)
        spec: Spec
        if held is not None:
            found = held()
            if found is not None:
                spec = found
                return spec
        numel, contiguous = measure(shape, strides, dtype.itemsize)
        spec = Spec(key, numel, contiguous)
        reference = weakref.ref(spec)
        if cython.compiled:
            self._table[key] = reference
            return spec
        # Uncompiled, another thread may have made it meanwhile: the first one stays.
        held = self._table.setdefault(key, reference)
        first = spec if held is reference else held()
        if first is None:
            self._table[key] = reference
        return first or spec

    def contiguous(self, device: Any, dtype: Any, shape: tuple[int, ...]) -> Spec:
        """The spec of a contiguous tensor."""
        n: cython.Py_ssize_t = len(shape)
        strides: list = [1] * n
        step: Any = 1
        i: cython.Py_ssize_t
        for i in range(n - 1, -1, -1):
            strides[i] = step
            size: Any = shape[i]
            if size > 1:
                step = step * size
        return self.intern(device, dtype, shape, tuple(strides))

    def like(self, spec: Spec, dtype: Any) -> Spec:
        """The same geometry with another dtype."""
        if spec.dtype is dtype:
            return spec
        return self.intern(spec.device, dtype, spec.shape, spec.strides)


def measure(
    shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int
) -> tuple[int, bool]:
    """Number of elements, and whether they lie in row-major order without gaps."""
    numel: cython.longlong = 1
    last: cython.longlong = 0
    size: cython.longlong
    step: cython.longlong
    contiguous: cython.bint = True
    i: cython.Py_ssize_t
    for i in range(len(shape) - 1, -1, -1):
        if not 0 <= shape[i] < ORDINARY or not -ORDINARY < strides[i] < ORDINARY:
            return measure_any(shape, strides, itemsize)
        size = shape[i]
        step = strides[i]
        if size != 1 and step != numel:
            contiguous = False
        numel *= size
        last += (size - 1) * abs(step)
        # Neither can come near what cannot be addressed.
        if numel >= ORDINARY or last >= FAR:
            return measure_any(shape, strides, itemsize)
    return numel, contiguous or not numel


def measure_any(
    shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int
) -> tuple[int, bool]:
    """The same for any numbers; raises where there are too many bytes, or a size is negative."""
    numel = 1
    contiguous = True
    i = len(shape) - 1
    while i >= 0:
        size = shape[i]
        if size < 0:
            raise RuntimeError(f"Trying to create tensor with negative dimension {size}: "
                               f"{list(shape)}")
        if size != 1 and strides[i] != numel:
            contiguous = False
        numel *= size
        i -= 1
    if numel == 0:
        return 0, True
    last = numel if contiguous else sum([(n - 1) * abs(s)
                                         for n, s in zip(shape, strides, strict=True)])
    if max(numel, last + 1) * itemsize > LIMIT:
        raise RuntimeError(f"Storage size calculation overflowed with sizes={list(shape)}")
    return numel, contiguous


specs = SpecTable()

"""Products of small matrices: plain loops, since a call of BLAS costs more than they do.

out[i, j] = beta * c[i, j] + alpha * sum over l of a[i, l] * b[l, j], summed in float64 in order.
bfloat16 is summed in float32 and rounded once, in the orders of PyTorch's loops on x86, since its
last bit is 0.4 %: four sums of every fourth product, or eight of every eighth where a's rows and
b's columns lie together, or one where neither do.
"""

from __future__ import annotations

from typing import Any

import cython

from slipstream.core.vocab import dtypes
from slipstream.core.vocab.records import Kernel, Plan, TensorBase

if cython.compiled:
    from cython.cimports.libc.math import fmaf
    from cython.cimports.libc.string import memcpy

__all__ = ["LARGEST", "SmallProduct", "TensorBase", "refusal"]

# Multiplications up to which the loops are faster than BLAS.
LARGEST = 2048
# The same for bfloat16, which BLAS does not take: it has to be widened first.
LARGEST_NARROW = 4096


def refusal(a: Any, b: Any) -> str:
    """Why the loops do not take a product of these specs, or ""."""
    if not cython.compiled:
        return "the core is not compiled"
    if a.dtype not in (dtypes.float32, dtypes.float64, dtypes.bfloat16):
        return f"no loops for {a.dtype.name}"
    if a.ndim not in (1, 2) or b.ndim not in (1, 2):
        return "batched"
    largest = LARGEST_NARROW if a.dtype is dtypes.bfloat16 else LARGEST
    if a.numel * (b.shape[1] if b.ndim == 2 else 1) > largest:
        return "too large: BLAS is faster"
    return ""


class SmallProduct(Kernel):
    """The product of two matrices or vectors of floats, with an addend if given."""

    def __init__(self, out: Any, a: Any, b: Any, c: Any = None) -> None:
        self.name = "cpu small product"
        self.wide = a.dtype is dtypes.float64
        self.narrow = a.dtype is dtypes.bfloat16
        self.added = c is not None
        self.addend_last = False
        self.m = a.shape[0] if a.ndim == 2 else 1
        self.k = a.shape[-1]
        self.n = b.shape[1] if b.ndim == 2 else 1
        self.a_row = a.strides[0] if a.ndim == 2 else 0
        self.a_column = a.strides[-1]
        self.b_row = b.strides[0]
        self.b_column = b.strides[1] if b.ndim == 2 else 0
        self.o_row = out.strides[0] if a.ndim == 2 else 0
        self.o_column = out.strides[-1] if b.ndim == 2 else 0
        together = (self.a_column == 1) + (self.b_row == 1)
        self.sums = (1, 4, 8)[together]
        self.c_row = self.c_column = 0
        if c is not None:
            # The addend broadcasts: a size of one is repeated.
            self.c_row = c.strides[0] if c.ndim == 2 and c.shape[0] > 1 else 0
            self.c_column = c.strides[-1] if c.ndim and c.shape[-1] > 1 else 0

    def run(self, plan: Plan, operands: tuple[Any, ...], numbers: tuple[Any, ...]) -> None:
        """Compute the product; operands are out, (c,) a, b, or out, a, b, c."""
        if cython.compiled:
            at: cython.size_t[4]
            place: cython.Py_ssize_t = 0
            tensor: TensorBase
            for operand in operands:
                tensor = operand
                at[place] = tensor.storage.address + tensor.offset * tensor.spec.itemsize
                place += 1
            beta: cython.double = 0.0
            alpha: cython.double = 1.0
            if self.added:
                if numbers:
                    beta = numbers[0]
                    alpha = numbers[1]
                else:
                    beta = 1.0
            first: cython.Py_ssize_t = 2 if self.added and not self.addend_last else 1
            addend: cython.size_t = at[3] if self.addend_last else at[1]
            if self.narrow:
                self._bfloat16(at[0], at[first], at[first + 1], addend, beta, alpha)
            elif self.wide:
                self._double(at[0], at[first], at[first + 1], addend, beta, alpha)
            else:
                self._float(at[0], at[first], at[first + 1], addend, beta, alpha)

    def _float(self, out, a, b, c, beta, alpha):  # type: ignore[no-untyped-def]
        if not cython.compiled:
            return
        i: cython.Py_ssize_t
        j: cython.Py_ssize_t
        step: cython.Py_ssize_t
        total: cython.double
        po = cython.cast(cython.p_float, out)
        pa = cython.cast(cython.p_float, a)
        pb = cython.cast(cython.p_float, b)
        pc = cython.cast(cython.p_float, c)
        for i in range(self.m):
            for j in range(self.n):
                total = 0.0
                for step in range(self.k):
                    total += (cython.cast(cython.double,
                                          pa[i * self.a_row + step * self.a_column])
                              * pb[step * self.b_row + j * self.b_column])
                total = total * alpha
                if beta != 0.0:
                    total += beta * pc[i * self.c_row + j * self.c_column]
                po[i * self.o_row + j * self.o_column] = cython.cast(cython.float, total)

    def _double(self, out, a, b, c, beta, alpha):  # type: ignore[no-untyped-def]
        if not cython.compiled:
            return
        i: cython.Py_ssize_t
        j: cython.Py_ssize_t
        step: cython.Py_ssize_t
        total: cython.double
        po = cython.cast(cython.p_double, out)
        pa = cython.cast(cython.p_double, a)
        pb = cython.cast(cython.p_double, b)
        pc = cython.cast(cython.p_double, c)
        for i in range(self.m):
            for j in range(self.n):
                total = 0.0
                for step in range(self.k):
                    total += (pa[i * self.a_row + step * self.a_column]
                              * pb[step * self.b_row + j * self.b_column])
                total = total * alpha
                if beta != 0.0:
                    total += beta * pc[i * self.c_row + j * self.c_column]
                po[i * self.o_row + j * self.o_column] = total

    def _bfloat16(self, out, a, b, c, beta, alpha):  # type: ignore[no-untyped-def]
        if not cython.compiled:
            return
        i: cython.Py_ssize_t
        j: cython.Py_ssize_t
        total: cython.float
        factor: cython.float = alpha
        share: cython.float = beta
        po = cython.cast(cython.pointer(cython.ushort), out)
        pa = cython.cast(cython.pointer(cython.ushort), a)
        pb = cython.cast(cython.pointer(cython.ushort), b)
        pc = cython.cast(cython.pointer(cython.ushort), c)
        for i in range(self.m):
            for j in range(self.n):
                total = self._narrow_sum(pa + i * self.a_row, pb + j * self.b_column)
                total = total * factor
                if share != 0.0:
                    total = fmaf(share, _widened(pc[i * self.c_row + j * self.c_column]), total)
                po[i * self.o_row + j * self.o_column] = _narrowed(total)

    def _narrow_sum(self, a, b):  # type: ignore[no-untyped-def]
        if not cython.compiled:
            return 0.0
        step: cython.Py_ssize_t = 0
        x: cython.Py_ssize_t = self.a_column
        y: cython.Py_ssize_t = self.b_row
        place: cython.Py_ssize_t
        # Two rows of eight products are added at a time.
        block: cython.Py_ssize_t = 16 if self.sums == 8 else 4
        sums: cython.float[8]
        for place in range(8):
            sums[place] = 0.0
        while self.sums > 1 and step + block <= self.k:
            for place in range(block):
                sums[place % self.sums] += _widened(a[place * x]) * _widened(b[place * y])
            a += block * x
            b += block * y
            step += block
        if self.sums == 8:
            _fold(sums)
        while step < self.k:
            sums[0] += _widened(a[0]) * _widened(b[0])
            a += x
            b += y
            step += 1
        if self.sums == 8:
            return sums[0]
        return ((sums[0] + sums[1]) + sums[2]) + sums[3]


def _fold(sums):  # type: ignore[no-untyped-def]
    """Add eight sums in pairs, the halves first, into the first."""
    if not cython.compiled:
        return
    place: cython.Py_ssize_t
    half: cython.Py_ssize_t = 4
    while half:
        for place in range(half):
            sums[place] += sums[place + half]
        half //= 2


def _widened(bits):  # type: ignore[no-untyped-def]
    """The float32 whose upper half is this bfloat16."""
    if not cython.compiled:
        return 0.0
    wide: cython.uint = cython.cast(cython.uint, bits) << 16
    value: cython.float = 0.0
    memcpy(cython.address(value), cython.address(wide), 4)
    return value


def _narrowed(value):  # type: ignore[no-untyped-def]
    """The nearest bfloat16, the even one of two; nan stays nan."""
    if not cython.compiled:
        return 0
    bits: cython.uint = 0
    memcpy(cython.address(bits), cython.address(value), 4)
    if value != value:
        return (bits >> 16) | 64
    return (bits + 32767 + ((bits >> 16) & 1)) >> 16

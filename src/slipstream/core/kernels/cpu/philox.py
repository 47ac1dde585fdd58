"""Random numbers: Philox4x32-10 streams, and the mapping from words to values.

A stream is a pair (seed, base) of 64-bit integers.  Its words are those of Philox4x32-10 (Salmon,
Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", 2011) with key = seed:
word w is lane w mod 4 of the block whose counter is base + w // 4.  A stream's values depend on
nothing else; from number n on, n a multiple of 4, they are those of base + draws(n).

Words to values.  W(e) is word e; a 64-bit value takes the words 2e and 2e + 1, the first as the
high half: X(e) = W(2e) * 2**32 + W(2e + 1).  Every operation below is rounded by itself (no
contraction), so NumPy, C and CUDA give the same bits.

* unit, float32: (W >> 8) * 2**-24.  float64: ((W(2e) >> 5) * 2**26 + (W(2e+1) >> 6)) * 2**-53.
* uniform in [low, high): unit * (high - low) + low, where low and high are first rounded to the
  dtype; what reaches high becomes the largest number of the dtype below it.
* normal: numbers 2i and 2i + 1 are r cos t and r sin t, times std, plus mean, with
  r = sqrt(-2 ln u).  float32: u = (W(2i) >> 1) * 2**-31 + 2**-32 and t = 2 pi W(2i+1) / 2**32.
  float64: u = (unit of W(4i), W(4i+1)) + 2**-54 and t from W(4i+2) and the upper 31 bits of
  W(4i+3).  Logarithm, sine and cosine are the polynomials in ``philox_arrays``.
* exponential: -ln(unit with its last bit set) / rate, never 0 in float32 and float64 of rate 1.
* integers in [low, high): low + floor(X * (high - low) / 2**64): a number's probability is off by
  less than 2**-64.
* bernoulli: W < round(p * 2**32).
* permutation: the stable order of the keys X(0), X(1), ...

float16 and bfloat16 are computed as float32 and rounded to nearest even; complex numbers are two
floats, and the variance of a normal one is shared by its parts.
"""

# The C functions are declared in the .pxd.
# ruff: noqa: F821
# mypy: disable-error-code="name-defined"
from __future__ import annotations

import ctypes
import math
from typing import Any

import cython
import numpy as np

from slipstream.core.kernels.cpu import philox_arrays
from slipstream.core.vocab.dtypes import ALL, DType

Stream = tuple[int, int]
UNIFORM, NORMAL, EXPONENTIAL = 0, 1, 2
FLOATS = (philox_arrays.uniform, philox_arrays.normal, philox_arrays.exponential)
# Codes of dtypes: where the floats and the complex numbers begin.
FLOAT16 = 6
COMPLEX64 = 10
MASK = (1 << 64) - 1
# Below this many values letting go of the GIL costs more than it gives.
SMALL = 16384


def _at(address: cython.size_t, dtype: np.dtype[Any], count: cython.Py_ssize_t) -> Any:
    """The memory at an address as an array."""
    if count == 0:
        return np.empty(0, dtype)
    memory = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
    return np.frombuffer(memory, dtype, count)


class Philox:
    """Fills contiguous memory with random values.

    Throughout, ``address`` is where the values go, ``count`` their number, ``stream`` the pair
    (seed, base).  Nothing is checked but dtypes: the caller owns the memory.
    """

    def block(self, counter: int, seed: int) -> tuple[int, ...]:
        """Return the four words of the block with a 128-bit counter and a 64-bit seed."""
        lanes = [np.array([counter >> shift & 0xFFFFFFFF], np.uint64) for shift in (0, 32, 64, 96)]
        words = philox_arrays.block((lanes[0], lanes[1], lanes[2], lanes[3]), seed)
        return tuple(int(word[0]) for word in words)

    def draws(self, count: cython.Py_ssize_t, dtype: DType, kind: str = "uniform") -> int:
        """Return how many counters a fill of ``count`` values of ``dtype`` consumes.

        ``kind`` is bits, uniform, normal, exponential, bernoulli, integers or permutation.
        """
        words = count
        if kind in ("integers", "permutation"):
            words = 2 * count
        elif kind not in ("bits", "bernoulli"):
            words *= (2 if dtype.kind == "complex" else 1)
            words *= (2 if dtype.to_real().itemsize == 8 else 1)
        return (words + 3) // 4

    def fill_bits(
        self, address: cython.size_t, count: cython.Py_ssize_t, stream: Stream
    ) -> None:
        """Store the stream's first ``count`` 32-bit words."""
        if cython.compiled:
            seed: cython.ulonglong = stream[0]
            base: cython.ulonglong = stream[1]
            with cython.nogil:
                slip_fill_words(cython.cast(cython.p_uint, address), count, seed, base)
        else:
            _at(address, np.dtype(np.uint32), count)[...] = philox_arrays.words(count, stream)

    def _floats(
        self, kind: cython.int, address: cython.size_t, dtype: DType, count: cython.Py_ssize_t,
        stream: Stream, parameters: Any,
    ) -> None:
        """Fill with a distribution of real numbers."""
        code: cython.int = dtype.code
        if code < FLOAT16:
            raise TypeError(f"a {dtype.name} tensor cannot hold random real numbers")
        if code >= COMPLEX64:
            code -= 2
            count *= 2
        if cython.compiled:
            a: cython.double = parameters[0]
            b: cython.double = parameters[len(parameters) - 1]
            seed: cython.ulonglong = stream[0]
            base: cython.ulonglong = stream[1]
            out: cython.p_char = cython.cast(cython.p_char, address)
            if count < SMALL:
                slip_fill_floats(kind, code, out, count, seed, base, a, b)
            else:
                with cython.nogil:
                    slip_fill_floats(kind, code, out, count, seed, base, a, b)
        else:
            real = ALL[code].numpy
            _at(address, real, count)[...] = FLOATS[kind](count, real, stream, *parameters)

    def fill_uniform(
        self, address: cython.size_t, dtype: DType, count: cython.Py_ssize_t, stream: Stream,
        low: cython.double = 0.0, high: cython.double = 1.0,
    ) -> None:
        """Store numbers uniform in [low, high), of a float or complex dtype.

        Raises TypeError for another dtype.
        """
        self._floats(UNIFORM, address, dtype, count, stream, (low, high))

    def fill_normal(
        self, address: cython.size_t, dtype: DType, count: cython.Py_ssize_t, stream: Stream,
        mean: cython.double = 0.0, std: cython.double = 1.0,
    ) -> None:
        """Store normal numbers of a float or complex dtype.

        Raises TypeError for another dtype.
        """
        if dtype.is_complex:
            std *= math.sqrt(0.5)
        self._floats(NORMAL, address, dtype, count, stream, (mean, std))

    def fill_exponential(
        self, address: cython.size_t, dtype: DType, count: cython.Py_ssize_t, stream: Stream,
        rate: cython.double = 1.0,
    ) -> None:
        """Store exponential numbers with mean 1 / rate, of a float dtype.

        Raises TypeError for another dtype.
        """
        if dtype.is_complex:
            raise TypeError("an exponential distribution is not defined for complex numbers")
        self._floats(EXPONENTIAL, address, dtype, count, stream, (rate,))

    def fill_integers(
        self, address: cython.size_t, dtype: DType, count: cython.Py_ssize_t, stream: Stream,
        low: Any, high: Any,
    ) -> None:
        """Store integers uniform in [low, high), -2**63 <= low < high <= 2**63.

        They are stored as conversion from int64 gives them.  Raises TypeError for a complex dtype.
        """
        if dtype.is_complex:
            raise TypeError(f"a {dtype.name} tensor cannot hold random integers")
        if cython.compiled:
            code: cython.int = dtype.code
            seed: cython.ulonglong = stream[0]
            base: cython.ulonglong = stream[1]
            start: cython.ulonglong = low & MASK
            size: cython.ulonglong = (high - low) & MASK
            out: cython.p_char = cython.cast(cython.p_char, address)
            with cython.nogil:
                slip_fill_integers(code, out, count, seed, base, start, size)
        else:
            values = philox_arrays.integers(count, dtype.numpy, stream, low, high)
            _at(address, dtype.numpy, count)[...] = values

    def fill_bernoulli(
        self, address: cython.size_t, dtype: DType, count: cython.Py_ssize_t, stream: Stream,
        p: cython.double = 0.5,
    ) -> None:
        """Store ones with probability ``p``, 0 <= p <= 1, and zeros else.

        Raises TypeError for a complex dtype.
        """
        if dtype.is_complex:
            raise TypeError(f"a {dtype.name} tensor cannot hold random bits")
        if cython.compiled:
            code: cython.int = dtype.code
            seed: cython.ulonglong = stream[0]
            base: cython.ulonglong = stream[1]
            threshold: cython.ulonglong = round(p * 4294967296.0)
            out: cython.p_char = cython.cast(cython.p_char, address)
            with cython.nogil:
                slip_fill_bernoulli(code, out, count, seed, base, threshold)
        else:
            values = philox_arrays.bernoulli(count, dtype.numpy, stream, p)
            _at(address, dtype.numpy, count)[...] = values

    def fill_permutation(
        self, address: cython.size_t, count: cython.Py_ssize_t, stream: Stream
    ) -> None:
        """Store the numbers 0 to count - 1 in random order, as int64."""
        _at(address, np.dtype(np.int64), count)[...] = philox_arrays.permutation(count, stream)


philox = Philox()

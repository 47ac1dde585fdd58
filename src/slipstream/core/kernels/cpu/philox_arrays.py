"""The random streams as NumPy computes them: what the compiled loops must agree with.

Every function takes a number of values and a stream (seed, base) and returns a new array.  The
formulas are those of ``slipstream.core.kernels.cpu.philox``.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Array = Any
Stream = tuple[int, int]

MASK = (1 << 64) - 1
ROUNDS = 10
MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
WEYL = (0x9E3779B9, 0xBB67AE85)
LOW_WORD = np.uint64(0xFFFFFFFF)
HALF_WIDTH = np.uint64(32)

# ln 2 in two parts; the high one has few enough bits for its product with an exponent to be exact.
LN2 = {
    "f": (np.float32(0.693145751953125), np.float32(1.4286068203094172e-06)),
    "d": (np.float64(0.6931471803691238), np.float64(1.9082149292705877e-10)),
}
# Bits of the exponent's place, of sqrt(1/2), and the signed integer of a float's width.
LAYOUT: dict[str, tuple[int, int, type]] = {
    "f": (23, 0x3F3504F3, np.int32), "d": (52, 0x3FE6A09E667F3BCD, np.int64),
}
# Numbers of Taylor terms that leave an error below an eighth of a unit in the last place.
TERMS = {"f": 4, "d": 10}
SINE_TERMS = {"f": 4, "d": 8}
COSINE_TERMS = {"f": 5, "d": 8}
ANGLE = 2.0 * math.pi * 2.0**-32


def block(counter: tuple[Array, Array, Array, Array], seed: int) -> tuple[Array, ...]:
    """Return the four words of the block that each 128-bit counter (as uint64 words) selects."""
    c0, c1, c2, c3 = counter
    key0, key1 = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(ROUNDS):
        first = MULTIPLIERS[0] * c0
        second = MULTIPLIERS[1] * c2
        c0 = (second >> HALF_WIDTH) ^ c1 ^ np.uint64(key0)
        c2 = (first >> HALF_WIDTH) ^ c3 ^ np.uint64(key1)
        c1 = second & LOW_WORD
        c3 = first & LOW_WORD
        key0 = (key0 + WEYL[0]) & 0xFFFFFFFF
        key1 = (key1 + WEYL[1]) & 0xFFFFFFFF
    return c0, c1, c2, c3


def words(count: int, stream: Stream) -> Array:
    """Return the first ``count`` words of a stream as uint32."""
    seed, base = stream
    blocks = -(-count // 4)
    counters = np.arange(blocks, dtype=np.uint64) + np.uint64(base & MASK)
    zero = np.zeros_like(counters)
    lanes = block((counters & LOW_WORD, counters >> HALF_WIDTH, zero, zero), seed & MASK)
    return np.stack(lanes, axis=1).astype(np.uint32).reshape(-1)[:count]


def word_pairs(count: int, stream: Stream) -> Array:
    """Return the first ``count`` pairs of words as uint64: the first word is the high half."""
    both = words(2 * count, stream).astype(np.uint64).reshape(count, 2)
    return (both[:, 0] << HALF_WIDTH) | both[:, 1]


def horner(coefficients: list[float], x: Array) -> Array:
    """Evaluate a polynomial, highest coefficient first, in the dtype of ``x``."""
    total = np.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        total = total * x + x.dtype.type(coefficient)
    return total


def log(u: Array) -> Array:
    """Natural logarithm of normal positive numbers, by elementary operations only.

    u = 2**k * m with sqrt(1/2) <= m < sqrt(2); s = (m - 1) / (m + 1);
    ln u = k ln 2 + 2 s + 2 s (s**2 / 3 + s**4 / 5 + ...).
    """
    kind = u.dtype.char
    place, root, integer = LAYOUT[kind]
    high, low = LN2[kind]
    bits = u.view(integer)
    exponent = (bits - integer(root)) >> integer(place)
    f = (bits - (exponent << integer(place))).view(u.dtype) - u.dtype.type(1)
    s = f / (u.dtype.type(2) + f)
    z = s * s
    series = horner([2.0 / (2 * n + 1) for n in range(TERMS[kind], 0, -1)], z) * z
    k = exponent.astype(u.dtype)
    return k * high + (k * low + (s * series + s * u.dtype.type(2)))


def sine_and_cosine(quadrant: Array, x: Array) -> tuple[Array, Array]:
    """Sine and cosine of quadrant * pi/2 + x for abs(x) <= pi/4."""
    kind = x.dtype.char
    z = x * x
    sines = [(-1.0) ** n / math.factorial(2 * n + 1) for n in range(SINE_TERMS[kind], 0, -1)]
    cosines = [(-1.0) ** n / math.factorial(2 * n) for n in range(COSINE_TERMS[kind], 0, -1)]
    sine = x + x * (horner(sines, z) * z)
    cosine = horner(cosines, z) * z + x.dtype.type(1)
    swap = (quadrant & 1) == 1
    s, c = np.where(swap, cosine, sine), np.where(swap, sine, cosine)
    s = np.where((quadrant & 2) == 2, -s, s)
    return s, np.where(((quadrant + 1) & 2) == 2, -c, c)


def quadrant_of(turn: Array) -> tuple[Array, Array]:
    """Split words of 2**-32 turns into the nearest quadrant and the signed rest, both int32."""
    quadrant = (turn + np.uint32(1 << 29)) >> np.uint32(30)
    rest = (turn - (quadrant << np.uint32(30))).view(np.int32)
    return quadrant.astype(np.int32), rest


def _unit_parts(count: int, stream: Stream) -> tuple[Array, Array]:
    """The 27 and 26 bits that make the 53 bits of each float64 below 1."""
    both = words(2 * count, stream).reshape(count, 2)
    return both[:, 0] >> np.uint32(5), both[:, 1] >> np.uint32(6)


def _unit_float64(high: Array, low: Array) -> Array:
    return high.astype(np.float64) * 2.0**26 + low.astype(np.float64)


def unit(count: int, dtype: np.dtype[Any], stream: Stream) -> Array:
    """Return uniform numbers in [0, 1) of dtype float32 (24 bits) or float64 (53 bits)."""
    if dtype == np.float64:
        return _unit_float64(*_unit_parts(count, stream)) * 2.0**-53
    return (words(count, stream) >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)


def _computed(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(np.float64 if dtype == np.float64 else np.float32)


def uniform(
    count: int, dtype: np.dtype[Any], stream: Stream, low: float, high: float
) -> Array:
    """Return uniform numbers in [low, high) of a float dtype."""
    kind = _computed(dtype)
    start = dtype.type(low).astype(kind)
    stop = dtype.type(high)
    if start < stop:
        stop = np.nextafter(stop, dtype.type(-np.inf))
    last = stop.astype(kind)
    span = dtype.type(high).astype(kind) - start
    values = unit(count, kind, stream) * span + start
    return rounded(np.where(values < last, values, last), dtype)


def _normal_float32(pairs: int, stream: Stream) -> tuple[Array, Array, Array]:
    both = words(2 * pairs, stream).reshape(pairs, 2)
    u = (both[:, 0] >> np.uint32(1)).astype(np.float32) * np.float32(2.0**-31)
    quadrant, rest = quadrant_of(both[:, 1])
    return u + np.float32(2.0**-32), quadrant, rest.astype(np.float32) * np.float32(ANGLE)


def _normal_float64(pairs: int, stream: Stream) -> tuple[Array, Array, Array]:
    four = words(4 * pairs, stream).reshape(pairs, 4)
    u = (_unit_float64(four[:, 0] >> np.uint32(5), four[:, 1] >> np.uint32(6)) + 0.5) * 2.0**-53
    quadrant, rest = quadrant_of(four[:, 2])
    fraction = (four[:, 3] >> np.uint32(1)).astype(np.float64) * 2.0**-31
    return u, quadrant, (rest.astype(np.float64) + fraction) * ANGLE


def normal(
    count: int, dtype: np.dtype[Any], stream: Stream, mean: float, std: float
) -> Array:
    """Return normal numbers of a float dtype, by Box and Muller's formula."""
    kind = _computed(dtype)
    pairs = (count + 1) // 2
    take = _normal_float64 if kind == np.float64 else _normal_float32
    u, quadrant, x = take(pairs, stream)
    radius = np.sqrt(log(u) * kind.type(-2))
    sine, cosine = sine_and_cosine(quadrant, x)
    values = np.stack((radius * cosine, radius * sine), axis=1).reshape(-1)[:count]
    return rounded(values * kind.type(std) + kind.type(mean), dtype)


def exponential(count: int, dtype: np.dtype[Any], stream: Stream, rate: float) -> Array:
    """Return exponential numbers of a float dtype with mean 1 / rate."""
    kind = _computed(dtype)
    if kind == np.float64:
        high, low = _unit_parts(count, stream)
        u = _unit_float64(high, low | np.uint32(1)) * 2.0**-53
    else:
        odd = (words(count, stream) >> np.uint32(8)) | np.uint32(1)
        u = odd.astype(np.float32) * np.float32(2.0**-24)
    return rounded(log(u) * kind.type(-1.0 / rate), dtype)


def multiply_high(x: Array, n: int) -> Array:
    """Return floor(x * n / 2**64) for uint64 ``x`` and 0 < n < 2**64."""
    x0, x1 = x & LOW_WORD, x >> HALF_WIDTH
    n0, n1 = np.uint64(n & 0xFFFFFFFF), np.uint64(n >> 32)
    middle = x1 * n0 + ((x0 * n0) >> HALF_WIDTH)
    cross = x0 * n1 + (middle & LOW_WORD)
    return x1 * n1 + (middle >> HALF_WIDTH) + (cross >> HALF_WIDTH)


def integers(
    count: int, dtype: np.dtype[Any], stream: Stream, low: int, high: int
) -> Array:
    """Return integers in [low, high), computed as int64 and stored in ``dtype``."""
    x = word_pairs(count, stream)
    size = (high - low) & MASK
    if size:
        x = multiply_high(x, size)
    return narrowed((x + np.uint64(low & MASK)).view(np.int64), dtype)


def bernoulli(count: int, dtype: np.dtype[Any], stream: Stream, p: float) -> Array:
    """Return ones with probability ``p`` and zeros else."""
    threshold = round(p * 2.0**32)
    ones = words(count, stream).astype(np.uint64) < np.uint64(threshold)
    return narrowed(ones.astype(np.int64), dtype)


def narrowed(values: Array, dtype: np.dtype[Any]) -> Array:
    """Store int64 values in ``dtype``: narrow floats by way of float32."""
    if dtype.itemsize == 2 and dtype.kind not in "iu":
        values = values.astype(np.float32)
    return rounded(values, dtype)


def rounded(values: Array, dtype: np.dtype[Any]) -> Array:
    """Store values in ``dtype``; too large ones become infinite in silence."""
    with np.errstate(over="ignore"):
        return values.astype(dtype)


def permutation(count: int, stream: Stream) -> Array:
    """Return the order that sorts ``count`` random 64-bit keys, ties by position, as int64."""
    return np.argsort(word_pairs(count, stream), kind="stable").astype(np.int64)

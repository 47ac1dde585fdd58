"""NumPy callables for the primitives that NumPy lacks or defines differently."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from slipstream.core.vocab.dtypes import BY_NAME

Array = Any

# Rational approximations of erf and erfc on three intervals: W. J. Cody, "Rational Chebyshev
# approximations for the error function", Mathematics of Computation 23 (1969).
_ERF_P = (1.85777706184603153e-1, 3.16112374387056560e0, 1.13864154151050156e2,
          3.77485237685302021e2, 3.20937758913846947e3)
_ERF_Q = (1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3,
          2.84423683343917062e3)
_ERFC_P = (2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594e0,
           6.61191906371416295e1, 2.98635138197400131e2, 8.81952221241769090e2,
           1.71204761263407058e3, 2.05107837782607147e3, 1.23033935479799725e3)
_ERFC_Q = (1.0, 1.57449261107098347e1, 1.17693950891312499e2, 5.37181101862009858e2,
           1.62138957456669019e3, 3.29079923573345963e3, 4.36261909014324716e3,
           3.43936767414372164e3, 1.23033935480374942e3)
_TAIL_P = (-1.63153871373020978e-2, -3.05326634961232344e-1, -3.60344899949804439e-1,
           -1.25781726111229246e-1, -1.60837851487422766e-2, -6.58749161529837803e-4)
_TAIL_Q = (1.0, 2.56852019228982242e0, 1.87295284992346725e0, 5.27905102951428412e-1,
           6.05183413124413191e-2, 2.33520497626869185e-3)
_INVERSE_ROOT_PI = 5.6418958354775628695e-1


def _polynomial(coefficients: Sequence[float], x: Array) -> Array:
    total = coefficients[0] * np.ones_like(x)
    for coefficient in coefficients[1:]:
        total = total * x + coefficient
    return total


def _ratio(top: Sequence[float], bottom: Sequence[float], x: Array) -> Array:
    return _polynomial(top, x) / _polynomial(bottom, x)


def _exp_of_minus_square(y: Array) -> Array:
    # y * y loses half its bits for large y; split y so that the first square is exact.
    head = np.trunc(y * 16.0) / 16.0
    return np.exp(-head * head) * np.exp(-(y - head) * (y + head))


def _erfc_above_half(y: Array) -> Array:
    """erfc(y) for y > 0.46875."""
    result = np.empty_like(y)
    near = y <= 4.0
    result[near] = _ratio(_ERFC_P, _ERFC_Q, y[near])
    far = y[~near]
    square = 1.0 / (far * far)
    result[~near] = (_INVERSE_ROOT_PI + square * _ratio(_TAIL_P, _TAIL_Q, square)) / far
    return result * _exp_of_minus_square(np.minimum(y, 30.0))


def _in_wider(function: Any) -> Any:
    """Compute in numbers that keep what a dozen roundings in a row would lose of the operand's."""
    def call(x: Array) -> Array:
        x = np.asarray(x)
        wider = np.float64 if x.dtype.itemsize < 8 else np.longdouble
        return function(x.astype(wider)).astype(x.dtype)[()]
    return call


@_in_wider
def erf(x: Array) -> Array:
    """The error function, elementwise."""
    size = np.abs(x)
    small = size <= 0.46875
    result = np.array(x, copy=True)
    result[small] = x[small] * _ratio(_ERF_P, _ERF_Q, x[small] * x[small])
    large = size > 0.46875
    result[large] = np.copysign(1.0 - _erfc_above_half(size[large]), x[large])
    return result


def _erfc(x: Array) -> Array:
    size = np.abs(x)
    small = size <= 0.46875
    result = np.array(x, copy=True)
    result[small] = 1.0 - x[small] * _ratio(_ERF_P, _ERF_Q, x[small] * x[small])
    large = size > 0.46875
    tail = _erfc_above_half(size[large])
    result[large] = np.where(x[large] < 0.0, 2.0 - tail, tail)
    return result


@_in_wider
def erfc(x: Array) -> Array:
    """1 - erf(x), elementwise, accurate in the upper tail."""
    return _erfc(x)


@_in_wider
def ndtr(x: Array) -> Array:
    """The share of a normal distribution that lies below x."""
    return 0.5 * _erfc(x * -np.sqrt(x.dtype.type(0.5)))


def through(name: str, x: Array) -> Array:
    """x as the 16-bit float of that name holds it, in float32."""
    x = np.asarray(x)
    with np.errstate(all="ignore"):
        return x.astype(BY_NAME[name].numpy).astype(x.dtype)


def rsqrt(x: Array) -> Array:
    """1 / sqrt(x)."""
    return np.reciprocal(np.sqrt(x))


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x))."""
    return np.reciprocal(1 + np.exp(np.negative(x)))


def power(a: Array, b: Array) -> Array:
    """a ** b; for integers with a negative exponent the integer part of the exact result."""
    if np.asarray(a).dtype.kind != "i":
        return np.power(a, b)
    negative = np.less(b, 0)
    if not np.any(negative):
        return np.power(a, b)
    # 1/a**n is 1 or -1 for a = 1 and -1, and rounds to 0 for every other a.
    unit = np.where(np.equal(np.bitwise_and(b, 1), 1), a, 1)
    inverse = np.where(np.equal(np.abs(a), 1), unit, 0)
    return np.where(negative, inverse, np.power(a, np.where(negative, 0, b)))[()]


def sign(x: Array) -> Array:
    """-1, 0 or 1; 0 for nan."""
    result = np.sign(x)
    return result if x.dtype.kind == "i" else np.where(np.isnan(x), x.dtype.type(0), result)


def remainder(a: Array, b: Array) -> Array:
    """a - floor(a / b) * b; a zero has the sign of a."""
    result = np.remainder(a, b)
    if result.dtype.kind == "i":
        return result
    return np.where(np.equal(result, 0), np.copysign(result, a), result)


def trunc_divide(a: Array, b: Array) -> Array:
    """a / b rounded towards zero; integers divided by zero give 0."""
    if np.asarray(a).dtype.kind != "i":
        return np.trunc(np.divide(a, b))
    floor = np.floor_divide(a, b)
    inexact = np.not_equal(np.remainder(a, b), 0)
    return np.add(floor, np.logical_and(inexact, np.less(floor, 0)))


def _fma_exact(a: float, b: float, c: float) -> float:
    rounded = a * b + c
    if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(c)):
        return rounded
    (a_top, a_low), (b_top, b_low), (c_top, c_low) = (
        float(x).as_integer_ratio() for x in (a, b, c))
    top = a_top * b_top * c_low + c_top * a_low * b_low
    if top == 0:
        return rounded
    try:
        # Python rounds the quotient of two integers once, to the nearest.
        return top / (a_low * b_low * c_low)
    except OverflowError:
        return math.inf if top > 0 else -math.inf


_fma_float64 = np.frompyfunc(_fma_exact, 3, 1)


def _fma_float32(a: Array, b: Array, c: Array) -> Array:
    # The product of two float32 is exact in float64.  The sum is rounded to odd there (its last
    # bit tells whether anything was lost), so that the second rounding, to float32, is right.
    product = np.multiply(a, b, dtype=np.float64)
    addend = np.asarray(c, np.float64)
    total = np.asarray(product + addend)
    part = total - product
    error = (product - (total - part)) + (addend - part)
    even = (total.view(np.int64) & 1) == 0
    bump = even & (error != 0) & np.isfinite(total)
    odd = np.nextafter(total, np.where(error > 0, np.inf, -np.inf))
    return np.where(bump, odd, total).astype(np.float32)[()]


def fma(a: Array, b: Array, c: Array) -> Array:
    """a * b + c rounded once, for float32 or float64 operands."""
    if np.asarray(a).dtype == np.float32:
        return _fma_float32(a, b, c)
    return np.asarray(_fma_float64(a, b, c)).astype(np.float64)[()]


def cast(x: Array, target: np.dtype[Any]) -> Array:
    """``x`` with dtype ``target`` as C casts it; a complex number gives its real part."""
    if x.dtype.kind == "c" and target.kind not in "bc":
        x = x.real
    if target.kind in "iu" and x.dtype.kind not in "biu":
        # A float becomes an int64 first, so that narrow integers wrap as int64 values do.
        x = x.astype(np.int64)
    return x.astype(target, copy=False)


def _wide(x: Array) -> np.dtype[Any]:
    """The dtype to accumulate in: twice as wide for single precision."""
    dtype: np.dtype[Any] = x.dtype
    wider = {"f": np.dtype(np.float64), "F": np.dtype(np.complex128)}
    return wider.get(dtype.char, dtype)


def sum_last(x: Array) -> Array:
    """Sum over the last axis; single precision is accumulated in double."""
    return np.add.reduce(x, axis=-1, dtype=_wide(x)).astype(x.dtype)


def prod_last(x: Array) -> Array:
    """Product over the last axis; single precision is accumulated in double."""
    return np.multiply.reduce(x, axis=-1, dtype=_wide(x)).astype(x.dtype)


def _lowest(x: Array) -> Any:
    kinds = {"b": False, "i": -(2**63)}
    return kinds.get(x.dtype.kind, -np.inf)


def _highest(x: Array) -> Any:
    kinds = {"b": True, "i": 2**63 - 1}
    return kinds.get(x.dtype.kind, np.inf)


def amax_last(x: Array) -> Array:
    """Largest element over the last axis; nan wins."""
    return np.maximum.reduce(x, axis=-1, initial=_lowest(x))


def amin_last(x: Array) -> Array:
    """Smallest element over the last axis; nan wins."""
    return np.minimum.reduce(x, axis=-1, initial=_highest(x))


def argmax_last(x: Array) -> Array:
    """Index of the first largest element over the last axis; the first nan wins."""
    if x.shape[-1] == 0:
        return np.zeros(x.shape[:-1], np.int64)
    return np.argmax(x, axis=-1)


def argmin_last(x: Array) -> Array:
    """Index of the first smallest element over the last axis; the first nan wins."""
    if x.shape[-1] == 0:
        return np.zeros(x.shape[:-1], np.int64)
    return np.argmin(x, axis=-1)


def any_last(x: Array) -> Array:
    """Whether any element over the last axis is true."""
    return np.logical_or.reduce(x, axis=-1)


def all_last(x: Array) -> Array:
    """Whether all elements over the last axis are true."""
    return np.logical_and.reduce(x, axis=-1)

"""Further pointwise arithmetic: rounded division, fused products, numbers that are no numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from slipstream.core.catalog import checks, reasons, samples
from slipstream.core.catalog.pointwise import binary_op, unary_op
from slipstream.core.catalog.table import define, ops
from slipstream.core.dispatch import promotion
from slipstream.core.dispatch.entry import COMPOUND, POINTWISE, Entry, passed_on
from slipstream.core.fuse.formula import fma, where
from slipstream.core.vocab import dtypes
from slipstream.core.vocab.records import TensorBase

REAL = ("int", "float")
ORDERED = ("bool", "int", "float")
TWO_OVER_ROOT_PI = 2.0 / math.sqrt(math.pi)


# -- rounded division ----------------------------------------------------------------------------
def _some_tensor(call: Any) -> None:
    """Two numbers are no tensor op."""
    if not call.tensors():
        raise TypeError(f"{call.op.name}(): one of the arguments must be Tensor")
    checks.no_complex(call)


def _divides(call: Any) -> None:
    """Two bools, and complex numbers, have no rounded quotient."""
    _some_tensor(call)
    common = promotion.result_type((call["self"], call["other"]))
    if common is dtypes.bool_:
        raise call.error(NotImplementedError, f"\"{call.op.name}\" not implemented for 'Bool'")


binary_op(
    "floor_divide(Tensor|Number self, Tensor|Number other)",
    lambda self, other: self // other, {}, np.floor_divide, check=_divides, dtypes=REAL,
    doc="The quotient rounded down; an integer divided by 0 gives 0. It has no gradient.",
)
binary_op(
    "remainder(Tensor|Number self, Tensor|Number other)",
    lambda self, other: self % other,
    {"self": passed_on,
     "other": lambda g, self, other: -g * rounded_quotient(self, other, "floor")},
    np.remainder, check=_divides, dtypes=REAL,
    doc="self - other * floor(self / other): the remainder with the sign of other.",
)
binary_op(
    "fmod(Tensor self, Tensor|Number other)",
    lambda self, other: self.fmod(other),
    {"self": passed_on,
     "other": lambda g, self, other: -g * rounded_quotient(self, other, "trunc")},
    np.fmod, check=_divides, dtypes=REAL,
    doc="self - other * trunc(self / other): the remainder with the sign of self.",
)


def rounded_quotient(self: Any, other: Any, mode: str) -> Any:
    """The quotient of tensors, symbols and numbers."""
    if isinstance(self, (int, float)):
        self = other * 0 + self
    return self.div(other, rounding_mode=mode)


# -- functions of two operands -------------------------------------------------------------------
def _inverse_square(self: Any, other: Any) -> Any:
    """1 / (self² + other²), and 0 at the origin, where no direction is steepest."""
    square = self * self + other * other
    return where(square == 0, 0, 1 / where(square == 0, 1, square))


def _logaddexp(self: Any, other: Any) -> Any:
    """max + log(1 + e^-|a - b|), where equal infinities are at no distance."""
    largest = self.maximum(other)
    apart = where(self == other, 0, (self - other).abs())
    return largest + (-apart).exp().log1p()


def _no_integers(call: Any) -> None:
    checks.no_complex(call)
    if promotion.result_type((call["self"], call["other"])).category < 2:
        raise call.error(NotImplementedError, f"\"{call.op.name}\" not implemented for integers")


binary_op(
    "logaddexp(Tensor self, Tensor other)", _logaddexp,
    {"self": lambda g, self, other: g * (self - other).sigmoid(),
     "other": lambda g, self, other: g * (other - self).sigmoid()},
    np.logaddexp, check=_no_integers, dtypes=("float",), inplace=False,
    samples=samples.tensor_pairs,
    exceptions=reasons.REAL_ONLY,
    doc="log(exp(self) + exp(other)) without overflow.",
)
binary_op(
    "atan2(Tensor self, Tensor other)", lambda self, other: self.atan2(other),
    {"self": lambda g, self, other: g * (other * _inverse_square(self, other)),
     "other": lambda g, self, other: g * (-self * _inverse_square(self, other))},
    np.arctan2, promotion=promotion.floating, check=checks.no_complex, dtypes=ORDERED,
    aliases=("arctan2",), samples=samples.tensor_pairs,
    doc="The angle of the point (other, self), from -pi to pi.",
    autocast={"cuda": "widest"},
)
binary_op(
    "xlogy(Tensor|Number self, Tensor|Number other)",
    lambda self, other: where((self == 0).logical_and(other == other), 0, self * other.log()),
    {"self": lambda g, self, other: g * where((self == 0).logical_and(other <= 0), 0,
                                              logarithm(other)),
     "other": lambda g, self, other: g * self / other},
    lambda x, y: np.where(x == 0, 0.0, x * np.log(y)), promotion=promotion.floating,
    check=_some_tensor, dtypes=ORDERED, aliases=("special.xlogy",),
    doc="self * log(other), which is 0 where self is 0, but nan where other is.",
)
binary_op(
    "hypot(Tensor self, Tensor other)", lambda self, other: _hypot(self, other),
    {"self": lambda g, self, out: g * (self / out),
     "other": lambda g, other, out: g * (other / out)},
    np.hypot, check=_no_integers, dtypes=("float",), samples=samples.tensor_pairs,
    doc="sqrt(self^2 + other^2) without overflow.",
)


def _hypot(self: Any, other: Any) -> Any:
    a, b = self.abs(), other.abs()
    large, small = a.maximum(b), a.minimum(b)
    usable = (large > 0).logical_and(large < math.inf)
    ratio = where(usable, small / where(usable, large, 1), 0)
    # An infinite side decides, also beside nan.
    endless = (a == math.inf).logical_or(b == math.inf)
    return where(endless, math.inf, large * (ratio * ratio + 1).sqrt())


def logarithm(value: Any) -> Any:
    """The logarithm of a tensor, a symbol or a number."""
    if isinstance(value, (int, float)):
        return math.log(value) if value > 0 else (-math.inf if value == 0 else math.nan)
    return value.log()


# -- sums of products ----------------------------------------------------------------------------
def _tensors_alone(call: Any) -> Any:
    """The common dtype of the tensors, whatever the numbers."""
    common = promotion.result_type(call.tensors())
    return common, common


def _check_value(call: Any) -> None:
    common = promotion.result_type(call.tensors())
    value = call["value"]
    if common.category < 2 and isinstance(value, (float, complex)):
        raise call.error(RuntimeError, "For integral input tensors, argument value must not be a "
                                       "floating point number.")
    if isinstance(value, bool) and common.category:
        raise call.error(RuntimeError, "Boolean value only supported for Boolean results.")
    if call.op.name == "addcdiv" and common.category < 2:
        raise call.error(RuntimeError, "Integer division with addcdiv is no longer supported, and "
                                       "in a future release addcdiv will perform a true division "
                                       "of tensor1 and tensor2.", "convert the tensors to floats")


def triples() -> Any:
    """Three operands that broadcast, with and without a factor."""
    x, y, z = [samples.random_array(seed, *shape) for seed, shape in (
        (100, (3, 4)), (101, (4,)), (102, (3, 1)))]
    return [((x, y, z + 3), {}), ((x, y, z + 3), {"value": 2})]


define(Entry(
    "addcmul(Tensor self, Tensor tensor1, Tensor tensor2, *, Number value=1)", POINTWISE,
    formula=lambda self, tensor1, tensor2, value: self + value * tensor1 * tensor2,
    gradient={"self": passed_on,
              "tensor1": lambda g, tensor2, value: g * checks.conj(tensor2) * checks.conj(value),
              "tensor2": lambda g, tensor1, value: g * checks.conj(tensor1) * checks.conj(value)},
    promotion=_tensors_alone, check=_check_value, path="addcmul", inplace=True, out=True,
    samples=triples, reference=lambda x, y, z, value=1: x + value * y * z,
    dtypes=("int", "float", "complex"), doc="self + value * tensor1 * tensor2.",
    autocast={"cuda": "widest"},
))
define(Entry(
    "addcdiv(Tensor self, Tensor tensor1, Tensor tensor2, *, Number value=1)", POINTWISE,
    formula=lambda self, tensor1, tensor2, value: self + value * (tensor1 / tensor2),
    gradient={"self": passed_on,
              "tensor1": lambda g, tensor2, value: g * checks.conj(value) / checks.conj(tensor2),
              "tensor2": lambda g, tensor1, tensor2, value: -g * checks.conj(
                  value * tensor1 / (tensor2 * tensor2))},
    promotion=_tensors_alone, check=_check_value, path="addcdiv", inplace=True, out=True,
    samples=triples, reference=lambda x, y, z, value=1: x + value * (y / z),
    dtypes=("float", "complex"), doc="self + value * tensor1 / tensor2; integers are refused.",
    autocast={"cuda": "widest"},
))


def _lerp(self: Any, end: Any, weight: Any) -> Any:
    """From the nearer end, so that the weights 0 and 1 give the ends exactly; rounded twice."""
    apart, weight = end - self, weight.to_class(self.cls)
    small = (weight.real * weight.real + weight.imag * weight.imag if weight.is_complex()
             else weight * weight) < 0.25
    return where(small, fma(weight, apart, self), fma(weight - 1, apart, end))


def _check_lerp(call: Any) -> None:
    own = call.spec("self").dtype
    others = [("end", call["end"])]
    if isinstance(call["weight"], TensorBase):
        others.append(("weight", call["weight"]))
    for name, value in others:
        if value.spec.dtype is not own:
            raise call.error(RuntimeError, f"expected dtype {own.name} for `{name}` but got dtype "
                                           f"{value.spec.dtype.name}")
    if own.category < 2:
        raise call.error(NotImplementedError, f"\"lerp\" not implemented for '{own.name}'")
    if isinstance(call["weight"], complex) and not own.is_complex:
        raise call.error(RuntimeError, "value cannot be converted to type float without overflow")


define(Entry(
    "lerp(Tensor self, Tensor end, Tensor|Number weight)", POINTWISE, formula=_lerp,
    gradient={"self": lambda g, weight: g * checks.conj(1 - weight),
              "end": lambda g, weight: g * checks.conj(weight),
              "weight": lambda g, self, end: g * checks.conj(end - self)},
    promotion=promotion.cast_to_self, check=_check_lerp, path="lerp", inplace=True, out=True,
    samples=lambda: [(args, {}) for args, _ in triples()[:1]] + [
        ((samples.random_array(103, 3, 4), samples.random_array(104, 4), 0.25), {})],
    reference=lambda x, end, weight: x + weight * (end - x), dtypes=("float", "complex"),
    doc="self + weight * (end - self).",
))


# -- one operand ---------------------------------------------------------------------------------
unary_op("tan", lambda self: self.tan(), lambda g, out: g * checks.conj(1 + out * out), np.tan,
         samples=lambda: [((args[0] * 0.5,), {}) for args, _ in samples.unary()],
         doc="Tangent.", autocast={"cuda": "float32"})
unary_op("erfc", lambda self: self.erfc(),
         lambda g, self: g * (-(self * self)).exp() * -TWO_OVER_ROOT_PI,
         lambda x: 1 - checks.erf_reference(x), dtypes=ORDERED, check=checks.no_complex,
         aliases=("special.erfc",), doc="1 - erf(self), right for large values.")
unary_op("exp2", lambda self: (self * math.log(2.0)).exp(),
         lambda g, out: g * checks.conj(out) * math.log(2.0), np.exp2,
         aliases=("special.exp2",), doc="2 to the power of self.")
unary_op("atan", lambda self: self.atan2(1), lambda g, self: g / (self * self + 1), np.arctan,
         dtypes=ORDERED, check=checks.no_complex, aliases=("arctan",), doc="Inverse tangent.")


def _ball() -> Any:
    return [((args[0] * 0.4,), {}) for args, _ in samples.unary()]


unary_op("asin", lambda self: self.atan2(((1 - self) * (1 + self)).sqrt()),
         lambda g, self: g * (1 - self * self).rsqrt(), np.arcsin, samples=_ball,
         dtypes=ORDERED, check=checks.no_complex, aliases=("arcsin",), doc="Inverse sine.",
         autocast={"cuda": "float32"})
unary_op("acos", lambda self: ((1 - self) * (1 + self)).sqrt().atan2(self),
         lambda g, self: -g * (1 - self * self).rsqrt(), np.arccos, samples=_ball,
         dtypes=ORDERED, check=checks.no_complex, aliases=("arccos",), doc="Inverse cosine.",
         autocast={"cuda": "float32"})
unary_op("sinh", lambda self: _half_sum(self), lambda g, self: g * self.cosh(), np.sinh,
         dtypes=ORDERED, check=checks.no_complex, doc="Hyperbolic sine.",
         autocast={"cuda": "float32"})
unary_op("cosh", lambda self: self.exp() * 0.5 + (-self).exp() * 0.5,
         lambda g, self: g * self.sinh(), np.cosh, dtypes=ORDERED, check=checks.no_complex,
         doc="Hyperbolic cosine.", autocast={"cuda": "float32"})


def _half_sum(x: Any) -> Any:
    """(e^x - e^-x) / 2 from expm1, which keeps small values."""
    size = x.abs()
    small = where(size > 1, 0, x).expm1()
    return where(size > 1, x.exp() * 0.5 - (-x).exp() * 0.5, (small + small / (small + 1)) * 0.5)


def _round_decimals(self: Any, decimals: int) -> Any:
    """To so many digits after the point, halves to the even neighbour."""
    if not decimals:
        return self.round()
    scale = 10.0 ** abs(decimals)
    return (self * scale).round() / scale if decimals > 0 else (self / scale).round() * scale


def _check_round(call: Any) -> None:
    checks.no_complex(call)
    kind = call.spec("self").dtype.category
    if not kind or (kind == 1 and call["decimals"]):
        raise call.error(NotImplementedError, "\"round\" not implemented for "
                                              f"'{call.spec('self').dtype.name}'")


define(Entry(
    "round(Tensor self, *, int decimals=0)", POINTWISE, formula=_round_decimals,
    gradient={"self": checks.lost}, check=_check_round, path="round", inplace=True, out=True,
    samples=samples.unary, reference=lambda x: np.round(x), dtypes=REAL,
    aliases=("special.round",),
    doc="The nearest integer, halves to the even one; or so many digits after the point.",
))
for _name, _reference in (("isfinite", np.isfinite), ("isinf", np.isinf)):
    unary_op(_name, lambda self, name=_name: getattr(self, name)(), None, _reference,
             promotion=promotion.truth, doc=f"Whether each element {_name.replace('is', 'is ')}.")


def _replace(self: Any, nan: float, high: float, low: float) -> Any:
    """The numbers that stand for nan, infinity and minus infinity."""
    return where(self != self, nan, where(self == math.inf, high,
                                          where(self == -math.inf, low, self)))


define(Entry(
    "replace_nonfinite(Tensor self, Number nan, Number high, Number low)", POINTWISE,
    formula=_replace, promotion=promotion.cast_to_self,
    gradient={"self": lambda g, self: where(self.isfinite(), g, 0)}, path="", method=False,
    inplace=True,
    dtypes=("float",), doc="self with numbers where it is not finite.",
))


def _nan_to_num(self: Any, nan: Any, posinf: Any, neginf: Any) -> Any:
    dtype = self.spec.dtype
    if dtype.category < 2:
        return ops.clone.call((self,), None)
    if dtype.is_complex:
        raise NotImplementedError("nan_to_num() takes real tensors, got "
                                  f"{self.spec!r}\n  mend: take the parts, x.real and x.imag")
    largest = LARGEST[dtype.name]
    numbers = (0.0 if nan is None else nan, largest if posinf is None else posinf,
               -largest if neginf is None else neginf)
    return ops.replace_nonfinite.call((self, *numbers), None)


LARGEST = {"float16": 65504.0, "bfloat16": 3.3895313892515355e38,
           "float32": float(np.finfo(np.float32).max), "float64": float(np.finfo(np.float64).max)}

define(Entry(
    "nan_to_num(Tensor self, any nan=None, any posinf=None, any neginf=None)", COMPOUND,
    function=_nan_to_num, path="nan_to_num", inplace=True, out=True, samples=samples.unary,
    reference=np.nan_to_num, dtypes=ORDERED,
    doc="self with 0 for nan, the largest and the lowest number for infinities, or those given.",
))
for _name, _arguments, _call in (
    ("clamp_min", "Tensor|Number min", lambda self, min: ops.clamp.call((self, min), None)),
    ("clamp_max", "Tensor|Number max", lambda self, max: ops.clamp.call((self, None, max), None)),
):
    define(Entry(f"{_name}(Tensor self, {_arguments})", COMPOUND, function=_call, path=_name,
                 inplace=True, out=True, dtypes=REAL, doc="clamp with one bound.",
                 samples=lambda: [((samples.random_array(105, 3, 4), 0.5), {})],
                 reference=np.maximum if _name == "clamp_min" else np.minimum))


# -- inverses of hyperbolic functions, decimal logarithms, fractions -----------------------------
# From here on 1 is lost beside the square, which may overflow.
FAR = 1e9


def _odd(self: Any, size: Any) -> Any:
    """``size`` with the sign of self; zeros keep theirs."""
    return where(self == 0, self, where(self < 0, -size, size))


def _asinh(self: Any) -> Any:
    size = self.abs()
    near = where(size > FAR, 0, size)
    square = near * near
    small = (near + square / ((square + 1).sqrt() + 1)).log1p()
    return _odd(self, where(size > FAR, size.log() + math.log(2.0), small))


def _acosh(self: Any) -> Any:
    above = where(self > FAR, 0, self - 1)
    small = (above + (above * (above + 2)).sqrt()).log1p()
    return where(self < 1, math.nan, where(self > FAR, self.log() + math.log(2.0), small))


def _atanh(self: Any) -> Any:
    size = self.abs()
    return _odd(self, (size * 2 / (1 - size)).log1p() * 0.5)


unary_op("asinh", _asinh, lambda g, self: g * (self * self + 1).rsqrt(), np.arcsinh,
         dtypes=ORDERED, check=checks.no_complex, aliases=("arcsinh",),
         doc="Inverse hyperbolic sine.")
unary_op("acosh", _acosh, lambda g, self: g * (self * self - 1).rsqrt(), np.arccosh,
         samples=lambda: [((args[0] * 0.4 + 2.5,), {}) for args, _ in samples.unary()],
         dtypes=ORDERED, check=checks.no_complex, aliases=("arccosh",),
         doc="Inverse hyperbolic cosine; nan below 1.")
unary_op("atanh", _atanh, lambda g, self: g / (1 - self * self), np.arctanh, samples=_ball,
         dtypes=ORDERED, check=checks.no_complex, aliases=("arctanh",),
         doc="Inverse hyperbolic tangent; nan beyond -1 and 1.")


def _log10(self: Any) -> Any:
    """By log2, which is whole for more powers of ten; complex numbers have log alone."""
    return self.log() / math.log(10.0) if self.is_complex() else self.log2() * math.log10(2.0)


unary_op("log10", _log10, lambda g, self: g / checks.conj(self * math.log(10.0)), np.log10,
         samples=samples.positive,
         doc="Logarithm to base 10.", autocast={"cuda": "float32"})


def _check_frac(call: Any) -> None:
    found = call.spec("self").dtype
    if found.kind != "float":
        raise call.error(NotImplementedError, f"\"frac\" not implemented for '{found.name}'")


unary_op("frac", lambda self: self - self.trunc(), passed_on, lambda x: x - np.trunc(x),
         dtypes=("float",), check=_check_frac, doc="self - trunc(self).")


def _log_odds(self: Any, eps: Any) -> Any:
    share = where(self < eps, eps, where(self > 1 - eps, 1 - eps, self))
    return (share / (1 - share)).log()


def _log_odds_slope(g: Any, self: Any, low: Any, beyond: Any) -> Any:
    return where((self < low).logical_or(self > 1 - low), beyond, g / (self * (1 - self)))


define(Entry("log_odds(Tensor self, float eps, float low, float beyond)", POINTWISE,
             formula=_log_odds, method=False,
             gradient={"self": _log_odds_slope}, promotion=promotion.floating, path="",
             check=checks.no_complex,
             doc="logit: of elements brought between eps and 1 - eps; those below low or above "
                 "1 - low have the slope beyond."))


def _logit(self: Any, eps: Any) -> Any:
    # Without bounds what lies outside of [0, 1] is nan; beyond -1 and 2 any number gives it.
    numbers = (-1.0, 0.0, math.nan) if eps is None or eps < 0 else (eps, eps, 0.0)
    return ops.log_odds.call((self, *numbers), None)


define(Entry(
    "logit(Tensor self, Number? eps=None)", COMPOUND, function=_logit, path="logit", inplace=True,
    out=True, dtypes=("float",), aliases=("special.logit",),
    samples=lambda: [((args[0] * 0.2 + 0.5,), {}) for args, _ in samples.unary()] + [
        ((samples.random_array(106, 3, 4), 0.25), {})],
    reference=lambda x, eps=0.0: np.log(np.clip(x, eps, 1 - eps) / (1 - np.clip(x, eps, 1 - eps))),
    doc="log(self / (1 - self)); self is first brought between eps and 1 - eps where that is "
        "given.",
))


def _number_that_wins(name: str, reference: Any, wins: Any, word: str) -> None:
    """fmax or fmin; ``wins(self, other)``: where self is taken of two numbers."""
    def taken(self: Any, other: Any) -> Any:
        return wins(self, other).logical_or(other != other)

    binary_op(f"{name}(Tensor self, Tensor other)",
              lambda self, other: where(taken(self, other), self, other),
              {"self": lambda g, self, other: where(taken(self, other), g, 0),
               "other": lambda g, self, other: where(taken(self, other), 0, g)},
              reference, check=checks.no_complex, inplace=False, samples=samples.tensor_pairs,
              dtypes=ORDERED, doc=f"The {word} of both, elementwise; a number wins over nan.")


_number_that_wins("fmax", np.fmax, lambda self, other: self >= other, "larger")
_number_that_wins("fmin", np.fmin, lambda self, other: self <= other, "smaller")

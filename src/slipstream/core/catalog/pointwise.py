"""Pointwise ops: each is a formula over its operands, elementwise with broadcasting."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from slipstream.core.catalog import checks, reasons
from slipstream.core.catalog.samples import (
    binary,
    bits,
    bounded,
    comparisons,
    exponents,
    filled,
    fused,
    masks,
    positive,
    scaled,
    tensor_pairs,
    unary,
)
from slipstream.core.catalog.table import define
from slipstream.core.dispatch import promotion
from slipstream.core.dispatch.entry import POINTWISE, Entry, passed_on, times_alpha
from slipstream.core.fuse.formula import where

ALL_KINDS = ("bool", "int", "float", "complex")
TWO_OVER_ROOT_PI = 2.0 / math.sqrt(math.pi)
ROOT_HALF = math.sqrt(0.5)
ROOT_TWO_OVER_PI = math.sqrt(2.0 / math.pi)


def unary_op(name: str, formula: Any, gradient: Any, reference: Any, **facts: Any) -> None:
    """An entry with one operand, an in-place form and an ``out=`` form."""
    facts.setdefault("promotion", promotion.floating)
    facts.setdefault("samples", unary)
    define(Entry(f"{name}(Tensor self)", POINTWISE, formula=formula,
                 gradient={} if gradient is None else {"self": gradient},
                 reference=reference, inplace=True, out=True, path=name, **facts))


def binary_op(signature: str, formula: Any, gradient: Any, reference: Any, **facts: Any) -> None:
    """An entry with two operands that broadcast."""
    facts.setdefault("samples", binary)
    facts.setdefault("inplace", True)
    define(Entry(signature, POINTWISE, formula=formula, gradient=gradient, reference=reference,
                 out=True, path=signature.partition("(")[0], **facts))


binary_op(
    "add(Tensor|Number self, Tensor|Number other, *, Number alpha=1)",
    lambda self, other, alpha: self + alpha * other,
    {"self": passed_on, "other": times_alpha},
    lambda self, other, alpha=1: self + np.asarray(alpha).astype(np.result_type(other)) * other,
    promotion=promotion.pair, check=checks.alpha, samples=scaled, joint=checks.sum_gradients,
    exceptions=reasons.ROUNDED_HALF,
    doc="self + alpha * other.",
)
binary_op(
    "sub(Tensor|Number self, Tensor|Number other, *, Number alpha=1)",
    lambda self, other, alpha: self - alpha * other,
    {"self": passed_on, "other": lambda g, alpha: -times_alpha(g, alpha)},
    lambda self, other, alpha=1: self - np.asarray(alpha).astype(np.result_type(other)) * other,
    promotion=promotion.pair, check=checks.subtraction, aliases=("subtract",), samples=scaled,
    dtypes=ALL_KINDS[1:],
    exceptions=reasons.ROUNDED_HALF,
    doc="self - alpha * other; bools are refused.",
)
binary_op(
    "mul(Tensor|Number self, Tensor|Number other)",
    lambda self, other: self * other,
    {"self": lambda g, other: g * checks.conj(other),
     "other": lambda g, self: g * checks.conj(self)},
    np.multiply, promotion=promotion.pair, aliases=("multiply",),
    doc="self * other.",
)
binary_op(
    "div(Tensor|Number self, Tensor|Number other, *, str? rounding_mode=None)",
    lambda self, other, rounding_mode: checks.divided(self, other, rounding_mode),
    {"self": lambda g, other, rounding_mode: checks.quotient_self(g, other, rounding_mode),
     "other": lambda g, self, other, rounding_mode: checks.quotient_other(
         g, self, other, rounding_mode)},
    checks.divide_reference, promotion=promotion.division, check=checks.rounding_mode,
    aliases=("divide", "true_divide"),
    exceptions=reasons.WHOLE,
    doc="self / other; rounding_mode None (true division), 'trunc' or 'floor'.",
)
binary_op(
    "pow(Tensor|Number self, Tensor|Static exponent)",
    lambda self, exponent: self ** exponent,
    {"self": lambda g, self, exponent: checks.power_base(g, self, exponent),
     "exponent": lambda g, self, exponent, out: checks.power_exponent(g, self, exponent, out)},
    np.power, samples=exponents, check=checks.exponent, dtypes=ALL_KINDS[1:],
    exceptions=reasons.EXACT,
    doc="self ** exponent; integers to negative powers are refused.",
    autocast={"cuda": "float32"},
)
binary_op("maximum(Tensor self, Tensor other)", lambda self, other: self.maximum(other),
          {"self": lambda g, self, other: checks.share(g, self, other, self < other),
           "other": lambda g, self, other: checks.share(g, self, other, other < self)},
          np.maximum, check=checks.no_complex, inplace=False, samples=tensor_pairs,
          dtypes=("bool", "int", "float"),
          doc="The larger of both, elementwise; nan wins; ties share the gradient.")
binary_op("minimum(Tensor self, Tensor other)", lambda self, other: self.minimum(other),
          {"self": lambda g, self, other: checks.share(g, self, other, self > other),
           "other": lambda g, self, other: checks.share(g, self, other, other > self)},
          np.minimum, check=checks.no_complex, inplace=False, samples=tensor_pairs,
          dtypes=("bool", "int", "float"),
          doc="The smaller of both, elementwise; nan wins; ties share the gradient.")

_reference: Any
for _name, _formula, _reference, _alias in (
    ("eq", lambda self, other: self == other, np.equal, ()),
    ("ne", lambda self, other: self != other, np.not_equal, ("not_equal",)),
    ("lt", lambda self, other: self < other, np.less, ("less",)),
    ("le", lambda self, other: self <= other, np.less_equal, ("less_equal",)),
    ("gt", lambda self, other: self > other, np.greater, ("greater",)),
    ("ge", lambda self, other: self >= other, np.greater_equal, ("greater_equal",)),
):
    binary_op(f"{_name}(Tensor self, Tensor|Number other)", _formula, {}, _reference,
              promotion=promotion.comparison, samples=comparisons, aliases=_alias,
              dtypes=ALL_KINDS if _name in ("eq", "ne") else ALL_KINDS[:3],
              check=None if _name in ("eq", "ne") else checks.no_complex, alike=True,
              doc=f"Elementwise {_reference.__name__}; the result is bool.")

for _name, _formula, _reference in (
    ("logical_and", lambda self, other: self.logical_and(other), np.logical_and),
    ("logical_or", lambda self, other: self.logical_or(other), np.logical_or),
    ("logical_xor", lambda self, other: self.logical_xor(other), np.logical_xor),
):
    binary_op(f"{_name}(Tensor self, Tensor other)", _formula, {}, _reference,
              promotion=promotion.comparison, samples=tensor_pairs,
              doc=f"Elementwise {_reference.__name__}: zero is false; the result is bool.")
for _name, _formula, _reference in (
    ("bitwise_and", lambda self, other: self & other, np.bitwise_and),
    ("bitwise_or", lambda self, other: self | other, np.bitwise_or),
    ("bitwise_xor", lambda self, other: self ^ other, np.bitwise_xor),
):
    binary_op(f"{_name}(Tensor|Number self, Tensor|Number other)", _formula, {}, _reference,
              check=checks.integral, dtypes=("bool", "int"), samples=bits,
              doc=f"Elementwise {_reference.__name__} of integers and bools.")

unary_op("neg", lambda self: -self, lambda g: -g, np.negative, promotion=promotion.arithmetic,
         check=checks.no_bool, aliases=("negative",), dtypes=ALL_KINDS[1:],
         doc="-self; bools are refused.")
unary_op("abs", lambda self: self.abs(), lambda g, self: checks.absolute(g, self), np.abs,
         promotion=promotion.real_result, aliases=("absolute",), check=checks.size_in_place,
         doc="Absolute value; the gradient at 0 is 0.")
unary_op("exp", lambda self: self.exp(), lambda g, out: g * checks.conj(out), np.exp,
         doc="e to the power of self.", autocast={"cuda": "float32"})
unary_op("expm1", lambda self: self.expm1(), lambda g, out: g * checks.conj(out + 1), np.expm1,
         dtypes=("bool", "int", "float"), check=checks.no_complex,
         aliases=("special.expm1",),
         exceptions=reasons.REAL_ONLY,
         doc="exp(self) - 1, right for small values.", autocast={"cuda": "float32"})
unary_op("log", lambda self: self.log(), lambda g, self: g / checks.conj(self), np.log,
         samples=positive, doc="Natural logarithm.", autocast={"cuda": "float32"})
unary_op("log1p", lambda self: self.log1p(), lambda g, self: g / (self + 1), np.log1p,
         samples=positive, dtypes=("bool", "int", "float"), check=checks.no_complex,
         aliases=("special.log1p",),
         exceptions=reasons.REAL_ONLY,
         doc="log(1 + self), right for small values.", autocast={"cuda": "float32"})
unary_op("log2", lambda self: self.log2(), lambda g, self: g / (self * math.log(2.0)), np.log2,
         samples=positive, dtypes=("bool", "int", "float"), check=checks.no_complex,
         exceptions=reasons.REAL_ONLY,
         doc="Logarithm to base 2.", autocast={"cuda": "float32"})
unary_op("sqrt", lambda self: self.sqrt(), lambda g, out: g / (checks.conj(out) * 2), np.sqrt,
         samples=positive, doc="Square root.")
unary_op("rsqrt", lambda self: self.rsqrt(), lambda g, out: g * checks.conj(out ** 3) * -0.5,
         lambda x: 1 / np.sqrt(x), samples=positive, doc="1 / sqrt(self).",
         autocast={"cuda": "float32"})
unary_op("reciprocal", lambda self: self.reciprocal(), lambda g, out: -g * checks.conj(out * out),
         lambda x: 1 / x, doc="1 / self.", autocast={"cuda": "float32"})
unary_op("square", lambda self: self * self, lambda g, self: g * checks.conj(self * 2), np.square,
         promotion=promotion.power, doc="self * self; of bools an int64.",
         autocast={"cuda": "float32"})
unary_op("sin", lambda self: self.sin(), lambda g, self: g * checks.conj(self.cos()), np.sin,
         doc="Sine.")
unary_op("cos", lambda self: self.cos(), lambda g, self: -g * checks.conj(self.sin()), np.cos,
         doc="Cosine.")
unary_op("tanh", lambda self: self.tanh(), lambda g, out: g * checks.conj(1 - out * out), np.tanh,
         doc="Hyperbolic tangent.")
unary_op("sigmoid", lambda self: self.sigmoid(), lambda g, out: g * checks.conj(out * (1 - out)),
         lambda x: 1 / (1 + np.exp(-x)), aliases=("special.expit",),
         doc="1 / (1 + exp(-self)).")
unary_op("erf", lambda self: self.erf(),
         lambda g, self: g * (-(self * self)).exp() * TWO_OVER_ROOT_PI, checks.erf_reference,
         dtypes=("bool", "int", "float"), check=checks.no_complex, aliases=("special.erf",),
         doc="The error function.")
unary_op("sign", lambda self: self.sign(), checks.lost, lambda x: np.sign(x * 1),
         check=checks.no_complex, promotion=promotion.arithmetic, dtypes=("bool", "int", "float"),
         doc="-1, 0 or 1; nan gives 0.")
for _name, _reference in (("floor", np.floor), ("ceil", np.ceil), ("trunc", np.trunc)):
    unary_op(_name, lambda self, name=_name: getattr(self, name)(), checks.lost, _reference,
             promotion=promotion.arithmetic, check=checks.no_complex,
             aliases=("fix",) if _name == "trunc" else (),
             dtypes=("int", "float"), doc=f"{_name.capitalize()} to an integer.")
unary_op("isnan", lambda self: self != self, None, np.isnan, promotion=promotion.truth,
         doc="Whether each element is nan.")
unary_op("logical_not", lambda self: self.logical_not(), None, np.logical_not,
         promotion=promotion.truth, doc="Whether each element is zero.")
unary_op("bitwise_not", lambda self: ~self, None, np.invert, check=checks.integral,
         promotion=promotion.arithmetic, dtypes=("bool", "int"),
         doc="Bitwise complement of integers; logical complement of bools.")
unary_op("conj_physical", lambda self: self.conj(), lambda g: checks.conj(g), np.conj,
         promotion=promotion.arithmetic, doc="Complex conjugate, as a new tensor.")
unary_op("relu", lambda self: self.relu(), lambda g, out: where(out <= 0, 0, g),
         lambda x: np.maximum(x, 0), promotion=promotion.arithmetic, check=checks.real_not_bool,
         dtypes=("int", "float"), doc="max(self, 0); nan stays; the slope at 0 is 0.")

define(Entry(
    "where(Tensor condition, Tensor|Number self, Tensor|Number other)", POINTWISE,
    formula=lambda condition, self, other: where(condition, self, other),
    gradient={"self": lambda g, condition: where(condition, g, 0),
              "other": lambda g, condition: where(condition, 0, g)},
    promotion=promotion.pair, path="where", method=False, samples=masks, reference=np.where,
    stores=("self", "other"), check=checks.condition, out=True,
    doc="self where condition, else other; broadcasting, common dtype of self and other.",
))
define(Entry(
    "masked_fill(Tensor self, Tensor mask, Tensor|Number value)", POINTWISE,
    formula=lambda self, mask, value: where(mask, value, self),
    gradient={"self": lambda g, mask: where(mask, 0, g),
              "value": lambda g, mask: where(mask, g, 0)},
    promotion=promotion.cast_to_self, path="masked_fill", inplace=True, check=checks.mask,
    samples=filled, stores=("value",),
    reference=lambda x, mask, value: np.where(mask, value, x),
    doc="self with value where mask; mask broadcasts to self.",
))
define(Entry(
    "clamp(Tensor self, Tensor|Number min=None, Tensor|Number max=None)", POINTWISE,
    formula=lambda self, min, max: self.clamp(min, max),
    gradient={"self": lambda g, self, min, max: checks.inside(g, self, min, max),
              "min": lambda g, self, min, max: checks.below(g, self, min, max),
              "max": lambda g, self, min, max: checks.above(g, self, min, max)},
    path="clamp", inplace=True, out=True, aliases=("clip",), check=checks.bounds, samples=bounded,
    reference=lambda x, min=None, max=None: np.clip(x, min, max), dtypes=("int", "float"),
    doc="self limited to [min, max]; nan stays; min > max gives max; slope 1 at the bounds.",
))
define(Entry(
    "fma(Tensor self, Tensor|Number factor, Tensor|Number addend)", POINTWISE,
    formula=lambda self, factor, addend: self.fma(factor, addend),
    gradient={"self": lambda g, factor: g * factor, "factor": lambda g, self: g * self,
              "addend": passed_on},
    path="fma", dtypes=("float",), check=checks.real_floats, samples=fused,
    reference=lambda x, factor, addend: x * factor + addend,
    doc="self * factor + addend, rounded once.",
))
define(Entry(
    "gelu(Tensor self, *, str approximate='none')", POINTWISE,
    formula=lambda self, approximate: checks.gelu(self, approximate),
    gradient={"self": lambda g, self, approximate: checks.gelu_slope(g, self, approximate)},
    promotion=promotion.arithmetic, path="nn.functional.gelu", method=False, out=True,
    check=checks.gelu_form, samples=unary, dtypes=("float",), reference=checks.gelu_reference,
    doc="x * Phi(x), Phi the normal distribution function; 'tanh' for the approximation.",
))

"""The table of primitives: what each is called, how C prints it and how NumPy computes it.

C expressions have holes {0}, {1}, {2} for operands that are plain variables of the class's type
(``bool``, ``int64_t``, ``float``, ``double``, ``slip_c64``, ``slip_c128``), so a hole may occur
twice.  They hold for C99 and for CUDA C++.  Names that start with ``slip_`` are functions or macros
of the printer's prelude; ``helper_names`` lists them.  The rules that all backends share:

- integers are int64 modulo 2**64; dividing by zero gives 0 and never traps;
- maximum, minimum, amax and amin propagate nan; argmax and argmin take the first extreme, and the
  first nan before any number; the sign of nan is 0, as PyTorch has it;
- a remainder of zero has the sign of the dividend;
- a float outside the range of int64 (or nan) is cast to -2**63.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from slipstream.core.fuse import classes as compute
from slipstream.core.fuse import numerics

REAL = ("f32", "f64")
COMPLEX = ("c64", "c128")
FLOATING = REAL + COMPLEX
INTEGRAL = ("b1", "i64")
ORDERED = INTEGRAL + REAL
ARITHMETIC = ("i64",) + FLOATING
EVERY = INTEGRAL + FLOATING


@dataclass(frozen=True, eq=False, repr=False)
class Primitive:
    """One primitive.

    ``expressions`` maps a compute class to its C expression; ``""`` is the default.  For a
    reduction the expression combines accumulator {0} with element {1}; for argmax and argmin it
    tells whether element {1} replaces the best so far, {0}.  ``numpy`` takes operands of the class
    (a reduction reduces its operand's last axis).  ``result`` is the class of the value: that of
    the operands (``same``), ``b1``, ``i64``, or the ``real`` class of a complex one's parts.
    ``identity`` maps a class to a reduction's neutral element.
    """

    name: str
    arity: int
    expressions: Mapping[str, str]
    numpy: Callable[..., Any]
    result: str = "same"
    classes: tuple[str, ...] = EVERY
    identity: Mapping[str, compute.Number] = field(default_factory=dict)
    reduction: bool = False

    def result_class(self, cls: str) -> str:
        """The class of the value when the operands are of class ``cls``."""
        if self.result == "same":
            return cls
        if self.result == "real":
            return compute.REAL_PARTS.get(cls, cls)
        return self.result

    def expression(self, cls: str) -> str:
        """The C expression for operands of class ``cls``."""
        text = self.expressions.get(cls)
        if text is None:
            text = self.expressions[""]
        return text.replace("@name", self.name).replace("@cls", cls)


PRIMITIVES: dict[str, Primitive] = {}

_HELPER = {1: "slip_@name_@cls({0})", 2: "slip_@name_@cls({0}, {1})"}


def _complex(text: str) -> dict[str, str]:
    return {"c64": text, "c128": text}


def _define(name: str, arity: int, expressions: Mapping[str, str], numpy: Callable[..., Any],
            classes: tuple[str, ...] = EVERY, result: str = "same") -> None:
    helper = _complex(_HELPER.get(arity, ""))
    PRIMITIVES[name] = Primitive(name, arity, {**helper, **expressions}, numpy, result, classes)


def _function(name: str, numpy: Callable[..., Any], classes: tuple[str, ...], c_name: str = "",
              arity: int = 1) -> None:
    """A function of C's mathematical library: the name has an f for float."""
    holes = "({0})" if arity == 1 else "({0}, {1})"
    c_name = c_name or name
    _define(name, arity, {"f32": c_name + "f" + holes, "f64": c_name + holes}, numpy, classes)


def _define_arithmetic() -> None:
    for name, sign, numpy in (("add", "+", np.add), ("sub", "-", np.subtract),
                              ("mul", "*", np.multiply)):
        # Unsigned, because signed overflow is undefined in C.
        wrap = f"((int64_t)((uint64_t){{0}} {sign} (uint64_t){{1}}))"
        boolean = {"add": "({0} | {1})", "mul": "({0} & {1})"}.get(name, "")
        allowed = ARITHMETIC if name == "sub" else EVERY
        _define(name, 2, {"": f"({{0}} {sign} {{1}})", "i64": wrap, "b1": boolean}, numpy, allowed)
    _define("div", 2, {"": "({0} / {1})"}, np.true_divide, FLOATING)
    negate = "((int64_t)(0 - (uint64_t){0}))"
    _define("neg", 1, {"": "(-{0})", "i64": negate}, np.negative, ARITHMETIC)
    _define("abs", 1, {"f32": "fabsf({0})", "f64": "fabs({0})",
                       "i64": f"({{0}} < 0 ? {negate} : {{0}})"}, np.absolute, ARITHMETIC, "real")
    _define("reciprocal", 1, {"f32": "(1.0f / {0})", "f64": "(1.0 / {0})"}, np.reciprocal, REAL)
    _define("rsqrt", 1, {"f32": "(1.0f / sqrtf({0}))", "f64": "(1.0 / sqrt({0}))"},
            numerics.rsqrt, REAL)
    _define("sigmoid", 1, {"f32": "(1.0f / (1.0f + expf(-{0})))",
                           "f64": "(1.0 / (1.0 + exp(-{0})))"}, numerics.sigmoid, REAL)
    _define("fma", 3, {"f32": "fmaf({0}, {1}, {2})", "f64": "fma({0}, {1}, {2})"},
            numerics.fma, REAL)
    _define("pow", 2, {"": _HELPER[2], "f32": "powf({0}, {1})", "f64": "pow({0}, {1})"},
            numerics.power, ARITHMETIC)


def _define_functions() -> None:
    for name in ("exp", "log", "sqrt", "sin", "cos", "tan", "tanh"):
        _function(name, getattr(np, name), FLOATING)
    for name in ("expm1", "log1p", "log2", "floor", "ceil", "trunc"):
        _function(name, getattr(np, name), REAL)
    _function("erf", numerics.erf, REAL)
    _function("erfc", numerics.erfc, REAL)
    # For results of 16 bits: a printer may have a way that is as right as those are.
    _define("exp16", 1, {"f32": "expf({0})"}, np.exp, ("f32",))
    _define("ndtr16", 1, {"f32": "(0.5f * (1.0f + erff({0} * 0.70710677f)))"}, numerics.ndtr,
            ("f32",))
    # As a float of 16 bits holds it.
    for name in ("float16", "bfloat16"):
        _define(f"as_{name}", 1, {"f32": _HELPER[1]}, partial(numerics.through, name), ("f32",))
    # Halves go to the even neighbour: rint in the default rounding mode.
    _function("round", np.rint, REAL, "rint")
    _function("atan2", np.arctan2, REAL, arity=2)
    _define("sign", 1, {"": "(({0} > 0) - ({0} < 0))",
                        "f32": "((float)(({0} > 0.0f) - ({0} < 0.0f)))",
                        "f64": "((double)(({0} > 0.0) - ({0} < 0.0)))"},
            numerics.sign, ("i64",) + REAL)


def _define_division() -> None:
    allowed = ("i64",) + REAL
    for name, numpy in (("floor_divide", np.floor_divide), ("remainder", numerics.remainder)):
        _define(name, 2, {"": _HELPER[2]}, numpy, allowed)
    _define("trunc_divide", 2, {"": _HELPER[2], "f32": "truncf({0} / {1})",
                                "f64": "trunc({0} / {1})"}, numerics.trunc_divide, allowed)
    _define("fmod", 2, {"": _HELPER[2], "f32": "fmodf({0}, {1})", "f64": "fmod({0}, {1})"},
            np.fmod, allowed)


def _define_tests() -> None:
    for name in ("isnan", "isinf", "isfinite"):
        text = "({0} != {0})" if name == "isnan" else f"({name}({{0}}) != 0)"
        _define(name, 1, {"": text, **_complex(_HELPER[1])}, getattr(np, name), FLOATING, "b1")
    signs = {"eq": ("==", np.equal), "ne": ("!=", np.not_equal), "lt": ("<", np.less),
             "le": ("<=", np.less_equal), "gt": (">", np.greater), "ge": (">=", np.greater_equal)}
    for name, (sign, numpy) in signs.items():
        allowed = EVERY if name in ("eq", "ne") else ORDERED
        _define(name, 2, {"": f"({{0}} {sign} {{1}})"}, numpy, allowed, "b1")


def _define_selection() -> None:
    # A nan on the left is kept by the test {0} != {0}; one on the right because {0} > nan is false.
    for name, sign, boolean, numpy in (("maximum", ">", "|", np.maximum),
                                       ("minimum", "<", "&", np.minimum)):
        text = f"(({{0}} {sign} {{1}} || {{0}} != {{0}}) ? {{0}} : {{1}})"
        _define(name, 2, {"": text, "i64": f"({{0}} {sign} {{1}} ? {{0}} : {{1}})",
                          "b1": f"({{0}} {boolean} {{1}})"}, numpy, ORDERED)
    choose = "({0} ? {1} : {2})"
    _define("where", 3, {"": choose, **_complex(choose)}, np.where)


def _define_bits() -> None:
    for name, sign, numpy in (("and", "&", np.bitwise_and), ("or", "|", np.bitwise_or),
                              ("xor", "^", np.bitwise_xor)):
        text = f"({{0}} {sign} {{1}})"
        _define(f"bitwise_{name}", 2, {"": text}, numpy, INTEGRAL)
        _define(f"logical_{name}", 2, {"": text}, numpy, ("b1",))
    _define("bitwise_not", 1, {"b1": "(!{0})", "i64": "(~{0})"}, np.invert, INTEGRAL)
    _define("logical_not", 1, {"": "(!{0})"}, np.logical_not, ("b1",))


def _define_conversions() -> None:
    _define("conj", 1, {}, np.conjugate, COMPLEX)
    _define("real", 1, {}, np.real, COMPLEX, "real")
    _define("imag", 1, {}, np.imag, COMPLEX, "real")
    # Printers take cast's text from cast_expression: it depends on two classes.
    _define("cast", 1, {}, numerics.cast)


def _reduction(name: str, text: Mapping[str, str], numpy: Callable[..., Any],
               identity: Mapping[str, compute.Number], result: str = "same") -> None:
    PRIMITIVES[name] = Primitive(name, 1, text, numpy, result, tuple(identity), identity, True)


def _define_reductions() -> None:
    infinity = float("inf")
    lowest = {"b1": False, "i64": -(2**63), "f32": -infinity, "f64": -infinity}
    highest = {"b1": True, "i64": 2**63 - 1, "f32": infinity, "f64": infinity}
    zeros = {"i64": 0, "f32": 0.0, "f64": 0.0, "c64": 0j, "c128": 0j}
    ones = {"i64": 1, "f32": 1.0, "f64": 1.0, "c64": 1 + 0j, "c128": 1 + 0j}
    table = PRIMITIVES
    _reduction("sum", _borrowed("add"), numerics.sum_last, zeros)
    _reduction("prod", _borrowed("mul"), numerics.prod_last, ones)
    _reduction("amax", table["maximum"].expressions, numerics.amax_last, lowest)
    _reduction("amin", table["minimum"].expressions, numerics.amin_last, highest)
    _reduction("any", table["logical_or"].expressions, numerics.any_last, {"b1": False})
    _reduction("all", table["logical_and"].expressions, numerics.all_last, {"b1": True})
    for name, sign, numpy, worst in (("argmax", ">", numerics.argmax_last, lowest),
                                     ("argmin", "<", numerics.argmin_last, highest)):
        text = f"({{1}} {sign} {{0}} || ({{1}} != {{1}} && {{0}} == {{0}}))"
        _reduction(name, {"": text, "i64": f"({{1}} {sign} {{0}})"}, numpy, worst, "i64")
    PRIMITIVES["count"] = Primitive("count", 0, {"": ""}, np.size, classes=ARITHMETIC,
                                    reduction=True)


def _borrowed(name: str) -> dict[str, str]:
    """The C expressions of another primitive, under that primitive's helper names."""
    return {cls: text.replace("@name", name)
            for cls, text in PRIMITIVES[name].expressions.items()}


def cast_expression(source: str, target: str) -> str:
    """The C expression that casts {0} from class ``source`` to class ``target``."""
    plain = source not in COMPLEX and target not in COMPLEX
    if source == target:
        return "{0}"
    if plain and target == "b1":
        return "({0} != 0)"
    if not plain or (target == "i64" and source in REAL):
        return f"slip_cast_{target}_{source}({{0}})"
    return f"(({compute.C_TYPES[target]}){{0}})"


def helper_names() -> list[str]:
    """The prelude functions that the expressions call, sorted."""
    texts = [primitive.expression(cls) for primitive in PRIMITIVES.values()
             for cls in primitive.classes if primitive.name != "cast"]
    texts += [cast_expression(source, target) for source in EVERY for target in EVERY]
    return sorted({name for text in texts for name in re.findall(r"slip_\w+", text)})


for _fill in (_define_arithmetic, _define_functions, _define_division, _define_tests,
              _define_selection, _define_bits, _define_conversions, _define_reductions):
    _fill()

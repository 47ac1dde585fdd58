# cython: annotation_typing=False
"""What entries refuse, and the longer pieces of their formulas."""

from __future__ import annotations

import math
from typing import Any

import cython
import numpy as np

from slipstream.core.catalog.table import table
from slipstream.core.fuse.formula import exp, normal_below, where
from slipstream.core.vocab import dtypes
from slipstream.core.vocab.records import OpBase, TensorBase

ROOT_HALF = math.sqrt(0.5)
ROOT_TWO_OVER_PI = math.sqrt(2.0 / math.pi)
ROOT_ONE_OVER_TWO_PI = 1.0 / math.sqrt(2.0 * math.pi)


# -- gradients of what is plain -------------------------------------------------------------------
def sum_gradients(wanted: Any, g: Any, alpha: Any) -> Any:
    """Both gradients of a plain sum are its own: no kernel runs where they have its dtype."""
    if alpha != 1:
        return None
    upstream = cython.declare(TensorBase, g)
    own = upstream.spec.dtype
    results: list[Any] = []
    for each in wanted[1]:
        if each is own:
            results.append(g)
        elif each.is_complex is not own.is_complex:
            return None
        else:
            narrow = cython.declare(OpBase, table["to_dtype"])
            results.append(narrow.call((g, each), None))
    return results


# -- refusals ------------------------------------------------------------------------------------
def _is_bool(operand: Any) -> bool:
    if isinstance(operand, TensorBase):
        return operand.spec.dtype is dtypes.bool_
    return isinstance(operand, (bool, np.bool_))


def _operands(call: Any) -> list[Any]:
    return [value for name, value in call.arguments.items()
            if isinstance(value, TensorBase) or name in ("self", "other")]


def subtraction(call: Any) -> None:
    """Subtraction of bools is refused: it would be neither a difference nor a logical op."""
    flags = [_is_bool(operand) for operand in (call["self"], call["other"])]
    if all(flags):
        raise call.error(RuntimeError,
                         "Subtraction, the `-` operator, with two bool tensors is not supported.",
                         "use the `^` or `logical_xor()` operator instead")
    if any(flags):
        raise call.error(RuntimeError,
                         "Subtraction, the `-` operator, with a bool tensor is not supported.",
                         "use the `~` or `logical_not()` operator to invert a mask")
    alpha(call)


def alpha(call: Any) -> None:
    """A bool or fractional alpha needs operands of its kind."""
    factor = call["alpha"]
    kinds = [v.spec.dtype.category for v in _operands(call) if isinstance(v, TensorBase)]
    numbers = [v for v in (call["self"], call["other"]) if not isinstance(v, TensorBase)]
    if isinstance(factor, bool) and any(kinds):
        raise call.error(RuntimeError, "Boolean alpha only supported for Boolean results.")
    fractional = any(kind >= 2 for kind in kinds) or any(
        isinstance(v, (float, complex)) for v in numbers)
    if isinstance(factor, (float, complex)) and not fractional:
        raise call.error(RuntimeError, "For integral input tensors, argument alpha must not be a "
                                       "floating point number.")
    if isinstance(factor, complex) and not any(kind == 3 for kind in kinds):
        raise call.error(RuntimeError, "For non-complex input tensors, argument alpha must not be "
                                       "a complex number.")


def size_in_place(call: Any) -> None:
    """The size of a complex number is real: it cannot be written in its place."""
    if call.form == 1 and call.spec("self").dtype.is_complex:
        raise call.error(RuntimeError, "In-place abs is not supported for complex tensors.")


def no_bool(call: Any) -> None:
    """Negation of bools is refused."""
    if _is_bool(call["self"]):
        raise call.error(RuntimeError,
                         "Negation, the `-` operator, on a bool tensor is not supported.",
                         "use the `~` or `logical_not()` operator instead")


def real_not_bool(call: Any) -> None:
    """Neither complex nor bool."""
    if _is_bool(call["self"]):
        raise call.error(RuntimeError, "Boolean inputs not supported for relu")
    no_complex(call)


def no_complex(call: Any) -> None:
    """Complex operands are refused: they have no order."""
    for value in _operands(call):
        found = value.spec.dtype.is_complex if isinstance(value, TensorBase) else isinstance(
            value, complex)
        if found:
            raise call.error(NotImplementedError,
                             f"{call.op.name} is not supported for complex operands")


def real_floats(call: Any) -> None:
    """Only real floating operands."""
    for value in call.tensors():
        if value.spec.dtype.category != 2:
            raise call.error(NotImplementedError, f'"{call.op.name}" not implemented for '
                                           f"{value.spec.dtype.name}")


def integral(call: Any) -> None:
    """Only integers and bools have bits; two numbers are no tensor op."""
    if not any(isinstance(value, TensorBase) for value in _operands(call)):
        raise TypeError(f"{call.op.name}(): one of the arguments must be Tensor")
    for value in _operands(call):
        found = value.spec.dtype.category if isinstance(value, TensorBase) else (
            2 if isinstance(value, (float, complex)) else 0)
        if found >= 2:
            raise call.error(NotImplementedError,
                             f'"{call.op.name}" not implemented for floating or complex operands')


def rounding_mode(call: Any) -> None:
    """Rounding modes of division."""
    mode = call["rounding_mode"]
    if mode not in (None, "trunc", "floor"):
        raise call.error(RuntimeError, "div expected rounding_mode to be one of None, 'trunc', or "
                                       f"'floor' but found '{mode}'")
    if mode is not None:
        no_complex(call)


def exponent(call: Any) -> None:
    """Integers to negative powers are refused; two numbers are no tensor op."""
    base, power = call["self"], call["exponent"]
    whole = (isinstance(base, TensorBase) and base.spec.dtype.category < 2) or isinstance(base, int)
    if whole and isinstance(power, (int, np.integer)) and power < 0:
        raise call.error(RuntimeError,
                         "Integers to negative integer powers are not allowed.",
                         "convert the base with .float()")
    if not isinstance(base, TensorBase) and not isinstance(power, TensorBase):
        raise TypeError("pow(): one of the arguments must be Tensor")
    if _is_bool(base) and (_is_bool(power)):
        raise call.error(NotImplementedError, '"pow" not implemented for \'Bool\'')


def condition(call: Any) -> None:
    """The condition is a bool mask."""
    dtype = call.spec("condition").dtype
    if dtype not in (dtypes.bool_, dtypes.uint8):
        raise call.error(RuntimeError,
                         "where expected condition to be a boolean tensor, but got a tensor with "
                         f"dtype {dtype.name}", "compare it with a number, for example x != 0")


def mask(call: Any) -> None:
    """The mask is bool; the value one element."""
    dtype = call.spec("mask").dtype
    if dtype is not dtypes.bool_:
        raise call.error(RuntimeError, "masked_fill_ only supports boolean masks, but got mask "
                                       f"with dtype {dtype.name}")
    value = call["value"]
    if isinstance(value, TensorBase) and value.spec.ndim:
        raise call.error(RuntimeError, "masked_fill only supports a 0-dimensional value tensor, "
                                       f"but got tensor with {value.spec.ndim} dimension(s).")
    own = call.spec("self").dtype
    found = value.spec.dtype.category if isinstance(value, TensorBase) else (
        3 if isinstance(value, complex) else 2 if isinstance(value, float) else 0)
    if found > own.category and found >= 2:
        raise call.error(RuntimeError, "value cannot be converted to type "
                                       f"{own.name} without loss")


def bounds(call: Any) -> None:
    """At least one bound."""
    if call["min"] is None and call["max"] is None:
        raise call.error(RuntimeError, "clamp: At least one of 'min' or 'max' must not be None")
    if isinstance(call["min"], complex) or isinstance(call["max"], complex):
        raise call.error(NotImplementedError, "clamp is not supported for complex bounds")
    no_complex(call)


def gelu_form(call: Any) -> None:
    """The forms of gelu."""
    if call["approximate"] not in ("none", "tanh"):
        raise call.error(RuntimeError, "approximate argument must be either none or tanh.")
    if call.spec("self").dtype.category != 2:
        raise call.error(NotImplementedError,
                         f'"GeluKernelImpl" not implemented for {call.spec("self").dtype.name}')


# -- pieces of formulas --------------------------------------------------------------------------
def conj(x: Any) -> Any:
    """The complex conjugate; a real operand is itself."""
    if isinstance(x, (int, float)):
        return x
    if isinstance(x, complex):
        return x.conjugate()
    if isinstance(x, TensorBase):
        tensor: Any = x
        return tensor.conj_physical() if x.spec.dtype.is_complex else x
    return x.conj()


def divided(self: Any, other: Any, mode: str | None) -> Any:
    """Division of symbols, also where the dividend is a number."""
    if isinstance(self, (int, float, complex)):
        self = other * 0 + self
    return self.div(other, rounding_mode=mode)


def lost(g: Any) -> Any:
    """The gradient of what a result does not depend on: zero, also where g is infinite or NaN."""
    if isinstance(g, TensorBase):
        like = cython.declare(OpBase, table["zeros_like"])
        return like.call((g,), None)
    return g.where((g == g) & (g != g), 0)


def quotient_self(g: Any, other: Any, mode: str | None) -> Any:
    """d(a/b)/da = 1/b; a rounded quotient is flat."""
    return g / conj(other) if mode is None else lost(g)


def quotient_other(g: Any, self: Any, other: Any, mode: str | None) -> Any:
    """d(a/b)/db = -a/b^2."""
    return -g * conj((self / other) / other) if mode is None else lost(g)


def power_base(g: Any, self: Any, exponent: Any) -> Any:
    """d(x^n)/dx = n x^(n-1), 0 where n is 0."""
    if isinstance(exponent, (int, float, complex)):
        if exponent == 0:
            return lost(g)
        return g * conj(exponent * self ** (exponent - 1))
    return where(exponent == 0, 0, g * conj(exponent * self ** (exponent - 1)))


def power_exponent(g: Any, self: Any, exponent: Any, out: Any) -> Any:
    """d(x^n)/dn = x^n log x, 0 where x is 0 and n >= 0."""
    if isinstance(self, (int, float, complex)):
        if self == 0:
            return where(exponent >= 0, 0, g * out * -math.inf)
        return g * conj(out * np.log(self + 0j if isinstance(self, complex) else self).item())
    flat = (self == 0) if exponent.is_complex() else (self == 0).logical_and(exponent >= 0)
    return where(flat, 0, g * conj(out * self.log()))


def share(g: Any, self: Any, other: Any, loses: Any) -> Any:
    """The gradient of a maximum: not to the loser, half each where both are equal.

    Beside a nan nobody loses: the gradient reaches both.
    """
    return where(self == other, g * 0.5, where(loses, 0, g))


def absolute(g: Any, self: Any) -> Any:
    """sign(x); for complex x the direction x/|x|."""
    if self.is_complex():
        size = self.abs()
        return g * where(size == 0, 0, self / where(size == 0, 1, size))
    return g * self.sign()


def inside(g: Any, self: Any, min: Any, max: Any) -> Any:
    """The gradient of clamp: passes between the bounds, ends included."""
    if min is None:
        return where(self <= max, g, 0)
    if max is None:
        return where(self >= min, g, 0)
    return where((self >= min).logical_and(self <= max), g, 0)


def below(g: Any, self: Any, min: Any, max: Any) -> Any:
    """The gradient of clamp's lower bound: where self lies below it and it is the one in force."""
    taken = self < min
    return where(taken if max is None else taken.logical_and(min < max), g, 0)


def above(g: Any, self: Any, min: Any, max: Any) -> Any:
    """The gradient of clamp's upper bound, which also wins over a lower bound above it."""
    taken = self > max
    return where(taken if min is None else taken.logical_or(max < min), g, 0)


def gelu(x: Any, approximate: str) -> Any:
    """x Phi(x), or with Phi approximated by a tanh."""
    if approximate == "tanh":
        inner = ROOT_TWO_OVER_PI * (x + 0.044715 * x * x * x)
        return 0.5 * x * (1 + inner.tanh())
    return x * normal_below(x)


def gelu_slope(g: Any, x: Any, approximate: str) -> Any:
    """Phi(x) + x phi(x)."""
    if approximate == "tanh":
        inner = (ROOT_TWO_OVER_PI * (x + 0.044715 * x * x * x)).tanh()
        slope = ROOT_TWO_OVER_PI * (1 + 3 * 0.044715 * x * x)
        return g * (0.5 * (1 + inner) + 0.5 * x * (1 - inner * inner) * slope)
    phi = exp(x * x * -0.5) * ROOT_ONE_OVER_TWO_PI
    return g * (normal_below(x) + x * phi)


# -- references ----------------------------------------------------------------------------------
def erf_reference(x: Any) -> Any:
    """erf by the standard library, elementwise."""
    return np.vectorize(math.erf, otypes=[np.float64])(x)


def gelu_reference(x: Any, approximate: str = "none") -> Any:
    """gelu in NumPy."""
    if approximate == "tanh":
        return 0.5 * x * (1 + np.tanh(ROOT_TWO_OVER_PI * (x + 0.044715 * x ** 3)))
    return x * 0.5 * (1 + erf_reference(x * ROOT_HALF))


def divide_reference(a: Any, b: Any, rounding_mode: str | None = None) -> Any:
    """Division in NumPy."""
    if rounding_mode == "floor":
        return np.floor_divide(a, b)
    return np.true_divide(a, b) if rounding_mode is None else np.trunc(np.true_divide(a, b))

"""Whether tensors are equal, or near enough."""

from __future__ import annotations

from typing import Any

import numpy as np

from slipstream.core.catalog import reasons, samples
from slipstream.core.catalog.masks import readable
from slipstream.core.catalog.table import define, ops
from slipstream.core.dispatch import promotion
from slipstream.core.dispatch.entry import COMPOUND, POINTWISE, Entry

TERMS = "float rtol=1e-05, float atol=1e-08, bool equal_nan=False"


def _close(self: Any, other: Any, rtol: float, atol: float, equal_nan: bool) -> Any:
    """Equal, or a finite distance of at most atol + rtol |other|."""
    close = self == other
    if equal_nan:
        close = close.logical_or((self != self).logical_and(other != other))
    if rtol == 0 and atol == 0:
        return close
    far = (self - other * 1.0).abs()
    near = (far <= (other * rtol).abs() + atol).logical_and(far.isfinite())
    return close.logical_or(near)


def _check_close(call: Any) -> None:
    own, other = call.spec("self").dtype, call.spec("other").dtype
    if own is not other:
        raise call.error(RuntimeError, f"{own.name} did not match {other.name}",
                         "convert one of them")
    for name in ("rtol", "atol"):
        if not call[name] >= 0:
            raise call.error(RuntimeError, f"{name} must be greater than or equal to zero, but got "
                                           f"{call[name]}")
    if call["equal_nan"] and own.is_complex:
        raise call.error(RuntimeError, "isclose with equal_nan=True is not supported for complex "
                                       "inputs")


define(Entry(
    f"isclose(Tensor self, Tensor other, {TERMS})", POINTWISE, formula=_close,
    promotion=lambda call: promotion.comparison(call), check=_check_close, path="isclose",
    samples=samples.tensor_pairs, reference=np.isclose, dtypes=("bool", "int", "float", "complex"),
    exceptions=reasons.NAN_EQUAL,
    doc="Whether |self - other| <= atol + rtol * |other|, elementwise; equal infinities are close.",
))
define(Entry(
    f"allclose(Tensor self, Tensor other, {TERMS})", COMPOUND, path="allclose", waits="always",
    function=lambda self, other, rtol, atol, equal_nan: truth(
        ops.all.call((ops.isclose.call((self, other, rtol, atol, equal_nan), None),), None),
        "allclose"),
    exceptions={"samples": "it returns a bool, no tensor"},
    doc="Whether all elements are close, see isclose; waits.",
))


def truth(flag: Any, name: str) -> bool:
    """A tensor of one bool as Python's; waits for the device."""
    return bool(readable(flag, name))


def _equal(self: Any, other: Any) -> bool:
    if self.spec.device is not other.spec.device:
        raise RuntimeError("Expected all tensors to be on the same device, but found at least two "
                           f"devices, {self.spec.device} and {other.spec.device}!")
    if self.spec.shape != other.spec.shape:
        return False
    return truth(ops.all.call((ops.eq.call((self, other), None),), None), "equal")


define(Entry("equal(Tensor self, Tensor other)", COMPOUND, function=_equal, path="equal",
             waits="always", exceptions={"samples": "it returns a bool, no tensor"},
             doc="Whether shapes and all elements are equal; waits."))

# cython: annotation_typing=False
"""Further activations: each one formula."""

from __future__ import annotations

from typing import Any

import numpy as np

from slipstream.core.catalog.activations import activation, floats_only
from slipstream.core.catalog.samples import random_array
from slipstream.core.catalog.table import define, ops
from slipstream.core.dispatch import promotion
from slipstream.core.dispatch.entry import COMPOUND, POINTWISE, Entry
from slipstream.core.fuse.formula import where
from slipstream.core.shapes.views import normalize_dim

# selu's fixed point: mean 0 and variance 1 go through layers unchanged.
SELU_ALPHA = 1.6732632423543772
SELU_SCALE = 1.0507009873554805
# As PyTorch has it for every dtype: a sixth in float32.
ONE_SIXTH = float(np.float32(1.0 / 6.0))


def real_numbers(call: Any) -> None:
    """Refuse bools and complex numbers."""
    dtype = call.spec("self").dtype
    if dtype.category not in (1, 2):
        raise call.error(NotImplementedError,
                         f"\"{call.op.name}\" not implemented for '{dtype.name}'")


def _check_range(call: Any) -> None:
    real_numbers(call)
    if call["min_val"] > call["max_val"]:
        raise call.error(ValueError, "min_val cannot be greater than max_val")
    if call.spec("self").dtype.name == "uint8" and call["min_val"] < 0:
        raise call.error(RuntimeError, "cannot do hardtanh on an unsigned type with negative "
                                       "limits")


def _check_shrinkage(call: Any) -> None:
    floats_only(call)
    if call["lambd"] < 0:
        raise call.error(RuntimeError, "lambda must be in range [0, 3.40282e+38] for input dtype "
                                       f"{call.spec('self').dtype.name}, but found "
                                       f"{call['lambd']:g}")


def _elu(self: Any, alpha: float, scale: float = 1.0) -> Any:
    small = where(self > 0, 0, self).expm1() * (alpha * scale)
    return where(self > 0, self * scale, small)


def _elu_slope(g: Any, self: Any, alpha: float, scale: float = 1.0) -> Any:
    return where(self > 0, g * scale, g * where(self > 0, 0, self).exp() * (alpha * scale))


def _elu_reference(x: Any, alpha: float = 1.0) -> Any:
    return np.where(x > 0, x, alpha * np.expm1(x))


activation("elu", ", float alpha=1.0", lambda self, alpha: _elu(self, alpha),
           lambda g, self, alpha: _elu_slope(g, self, alpha), _elu_reference,
           doc="self where positive, else alpha * (exp(self) - 1).")
activation("selu", "", lambda self: _elu(self, SELU_ALPHA, SELU_SCALE),
           lambda g, self: _elu_slope(g, self, SELU_ALPHA, SELU_SCALE),
           lambda x: SELU_SCALE * _elu_reference(x, SELU_ALPHA),
           doc="elu with the alpha and scale that keep mean 0 and variance 1.")


def _celu(self: Any, alpha: float) -> Any:
    return where(self > 0, self, (where(self > 0, 0, self) / alpha).expm1() * alpha)


activation("celu", ", float alpha=1.0", _celu,
           lambda g, self, alpha: where(self > 0, g, g * (where(self > 0, 0, self) / alpha).exp()),
           lambda x, alpha=1.0: np.where(x > 0, x, alpha * np.expm1(x / alpha)),
           doc="self where positive, else alpha * (exp(self / alpha) - 1).")
activation("relu6", "", lambda self: self.clamp(0, 6),
           lambda g, self: where((self > 0).logical_and(self < 6), g, 0),
           lambda x: np.clip(x, 0, 6), check=real_numbers, doc="self limited to [0, 6].")
activation("hardtanh", ", float min_val=-1.0, float max_val=1.0",
           lambda self, min_val, max_val: self.clamp(min_val, max_val),
           lambda g, self, min_val, max_val: where(
               (self > min_val).logical_and(self < max_val), g, 0),
           lambda x, low=-1.0, high=1.0: np.clip(x, low, high), check=_check_range,
           doc="self limited to [min_val, max_val]; the slope at the bounds is 0.")
activation("hardsigmoid", "", lambda self: (self + 3).clamp(0, 6) / 6,
           lambda g, self: where((self > -3).logical_and(self < 3), g * ONE_SIXTH, 0),
           lambda x: np.clip(x + 3, 0, 6) / 6, doc="(self + 3) / 6 limited to [0, 1].")
activation("hardswish", "", lambda self: self * ((self + 3).clamp(0, 6) / 6),
           lambda g, self: where(self <= -3, 0, where(self < 3, g * (self / 3 + 0.5), g)),
           lambda x: x * np.clip(x + 3, 0, 6) / 6, doc="self * hardsigmoid(self).")


def _mish(self: Any) -> Any:
    return self * softplus(self).tanh()


def softplus(x: Any) -> Any:
    """log(1 + e^x) without overflow."""
    # At 0, where the slope of |x| counts as 0, the other part has that of the sum, a half.
    return (-x.abs()).exp().log1p() + where(x == 0, x * 0.5, x.clamp(min=0))


def _mish_slope(g: Any, self: Any) -> Any:
    """t + x s (1 - t^2), t = tanh(softplus), s = sigmoid."""
    t = softplus(self).tanh()
    return g * (t + self * self.sigmoid() * (1 - t * t))


activation("mish", "", _mish, _mish_slope, lambda x: x * np.tanh(np.log1p(np.exp(x))),
           doc="self * tanh(softplus(self)).")
activation("logsigmoid", "", lambda self: -softplus(-self),
           lambda g, self: g * (-self).sigmoid(), lambda x: -np.log1p(np.exp(-x)), inplace=False,
           doc="log(sigmoid(self)), finite for finite numbers.")
activation("softsign", "", lambda self: self / (self.abs() + 1),
           lambda g, self: g / ((self.abs() + 1) * (self.abs() + 1)),
           lambda x: x / (1 + np.abs(x)), inplace=False, check=real_numbers,
           promotion=promotion.floating, doc="self / (1 + |self|).")
activation("tanhshrink", "", lambda self: self - self.tanh(),
           lambda g, self: g * self.tanh() * self.tanh(), lambda x: x - np.tanh(x), inplace=False,
           check=real_numbers, promotion=promotion.floating, doc="self - tanh(self).")
activation("hardshrink", ", float lambd=0.5",
           lambda self, lambd: where((self >= -lambd).logical_and(self <= lambd), 0, self),
           lambda g, self, lambd: where((self >= -lambd).logical_and(self <= lambd), 0, g),
           lambda x, lambd=0.5: np.where(np.abs(x) <= lambd, 0, x), inplace=False,
           doc="self, and 0 in [-lambd, lambd].")
activation("softshrink", ", float lambd=0.5",
           lambda self, lambd: where(self > lambd, self - lambd,
                                     where(self < -lambd, self + lambd, self * 0)),
           lambda g, self, lambd: where((self >= -lambd).logical_and(self <= lambd), 0, g),
           lambda x, lambd=0.5: np.sign(x) * np.maximum(np.abs(x) - lambd, 0), inplace=False,
           check=_check_shrinkage,
           doc="self moved towards 0 by lambd, and 0 in [-lambd, lambd].")
activation("threshold", ", float threshold=0.0, float value=0.0",
           lambda self, threshold, value: where(self <= threshold, value, self),
           lambda g, self, threshold: where(self <= threshold, 0, g),
           lambda x, threshold=0.0, value=0.0: np.where(x <= threshold, value, x),
           check=real_numbers, aliases=("_threshold",),
           doc="self where it exceeds the threshold, else the value.")

define(Entry(
    "prelu_of(Tensor self, Tensor weight)", POINTWISE,
    formula=lambda self, weight: where(self > 0, self, self * weight),
    gradient={"self": lambda g, self, weight: where(self > 0, g, g * weight),
              "weight": lambda g, self: where(self > 0, 0, g * self)},
    promotion=promotion.arithmetic, path="", method=False, dtypes=("float",),
    doc="self where positive, else self * weight.",
))


def _prelu(self: Any, weight: Any) -> Any:
    rank, count = self.spec.ndim, weight.spec.numel
    if weight.spec.ndim > 1:
        raise RuntimeError("prelu: Expected `weight` to be a scalar or 1D tensor, but got: ndim = "
                           f"{weight.spec.ndim}")
    if self.spec.dtype is not weight.spec.dtype:
        raise RuntimeError("prelu: Type promoting not supported. Got "
                           f"{self.spec.dtype.name} and {weight.spec.dtype.name}")
    if count != 1:
        channels = self.spec.shape[1] if rank > 1 else 1
        if not rank or channels != count:
            raise RuntimeError("Mismatch of parameter numbers and input channel size. Found "
                               f"parameter numbers = {count} and channel size = {channels}.")
    shape = (1,) * min(rank, 1) + (count,) * (rank > 1) + (1,) * max(rank - 2, 0)
    return ops.prelu_of.call((self, ops.reshape.call((weight, shape), None)), None)


define(Entry("prelu(Tensor self, Tensor weight)", COMPOUND, function=_prelu, path="prelu",
             dtypes=("float",), samples=lambda: [
                 ((random_array(170, 2, 3, 4), random_array(171, 3)), {}),
                 ((random_array(172, 4), random_array(173, 1)), {})],
             reference=lambda x, weight: np.where(
                 x > 0, x, x * weight.reshape((1, -1, 1) if x.ndim == 3 else -1)),
             aliases=("nn.functional.prelu",),
             doc="self where positive, else self times its channel's weight, or the only weight.",
             autocast="lower"))


def _glu(self: Any, dim: int) -> Any:
    if not self.spec.ndim:
        raise RuntimeError("glu does not support 0-dimensional tensors")
    dim = normalize_dim(dim, self.spec.ndim)
    size = self.spec.shape[dim]
    if size % 2:
        raise RuntimeError(f"Halving dimension must be even, but dimension {dim} is size {size}")
    first = ops.narrow.call((self, dim, 0, size // 2), None)
    gate = ops.narrow.call((self, dim, size // 2, size // 2), None)
    return first * ops.sigmoid.call((gate,), None)


define(Entry("glu(Tensor self, int dim=-1)", COMPOUND, function=_glu, path="nn.functional.glu",
             method=False, dtypes=("float",),
             samples=lambda: [((random_array(174, 3, 4),), {}), ((random_array(175, 2, 3), 0), {})],
             reference=lambda x, dim=-1: np.split(x, 2, dim)[0] / (
                 1 + np.exp(-np.split(x, 2, dim)[1])),
             doc="The first half of a dim times the sigmoid of the second."))

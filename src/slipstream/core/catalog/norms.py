# cython: annotation_typing=False
"""Normalisation over the last dims: one formula each, weight and bias optional."""

from __future__ import annotations

from typing import Any

import cython
import numpy as np

from slipstream.core.catalog.checks import conj
from slipstream.core.catalog.table import define, ops, table
from slipstream.core.dispatch.arguments import ints
from slipstream.core.dispatch.entry import COMPOSITE, Entry, contiguous_layout, passed_on
from slipstream.core.vocab import dtypes
from slipstream.core.vocab.records import OpBase, Spec, TensorBase

# The eps of rms_norm where none is given: that of the type it is computed in.
EPSILON = {name: float(np.finfo(part).eps) for part, names in
           ((np.float32, ("f32", "c64")), (np.float64, ("f64", "c128"))) for name in names}


def check_rms_norm(call: Any) -> None:
    """The input ends in normalized_shape, which the weight has; floats and complex numbers."""
    check_shapes(call, ("float", "complex"))


def check_shapes(call: Any, kinds: tuple[str, ...] = ("float",)) -> None:
    """The input ends in normalized_shape; weight and bias have that shape."""
    spec = call.spec("self")
    shape = ints(call["normalized_shape"])
    if not shape:
        raise call.error(RuntimeError, "Expected normalized_shape to be at least 1-dimensional, "
                                       "i.e., containing at least one element, but got "
                                       "normalized_shape = []")
    if spec.shape[-len(shape):] != shape:
        listed = ", ".join(str(n) for n in ("*", *shape))
        raise call.error(RuntimeError, f"Given normalized_shape={list(shape)}, expected input with "
                                       f"shape [{listed}], but got input of size{list(spec.shape)}")
    for name in ("weight", "bias"):
        value = call.arguments.get(name)
        if value is None:
            continue
        if value.spec.shape != shape:
            raise call.error(RuntimeError, f"Expected {name} to be of same shape as "
                                           f"normalized_shape, but got {name} of shape "
                                           f"{list(value.spec.shape)} and normalized_shape = "
                                           f"{list(shape)}")
    if spec.dtype.kind not in kinds:
        raise call.error(NotImplementedError,
                         f"\"{call.op.name}\" not implemented for '{spec.dtype.name}'")


def has_shape(values: Any) -> bool:
    """Whether the shapes pass `check_shapes`: values are input, shape, parameters, eps."""
    shape = ints(values[1])
    return values[0].spec.shape[-len(shape):] == shape and all([
        value.spec.shape == shape for value in values[2:-1] if value is not None])


def _check_layer_norm(call: Any) -> None:
    check_shapes(call)
    own = call.spec("self").dtype
    for name in ("weight", "bias"):
        value = call[name]
        # A narrow input may have parameters in float32; every other mixture is refused.
        if value is not None and value.spec.dtype is not own and not (
                own.itemsize == 2 and value.spec.dtype.name == "float32"):
            raise call.error(RuntimeError, "mixed dtype (CPU): expect parameter to have scalar "
                                           f"type of {own.name}, but {name} is "
                                           f"{value.spec.dtype.name}")


def own_dtype(call: Any) -> Any:
    """Computed and returned in the input's dtype, whatever the weight's."""
    own = call.spec("self").dtype
    return own, own


def dims_of(normalized_shape: Any) -> tuple[int, ...]:
    """The dims that are normalised, counted from the right."""
    return tuple(range(-len(ints(normalized_shape)), 0))


def normalized(x: Any, shape: Any, eps: float) -> tuple[Any, Any]:
    """(x - mean) / sqrt(variance + eps), and the factor 1 / sqrt(variance + eps)."""
    dims = dims_of(shape)
    centred = x - x.mean(dims, keepdim=True)
    factor = ((centred * centred).mean(dims, keepdim=True) + eps).rsqrt()
    return centred * factor, factor


def layer_norm(self: Any, normalized_shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    """The normalised input, times weight, plus bias."""
    out = normalized(self, normalized_shape, eps)[0]
    if weight is not None:
        out = out * weight
    return out if bias is None else out + bias


def layer_norm_slope(g: Any, self: Any, normalized_shape: Any, weight: Any, eps: float) -> Any:
    """factor (h - mean h - y mean(h y)), where h = g weight and y is the normalised input."""
    dims = dims_of(normalized_shape)
    y, factor = normalized(self, normalized_shape, eps)
    h = g if weight is None else g * weight
    return factor * (h - h.mean(dims, keepdim=True) - y * (h * y).mean(dims, keepdim=True))


def scale(x: Any, shape: Any, eps: float) -> Any:
    """1 / sqrt(mean of squares + eps)."""
    return ((x * x).mean(dims_of(shape), keepdim=True) + eps).rsqrt()


def epsilon_of(x: Any, eps: float | None) -> float:
    """The given eps, or that of the compute class of a symbol or tensor."""
    if eps is not None:
        return eps
    return EPSILON[x.spec.dtype.compute if hasattr(x, "spec") else x.cls]


def rms_norm(self: Any, normalized_shape: Any, weight: Any, eps: float | None) -> Any:
    """x / sqrt(mean of squares + eps), times weight."""
    out = self * scale(self, normalized_shape, epsilon_of(self, eps))
    return out if weight is None else out * weight


def rms_norm_slope(g: Any, self: Any, normalized_shape: Any, weight: Any, eps: float | None) -> Any:
    """factor (h - y mean(h y)), where h = g weight and y is the normalised input.

    For complex numbers factor, y and weight are the conjugates.
    """
    factor = conj(scale(self, normalized_shape, epsilon_of(self, eps)))
    y = conj(self) * factor
    h = g if weight is None else g * conj(weight)
    return factor * (h - y * (h * y).mean(dims_of(normalized_shape), keepdim=True))


def _slopes(g: Any, self: Any, weight: Any, normalized_shape: Any, eps: Any) -> Any:
    """The gradient by the input; mean and factor, which the weight's gradient needs again."""
    mean = self.mean(dims_of(normalized_shape), keepdim=True)
    factor = normalized(self, normalized_shape, eps)[1]
    return layer_norm_slope(g, self, normalized_shape, weight, eps), mean, factor


def _rms_slopes(g: Any, self: Any, weight: Any, normalized_shape: Any, eps: Any) -> Any:
    factor = scale(self, normalized_shape, epsilon_of(self, eps))
    return rms_norm_slope(g, self, normalized_shape, weight, eps), factor


def _sums(g: Any, self: Any, mean: Any, factor: Any, dims: Any) -> Any:
    """The gradients by weight and bias: sums of g y and of g, y being the normalised input."""
    return (g * ((self - mean) * factor)).sum(dims), g.sum(dims)


def _splits(wanted: Any, self: Any, sizes: Any) -> Any:
    """The leading dims, where rows and weights both want their gradients on a device."""
    if "self" not in wanted or "weight" not in wanted:
        return None
    source = cython.declare(TensorBase, self)
    spec = cython.declare(Spec, source.spec)
    leading = spec.ndim - (len(sizes) if type(sizes) is tuple else len(ints(sizes)))
    if (spec.device.type != "cuda" or not leading or not spec.numel
            or spec.dtype.is_complex):
        return None
    return LEADING[leading] if leading < len(LEADING) else tuple(range(leading))


# The first so many dims.
LEADING = tuple([tuple(range(count)) for count in range(6)])


def layer_norm_gradients(wanted: Any, g: Any, self: Any, weight: Any, normalized_shape: Any,
                         eps: Any) -> Any:
    """All gradients: one pass along the rows and one down the columns."""
    names, result_dtypes = wanted
    dims = _splits(names, self, normalized_shape) if len(names) == 3 else None
    if dims is None:
        return None
    along = cython.declare(OpBase, table["layer_norm_slopes"])
    down = cython.declare(OpBase, table["layer_norm_sums"])
    slope, mean, factor = along.call((g, self, weight, normalized_shape, eps), None)
    sums = down.call((g, self, mean, factor, dims, _rest_of(result_dtypes)), None)
    return [slope, sums[0], sums[1]]


# Dtypes without the first, the same object for the same ones: calls are known again by it.
RESTS: dict[tuple[Any, ...], tuple[Any, ...]] = {}


def _rest_of(result_dtypes: Any) -> Any:
    rest = RESTS.get(result_dtypes)
    if rest is None:
        rest = RESTS[result_dtypes] = result_dtypes[1:]
    return rest


def rms_norm_gradients(wanted: Any, g: Any, self: Any, weight: Any, normalized_shape: Any,
                       eps: Any) -> Any:
    """All gradients: one pass along the rows and one down the columns."""
    names, result_dtypes = wanted
    dims = _splits(names, self, normalized_shape)
    if dims is None:
        return None
    slope, factor = ops.rms_norm_slopes.call((g, self, weight, normalized_shape, eps), None)
    return [slope, ops.rms_norm_sums.call((g, self, factor, dims, result_dtypes[1]), None)]


def _slope_dtypes(call: Any) -> Any:
    own = call.spec("self").dtype
    row = dtypes.float64 if own.itemsize == 8 else dtypes.float32
    return own, (own, *[row] * (2 if call.op.name == "layer_norm_slopes" else 1))


def _sum_dtypes(call: Any) -> Any:
    return call.spec("factor").dtype, call["result_dtypes"]


def _reference(x: Any, shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    dims = dims_of(shape)
    out = (x - x.mean(dims, keepdims=True)) / np.sqrt(x.var(dims, keepdims=True) + eps)
    out = out if weight is None else out * weight
    return out if bias is None else out + bias


def _rms_reference(x: Any, shape: Any, weight: Any = None, eps: float | None = None) -> Any:
    least = EPSILON["f64"] if eps is None else eps
    out = x / np.sqrt((x * x).mean(dims_of(shape), keepdims=True) + least)
    return out if weight is None else out * weight


def _samples() -> Any:
    random = np.random.RandomState(8)
    x = random.randn(2, 3, 4)
    return [((x, (4,)), {}), ((x, (4,), random.randn(4), random.randn(4)), {}),
            ((x, (3, 4), random.randn(3, 4)), {}), ((x, (2, 3, 4)), {"eps": 0.1})]


def _rms_samples() -> Any:
    return [(args[:3], facts) for args, facts in _samples()]


define(Entry(
    "layer_norm(Tensor self, int[] normalized_shape, Tensor? weight=None, Tensor? bias=None, "
    "float eps=1e-05)", COMPOSITE, formula=layer_norm,
    gradient={
        "self": layer_norm_slope,
        # What the leading dims repeat is summed by the engine.
        "weight": lambda g, self, normalized_shape, eps: g * normalized(
            self, normalized_shape, eps)[0],
        "bias": passed_on,
    },
    joint=layer_norm_gradients, widens=True,
    promotion=own_dtype, check_sizes=_check_layer_norm, fits=has_shape, layout=contiguous_layout,
    path="nn.functional.layer_norm", method=False, dtypes=("float",), samples=_samples,
    reference=_reference,
    doc="(self - mean) / sqrt(variance + eps) * weight + bias over the last dims, which have "
        "normalized_shape, as have weight and bias. RuntimeError where shapes or dtypes differ.",
    autocast={"cuda": "float32"},
))
define(Entry(
    "rms_norm(Tensor self, int[] normalized_shape, Tensor? weight=None, float eps=None)", COMPOSITE,
    formula=rms_norm,
    gradient={
        "self": rms_norm_slope,
        "weight": lambda g, self, normalized_shape, eps: g * conj(self * scale(
            self, normalized_shape, epsilon_of(self, eps))),
    },
    joint=rms_norm_gradients, widens=True,
    promotion=own_dtype, check_sizes=check_rms_norm, fits=has_shape, layout=contiguous_layout,
    path="nn.functional.rms_norm", method=False, dtypes=("float", "complex"), samples=_rms_samples,
    reference=_rms_reference,
    doc="self / sqrt(mean of squares + eps) * weight over the last dims, which have "
        "normalized_shape; eps is by default that of the type it is computed in.",
    autocast={"cuda": "float32"},
))
for _name, _formula, _eps in (("layer_norm", _slopes, "float"), ("rms_norm", _rms_slopes, "any")):
    define(Entry(
        f"{_name}_slopes(Tensor g, Tensor self, Tensor? weight, int[] normalized_shape, "
        f"{_eps} eps)",
        COMPOSITE, formula=_formula, promotion=_slope_dtypes, path="", method=False,
        dtypes=("float",), doc=f"The gradient of {_name} by its input, and values of its rows.",
    ))
define(Entry(
    "layer_norm_sums(Tensor g, Tensor self, Tensor mean, Tensor factor, any dims, "
    "any result_dtypes)", COMPOSITE,
    formula=lambda g, self, mean, factor, dims: _sums(g, self, mean, factor, dims),
    promotion=_sum_dtypes, path="", method=False, dtypes=("float",),
    doc="The gradients of layer_norm by weight and bias.",
))
define(Entry(
    "rms_norm_sums(Tensor g, Tensor self, Tensor factor, any dims, any result_dtypes)", COMPOSITE,
    formula=lambda g, self, factor, dims: (g * (self * factor)).sum(dims),
    promotion=_sum_dtypes, path="", method=False, dtypes=("float",),
    doc="The gradient of rms_norm by its weight.",
))

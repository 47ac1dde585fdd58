# cython: annotation_typing=False
"""Normalisation over batches and groups of channels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from slipstream.core.catalog import reasons
from slipstream.core.catalog.norms import own_dtype
from slipstream.core.catalog.table import define, ops
from slipstream.core.dispatch.entry import COMPOSITE, COMPOUND, POINTWISE, Entry, passed_on
from slipstream.core.shapes.strides import strides_like
from slipstream.core.vocab import dtypes


# -- the formulas --------------------------------------------------------------------------------
def _centred(x: Any, dims: tuple[int, ...], eps: float) -> tuple[Any, Any]:
    """The normalised values and the factor 1 / sqrt(variance + eps)."""
    apart = x - x.mean(dims, keepdim=True)
    factor = ((apart * apart).mean(dims, keepdim=True) + eps).rsqrt()
    return apart * factor, factor


def _normalize(self: Any, weight: Any, bias: Any, dims: Any, eps: float) -> Any:
    out = _centred(self, dims, eps)[0]
    out = out if weight is None else out * weight
    return out if bias is None else out + bias


def _normalize_slope(g: Any, self: Any, weight: Any, dims: Any, eps: float) -> Any:
    """factor (h - mean h - y mean(h y)), where h = g weight."""
    y, factor = _centred(self, dims, eps)
    h = g if weight is None else g * weight
    return factor * (h - h.mean(dims, keepdim=True) - y * (h * y).mean(dims, keepdim=True))


def _layout(call: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    spec = call.spec("self")
    return strides_like(spec.shape, spec.strides)


define(Entry(
    "normalize_dims(Tensor self, Tensor? weight, Tensor? bias, any dims, float eps)", COMPOSITE,
    formula=_normalize,
    gradient={"self": _normalize_slope,
              "weight": lambda g, self, dims, eps: g * _centred(self, dims, eps)[0],
              "bias": passed_on},
    promotion=own_dtype, layout=_layout, path="", method=False, dtypes=("float",),
    doc="(self - mean) / sqrt(variance + eps) * weight + bias over dims; weight and bias have the "
        "rank of self.",
))
define(Entry(
    "scale_and_shift(Tensor self, Tensor mean, Tensor variance, Tensor? weight, Tensor? bias, "
    "float eps)", POINTWISE,
    formula=lambda self, mean, variance, weight, bias, eps: _scaled(
        self, mean, variance, weight, bias, eps),
    gradient={"self": lambda g, variance, weight, eps: _times(
                  g * (variance + eps).rsqrt(), weight),
              "mean": lambda g, variance, weight, eps: -_times(
                  g * (variance + eps).rsqrt(), weight),
              "variance": lambda g, self, mean, variance, weight, eps: _times(
                  g * (self - mean) * (variance + eps).rsqrt() / (variance + eps) * -0.5, weight),
              "weight": lambda g, self, mean, variance, eps: g * (self - mean) * (
                  variance + eps).rsqrt(),
              "bias": passed_on},
    promotion=own_dtype, path="", method=False, dtypes=("float",),
    doc="(self - mean) / sqrt(variance + eps) * weight + bias.",
))


# The factor of a channel is found once, not for each element.
define(Entry(
    "scale_channels(Tensor self, Tensor mean, Tensor scale, Tensor? bias)", POINTWISE,
    formula=lambda self, mean, scale, bias: _plus((self - mean) * scale, bias),
    gradient={"self": lambda g, scale: g * scale, "mean": lambda g, scale: -(g * scale),
              "scale": lambda g, self, mean: g * (self - mean), "bias": passed_on},
    promotion=own_dtype, path="", method=False, dtypes=("float",),
    doc="(self - mean) * scale + bias.",
))


def _plus(value: Any, bias: Any) -> Any:
    return value if bias is None else value + bias


def _scaled(*operands: Any) -> Any:
    self, mean, variance, weight, bias, eps = operands
    out = _times((self - mean) * (variance + eps).rsqrt(), weight)
    return _plus(out, bias)


def _times(value: Any, weight: Any) -> Any:
    return value if weight is None else value * weight


def _moments_dtypes(call: Any) -> Any:
    """Statistics of 16-bit floats are float32, as the buffers are that they go to."""
    own = call.spec("self").dtype
    return own, (dtypes.float64 if own.itemsize == 8 else dtypes.float32,) * 2


# Both moments in one pass: a batch's statistics beside its normalisation.
define(Entry(
    "moments(Tensor self, any dims)", COMPOSITE,
    formula=lambda self, dims: (self.mean(dims), _spread(self, dims)),
    promotion=_moments_dtypes,
    path="", method=False, dtypes=("float",), doc="Mean, and mean square distance from it.",
))


def _spread(x: Any, dims: Any) -> Any:
    apart = x - x.mean(dims, keepdim=True)
    return (apart * apart).mean(dims)


# -- batch_norm ----------------------------------------------------------------------------------
def along_channels(tensor: Any, rank: int) -> Any:
    """A vector with an element for each channel, as an operand of images (N, C, ...)."""
    if tensor is None:
        return None
    return ops.reshape.call((tensor, (1, -1) + (1,) * (rank - 2)), None)


def _check_batch(self: Any, arguments: dict[str, Any]) -> None:
    spec = self.spec
    if spec.ndim < 2:
        raise RuntimeError(f"batch_norm: expected an input (N, C, ...), got {spec!r}")
    if spec.dtype.kind != "float":
        raise NotImplementedError(f"\"batch_norm\" not implemented for '{spec.dtype.name}'")
    for name, value in arguments.items():
        if value is not None and value.spec.numel != spec.shape[1]:
            raise RuntimeError(f"{name} should contain {spec.shape[1]} elements not "
                               f"{value.spec.numel}")


def _batch_norm(self: Any, running_mean: Any, running_var: Any, weight: Any, bias: Any,
                *facts: Any) -> Any:
    training, momentum, eps = facts
    if not self.spec.numel and self.spec.ndim == 1:
        return ops.clone.call((self,), None)
    _check_batch(self, {"running_mean": running_mean, "running_var": running_var,
                        "weight": weight, "bias": bias})
    rank = self.spec.ndim
    scale, shift = along_channels(weight, rank), along_channels(bias, rank)
    if not training:
        if running_mean is None or running_var is None:
            raise RuntimeError("Expected running_mean and running_var to be defined when "
                               "training=False")
        return _by_statistics(self, (running_mean, running_var), (scale, shift), eps)
    dims = (0, *range(2, rank))
    count = math.prod(self.spec.shape[dim] for dim in dims)
    if count == 1:
        raise ValueError("Expected more than 1 value per channel when training, got input size "
                         f"{list(self.spec.shape)}\n  mend: a larger batch, or eval() where "
                         "nothing is to be learnt")
    if running_mean is not None or running_var is not None:
        _track(self, (running_mean, running_var), dims, (momentum, count))
    return ops.normalize_dims.call((self, scale, shift, dims, eps), None)


def _by_statistics(self: Any, running: tuple[Any, Any], affine: tuple[Any, Any],
                   eps: float) -> Any:
    """(self - mean) / sqrt(variance + eps) * weight + bias."""
    mean, variance = [along_channels(each, self.spec.ndim) for each in running]
    weight, bias = affine
    # On CUDA one launch costs more than a root for each element.
    if self.spec.device.type != "cuda" and variance.spec.dtype.itemsize >= 4:
        factor = ops.rsqrt.call((variance + eps,), None)
        return ops.scale_channels.call((self, mean, _times(factor, weight), bias), None)
    return ops.scale_and_shift.call((self, mean, variance, weight, bias, eps), None)


def _track(self: Any, running: tuple[Any, Any], dims: Any, facts: tuple[float, int]) -> None:
    """Move the running statistics towards this batch's; the variance is the unbiased one."""
    momentum, count = facts
    plain = ops.detach.call((self,), None)
    moments = ops.moments.call((plain, dims), None)
    for kept, new, factor in zip(running, moments, (1.0, count / max(count - 1, 1)), strict=True):
        if kept is None:
            continue
        held = ops.detach.call((kept,), None)
        ops.mul.call_inplace((held, 1.0 - momentum), None)
        ops.add.call_inplace((held, new), {"alpha": momentum * factor})


def _channels(array: Any, rank: int) -> Any:
    return array.reshape((1, -1) + (1,) * (rank - 2))


def batch_reference(x: Any, mean: Any, var: Any, weight: Any = None, bias: Any = None,
                    training: bool = False) -> Any:
    """batch_norm in NumPy."""
    dims = (0, *range(2, x.ndim))
    if training:
        mean, var = x.mean(dims), x.var(dims)
    out = (x - _channels(mean, x.ndim)) / np.sqrt(_channels(var, x.ndim) + 1e-5)
    out = out if weight is None else out * _channels(weight, x.ndim)
    return out if bias is None else out + _channels(bias, x.ndim)


def _batch_samples() -> Any:
    random = np.random.RandomState(21)
    x, vectors = random.randn(3, 4, 2), [random.rand(4) + 0.5 for _ in range(4)]
    return [((x, *vectors), {}), ((x, vectors[0], vectors[1]), {}),
            ((x, None, None, vectors[2], vectors[3]), {"training": True})]


define(Entry(
    "batch_norm(Tensor self, Tensor? running_mean, Tensor? running_var, Tensor? weight=None, "
    "Tensor? bias=None, bool training=False, float momentum=0.1, float eps=1e-05)", COMPOUND,
    function=_batch_norm, path="nn.functional.batch_norm", method=False, dtypes=("float",),
    samples=_batch_samples, reference=batch_reference,
    exceptions=reasons.ROUNDED,
    doc="Each channel of (N, C, ...) normalised by the batch's statistics in training, else by the "
        "running ones; training moves the running ones, in place. ValueError for one value a "
        "channel in training.",
))


# -- groups --------------------------------------------------------------------------------------
def _group_norm(self: Any, num_groups: int, weight: Any, bias: Any, eps: float) -> Any:
    spec = self.spec
    if spec.ndim < 2:
        raise RuntimeError(f"Expected at least 2 dimensions for input tensor but received "
                           f"{spec.ndim}")
    channels = spec.shape[1]
    if num_groups <= 0 or channels % num_groups:
        raise RuntimeError("Expected number of channels in input to be divisible by num_groups, "
                           f"but got input of shape {list(spec.shape)} and num_groups="
                           f"{num_groups}")
    for name, value in (("weight", weight), ("bias", bias)):
        if value is not None and value.spec.shape != (channels,):
            raise RuntimeError(f"Expected {name} to be a vector of size equal to the number of "
                               f"channels in input, but got {name} of shape "
                               f"{list(value.spec.shape)} and input of shape {list(spec.shape)}")
    own = channels // num_groups
    rest = math.prod(spec.shape[2:])
    split = ops.reshape.call((self, (spec.shape[0], num_groups, own, rest)), None)
    scale, shift = [None if each is None else ops.reshape.call((each, (1, num_groups, own, 1)),
                                                               None) for each in (weight, bias)]
    out = ops.normalize_dims.call((split, scale, shift, (2, 3), eps), None)
    return ops.reshape.call((out, spec.shape), None)


def _group_reference(x: Any, groups: int, weight: Any = None, bias: Any = None,
                     eps: float = 1e-5) -> Any:
    split = x.reshape(x.shape[0], groups, -1)
    split = (split - split.mean(-1, keepdims=True)) / np.sqrt(split.var(-1, keepdims=True) + eps)
    out = split.reshape(x.shape)
    out = out if weight is None else out * _channels(weight, x.ndim)
    return out if bias is None else out + _channels(bias, x.ndim)


def _group_samples() -> Any:
    random = np.random.RandomState(22)
    return [((random.randn(2, 4, 3), 2, random.randn(4), random.randn(4)), {}),
            ((random.randn(2, 4), 1), {})]


define(Entry(
    "group_norm(Tensor self, int num_groups, Tensor? weight=None, Tensor? bias=None, "
    "float eps=1e-05)", COMPOUND, function=_group_norm, path="nn.functional.group_norm",
    method=False, dtypes=("float",), samples=_group_samples, reference=_group_reference,
    doc="Groups of channels of (N, C, ...) normalised for each sample, then weight and bias of "
        "each channel.",
    autocast={"cuda": "float32"},
))


def _instance_norm(self: Any, running_mean: Any, running_var: Any, weight: Any, bias: Any,
                   *facts: Any) -> Any:
    use_input_stats, momentum, eps = facts
    spec = self.spec
    if not use_input_stats:
        return _batch_norm(self, running_mean, running_var, weight, bias, False, momentum, eps)
    dims = tuple(range(2, spec.ndim))
    if math.prod(spec.shape[2:]) == 1:
        raise ValueError("Expected more than 1 spatial element when training, got input size "
                         f"{list(spec.shape)}")
    if running_mean is not None or running_var is not None:
        _track_instances(self, (running_mean, running_var), dims, momentum)
    return ops.normalize_dims.call((self, along_channels(weight, spec.ndim),
                                    along_channels(bias, spec.ndim), dims, eps), None)


def _track_instances(self: Any, running: tuple[Any, Any], dims: Any, momentum: float) -> None:
    """The statistics of each sample, averaged over the batch."""
    count = math.prod(self.spec.shape[2:])
    moments = ops.moments.call((ops.detach.call((self,), None), dims), None)
    for kept, new, factor in zip(running, moments, (1.0, count / max(count - 1, 1)), strict=True):
        if kept is not None:
            held = ops.detach.call((kept,), None)
            ops.mul.call_inplace((held, 1.0 - momentum), None)
            ops.add.call_inplace((held, ops.mean.call((new, 0), None)),
                                 {"alpha": momentum * factor})


define(Entry(
    "instance_norm(Tensor self, Tensor? running_mean=None, Tensor? running_var=None, "
    "Tensor? weight=None, Tensor? bias=None, bool use_input_stats=True, float momentum=0.1, "
    "float eps=1e-05)", COMPOUND, function=_instance_norm, path="nn.functional.instance_norm",
    method=False, dtypes=("float",),
    samples=lambda: [((np.random.RandomState(23).randn(2, 3, 4),), {})],
    reference=lambda x: (x - x.mean(-1, keepdims=True)) / np.sqrt(
        x.var(-1, keepdims=True) + 1e-5),
    exceptions=reasons.ROUNDED,
    doc="Each channel of each sample normalised by its own statistics; see batch_norm.",
))

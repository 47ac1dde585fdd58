"""Clipping gradients by their norm or by value."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, TypeAlias

import slipstream as ss
from slipstream.core.api.lists import norm_and_factor

Tensors: TypeAlias = ss.Tensor | Iterable[ss.Tensor]


def gradients(parameters: Tensors) -> list[ss.Tensor]:
    """The gradients of those parameters that have one."""
    every = [parameters] if isinstance(parameters, ss.Tensor) else parameters
    return [parameter.grad for parameter in every if parameter.grad is not None]


class ScaledNorm:
    """A norm as ``scale`` * ``relative``, two float64 tensors of no dims.

    ``scale`` is about the largest magnitude, so that no power of an element overflows or vanishes
    and the two parts are right where their product is beyond every dtype.
    """

    def __init__(self, scale: ss.Tensor, relative: ss.Tensor) -> None:
        self.scale = scale
        self.relative = relative

    @property
    def value(self) -> ss.Tensor:
        """The norm, in float64."""
        return self.scale * self.relative

    def factor(self, max_norm: float) -> ss.Tensor:
        """max_norm / (norm + 1e-6), computed so that no step of it overflows."""
        small = max_norm / (self.value + 1e-6)
        large = max_norm / self.scale / (self.relative + 1e-6 / self.scale)
        return ss.where(self.scale < 1, small, large)


def norm_of(tensor: ss.Tensor, norm_type: float) -> ScaledNorm:
    """m * (sum(abs(tensor / m) ** p)) ** (1 / p), m being the largest magnitude."""
    magnitude = magnitudes(tensor)
    largest = magnitude.amax() if tensor.numel() else magnitude.sum()
    # 0, inf and nan would turn the quotient into nan: these are not scaled.
    usable = (largest > 0) & (largest < math.inf)
    scale = ss.where(usable, largest, ss.ones_like(largest))
    return ScaledNorm(scale.to(ss.float64), power_norm(magnitude / scale, norm_type))


def power_norm(magnitude: ss.Tensor, norm_type: float) -> ss.Tensor:
    """The norm of magnitudes whose powers fit their dtype, in float64."""
    if not magnitude.numel():
        return magnitude.sum().to(ss.float64)
    if norm_type == math.inf:
        return magnitude.amax().to(ss.float64)
    return (magnitude ** norm_type).sum().to(ss.float64) ** (1.0 / norm_type)


def magnitudes(tensor: ss.Tensor) -> ss.Tensor:
    """abs(tensor), real, in at least float32: squares of quotients would be lost in less."""
    if tensor.is_complex():
        return tensor.abs()
    wide = tensor.to(ss.float32) if tensor.dtype.itemsize < 4 else tensor
    return ss.where(wide < 0, -wide, wide)


def total_norm(tensors: list[ss.Tensor], norm_type: float) -> ScaledNorm:
    """The norm of all elements of ``tensors``, on the device of the first; never waits."""
    device = tensors[0].device
    parts = [norm_of(tensor.detach(), norm_type) for tensor in tensors]
    scales = ss.cat([part.scale.reshape(1).to(device) for part in parts])
    relatives = ss.cat([part.relative.reshape(1).to(device) for part in parts])
    largest = scales.amax()
    return ScaledNorm(largest, power_norm(scales / largest * relatives, norm_type))


def checked_norm_type(norm_type: float) -> float:
    """``norm_type`` as a float; raises ValueError unless it is positive."""
    if not float(norm_type) > 0:
        raise ValueError(f"norm_type should be positive (or inf), got {norm_type}")
    return float(norm_type)


def common_dtype(tensors: list[ss.Tensor]) -> ss.dtype:
    """The real dtype that the tensors' norms are given in."""
    dtype = tensors[0].dtype
    for tensor in tensors[1:]:
        dtype = ss.promote_types(dtype, tensor.dtype)
    return dtype.to_real() if dtype.is_complex else dtype


def get_total_norm(tensors: Tensors, norm_type: float = 2.0, error_if_nonfinite: bool = False,
                   foreach: bool | None = None) -> ss.Tensor:
    """The norm of all elements of ``tensors`` together, as a tensor of no dims.

    Huge and tiny elements are right as long as the norm itself fits its dtype.  Raises
    RuntimeError if it is inf or nan and ``error_if_nonfinite``, which waits for the device;
    ValueError unless ``norm_type`` is positive.  ``foreach`` changes nothing.
    """
    every = [tensors] if isinstance(tensors, ss.Tensor) else list(tensors)
    norm_type = checked_norm_type(norm_type)
    if not every:
        return ss.tensor(0.0)
    norm = total_norm(every, norm_type).value.to(common_dtype(every))
    if error_if_nonfinite:
        require_finite(norm, norm_type)
    return norm


def require_finite(norm: ss.Tensor, norm_type: float) -> None:
    """Raise RuntimeError if ``norm`` is inf or nan."""
    value = norm.item()
    if not math.isfinite(value):
        raise RuntimeError(f"the norm of order {norm_type} is {value}: some of the elements are "
                           "not finite; error_if_nonfinite=False goes on all the same")


def clip_grad_norm_(parameters: Tensors, max_norm: float, norm_type: float = 2.0,
                    error_if_nonfinite: bool = False, foreach: bool | None = None) -> ss.Tensor:
    """Scale the gradients in place so that their norm together is at most ``max_norm``.

    Returns the norm before.  The gradients come out right even where their norm is larger than
    their dtype can hold; PyTorch computes inf for it and makes them 0.  Raises RuntimeError, with
    the gradients untouched, if the norm is inf or nan and ``error_if_nonfinite`` (this waits for
    the device); ValueError unless ``norm_type`` is positive.  ``foreach`` changes nothing.
    """
    found = gradients(parameters)
    norm_type = checked_norm_type(norm_type)
    if not found:
        return ss.tensor(0.0)
    with ss.no_grad():
        known = norm_and_factor(found, norm_type, float(max_norm))
        if known is not None:
            if error_if_nonfinite:
                require_finite(known[1][1], norm_type)
            ss._foreach_mul_(found, known[1][0])
            return known[0]
        norm = total_norm(found, norm_type)
        if error_if_nonfinite:
            require_finite(norm.relative, norm_type)
        _scale_down(found, norm.factor(float(max_norm)))
        return norm.value.to(common_dtype(found))


def clip_grads_with_norm_(parameters: Tensors, max_norm: float, total_norm: ss.Tensor,
                          foreach: bool | None = None) -> None:
    """Scale the gradients in place by max_norm / (total_norm + 1e-6), where that is below 1."""
    with ss.no_grad():
        _scale_down(gradients(parameters), float(max_norm) / (total_norm + 1e-6))


def _scale_down(tensors: list[ss.Tensor], factor: ss.Tensor) -> None:
    factor = ss.where(factor > 1, ss.ones_like(factor), factor)
    if tensors and all(tensor.device == factor.device for tensor in tensors):
        ss._foreach_mul_(tensors, factor)
        return
    for tensor in tensors:
        tensor.mul_(factor.to(tensor.device))


def clip_grad_value_(parameters: Tensors, clip_value: float,
                     foreach: bool | None = None) -> None:
    """Limit every element of the gradients to [-clip_value, clip_value] in place; nan stays."""
    limit = float(clip_value)
    with ss.no_grad():
        for tensor in gradients(parameters):
            tensor.copy_(limited(tensor, limit))


def limited(tensor: ss.Tensor, limit: float) -> ss.Tensor:
    """``tensor`` with its elements limited to [-limit, limit]."""
    bound: Any = ss.full_like(tensor, limit)
    return ss.where(tensor > limit, bound, ss.where(tensor < -limit, -bound, tensor))

"""Filling tensors in place before training, outside of autograd."""

from __future__ import annotations

import math
from typing import Any

import slipstream as ss

_GAINS = {
    "linear": 1.0, "conv1d": 1.0, "conv2d": 1.0, "conv3d": 1.0, "conv_transpose1d": 1.0,
    "conv_transpose2d": 1.0, "conv_transpose3d": 1.0, "sigmoid": 1.0, "tanh": 5.0 / 3,
    "relu": math.sqrt(2.0), "selu": 0.75,
}


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor by which ``nonlinearity`` asks for larger weights.

    ``param`` is leaky_relu's negative slope, 0.01 by default.  Raises ValueError for an unknown
    name or a slope that is no number.
    """
    if nonlinearity in _GAINS:
        return _GAINS[nonlinearity]
    if nonlinearity != "leaky_relu":
        raise ValueError(f"Unsupported nonlinearity {nonlinearity}")
    slope = 0.01 if param is None else param
    if isinstance(slope, bool) or not isinstance(slope, int | float):
        raise ValueError(f"negative_slope {slope} not a valid number")
    return math.sqrt(2.0 / (1 + slope ** 2))


def _calculate_fan_in_and_fan_out(tensor: ss.Tensor) -> tuple[int, int]:
    """How many inputs reach an output of this weight, and how many outputs an input.

    Raises ValueError below 2 dims.
    """
    if tensor.ndim < 2:
        raise ValueError("Fan in and fan out can not be computed for tensor with fewer than 2 "
                         "dimensions")
    field = math.prod(tensor.shape[2:])
    return tensor.shape[1] * field, tensor.shape[0] * field


def _calculate_correct_fan(tensor: ss.Tensor, mode: str) -> int:
    mode = mode.lower()
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"Mode {mode} not supported, please use one of ['fan_in', 'fan_out']")
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    return fan_in if mode == "fan_in" else fan_out


def uniform_(tensor: ss.Tensor, a: float = 0.0, b: float = 1.0,
             generator: Any = None) -> ss.Tensor:
    """Fill with numbers from the uniform distribution over [a, b)."""
    with ss.no_grad():
        return tensor.uniform_(a, b, generator=generator)


def normal_(tensor: ss.Tensor, mean: float = 0.0, std: float = 1.0,
            generator: Any = None) -> ss.Tensor:
    """Fill with numbers from the normal distribution."""
    with ss.no_grad():
        return tensor.normal_(mean, std, generator=generator)


def trunc_normal_(tensor: ss.Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0,
                  b: float = 2.0, generator: Any = None) -> ss.Tensor:
    """Fill with numbers from the normal distribution, of which only those in [a, b] are kept.

    Waits for the device.  Raises ValueError if the interval is empty or ``std`` negative.
    """
    if a > b or std < 0:
        raise ValueError(f"no normal distribution of std {std} is cut to [{a}, {b}]")
    if std == 0 or tensor.is_meta:
        return constant_(tensor, min(max(mean, a), b))
    low, high = (a - mean) / std, (b - mean) / std
    with ss.no_grad():
        return _draw_between(tensor, low, high, generator).mul_(std).add_(mean)


def _draw_between(tensor: ss.Tensor, low: float, high: float, generator: Any) -> ss.Tensor:
    """Fill with standard normal numbers in [low, high], drawing again what is refused."""
    inside = 0.5 * (math.erf(high / math.sqrt(2)) - math.erf(low / math.sqrt(2)))
    # Where the interval is short or far out, most normal numbers miss it: take uniform ones from
    # it, and keep x with probability exp((m**2 - x**2) / 2), m being its most probable number.
    peak = min(max(0.0, low), high)
    reach = math.sqrt(peak * peak + 80.0)
    left, right = max(low, -reach), min(high, reach)
    refused = ss.ones(tensor.shape, dtype=ss.bool, device=tensor.device)
    while bool(refused.sum() > 0):
        drawn = ss.empty_like(tensor)
        if inside > 0.3:
            drawn.normal_(0.0, 1.0, generator=generator)
            missed = (drawn < low) | (drawn > high)
        else:
            drawn.uniform_(left, right, generator=generator)
            chance = ss.empty_like(tensor).uniform_(0.0, 1.0, generator=generator)
            missed = chance > ((peak * peak - drawn * drawn) / 2).exp()
        tensor.copy_(ss.where(refused, drawn, tensor))
        refused = refused & missed
    return tensor


def constant_(tensor: ss.Tensor, val: float) -> ss.Tensor:
    """Fill with ``val``."""
    with ss.no_grad():
        return tensor.fill_(val)


def ones_(tensor: ss.Tensor) -> ss.Tensor:
    """Fill with 1."""
    return constant_(tensor, 1.0)


def zeros_(tensor: ss.Tensor) -> ss.Tensor:
    """Fill with 0."""
    return constant_(tensor, 0.0)


def eye_(tensor: ss.Tensor) -> ss.Tensor:
    """Fill a matrix with the identity; raises ValueError unless it has 2 dims."""
    if tensor.ndim != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    rows = ss.arange(tensor.shape[0], device=tensor.device).reshape(-1, 1)
    columns = ss.arange(tensor.shape[1], device=tensor.device)
    with ss.no_grad():
        return tensor.copy_(rows == columns)


def dirac_(tensor: ss.Tensor, groups: int = 1) -> ss.Tensor:
    """Fill the weight of a convolution so that it passes as many channels as it can unchanged.

    Raises ValueError unless the weight has 3 to 5 dims and ``groups`` divides its first.
    """
    if tensor.ndim not in (3, 4, 5):
        raise ValueError("Only tensors with 3, 4, or 5 dimensions are supported")
    if tensor.shape[0] % groups:
        raise ValueError("dim 0 must be divisible by groups")
    per_group = tensor.shape[0] // groups
    middle = tuple(size // 2 for size in tensor.shape[2:])
    with ss.no_grad():
        tensor.zero_()
        for group in range(groups):
            for channel in range(min(per_group, tensor.shape[1])):
                tensor[(group * per_group + channel, channel, *middle)] = 1
    return tensor


def xavier_uniform_(tensor: ss.Tensor, gain: float = 1.0, generator: Any = None) -> ss.Tensor:
    """Uniform over ±gain * sqrt(6 / (fan_in + fan_out)); raises ValueError below 2 dims."""
    bound = math.sqrt(3.0) * _xavier_std(tensor, gain)
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: ss.Tensor, gain: float = 1.0, generator: Any = None) -> ss.Tensor:
    """Normal of std gain * sqrt(2 / (fan_in + fan_out)); raises ValueError below 2 dims."""
    return normal_(tensor, 0.0, _xavier_std(tensor, gain), generator)


def _xavier_std(tensor: ss.Tensor, gain: float) -> float:
    return gain * math.sqrt(2.0 / sum(_calculate_fan_in_and_fan_out(tensor)))


def kaiming_uniform_(tensor: ss.Tensor, a: float = 0, mode: str = "fan_in",
                     nonlinearity: str = "leaky_relu", generator: Any = None) -> ss.Tensor:
    """Uniform over ±gain * sqrt(3 / fan); ``a`` is the slope of leaky_relu.

    Raises ValueError below 2 dims, for an unknown mode or nonlinearity.
    """
    if 0 in tensor.shape:
        return tensor
    bound = math.sqrt(3.0) * _kaiming_std(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(tensor: ss.Tensor, a: float = 0, mode: str = "fan_in",
                    nonlinearity: str = "leaky_relu", generator: Any = None) -> ss.Tensor:
    """Normal of std gain / sqrt(fan); ``a`` is the slope of leaky_relu.

    Raises ValueError below 2 dims, for an unknown mode or nonlinearity.
    """
    if 0 in tensor.shape:
        return tensor
    return normal_(tensor, 0.0, _kaiming_std(tensor, a, mode, nonlinearity), generator)


def _kaiming_std(tensor: ss.Tensor, a: float, mode: str, nonlinearity: str) -> float:
    fan = _calculate_correct_fan(tensor, mode)
    return calculate_gain(nonlinearity, a) / math.sqrt(fan)


def orthogonal_(tensor: ss.Tensor, gain: float = 1.0, generator: Any = None) -> ss.Tensor:
    """Fill with a (semi-)orthogonal matrix times ``gain``; dims behind the first count as one.

    Q of the QR decomposition of a normal matrix, its columns signed as R's diagonal is: uniform
    among the orthogonal matrices (F. Mezzadri, "How to generate random matrices from the classical
    compact groups", Notices of the AMS 54, 2007).  Raises ValueError below 2 dims.
    """
    if tensor.ndim < 2:
        raise ValueError("Only tensors with 2 or more dimensions are supported")
    if tensor.numel() == 0:
        return tensor
    rows, columns = tensor.shape[0], tensor.numel() // tensor.shape[0]
    with ss.no_grad():
        drawn = ss.empty(max(rows, columns), min(rows, columns), dtype=tensor.dtype,
                         device=tensor.device).normal_(generator=generator)
        q, r = ss.linalg.qr(drawn)  # type: ignore[attr-defined]
        q = q * r.diagonal().sign()
        if rows < columns:
            q = q.t()
        return tensor.copy_((q * gain).reshape(tensor.shape))


def sparse_(tensor: ss.Tensor, sparsity: float, std: float = 0.01,
            generator: Any = None) -> ss.Tensor:
    """Fill a matrix with normal numbers, a share ``sparsity`` of each column with zeros.

    Raises ValueError for other than 2 dims.
    """
    if tensor.ndim != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    rows, columns = tensor.shape
    zeros = math.ceil(sparsity * rows)
    with ss.no_grad():
        normal_(tensor, 0.0, std, generator)
        for column in range(columns):
            order = ss.randperm(rows, generator=generator, device=tensor.device)
            tensor[order[:zeros], column] = 0
    return tensor

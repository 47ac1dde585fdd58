"""Activations."""

from __future__ import annotations

from typing import Any

import slipstream as ss
from slipstream.nn import functional, init
from slipstream.nn.modules.forwards import ReLUForward
from slipstream.nn.modules.module import Module
from slipstream.nn.parameter import Parameter


class _Optional(Module):
    """An activation that may write into its input."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def extra_repr(self) -> str:
        """What the printed module says of its options."""
        return "inplace=True" if self.inplace else ""


class ReLU(ReLUForward, _Optional):
    """max(input, 0), written into the input if ``inplace``."""


class ReLU6(_Optional):
    """The input limited to [0, 6]."""

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the output, of the input's shape."""
        return functional.relu6(input, self.inplace)


class SiLU(_Optional):
    """input * sigmoid(input)."""

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the output, of the input's shape."""
        return functional.silu(input, self.inplace)


class Mish(_Optional):
    """input * tanh(softplus(input))."""

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the output, of the input's shape."""
        return functional.mish(input, self.inplace)


class SELU(_Optional):
    """elu with the constants that keep mean 0 and variance 1."""

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the output, of the input's shape."""
        return functional.selu(input, self.inplace)


class Hardswish(_Optional):
    """input * hardsigmoid(input)."""

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the output, of the input's shape."""
        return functional.hardswish(input, self.inplace)


class Hardsigmoid(_Optional):
    """(input + 3) / 6 limited to [0, 1]."""

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the output, of the input's shape."""
        return functional.hardsigmoid(input, self.inplace)


class GELU(Module):
    """input times the normal distribution's cumulative function of it.

    ``approximate`` is "none" or "tanh".
    """

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the output, of the input's shape."""
        return functional.gelu(input, approximate=self.approximate)

    def extra_repr(self) -> str:
        """What the printed module says of its options."""
        return f"approximate={self.approximate!r}"


class Tanh(Module):
    """The hyperbolic tangent."""

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the output, of the input's shape."""
        return ss.tanh(input)


class Sigmoid(Module):
    """1 / (1 + exp(-input))."""

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the output, of the input's shape."""
        return ss.sigmoid(input)


class LogSigmoid(Module):
    """log(sigmoid(input))."""

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the output, of the input's shape."""
        return functional.logsigmoid(input)


class Softsign(Module):
    """input / (1 + |input|)."""

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the output, of the input's shape."""
        return functional.softsign(input)


class Tanhshrink(Module):
    """input - tanh(input)."""

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the output, of the input's shape."""
        return functional.tanhshrink(input)


class Softplus(Module):
    """log(1 + exp(beta * input)) / beta, the input itself beyond the threshold."""

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta = beta
        self.threshold = threshold

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the output, of the input's shape."""
        return functional.softplus(input, self.beta, self.threshold)

    def extra_repr(self) -> str:
        """What the printed module says of its options."""
        return f"beta={self.beta}, threshold={self.threshold}"


class _Shrinking(Module):
    """An activation that is 0 between -lambd and lambd."""

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def extra_repr(self) -> str:
        """What the printed module says of its options."""
        return str(self.lambd)


class Hardshrink(_Shrinking):
    """The input, and 0 between -lambd and lambd."""

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the output, of the input's shape."""
        return functional.hardshrink(input, self.lambd)


class Softshrink(_Shrinking):
    """The input moved towards 0 by lambd, and 0 between -lambd and lambd."""

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the output, of the input's shape."""
        return functional.softshrink(input, self.lambd)


class Hardtanh(Module):
    """The input limited to [min_val, max_val]; AssertionError unless min_val < max_val."""

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        assert max_val > min_val, "max_val must be larger than min_val"
        self.min_val = min_val
        self.max_val = max_val
        self.inplace = inplace

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the output, of the input's shape."""
        return functional.hardtanh(input, self.min_val, self.max_val, self.inplace)

    def extra_repr(self) -> str:
        """What the printed module says of its options."""
        tail = ", inplace=True" if self.inplace else ""
        return f"min_val={self.min_val}, max_val={self.max_val}{tail}"


class Threshold(Module):
    """The input where it exceeds the threshold, else the value."""

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__()
        self.threshold = threshold
        self.value = value
        self.inplace = inplace

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the output, of the input's shape."""
        return functional.threshold(input, self.threshold, self.value, self.inplace)

    def extra_repr(self) -> str:
        """What the printed module says of its options."""
        tail = ", inplace=True" if self.inplace else ""
        return f"threshold={self.threshold}, value={self.value}{tail}"


class _Exponential(Module):
    """An activation with a parameter alpha."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha = alpha
        self.inplace = inplace

    def extra_repr(self) -> str:
        """What the printed module says of its options."""
        return f"alpha={self.alpha}" + (", inplace=True" if self.inplace else "")


class ELU(_Exponential):
    """The input where positive, else alpha * (exp(input) - 1)."""

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the output, of the input's shape."""
        return functional.elu(input, self.alpha, self.inplace)


class CELU(_Exponential):
    """The input where positive, else alpha * (exp(input / alpha) - 1)."""

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the output, of the input's shape."""
        return functional.celu(input, self.alpha, self.inplace)


class LeakyReLU(Module):
    """The input where positive, else negative_slope * input."""

    def __init__(self, negative_slope: float = 1e-2, inplace: bool = False) -> None:
        super().__init__()
        self.negative_slope = negative_slope
        self.inplace = inplace

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the output, of the input's shape."""
        return functional.leaky_relu(input, self.negative_slope, self.inplace)

    def extra_repr(self) -> str:
        """What the printed module says of its options."""
        tail = ", inplace=True" if self.inplace else ""
        return f"negative_slope={self.negative_slope}{tail}"


class RReLU(Module):
    """leaky_relu whose slope is drawn between lower and upper in training."""

    def __init__(self, lower: float = 1.0 / 8, upper: float = 1.0 / 3,
                 inplace: bool = False) -> None:
        super().__init__()
        self.lower = lower
        self.upper = upper
        self.inplace = inplace

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the output, of the input's shape."""
        return functional.rrelu(input, self.lower, self.upper, self.training, self.inplace)

    def extra_repr(self) -> str:
        """What the printed module says of its options."""
        tail = ", inplace=True" if self.inplace else ""
        return f"lower={self.lower}, upper={self.upper}{tail}"


class PReLU(Module):
    """The input where positive, else times a slope that is learned: one, or one a channel."""

    weight: Parameter

    def __init__(self, num_parameters: int = 1, init: float = 0.25, device: Any = None,
                 dtype: ss.dtype | None = None) -> None:
        super().__init__()
        self.num_parameters = num_parameters
        self.init = init
        self.weight = Parameter(ss.empty(num_parameters, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the slopes to their start."""
        init.constant_(self.weight, self.init)

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the output, of the input's shape."""
        return functional.prelu(input, self.weight)

    def extra_repr(self) -> str:
        """What the printed module says of its options."""
        return f"num_parameters={self.num_parameters}"


class GLU(Module):
    """The first half of a dim times the sigmoid of the second."""

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the output, half as long along the dim."""
        return functional.glu(input, self.dim)

    def extra_repr(self) -> str:
        """What the printed module says of its options."""
        return f"dim={self.dim}"


class _OverClasses(Module):
    """An activation over one dim."""

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def extra_repr(self) -> str:
        """What the printed module says of its options."""
        return f"dim={self.dim}"


class Softmax(_OverClasses):
    """exp(input) / sum(exp(input), dim)."""

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the output, of the input's shape."""
        return functional.softmax(input, self.dim)


class Softmin(_OverClasses):
    """softmax(-input, dim)."""

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the output, of the input's shape."""
        return functional.softmin(input, self.dim)


class Softmax2d(Module):
    """softmax over the channels of images (N, C, H, W) or (C, H, W)."""

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the output; ValueError for other ranks."""
        if input.ndim not in (3, 4):
            raise ValueError(f"Softmax2d: expected input to be 3D or 4D, got {input.ndim}D instead")
        return functional.softmax(input, -3)


class LogSoftmax(_OverClasses):
    """log(softmax(input, dim)), without the loss of precision."""

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the output, of the input's shape."""
        return functional.log_softmax(input, self.dim)

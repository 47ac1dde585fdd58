"""Linear layers."""

from __future__ import annotations

import math
from typing import Any

import slipstream as ss
from slipstream.nn import functional, init
from slipstream.nn.modules.forwards import LinearForward
from slipstream.nn.modules.module import Module
from slipstream.nn.parameter import Parameter


class Identity(Module):
    """Gives its input back; takes any arguments and ignores them."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Any) -> Any:
        """Return ``input``."""
        return input


class Linear(LinearForward, Module):
    """input @ weight.T + bias, over the last dim: (*, in_features) to (*, out_features).

    ``weight`` is (out_features, in_features), ``bias`` (out_features) or None.
    """

    weight: Parameter
    bias: Parameter | None

    def __init__(self, in_features: int, out_features: int, bias: bool = True,
                 device: Any = None, dtype: ss.dtype | None = None) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.weight = Parameter(ss.empty(out_features, in_features, device=device, dtype=dtype))
        self.register_parameter(
            "bias", Parameter(ss.empty(out_features, device=device, dtype=dtype)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weight and bias anew, uniform over ±1 / sqrt(in_features)."""
        reset_uniform(self.weight, self.bias)

    def extra_repr(self) -> str:
        """What the printed module says of its options."""
        return (f"in_features={self.in_features}, out_features={self.out_features}, "
                f"bias={self.bias is not None}")


class Bilinear(Module):
    """sum over i and j of input1[i] weight[o, i, j] input2[j], plus bias[o]."""

    weight: Parameter
    bias: Parameter | None

    def __init__(self, in1_features: int, in2_features: int, out_features: int, bias: bool = True,
                 device: Any = None, dtype: ss.dtype | None = None) -> None:
        super().__init__()
        if in1_features <= 0:
            raise ValueError(f"in1_features must be > 0, but got {in1_features}")
        self.in1_features = in1_features
        self.in2_features = in2_features
        self.out_features = out_features
        place: Any = {"device": device, "dtype": dtype}
        self.weight = Parameter(ss.empty(out_features, in1_features, in2_features, **place))
        self.register_parameter(
            "bias", Parameter(ss.empty(out_features, **place)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weight and bias anew, uniform over ±1 / sqrt(in1_features)."""
        bound = 1 / math.sqrt(self.in1_features)
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input1: ss.Tensor, input2: ss.Tensor) -> ss.Tensor:
        """Return the output (*, out_features)."""
        return functional.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        """What the printed module says of its options."""
        return (f"in1_features={self.in1_features}, in2_features={self.in2_features}, "
                f"out_features={self.out_features}, bias={self.bias is not None}")


def reset_uniform(weight: Parameter, bias: Parameter | None) -> None:
    """PyTorch's default for linear and convolution layers: uniform over ±1 / sqrt(fan_in)."""
    # kaiming_uniform_ with slope sqrt(5): gain * sqrt(3 / fan_in) is 1 / sqrt(fan_in).
    init.kaiming_uniform_(weight, a=math.sqrt(5))
    if bias is not None:
        fan_in, _ = init._calculate_fan_in_and_fan_out(weight)
        bound = 1 / math.sqrt(fan_in) if fan_in > 0 else 0
        init.uniform_(bias, -bound, bound)

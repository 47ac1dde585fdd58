"""What the modules that a model has most of do in every step, compiled."""

# The .pxd declares the C functions.
# mypy: disable-error-code="name-defined"

from __future__ import annotations

from typing import Any

import cython

import slipstream as ss
from slipstream.nn import functional
from slipstream.nn.functional import linear


def _parameters_of(module: Any) -> Any:
    """A module's parameters, as they are kept."""
    attributes: dict
    if cython.compiled:
        attributes = PyObject_GenericGetDict(module, cython.NULL)  # noqa: F821
        if "_parameters" in attributes:
            return attributes["_parameters"]
    return module._parameters


class LinearForward:
    """The call of a linear layer."""

    weight: Any
    bias: Any

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the output; raises RuntimeError unless the last dim is in_features long."""
        known: dict = _parameters_of(self)
        if "weight" in known and "bias" in known:
            return linear(input, known["weight"], known["bias"])
        # One of them was replaced by what a parametrization computes.
        return linear(input, self.weight, self.bias)


class LayerNormForward:
    """The call of a layer_norm."""

    weight: Any
    bias: Any
    normalized_shape: tuple[int, ...]
    eps: float

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the output; raises RuntimeError unless the input ends in normalized_shape."""
        known: dict = _parameters_of(self)
        if "weight" in known and "bias" in known:
            return functional.layer_norm(input, self.normalized_shape, known["weight"],
                                         known["bias"], self.eps)
        return functional.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)


class ReLUForward:
    """The call of a ReLU."""

    inplace: bool

    def forward(self, input: ss.Tensor) -> ss.Tensor:
        """Return the output, of the input's shape."""
        return input.relu_() if self.inplace else ss.relu(input)

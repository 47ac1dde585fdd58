"""Every op once, by family."""

from __future__ import annotations

from slipstream.core.catalog import (
    activations,
    convolution,
    copying,
    creation,
    losses,
    norms,
    pointwise,
    pooling,
    products,
    random,
    reductions,
    softmax,
    viewing,
)

FAMILIES = (pointwise, reductions, viewing, copying, creation, products, random,
            softmax, norms, convolution, pooling, losses, activations)

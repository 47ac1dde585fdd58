"""Every op once, by family."""

from __future__ import annotations

from slipstream.core.catalog import (
    activations,
    convolution,
    copying,
    creation,
    indexing,
    joining,
    losses,
    masks,
    norms,
    pointwise,
    pooling,
    products,
    random,
    reductions,
    scattering,
    softmax,
    viewing,
)

FAMILIES = (pointwise, reductions, viewing, copying, creation, products, random,
            softmax, norms, convolution, pooling, losses, activations, indexing,
            joining, masks, scattering)

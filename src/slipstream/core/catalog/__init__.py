"""Every op once, by family."""

from __future__ import annotations

from slipstream.core.catalog import (
    activations,
    arithmetic,
    attention,
    averages,
    batches,
    closeness,
    contractions,
    convolution,
    copying,
    creation,
    extrema,
    gates,
    indexing,
    joining,
    likelihoods,
    losses,
    masks,
    norms,
    pointwise,
    pooling,
    products,
    random,
    reductions,
    scans,
    scattering,
    softmax,
    sorting,
    stacking,
    statistics,
    triangles,
    uniques,
    viewing,
)

FAMILIES = (pointwise, reductions, viewing, copying, creation, products, random,
            softmax, norms, convolution, pooling, losses, activations, indexing,
            joining, masks, scattering, arithmetic, extrema, scans, statistics, sorting, uniques,
            triangles, contractions, attention, averages, batches, likelihoods,
            closeness, gates, stacking)

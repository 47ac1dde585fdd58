"""Every op once, by family."""

from __future__ import annotations

from slipstream.core.catalog import (
    copying,
    creation,
    pointwise,
    products,
    random,
    reductions,
    viewing,
)

FAMILIES = (pointwise, reductions, viewing, copying, creation, products, random)

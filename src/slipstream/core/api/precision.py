"""How exactly float32 products are computed: as float32, or in TF32 where a user allows it."""

from __future__ import annotations

from typing import Any

from slipstream.core.catalog.table import table
from slipstream.core.dispatch.entry import LIBRARY
from slipstream.core.dispatch.op import drop_plans
from slipstream.core.vocab.settings import settings

# PyTorch's levels: only the first computes in float32 throughout.
LEVELS = ("highest", "high", "medium")


class Level:
    """What `set_float32_matmul_precision` was last told."""

    name = "highest"


def allow_tf32(allowed: Any) -> None:
    """Let float32 products of CUDA be computed in TF32, or in float32 from here on.

    Raises TypeError for what is no bool.
    """
    if not isinstance(allowed, bool):
        raise TypeError(f"allow_tf32 expects a bool, but got {type(allowed).__name__}")
    if settings.allow_tf32 == allowed:
        return
    settings.allow_tf32 = allowed
    for op in tuple(table.values()):
        # Plans hold the library's algorithm and kernels, which were chosen for the other setting.
        if op.entry.kind == LIBRARY and "cuda" in op.kernels:
            drop_plans(op)


def set_float32_matmul_precision(precision: str) -> None:
    """Compute float32 products as float32 ("highest"), or in TF32 on cards ("high", "medium").

    Raises RuntimeError for another level.
    """
    if precision not in LEVELS:
        raise RuntimeError("set_float32_matmul_precision expects one of 'highest', 'high' and "
                           f"'medium', but got {precision!r}")
    allow_tf32(precision != "highest")
    Level.name = precision


def get_float32_matmul_precision() -> str:
    """The level of float32 products."""
    if settings.allow_tf32 != (Level.name != "highest"):
        return "high" if settings.allow_tf32 else "highest"
    return Level.name


NAMES = ("set_float32_matmul_precision", "get_float32_matmul_precision")

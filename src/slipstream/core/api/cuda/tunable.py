"""Algorithms of library products chosen by measuring them, on request."""

from __future__ import annotations

from slipstream.core.catalog.table import table
from slipstream.core.dispatch.op import drop_plans
from slipstream.core.vocab import optional
from slipstream.core.vocab.settings import settings

# Ops whose plans hold an algorithm.
PRODUCTS = ("matmul", "linear", "addmm", "addmm_activated")


def enable(val: bool = True) -> None:
    """Let library products of new sizes take the fastest of up to eight algorithms, or no longer.

    The first product of a size class (dimensions rounded up to powers of two) is measured on the
    card, which waits for it; the choice is kept beside the compiled kernels and holds for the same
    card and library in later processes. Off by default: the library's own first choice is taken.
    The order in which an algorithm sums may differ from another's, and so the last bits.
    """
    if val != settings.tunable:
        settings.tunable = val
        for name in PRODUCTS:
            drop_plans(table[name])


def is_enabled() -> bool:
    """Whether algorithms are chosen by measuring."""
    return settings.tunable


def get_results() -> list[tuple[str, list[float]]]:
    """What was measured in this process: the product, and microseconds of each algorithm."""
    libraries = optional.load("core.kernels.cuda.library").libraries
    return [(product.text, list(times)) for tuner in libraries.tuners.values()
            for product, times in tuner.results]

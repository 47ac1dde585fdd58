"""Intel's MKL, which products of the CPU do not use: NumPy's BLAS computes them."""

from __future__ import annotations

__all__ = ["is_available"]


def is_available() -> bool:
    """Whether it computes anything: no."""
    return False

"""oneDNN, which is not used: kernels of the CPU are Slipstream's own."""

from __future__ import annotations

__all__ = ["is_available"]


def is_available() -> bool:
    """Whether it computes anything: no."""
    return False

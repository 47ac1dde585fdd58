"""OpenMP, which is not used: Slipstream has threads of its own."""

from __future__ import annotations

__all__ = ["is_available"]


def is_available() -> bool:
    """Whether it computes anything: no."""
    return False

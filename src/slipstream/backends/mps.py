"""Apple's GPUs: not supported."""

from __future__ import annotations

__all__ = ["is_available", "is_built", "is_macos13_or_newer", "is_macos_or_newer"]


def is_available() -> bool:
    """Whether a tensor can be put there: no."""
    return False


def is_built() -> bool:
    """Whether it is a part of this installation: no."""
    return False


def is_macos_or_newer(major: int, minor: int) -> bool:
    """Whether the system is so new a macOS with such a GPU in use: no."""
    return False


def is_macos13_or_newer(minor: int = 0) -> bool:
    """The same of macOS 13."""
    return is_macos_or_newer(13, minor)

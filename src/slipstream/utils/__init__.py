"""Helpers that stand beside nn and optim."""

from slipstream.utils import hooks

__all__ = ["hooks"]

"""Tuned library products, with PyTorch's names: ``enable``, ``is_enabled``, ``get_results``."""

from __future__ import annotations

from slipstream.core.api.cuda.tunable import enable, get_results, is_enabled

__all__ = ["enable", "get_results", "is_enabled"]

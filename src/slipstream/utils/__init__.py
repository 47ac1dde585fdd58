"""Helpers that stand beside nn and optim: data, checkpoints, timing; extensions in C++."""

from __future__ import annotations

from typing import Any

from slipstream.core.vocab.optional import load as _load
from slipstream.utils import hooks

# Loaded at their first use.
_LATER = ("benchmark", "checkpoint", "cpp_extension", "data", "dlpack")

__all__ = ["benchmark", "checkpoint", "cpp_extension", "data", "hooks"]


def __getattr__(name: str) -> Any:
    """Load a part at its first use."""
    if name in _LATER:
        return _load(f"utils.{name}")
    raise AttributeError(f"module 'slipstream.utils' has no attribute '{name}'")

"""Helpers that stand beside nn and optim; extensions in C++."""

from __future__ import annotations

from typing import Any

from slipstream.core.vocab.optional import load as _load
from slipstream.utils import hooks

__all__ = ["cpp_extension", "hooks"]


def __getattr__(name: str) -> Any:
    """Load the extensions at their first use."""
    if name == "cpp_extension":
        return _load("utils.cpp_extension")
    raise AttributeError(f"module 'slipstream.utils' has no attribute '{name}'")

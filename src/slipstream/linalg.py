"""Linear algebra under the names of NumPy."""

from __future__ import annotations

from slipstream.core.api.install import functions

__all__ = sorted(functions["linalg"])

globals().update(functions["linalg"])

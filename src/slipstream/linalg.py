"""Linear algebra under the names of NumPy."""

from __future__ import annotations

from slipstream.core.api.install import functions
from slipstream.core.vocab import errors

__all__ = sorted({*functions["linalg"], "LinAlgError"})

LinAlgError = errors.LinAlgError
globals().update(functions["linalg"])

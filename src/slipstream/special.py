"""Special functions under the names of SciPy."""

from __future__ import annotations

from slipstream.core.api.install import functions

__all__ = sorted(functions["special"])

globals().update(functions["special"])

"""Versions under the names that scripts print: ``cuda`` is what the driver knows, None without."""

from __future__ import annotations

from typing import Any

import slipstream as ss

__version__ = ss.__version__
debug = False
# There are no cards but NVIDIA's.
hip: str | None = None
xpu: str | None = None

__all__ = ["__version__", "cuda", "debug", "hip", "xpu"]  # noqa: F822


def __getattr__(name: str) -> Any:
    """``cuda``, asked of the driver when it is first wanted."""
    if name == "cuda":
        return _cuda()
    raise AttributeError(f"module 'slipstream.version' has no attribute '{name}'")


def _cuda() -> str | None:
    if not ss.cuda.is_available():
        return None
    number = ss.cuda.driver.driver_version()
    return f"{number // 1000}.{number % 1000 // 10}"

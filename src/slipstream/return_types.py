"""The classes of the results of ops that return several tensors by name, such as ``topk``."""

from __future__ import annotations

from slipstream.core.api.install import results

globals().update(results)
__all__ = sorted(results)

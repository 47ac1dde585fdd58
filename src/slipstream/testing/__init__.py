"""Checks for tests: `assert_close`, and tensors of random numbers."""

from __future__ import annotations

from slipstream.testing.comparison import assert_close, make_tensor

__all__ = ["assert_close", "make_tensor"]

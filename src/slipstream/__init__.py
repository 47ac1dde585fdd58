"""Slipstream: a tensor runtime with PyTorch's names and semantics, at the speed of a CUDA graph."""

from __future__ import annotations

from slipstream import _uncompiled
from slipstream.core import wiring
from slipstream.core.api import namespace
from slipstream.core.api.namespace import *  # noqa: F403

__version__ = "0.1.0"

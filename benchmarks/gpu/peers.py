"""The peer, imported when it is measured: after ours, whose process it would change.

An imported PyTorch gives the collector a million objects more to walk and does work of its own in
the driver's context: a user of ours pays for neither.
"""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any


@cache
def torch() -> Any:
    """PyTorch."""
    return importlib.import_module("torch")

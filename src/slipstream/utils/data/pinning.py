"""Batches in memory that a GPU reads by itself."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import slipstream as ss


def pin_memory(data: Any) -> Any:
    """``data`` with its CPU tensors in pinned memory; an object's own ``pin_memory()`` is used."""
    if isinstance(data, ss.Tensor):
        return data.pin_memory() if data.device.type == "cpu" else data
    if hasattr(data, "pin_memory"):
        return data.pin_memory()
    if isinstance(data, str | bytes):
        return data
    if isinstance(data, Mapping):
        parts = {key: pin_memory(each) for key, each in data.items()}
        if not isinstance(data, dict):
            return parts
        made = copy.copy(data)
        made.update(parts)
        return made
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*[pin_memory(each) for each in data])
    return [pin_memory(each) for each in data] if isinstance(data, Sequence) else data

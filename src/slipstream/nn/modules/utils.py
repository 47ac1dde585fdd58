"""Sizes of windows as tuples, for layers of one's own that are written as PyTorch's are."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


def _ntuple(count: int, name: str = "parse") -> Callable[[Any], tuple[Any, ...]]:
    """A function that repeats a value ``count`` times and leaves an iterable as it is."""

    def parse(value: Any) -> tuple[Any, ...]:
        return tuple(value) if isinstance(value, Iterable) else (value,) * count

    parse.__name__ = name
    return parse


_single = _ntuple(1, "_single")
_pair = _ntuple(2, "_pair")
_triple = _ntuple(3, "_triple")
_quadruple = _ntuple(4, "_quadruple")

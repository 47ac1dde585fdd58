"""Sample operands of entries, as NumPy arrays: () -> list of (args, kwargs)."""

from __future__ import annotations

from typing import Any

import numpy as np

Sample = tuple[tuple[Any, ...], dict[str, Any]]


def _random(seed: int, *shape: int) -> np.ndarray:
    return np.random.RandomState(seed).uniform(-2.0, 2.0, shape)


def unary() -> list[Sample]:
    """One operand of several ranks."""
    return [((_random(1, *shape),), {}) for shape in ((), (5,), (3, 4), (2, 0, 3), (2, 3, 4))]


def binary() -> list[Sample]:
    """Two operands that broadcast, and a number."""
    shapes = (((), ()), ((5,), (5,)), ((3, 4), (4,)), ((3, 1), (1, 4)), ((2, 3, 4), (3, 1)),
              ((0, 3), (1, 3)))
    found: list[Sample] = [((_random(2, *a), _random(3, *b) + 3.0), {}) for a, b in shapes]
    found.append(((_random(4, 3, 4), 2.5), {}))
    return found


comparisons = binary


def exponents() -> list[Sample]:
    """Positive bases with tensor and number exponents."""
    base = np.abs(_random(5, 3, 4)) + 0.5
    return [((base, _random(6, 4)), {}), ((base, 2.0), {}), ((base, 0.5), {}), ((base, 3), {}),
            ((base, 0), {})]


def masks() -> list[Sample]:
    """A condition and two operands."""
    return [((_random(7, *c) > 0, _random(8, *a), _random(9, *b)), {})
            for c, a, b in (((4,), (4,), (4,)), ((3, 1), (4,), (3, 4)), ((), (2, 2), ()))]


def reductions() -> list[Sample]:
    """One operand with dims and keepdim."""
    x = _random(10, 2, 3, 4)
    return [((x,), {}), ((x, 1), {}), ((x, -1), {"keepdim": True}), ((x, (0, 2)), {}),
            ((_random(11),), {}), ((_random(12, 5), 0), {})]


def rows() -> list[Sample]:
    """One operand and a dim."""
    x = _random(13, 2, 3, 4)
    return [((x, 1), {}), ((x, -1), {}), ((_random(14, 5), 0), {})]

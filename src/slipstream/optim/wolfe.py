"""A line search for the strong Wolfe conditions, by cubic interpolation.

Wanted is a step t with f(t) <= f(0) + c1 t f'(0) (enough descent) and |f'(t)| <= c2 |f'(0)| (a
flatter place).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

ENOUGH = 1e-4
FLATTER = 0.9
SMALLEST = 1e-9
MOST = 25


@dataclass(frozen=True)
class Point:
    """A place on the line: how far along, the value, the gradient, and the slope there.

    The slope, and with it the next places, are tensors of the parameters' dtype.
    """

    at: Any
    value: float
    gradient: Any
    slope: Any


Evaluate = Callable[[Any], Point]


def cubic_minimum(a: Point, b: Point, bounds: tuple[Any, Any] | None = None) -> Any:
    """Where the cubic through two values and slopes is least, within the bounds."""
    low, high = bounds or (min(a.at, b.at), max(a.at, b.at))
    d1 = a.slope + b.slope - 3 * (a.value - b.value) / (a.at - b.at)
    square = d1 * d1 - a.slope * b.slope
    if square < 0:
        return (low + high) / 2
    root = square ** 0.5
    left, right = (a, b) if a.at <= b.at else (b, a)
    place = right.at - (right.at - left.at) * (right.slope + root - d1) / (
        right.slope - left.slope + 2 * root)
    return min(max(place, low), high)


def search(evaluate: Evaluate, start: Point, size: float, scale: float) -> tuple[Point, int]:
    """The place found, and how often the function was evaluated.

    ``scale``: the largest element of the direction, by which distances are measured.
    """
    before, here = start, evaluate(size)
    count = 1
    for tried in range(MOST):
        high = here.value > start.value + ENOUGH * here.at * start.slope
        if high or (tried > 0 and here.value >= before.value):
            return _zoom(evaluate, start, (before, here), (count, tried, scale))
        if abs(here.slope) <= -FLATTER * start.slope:
            return here, count
        if here.slope >= 0:
            return _zoom(evaluate, start, (before, here), (count, tried, scale))
        nearest = here.at + 0.01 * (here.at - before.at)
        following = cubic_minimum(before, here, (nearest, here.at * 10))
        before, here = here, evaluate(following)
        count += 1
    return _zoom(evaluate, start, (start, here), (count, MOST, scale))


def _zoom(evaluate: Evaluate, start: Point, bracket: tuple[Point, Point],
          facts: tuple[int, int, float]) -> tuple[Point, int]:
    """Narrow a bracket that holds a minimum."""
    count, tried, scale = facts
    low, high = sorted(bracket, key=lambda point: point.value)
    cramped = False
    while tried < MOST and abs(high.at - low.at) * scale >= SMALLEST:
        place, cramped = _within(low, high, cramped)
        new = evaluate(place)
        count += 1
        tried += 1
        if new.value > start.value + ENOUGH * new.at * start.slope or new.value >= low.value:
            high = new
            low, high = sorted((low, high), key=lambda point: point.value)
            continue
        if abs(new.slope) <= -FLATTER * start.slope:
            return new, count
        if new.slope * (high.at - low.at) >= 0:
            high = low
        low = new
    return low, count


def _within(low: Point, high: Point, cramped: bool) -> tuple[Any, bool]:
    """The next place: the cubic's minimum, but not twice running close to an end."""
    place = cubic_minimum(low, high)
    left, right = min(low.at, high.at), max(low.at, high.at)
    margin = 0.1 * (right - left)
    if min(right - place, place - left) >= margin:
        return place, False
    if not cramped and left < place < right:
        return place, True
    nearer_right = abs(place - right) < abs(place - left)
    return (right - margin if nearer_right else left + margin), False

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
    root = square.sqrt()
    left, right = (a, b) if a.at <= b.at else (b, a)
    share = (right.slope + root - d1) / (right.slope - left.slope + 2 * root)
    return min(max(right.at - (right.at - left.at) * share, low), high)


def too_high(here: Point, start: Point) -> bool:
    """Whether the descent does not suffice for how far the place is."""
    return here.value > start.value + ENOUGH * here.at * start.slope


def search(evaluate: Evaluate, start: Point, size: Any, scale: Any,
           most: int) -> tuple[Point, int]:
    """The place found, and how often the function was evaluated.

    ``scale``: the largest element of the direction, by which distances are measured; ``most``: how
    many further places may be looked at after the first.
    """
    before, here = start, evaluate(size)
    count, tried = 1, 0
    while tried < most:
        if too_high(here, start) or (tried > 1 and here.value >= before.value):
            return _zoom(evaluate, start, [before, here], (count, most - tried, scale))
        if abs(here.slope) <= -FLATTER * start.slope:
            return here, count
        if here.slope >= 0:
            return _zoom(evaluate, start, [before, here], (count, most - tried, scale))
        nearest = here.at + 0.01 * (here.at - before.at)
        following = cubic_minimum(before, here, (nearest, here.at * 10))
        before, here = here, evaluate(following)
        count += 1
        tried += 1
    return _zoom(evaluate, start, [start, here], (count, 0, scale))


def _lower(bracket: list[Point]) -> int:
    """Which end of the bracket is the lower one; the first where both are as high."""
    return 0 if bracket[0].value <= bracket[1].value else 1


def _zoom(evaluate: Evaluate, start: Point, bracket: list[Point],
          facts: tuple[int, int, Any]) -> tuple[Point, int]:
    """Narrow a bracket that holds a minimum; ``facts``: evaluations so far, tries left, scale."""
    count, left, scale = facts
    low = _lower(bracket)
    cramped = False
    while left and not abs(bracket[1].at - bracket[0].at) * scale < SMALLEST:
        place, cramped = _within(bracket[0], bracket[1], cramped)
        new = evaluate(place)
        count += 1
        left -= 1
        high = 1 - low
        if too_high(new, start) or new.value >= bracket[low].value:
            bracket[high] = new
            low = _lower(bracket)
            continue
        if abs(new.slope) <= -FLATTER * start.slope:
            return new, count
        if new.slope * (bracket[high].at - bracket[low].at) >= 0:
            bracket[high] = bracket[low]
        bracket[low] = new
    return bracket[low], count


def _within(first: Point, second: Point, cramped: bool) -> tuple[Any, bool]:
    """The next place: the cubic's minimum, but not twice running close to an end."""
    place = cubic_minimum(first, second)
    left, right = min(first.at, second.at), max(first.at, second.at)
    margin = 0.1 * (right - left)
    if min(right - place, place - left) >= margin:
        return place, False
    if not cramped and left < place < right:
        return place, True
    nearer_right = abs(place - right) < abs(place - left)
    return (right - margin if nearer_right else left + margin), False

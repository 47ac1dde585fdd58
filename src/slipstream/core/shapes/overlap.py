"""Overlap: which geometries touch an element twice, or touch the same elements.

Both questions come down to one: is a number a sum of multiples, ``target = sum(step * x)`` with
each ``0 <= x <= bound``?  It is answered exactly, by search within nested ranges, up to a budget
of visited nodes; only beyond that is "maybe" reported as an overlap.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from slipstream.core.shapes.strides import Ints, element_range

# Nodes that one search may visit: layouts from slicing need fewer than ten.
BUDGET = 2000

NO = "no"
SAME = "same"
PARTIAL = "partial"

# (step, bound): multiples of step from 0 to step * bound.
_Term = tuple[int, int]


def self_overlaps(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether two index tuples reach the same element.

    Exact, but for layouts made with as_strided whose search exceeds the budget: those count as
    overlapping.
    """
    if 0 in shape:
        return False
    terms = sorted(
        (abs(stride), size - 1) for size, stride in zip(shape, strides, strict=True) if size > 1)
    reach = 0
    for step, bound in terms:
        if step <= reach:
            return _search_self_overlap(terms)
        reach += step * bound
    return False


def _search_self_overlap(terms: list[_Term]) -> bool:
    """Whether differences of indices, not all 0, sum to 0 elements."""
    if terms[0][0] == 0:
        return True
    for leading, (step, bound) in enumerate(terms):
        # The leading difference is d = bound - x >= 1, earlier ones are 0, later ones any of
        # -bound..bound; shifted to start at 0 they must sum to the shifts.
        later = terms[leading + 1:]
        target = step * bound + sum(other * limit for other, limit in later)
        if _reaches([(step, bound - 1)] + [(other, 2 * limit) for other, limit in later], target):
            return True
    return False


def ranges_overlap(a_first: int, a_last: int, b_first: int, b_last: int) -> bool:
    """Whether two closed ranges meet; a range whose last is below its first is empty."""
    return max(a_first, b_first) <= min(a_last, b_last)


def may_share(
    target: tuple[Sequence[int], Sequence[int], int],
    source: tuple[Sequence[int], Sequence[int], int],
) -> str:
    """How two (shape, strides, offset) of one storage share elements.

    "same": ``source``, broadcast to ``target``, is the same element at every index, so that an
    element-wise update may read and write in step.  "no": not one element in common.
    "partial": anything else, or (see `self_overlaps`) undecided.

    Elements must be of one size; for others pass `in_bytes` of both.
    """
    if not ranges_overlap(*element_range(*target), *element_range(*source)):
        return NO
    if _is_same(target, source):
        return SAME
    # target offset + sum(s * x) = source offset + sum(s * y), with y turned to y' = bound - y.
    difference = 0
    terms: list[_Term] = []
    for sign, (shape, strides, offset) in ((1, target), (-1, source)):
        difference -= sign * offset
        for size, stride in zip(shape, strides, strict=True):
            terms.append((abs(stride), size - 1))
            if sign * stride < 0:
                difference += abs(stride) * (size - 1)
    return PARTIAL if _reaches(terms, difference) else NO


def in_bytes(
    geometry: tuple[Sequence[int], Sequence[int], int], itemsize: int,
) -> tuple[Ints, Ints, int]:
    """The geometry of the bytes of elements: one more dim, of ``itemsize``."""
    shape, strides, offset = geometry
    return (*shape, itemsize), (*(stride * itemsize for stride in strides), 1), offset * itemsize


def _is_same(
    target: tuple[Sequence[int], Sequence[int], int],
    source: tuple[Sequence[int], Sequence[int], int],
) -> bool:
    if target[2] != source[2] or len(source[0]) > len(target[0]):
        return False
    lead = len(target[0]) - len(source[0])
    if any(size != 1 for size in target[0][:lead]) or tuple(target[0][lead:]) != tuple(source[0]):
        return False
    steps = zip(source[0], target[1][lead:], source[1], strict=True)
    return all(size == 1 or ours == theirs for size, ours, theirs in steps)


def _reaches(terms: Sequence[_Term], target: int) -> bool:
    """Whether ``target`` is a sum of the terms' multiples; True also where undecided."""
    merged = _merge(terms)
    reaches = [0] * (len(merged) + 1)
    divisors = [0] * (len(merged) + 1)
    for place in range(len(merged) - 1, -1, -1):
        step, bound = merged[place]
        reaches[place] = reaches[place + 1] + step * bound
        divisors[place] = gcd(divisors[place + 1], step)
    pending = [(0, target)]
    for _ in range(BUDGET):
        if not pending:
            return False
        place, rest = pending.pop()
        if rest < 0 or rest > reaches[place]:
            continue
        if rest == 0:
            return True
        if rest % divisors[place]:
            continue
        if len(merged) - place <= 2:
            if _solves_pair(merged[place:], rest):
                return True
            continue
        step, bound = merged[place]
        # Later terms reach only so far: the multiple of this one must bring the rest there.
        least = max(0, -((reaches[place + 1] - rest) // step))
        most = min(bound, rest // step)
        if most - least > BUDGET:
            return True
        pending += [(place + 1, rest - step * count) for count in range(least, most + 1)]
    return True


def _merge(terms: Sequence[_Term]) -> list[_Term]:
    """Terms that reach the same sums, fewest first found, largest step first.

    A step that is ``k`` times a smaller one with ``k <= bound + 1`` extends it without gaps.
    """
    merged: list[_Term] = []
    for step, bound in sorted(term for term in terms if term[0] and term[1]):
        for place, (smaller, reach) in enumerate(merged):
            if step % smaller == 0 and step // smaller <= reach + 1:
                merged[place] = (smaller, reach + bound * (step // smaller))
                break
        else:
            merged.append((step, bound))
    return merged[::-1]


def _solves_pair(terms: Sequence[_Term], target: int) -> bool:
    """Whether ``p * x + q * y = target`` within bounds; gcd(p, q) divides target."""
    if len(terms) == 1:
        step, bound = terms[0]
        return target % step == 0 and target // step <= bound
    (p, most_x), (q, most_y) = terms
    divisor = gcd(p, q)
    p, q, target = p // divisor, q // divisor, target // divisor
    # x is fixed modulo q, and p * x must leave between 0 and q * most_y.
    first = target * pow(p, -1, q) % q
    least = max(0, -((q * most_y - target) // p))
    x = least + (first - least) % q
    return x <= most_x and p * x <= target

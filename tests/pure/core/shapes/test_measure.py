"""What a spec is measured by: counted quickly for ordinary numbers, alike for any."""

from __future__ import annotations

import random

import pytest

from slipstream.core.shapes.specs import FAR, ORDINARY, measure, measure_any

SIZES = (0, 1, 1, 2, 3, 7, 64, ORDINARY - 1, ORDINARY, ORDINARY + 5)
STEPS = (0, 1, 2, 7, 64, -1, -64, ORDINARY - 1, ORDINARY, -ORDINARY, FAR)


def outcome(found, *arguments):
    try:
        return found(*arguments)
    except RuntimeError as error:
        return str(error)


def test_both_ways_agree():
    order = random.Random(3)
    for _ in range(4000):
        rank = order.randrange(6)
        shape = tuple(order.choice(SIZES) for _ in range(rank))
        strides = tuple(order.choice(STEPS) for _ in range(rank))
        itemsize = order.choice((1, 4, 16))
        assert outcome(measure, shape, strides, itemsize) == outcome(
            measure_any, shape, strides, itemsize), (shape, strides)


@pytest.mark.parametrize(("shape", "strides", "wanted"), [
    ((), (), (1, True)), ((3, 4), (4, 1), (12, True)), ((3, 4), (1, 3), (12, False)),
    ((3, 4), (8, 1), (12, False)), ((1, 4), (9, 1), (4, True)), ((0, 4), (1, 7), (0, True)),
    ((3, 4), (0, 0), (12, False)), ((2, 2), (-2, -1), (4, False))])
def test_elements_and_order(shape, strides, wanted):
    assert measure(shape, strides, 4) == wanted


@pytest.mark.parametrize(("shape", "strides"), [((2, -1), (1, 1)), ((-1, ORDINARY), (1, 1))])
def test_negative_sizes_are_refused(shape, strides):
    with pytest.raises(RuntimeError, match="negative dimension -1"):
        measure(shape, strides, 4)


def test_what_no_address_reaches_is_refused():
    with pytest.raises(RuntimeError, match="overflowed"):
        measure((ORDINARY - 1,) * 2, (ORDINARY - 1, 2**62), 8)

"""Collapsing keeps every operand's sequence of addresses."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstream.core.shapes.collapse import collapse
from slipstream.core.shapes.strides import contiguous_strides


def addresses(shape, strides):
    total = np.zeros(shape, int)
    for grid, stride in zip(np.indices(shape), strides, strict=True):
        total = total + grid * stride
    return total.ravel().tolist()


@st.composite
def operands(draw):
    sizes = draw(st.lists(st.sampled_from([0, 1, 2, 3]), max_size=4))
    order = draw(st.permutations(range(len(sizes))))
    found = []
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(["dense", "permuted", "broadcast", "any"]))
        array = np.zeros(sizes, np.int8)
        if kind == "permuted":
            array = np.zeros([sizes[dim] for dim in order], np.int8).transpose(np.argsort(order))
        strides = array.strides
        if kind == "broadcast":
            strides = tuple(stride * draw(st.integers(0, 1)) for stride in strides)
        if kind == "any":
            strides = tuple(draw(st.integers(-6, 6)) for _ in strides)
        found.append(strides)
    return tuple(sizes), found


@settings(deadline=None, max_examples=150)
@given(operands())
def test_same_addresses_in_order(case):
    shape, strides = case
    merged, collapsed = collapse(shape, strides)
    assert len(merged) <= max(len(shape), 1)
    for before, after in zip(strides, collapsed, strict=True):
        assert addresses(shape, before) == addresses(merged, after)


@settings(deadline=None, max_examples=150)
@given(operands())
def test_same_tuples_of_addresses_sorted(case):
    shape, strides = case
    merged, collapsed = collapse(shape, strides, sort=True)
    before = zip(*(addresses(shape, each) for each in strides), strict=True)
    after = zip(*(addresses(merged, each) for each in collapsed), strict=True)
    assert sorted(before) == sorted(after)


def test_examples():
    dense = contiguous_strides((2, 3, 4))
    assert collapse((2, 3, 4), [dense, dense]) == ((24,), ((1,), (1,)))
    assert collapse((2, 3, 4), [dense, (0, 0, 0)]) == ((24,), ((1,), (0,)))
    assert collapse((2, 3, 4), [dense, (0, 4, 1)]) == ((2, 12), ((12, 1), (0, 1)))
    assert collapse((2, 1, 4), [(4, 9, 1)]) == ((8,), ((1,),))
    assert collapse((1, 1), [(3, 1), (0, 0)]) == ((), ((), ()))
    assert collapse((2, 0), [(0, 1)]) == ((0,), ((1,),))
    assert collapse((2, 3), [(1, 2), (1, 2)]) == ((2, 3), ((1, 2), (1, 2)))
    assert collapse((2, 3), [(1, 2), (1, 2)], sort=True) == ((6,), ((1,), (1,)))
    assert collapse((2, 3), [(-3, -1)]) == ((6,), ((-1,),))

"""Overlap against sets of addresses."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstream.core.shapes import overlap
from slipstream.core.shapes.broadcast import broadcast_strides

SHAPES = st.lists(st.sampled_from([0, 1, 2, 3, 4]), max_size=4).map(tuple)


@st.composite
def geometries(draw):
    shape = draw(SHAPES)
    step = st.integers(-9, 9) | st.sampled_from([1, 4, 12, 24])
    strides = tuple(draw(st.lists(step, min_size=len(shape), max_size=len(shape))))
    return shape, strides, draw(st.integers(0, 12))


def addresses(geometry):
    shape, strides, offset = geometry
    total = np.full(shape, offset)
    for grid, stride in zip(np.indices(shape), strides, strict=True):
        total = total + grid * stride
    return total


@settings(deadline=None, max_examples=300)
@given(geometries())
def test_self_overlap(geometry):
    touched = addresses(geometry).ravel().tolist()
    assert overlap.self_overlaps(*geometry[:2]) == (len(set(touched)) < len(touched))


def truth(target, source):
    ours, theirs = addresses(target), addresses(source)
    if not set(ours.ravel().tolist()) & set(theirs.ravel().tolist()):
        return "no"
    try:
        steps = broadcast_strides(source[0], source[1], target[0])
    except RuntimeError:
        return "partial"
    read = addresses((target[0], steps, source[2]))
    return "same" if (read == ours).all() else "partial"


@settings(deadline=None, max_examples=400)
@given(geometries(), geometries())
def test_sharing(target, source):
    found = overlap.may_share(target, source)
    expected = truth(target, source)
    # A target that overlaps itself may equal a broadcast source without having its geometry.
    same_in_disguise = found == "partial" and overlap.self_overlaps(*target[:2])
    assert found == expected or (expected == "same" and same_in_disguise)


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_slices_of_one_array(data):
    array = np.arange(60).reshape(3, 4, 5)
    cuts = []
    for _ in range(2):
        key = tuple(
            slice(data.draw(st.integers(0, 3)), data.draw(st.integers(1, 5)),
                  data.draw(st.sampled_from([1, 2, 3]))) for _ in range(3))
        part = array[key]
        offset = int(part.ravel()[0]) if part.size else 0
        cuts.append((part.shape, tuple(stride // 8 for stride in part.strides), offset))
    assert overlap.may_share(*cuts) == truth(*cuts)


@pytest.mark.parametrize(("name", "target", "source", "expected"), [
    ("a[1:] += a[:-1]", ((5,), (1,), 1), ((5,), (1,), 0), "partial"),
    ("a[:, 1:] = a[:, :-1]", ((2, 3), (4, 1), 1), ((2, 3), (4, 1), 0), "partial"),
    ("a += a.t()", ((2, 2), (2, 1), 0), ((2, 2), (1, 2), 0), "partial"),
    ("a -= a[:, :1]", ((2, 2), (2, 1), 0), ((2, 1), (2, 1), 0), "partial"),
    ("a -= a[:, :1], broadcast", ((2, 2), (2, 1), 0), ((2, 2), (2, 0), 0), "partial"),
    ("a[::2] += a[1::2]", ((500,), (2,), 0), ((500,), (2,), 1), "no"),
    ("a[:, ::2] += a[:, 1::2]", ((9, 5), (10, 2), 0), ((9, 5), (10, 2), 1), "no"),
    ("a[:, :3] += a[:, 3:]", ((9, 3), (6, 1), 0), ((9, 3), (6, 1), 3), "no"),
    ("a += a", ((2, 3), (3, 1), 7), ((2, 3), (3, 1), 7), "same"),
    ("a += a, size one", ((2, 1, 3), (3, 9, 1), 7), ((2, 1, 3), (3, 5, 1), 7), "same"),
    ("a[None] += a", ((1, 3), (3, 1), 0), ((3,), (1,), 0), "same"),
    ("a += a.flip(0)", ((4,), (1,), 0), ((4,), (-1,), 3), "partial"),
    ("lower half, flipped upper half", ((4,), (1,), 0), ((4,), (-1,), 7), "no"),
    ("empty", ((0, 3), (3, 1), 0), ((3,), (1,), 0), "no"),
    ("scalar", ((), (), 2), ((3,), (1,), 0), "partial"),
])
def test_examples(name, target, source, expected):
    assert overlap.may_share(target, source) == expected, name


def test_channels_of_a_large_image():
    shape, strides = (64, 3, 224, 224), (3 * 224 * 224, 224 * 224, 224, 1)
    assert not overlap.self_overlaps(shape, strides)
    left = ((64, 3, 224, 112), strides, 0)
    assert overlap.may_share(left, ((64, 3, 224, 112), strides, 112)) == "no"
    assert overlap.may_share(left, ((64, 3, 224, 112), strides, 111)) == "partial"
    first = ((64, 1, 224, 224), strides, 0)
    assert overlap.may_share(first, ((64, 1, 224, 224), strides, 2 * 224 * 224)) == "no"


def test_undecided_counts_as_overlap():
    # Coprime strides in many dims, all sums even but the target odd only by one far dim.
    strides = (1009, 1013, 1019, 1021, 1031, 1033)
    assert overlap.self_overlaps((40,) * 6, strides)


def test_bytes():
    floats = overlap.in_bytes(((4,), (1,), 0), 4)
    assert floats == ((4, 4), (4, 1), 0)
    assert overlap.may_share(floats, overlap.in_bytes(((2,), (1,), 2), 8)) == "no"
    assert overlap.may_share(floats, overlap.in_bytes(((2,), (1,), 1), 8)) == "partial"


def test_ranges():
    assert overlap.ranges_overlap(0, 4, 4, 9)
    assert not overlap.ranges_overlap(0, 3, 4, 9)
    assert not overlap.ranges_overlap(5, 4, 0, 9)

"""Broadcasting against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstream.core.shapes import broadcast

SIZES = st.lists(st.sampled_from([0, 1, 2, 3]), max_size=4).map(tuple)


@settings(deadline=None, max_examples=150)
@given(st.lists(SIZES, min_size=1, max_size=4))
def test_shapes_as_numpy(shapes):
    try:
        expected = np.broadcast_shapes(*shapes)
    except ValueError:
        with pytest.raises(RuntimeError, match="at non-singleton dimension"):
            broadcast.broadcast_shapes(*shapes)
    else:
        assert broadcast.broadcast_shapes(*shapes) == expected


def test_no_shapes():
    assert broadcast.broadcast_shapes() == ()
    assert broadcast.broadcast_shapes((), ()) == ()


def test_clash_names_dim_and_sizes():
    text = r"tensor a \(3\) must match the size of tensor b \(4\) at non-singleton dimension 1"
    with pytest.raises(RuntimeError, match=text):
        broadcast.broadcast_shapes((2, 3), (4,))


@settings(deadline=None, max_examples=150)
@given(SIZES, SIZES)
def test_strides_as_numpy(shape, to_shape):
    array = np.zeros(shape, np.int8)
    try:
        expected = np.broadcast_to(array, to_shape)
    except ValueError:
        with pytest.raises(RuntimeError):
            broadcast.broadcast_strides(shape, array.strides, to_shape)
        return
    found = broadcast.broadcast_strides(shape, array.strides, to_shape)
    for size, own, other in zip(to_shape, found, expected.strides, strict=True):
        assert size <= 1 or 0 in to_shape or own == other


def test_expand():
    assert broadcast.expand_shape((1, 3), (2, -1, -1)) == (2, 1, 3)
    assert broadcast.expand_shape((1, 3), (4, 3)) == (4, 3)
    assert broadcast.expand_shape((1,), (0,)) == (0,)
    assert broadcast.expand_shape((), (2, 0)) == (2, 0)


@pytest.mark.parametrize(("shape", "sizes", "text"), [
    ((2, 3), (3,), "number of sizes provided"),
    ((3,), (-1, 3), "leading, non-existing dimension 0"),
    ((2, 3), (4, 3), r"\(4\) must match the existing size \(2\) at non-singleton dimension 0"),
    ((1,), (-2,), "must match the existing size"),
])
def test_expand_refuses(shape, sizes, text):
    with pytest.raises(RuntimeError, match=text):
        broadcast.expand_shape(shape, sizes)


@settings(deadline=None, max_examples=200)
@given(SIZES, st.data())
def test_reduced_dims_undo_broadcasting(target, data):
    stretched = tuple(
        data.draw(st.sampled_from([0, 1, 2])) if size == 1 else size for size in target)
    shape = data.draw(st.lists(st.sampled_from([1, 2]), max_size=2).map(tuple)) + stretched
    dims = broadcast.reduce_dims_for(shape, target)
    summed = np.ones(shape).sum(axis=dims, keepdims=True).reshape(target)
    assert summed.shape == target
    kept = [size for dim, size in enumerate(shape) if dim not in dims]
    assert np.prod(kept) == np.prod(target)


@pytest.mark.parametrize(("shape", "target"), [((3,), (2,)), ((3,), (1, 3)), ((1,), (3,))])
def test_reduce_dims_refuses(shape, target):
    with pytest.raises(RuntimeError, match="not expandable"):
        broadcast.reduce_dims_for(shape, target)

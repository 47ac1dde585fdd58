"""Strides, layouts, and the layouts of new tensors."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstream.core.shapes import formats, strides

SIZES = st.lists(st.sampled_from([0, 1, 2, 3]), max_size=5).map(tuple)
STRIDES = st.lists(st.integers(-7, 12), min_size=5, max_size=5)


@settings(deadline=None, max_examples=150)
@given(SIZES)
def test_contiguous_as_numpy(shape):
    array = np.empty(shape, np.int8)
    found = strides.contiguous_strides(shape)
    assert strides.is_contiguous(shape, found)
    assert strides.is_dense_non_overlapping(shape, found)
    assert 0 in shape or found == array.strides
    assert strides.numel(shape) == array.size


@settings(deadline=None, max_examples=150)
@given(SIZES, STRIDES)
def test_contiguity_by_addresses(shape, steps):
    steps = tuple(steps[:len(shape)])
    addresses = (np.indices(shape).T @ np.array(steps, int)).T.ravel()
    in_order = addresses.tolist() == list(range(addresses.size))
    assert strides.is_contiguous(shape, steps) == in_order
    fills = sorted(addresses.tolist()) == list(range(addresses.size))
    assert strides.is_dense_non_overlapping(shape, steps) == fills


@settings(deadline=None, max_examples=150)
@given(SIZES, STRIDES, st.integers(0, 9))
def test_element_range_by_addresses(shape, steps, offset):
    steps = tuple(steps[:len(shape)])
    addresses = offset + (np.indices(shape).T @ np.array(steps, int)).T.ravel()
    lowest, highest = strides.element_range(shape, steps, offset)
    if addresses.size:
        assert (lowest, highest) == (addresses.min(), addresses.max())
    else:
        assert highest < lowest


def test_numel_overflow():
    assert strides.numel((2**60,), 4) == 2**60
    assert strides.numel((2**62, 0, 8), 8) == 0
    with pytest.raises(ValueError, match="numel overflow"):
        strides.numel((2**60, 2), 4)
    with pytest.raises(RuntimeError, match="negative dimension -1"):
        strides.check_sizes((2, -1))


def test_channels_last():
    shape = (2, 3, 4, 5)
    found = strides.channels_last_strides(shape)
    assert found == (60, 1, 15, 3)
    assert strides.is_channels_last(shape, found)
    assert not strides.is_channels_last(shape, strides.contiguous_strides(shape))
    assert strides.is_channels_last((2, 1, 4, 5), strides.contiguous_strides((2, 1, 4, 5)))
    assert strides.channels_last_3d_strides((2, 3, 4, 5, 6)) == (360, 1, 90, 18, 3)
    assert strides.is_channels_last_3d((2, 3, 4, 5, 6), (360, 1, 90, 18, 3))
    assert not strides.is_channels_last((3, 4), (4, 1))
    for make in (strides.channels_last_strides, strides.channels_last_3d_strides):
        with pytest.raises(RuntimeError, match="required rank"):
            make((2, 3))


# Layouts that PyTorch 2.13 gave for the same operands.
@pytest.mark.parametrize(("shape", "steps", "expected"), [
    ((2, 3), (1, 2), (1, 2)),
    ((2, 3), (6, 2), (3, 1)),
    ((2, 3), (0, 1), (3, 1)),
    ((2, 3, 4), (1, 4, 24), (1, 2, 6)),
    ((2, 3), (-3, -1), (3, 1)),
    ((3, 2), (-1, -3), (1, 3)),
    ((3, 1), (1, -1), (1, 1)),
    ((1, 2), (-2, 1), (2, 1)),
])
def test_strides_like(shape, steps, expected):
    assert strides.strides_like(shape, steps) == expected


@pytest.mark.parametrize(("shape", "operands", "expected"), [
    ((2, 3), [((2, 3), (3, 1)), ((3,), (1,))], (3, 1)),
    ((2, 3), [((2, 3), (1, 2)), ((), ())], (1, 2)),
    ((2, 3), [((2, 3), (1, 2)), ((2, 3), (3, 1))], (1, 2)),
    ((2, 3), [((2, 3), (3, 1)), ((2, 3), (1, 2))], (3, 1)),
    ((2, 3), [((1, 3), (3, 1)), ((2, 1), (1, 1))], (3, 1)),
    ((2, 3, 4, 5), [((2, 3, 4, 5), (60, 1, 15, 3)), ((3, 1, 1), (1, 1, 1))], (60, 1, 15, 3)),
    ((2, 3, 4, 5), [((2, 3, 4, 5), (60, 20, 5, 1)), ((2, 3, 4, 5), (60, 1, 15, 3))],
     (60, 20, 5, 1)),
    ((1, 3, 1, 1), [((1, 3, 1, 1), (3, 1, 3, 3)), ((1, 3, 1, 1), (3, 1, 1, 1))], (3, 1, 1, 1)),
    ((4, 1, 3), [((4, 1, 3), (1, 4, 4))], (1, 4, 4)),
    ((), [((), ())], ()),
])
def test_output_of_pointwise(shape, operands, expected):
    assert strides.output_strides_of_pointwise(shape, operands) == expected


@settings(deadline=None, max_examples=150)
@given(SIZES, STRIDES, STRIDES)
def test_new_outputs_are_dense(shape, first, second):
    count = len(shape)
    operands = [(shape, tuple(first[:count])), (shape, tuple(second[:count]))]
    for found in (
        strides.strides_like(*operands[0]),
        strides.output_strides_of_pointwise(shape, operands),
    ):
        assert strides.is_dense_non_overlapping(shape, found)


@settings(deadline=None, max_examples=150)
@given(st.lists(st.sampled_from([2, 3, 4]), min_size=1, max_size=4), st.randoms())
def test_permuted_outputs_keep_order(sizes, random):
    order = random.sample(range(len(sizes)), len(sizes))
    permuted = np.zeros(sizes, np.int8).transpose(order)
    for operands in ([permuted], [permuted, permuted[::1]]):
        pairs = [(array.shape, array.strides) for array in operands]
        expected = (permuted + permuted).strides
        assert strides.output_strides_of_pointwise(permuted.shape, pairs) == expected


def test_formats():
    assert repr(formats.channels_last) == "slipstream.channels_last"
    for each in formats.ALL:
        assert pickle.loads(pickle.dumps(each)) is each
        assert copy.deepcopy(each) is each
    shape = (2, 3, 4, 5)
    assert formats.strides_for(formats.channels_last, shape) == (60, 1, 15, 3)
    assert formats.strides_for(formats.contiguous_format, shape) == (60, 20, 5, 1)
    assert formats.strides_for(formats.channels_last_3d, (1, 2, 3, 4, 5))[1] == 1
    assert formats.strides_for(formats.preserve_format, (2, 3), (1, 2)) == (1, 2)
    assert formats.is_in_format(formats.channels_last, shape, (60, 1, 15, 3))
    assert not formats.is_in_format(formats.contiguous_format, shape, (60, 1, 15, 3))
    assert formats.is_in_format(formats.channels_last_3d, (1, 2, 3, 4, 5), (120, 1, 40, 10, 2))
    with pytest.raises(RuntimeError):
        formats.strides_for(formats.preserve_format, shape)
    with pytest.raises(RuntimeError):
        formats.is_in_format(formats.preserve_format, shape, shape)

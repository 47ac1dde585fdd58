"""Index plans against NumPy, applied to real memory."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstream.core.shapes.indexing import Advanced, plan_index
from slipstream.core.shapes.strides import contiguous_strides


def is_mask(item):
    return isinstance(item, np.ndarray) and item.dtype == bool


def placeholder(item):
    if isinstance(item, np.ndarray):
        return Advanced(item.shape, item.dtype == bool)
    return item


def addresses_of(shape, strides, delta):
    grids = np.indices(shape)
    total = np.full(shape, delta)
    for grid, stride in zip(grids, strides, strict=True):
        total = total + grid * stride
    return total


def apply(shape, index):
    """The elements (numbered in row-major order) that the plan of ``index`` picks."""
    items = index if isinstance(index, tuple) else (index,)
    plan = plan_index(shape, contiguous_strides(shape), tuple(map(placeholder, items)))
    if plan.is_view:
        assert plan.result_shape == plan.shape
        return addresses_of(plan.shape, plan.strides, plan.offset_delta)
    masks = [item for item in items if is_mask(item)]
    plan = plan.with_counts(tuple(int(mask.sum()) for mask in masks))
    written = (item for item in items if isinstance(item, (np.ndarray, bool)))
    picked = np.zeros(plan.index_shape, int)
    for use, item in zip(plan.uses, written, strict=True):
        parts = item.nonzero() if use.source.is_bool and use.dims else (item,)
        for dim, part in zip(use.dims, parts, strict=not use.source.is_bool):
            wrapped = np.where(part < 0, part + plan.shape[dim], part)
            picked = picked + wrapped * plan.strides[dim]
    kept_shape = [plan.shape[dim] for dim in plan.kept_dims]
    kept = addresses_of(kept_shape, [plan.strides[dim] for dim in plan.kept_dims], 0)
    before, after = kept_shape[:plan.position], kept_shape[plan.position:]
    kept = kept.reshape((*before, *(1 for _ in plan.index_shape), *after))
    result = kept + picked.reshape((*picked.shape, *(1 for _ in after))) + plan.offset_delta
    assert result.shape == plan.result_shape
    return result


def expected_of(shape, index):
    """NumPy's answer for the index as PyTorch takes it: see `split`."""
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    items = index if isinstance(index, tuple) else (index,)
    if not any(isinstance(item, (np.ndarray, bool)) for item in items):
        return array[index]
    basic, advanced = split(items, len(shape))
    return array[basic][advanced]


def split(items, rank):
    """An index in two: integers are taken first, and an ellipsis for no dims separates nothing."""
    basic, advanced = [], []
    for item in items:
        if is_mask(item):
            basic += [slice(None)] * item.ndim
            advanced.append(item)
        elif isinstance(item, np.ndarray) and item.ndim:
            basic.append(slice(None))
            advanced.append(item)
        elif isinstance(item, bool):
            advanced.append(item)
        elif isinstance(item, (int, np.ndarray)):
            basic.append(int(item))
        elif item is Ellipsis:
            taken = sum(
                item.ndim if is_mask(item) else 1 for item in items
                if item is not None and item is not Ellipsis and not isinstance(item, bool))
            basic.append(item)
            advanced += [slice(None)] * (rank - taken)
        else:
            basic.append(item)
            advanced.append(slice(None))
    return tuple(basic), tuple(advanced)


def check(shape, index):
    try:
        expected = expected_of(shape, index)
    except (IndexError, ValueError) as error:
        with pytest.raises(type(error)):
            apply(shape, index)
        return
    found = apply(shape, index)
    assert found.shape == expected.shape
    assert found.tolist() == expected.tolist()


BASIC = [
    0, -1, 2, 5, None, Ellipsis, slice(None), slice(1, None), slice(None, None, -1),
    slice(-1, 0, -2), slice(7, 9), slice(-9, 2), slice(2, 1), slice(None, None, 0), np.int32(1),
]


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 0, 3), (1, 3, 2)])
def test_basic_exhaustively(shape):
    for item in BASIC:
        check(shape, item)
    for count in (0, 1, 2):
        for index in itertools.product(BASIC, repeat=count):
            check(shape, index)


ADVANCED = [
    np.array([0, 1, 1]), np.array([[0], [-1]]), np.array([], int), np.array(1), True, False,
    np.array([True, False]), np.array([False, True, True]), np.array(True),
    np.array([[True, False, True], [False, True, False]]), np.zeros((2, 3), bool),
]
MIXED = [*ADVANCED, 0, None, Ellipsis, slice(None), slice(None, None, -1)]


@pytest.mark.parametrize("shape", [(2, 3), (3, 2, 3), (2, 3, 2, 3)])
def test_advanced_exhaustively(shape):
    for count in (1, 2, 3):
        for index in itertools.product(MIXED, repeat=count):
            if count < 3 or sum(isinstance(item, (np.ndarray, bool)) for item in index) == 2:
                check(shape, index)


@st.composite
def items(draw, size):
    """Items of an index for one dim, with one now and then that takes no dim."""
    extra = [] if draw(st.integers(0, 5)) else [draw(st.sampled_from([None, True]))]
    kind = draw(st.integers(0, 3))
    if kind == 0:
        item = draw(st.integers(-size - 1, size))
    elif kind == 1:
        bound = st.none() | st.integers(-4, 4)
        item = slice(draw(bound), draw(bound), draw(st.sampled_from([None, -2, -1, 1, 2])))
    elif kind == 2 and size:
        sizes = draw(st.sampled_from([(2,), (1,), (2, 1), (1, 2), (), (0,)]))
        values = st.lists(st.integers(-size, size - 1), min_size=4, max_size=4)
        item = np.array(draw(values)[:int(np.prod(sizes))], int).reshape(sizes)
    else:
        item = np.array(draw(st.lists(st.booleans(), min_size=size, max_size=size)), bool)
    return [*extra, item]


@st.composite
def cases(draw):
    shape = tuple(draw(st.lists(st.integers(0, 3), max_size=4)))
    first = draw(st.integers(0, len(shape)))
    last = draw(st.integers(first, len(shape)))
    before = [item for size in shape[:first] for item in draw(items(size))]
    after = [item for size in shape[last:] for item in draw(items(size))]
    middle = [Ellipsis] if last < len(shape) or draw(st.booleans()) else []
    if first < last == len(shape):
        middle = []
    return shape, (*before, *middle, *after)


@settings(deadline=None, max_examples=500)
@given(cases())
def test_mixtures(case):
    check(*case)


@pytest.mark.parametrize(("shape", "index", "error", "text"), [
    ((3,), 5, IndexError, "index 5 is out of bounds for dimension 0 with size 3"),
    ((2, 3), (None, 0, -4), IndexError, "index -4 is out of bounds for dimension 1 with size 3"),
    ((2, 3), (0, 0, 0), IndexError, "too many indices for tensor of dimension 2"),
    ((2, 3), Advanced((2, 3, 1), True), IndexError, "too many indices for tensor of dimension 2"),
    ((), 0, IndexError, "invalid index of a 0-dim tensor"),
    ((), slice(None), IndexError, "too many indices for tensor of dimension 0"),
    ((2, 3), 1.5, IndexError, "valid indices (got float)"),
    ((2, 3), "a", IndexError, "valid indices (got str)"),
    ((2, 3), (Ellipsis, Ellipsis), IndexError, "single ellipsis"),
    ((2, 3), slice(None, None, 0), ValueError, "slice step cannot be zero"),
    ((2, 3), slice(1.5), TypeError, "slice indices must be integers"),
    ((2, 3), (slice(None), Advanced((2,), True)), IndexError,
     "The shape of the mask [2] at index 0 does not match the shape of the indexed tensor [2, 3] "
     "at index 1"),
    ((2, 3), (Advanced((2,)), Advanced((3,))), IndexError,
     "shape mismatch: indexing tensors could not be broadcast together with shapes [2], [3]"),
    ((0, 3), Advanced((2,)), IndexError, "index is out of bounds for dimension with size 0"),
])
def test_refusals(shape, index, error, text):
    with pytest.raises(error) as caught:
        plan_index(shape, contiguous_strides(shape), index)
    assert text in str(caught.value)


def test_masks_are_counted_later():
    mask = Advanced((2, 3), True)
    plan = plan_index((4, 2, 3), (6, 3, 1), (slice(None), mask))
    assert plan.result_shape is None
    assert plan.uses[0].dims == (1, 2)
    assert plan.with_counts((5,)).result_shape == (4, 5)
    plan = plan_index((2, 3), (3, 1), (Advanced((2,), True), Advanced((4,))))
    assert plan.with_counts((1,)).result_shape == (4,)
    with pytest.raises(IndexError, match="could not be broadcast"):
        plan.with_counts((2,))


def test_integer_beside_tensors_selects_first():
    plan = plan_index((2, 3, 4), (12, 4, 1), (1, slice(None), Advanced((5,))))
    assert plan.offset_delta == 12
    assert plan.result_shape == (3, 5)
    plan = plan_index((2, 3, 4), (12, 4, 1), (Advanced(()), slice(None), Advanced((5,))))
    assert plan.result_shape == (3, 5)
    plan = plan_index((2, 3, 4), (12, 4, 1), (Advanced((1,)), slice(None), Advanced((5,))))
    assert plan.result_shape == (5, 3)

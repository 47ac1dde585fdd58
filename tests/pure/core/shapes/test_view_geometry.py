"""Views against NumPy: every geometry is applied to real memory and read."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided, sliding_window_view

from slipstream.core.shapes import views

DIMS = st.integers(-4, 4)
FAST = settings(deadline=None, max_examples=100)


@st.composite
def arrays(draw):
    """Arrays of distinct numbers, permuted, stepped, flipped and broadcast."""
    sizes = draw(st.lists(st.sampled_from([0, 1, 1, 2, 3, 4]), max_size=4))
    base = np.arange(np.prod(sizes, dtype=int), dtype=np.int64).reshape(sizes)
    array = base.transpose(draw(st.permutations(range(len(sizes)))))
    for dim in range(array.ndim):
        step = draw(st.sampled_from([1, 1, 1, 2, -1, -2]))
        array = array[(slice(None),) * dim + (slice(None, None, step),)]
    if draw(st.booleans()) and draw(st.booleans()):
        array = np.broadcast_to(array, (2, *array.shape))
    return array


def geometry(array):
    return array.shape, tuple(stride // 8 for stride in array.strides)


class _Shifted:
    """Memory some bytes from an array's first element (NumPy's array interface)."""

    def __init__(self, array, shift):
        self.array = array
        pointer = array.__array_interface__["data"][0] + shift
        self.__array_interface__ = {
            "version": 3, "shape": (1,), "typestr": "<i8", "data": (pointer, False)}


def read_shifted(array, found):
    """What the geometry reads, beginning anywhere in the array's memory."""
    shape, strides, delta = found
    if 0 in shape:
        return np.zeros(shape, np.int64)
    start = np.asarray(_Shifted(array, delta * 8))
    return as_strided(start, shape, [stride * 8 for stride in strides])


def check(array, function, arguments, expected_of):
    try:
        expected = expected_of(array)
    except (ValueError, IndexError) as error:
        with pytest.raises((RuntimeError, IndexError, ValueError)):
            function(*geometry(array), *arguments)
        assert error
        return
    found = read_shifted(array, function(*geometry(array), *arguments))
    assert found.shape == expected.shape
    assert found.tolist() == expected.tolist()


@FAST
@given(arrays(), st.data())
def test_permute(array, data):
    order = data.draw(st.permutations(range(array.ndim)))
    check(array, views.permute, (order,), lambda a: a.transpose(order))
    signed = [dim - array.ndim for dim in order]
    check(array, views.permute, (signed,), lambda a: a.transpose(order))


@FAST
@given(arrays(), DIMS, DIMS)
def test_transpose(array, a, b):
    assume(array.ndim)
    check(array, views.transpose, (a, b), lambda x: x.swapaxes(a, b))


@FAST
@given(arrays(), DIMS)
def test_squeeze_and_unsqueeze(array, dim):
    check(array, views.squeeze, (), np.squeeze)
    check(array, views.unsqueeze, (dim,), lambda x: np.expand_dims(x, dim))
    if array.ndim and -array.ndim <= dim < array.ndim:
        expected = array.squeeze(dim) if array.shape[dim] == 1 else array
        check(array, views.squeeze, (dim,), lambda x: expected)
        check(array, views.squeeze, ((dim,),), lambda x: expected)


@FAST
@given(arrays(), DIMS, DIMS)
def test_select(array, dim, index):
    assume(array.ndim)
    check(array, views.select, (dim, index), lambda x: np.moveaxis(x, dim, 0)[index])


@FAST
@given(arrays(), DIMS, st.integers(-5, 5), st.integers(0, 5))
def test_narrow(array, dim, start, length):
    assume(array.ndim and -array.ndim <= dim < array.ndim)
    size = array.shape[dim]
    first = start + size if start < 0 else start
    if -size <= start <= size and first + length <= size:
        expected = np.take(array, range(first, first + length), axis=dim)
        check(array, views.narrow, (dim, start, length), lambda x: expected)
    else:
        with pytest.raises((RuntimeError, IndexError)):
            views.narrow(*geometry(array), dim, start, length)


BOUND = st.none() | st.integers(-6, 6)


@FAST
@given(arrays(), DIMS, BOUND, BOUND, st.none() | st.integers(-3, 3))
def test_slice(array, dim, start, stop, step):
    assume(array.ndim and -array.ndim <= dim < array.ndim)
    key = (slice(None),) * (dim % array.ndim) + (slice(start, stop, step),)
    check(array, views.slice_, (dim, start, stop, step), lambda x: x[key])


@FAST
@given(arrays(), st.lists(st.sampled_from([0, 1, 2, 3]), max_size=2), st.data())
def test_expand(array, lead, data):
    sizes = [data.draw(st.sampled_from([1, 2])) if size == 1 else size for size in array.shape]
    target = (*lead, *sizes)
    check(array, views.expand, (target,), lambda x: np.broadcast_to(x, target))
    kept = (*lead, *(-1 for _ in sizes))
    check(array, views.expand, (kept,), lambda x: np.broadcast_to(x, (*lead, *x.shape)))


@FAST
@given(arrays(), st.integers(-5, 5), DIMS, DIMS)
def test_diagonal(array, offset, a, b):
    assume(array.ndim >= 2)
    check(array, views.diagonal, (offset, a, b), lambda x: x.diagonal(offset, a, b))


@FAST
@given(arrays(), DIMS, st.integers(0, 4), st.integers(1, 3))
def test_unfold(array, dim, size, step):
    assume(array.ndim and -array.ndim <= dim < array.ndim)
    if size > array.shape[dim]:
        with pytest.raises(RuntimeError, match="maximum size"):
            views.unfold(*geometry(array), dim, size, step)
        return
    every = (slice(None),) * (dim % array.ndim) + (slice(None, None, step),)
    if size:
        check(array, views.unfold, (dim, size, step),
              lambda x: sliding_window_view(x, size, dim)[every])


@FAST
@given(arrays(), st.data())
def test_flip(array, data):
    dims = data.draw(st.lists(st.sampled_from(range(array.ndim)), unique=True)
                     if array.ndim else st.just([]))
    check(array, views.flip, (dims,), lambda x: np.flip(x, tuple(dims)))


@settings(deadline=None, max_examples=300)
@given(arrays(), st.data())
def test_view_strides(array, data):
    factors = []
    rest = array.size
    while rest > 1:
        factors.append(data.draw(st.sampled_from([k for k in (2, 3, 4, rest) if rest % k == 0])))
        rest //= factors[-1]
    factors += [1] * data.draw(st.integers(0, 2)) if rest else [0, 2]
    shape = tuple(data.draw(st.permutations(factors)))
    found = views.view_strides(*geometry(array), shape)
    try:
        expected = array.reshape(shape, copy=False)
    except ValueError:
        # NumPy gives up on some shapes (dims broadcast together) that a view can have.
        expected = array.reshape(shape)
        assert found is None or 0 in array.strides
    if found is not None:
        values = read_shifted(array, (shape, found, 0))
        assert values.tolist() == expected.tolist()


def test_view():
    assert views.view((2, 3), (3, 1), (-1,)) == ((6,), (1,), 0)
    assert views.view((2, 3), (-3, -1), (3, 2)) == ((3, 2), (-2, -1), 0)
    assert views.view((0, 3), (3, 1), (3, 0)) == ((3, 0), (1, 1), 0)
    assert views.view((), (), (1, 1)) == ((1, 1), (1, 1), 0)
    with pytest.raises(RuntimeError, match="not compatible"):
        views.view((2, 3), (1, 2), (6,))


@settings(deadline=None, max_examples=150)
@given(st.integers(0, 12), st.lists(st.integers(-1, 4), max_size=3).map(tuple))
def test_infer_shape(count, shape):
    try:
        expected = np.empty(count, np.int8).reshape(shape).shape
    except ValueError:
        with pytest.raises(RuntimeError):
            views.infer_shape(count, shape)
    else:
        assert views.infer_shape(count, shape) == expected


@pytest.mark.parametrize(("count", "shape", "text"), [
    (6, (-1, -1), "only one dimension can be inferred"),
    (6, (-2,), r"invalid shape dimension -2 at index 0 of shape \[-2\]"),
    (6, (4,), r"shape '\[4\]' is invalid for input of size 6"),
    (6, (4, -1), r"shape '\[4, -1\]' is invalid for input of size 6"),
    (0, (0, -1), "is ambiguous"),
])
def test_infer_shape_texts(count, shape, text):
    with pytest.raises(RuntimeError, match=text):
        views.infer_shape(count, shape)


def test_normalize():
    assert views.normalize_dim(-1, 3) == 2
    assert views.normalize_dim(-1, 0) == 0
    assert views.normalize_dims((-1, 0), 3) == (2, 0)
    expected = (
        "Dimension out of range (expected to be in range of [-2, 1], but got 5)")
    with pytest.raises(IndexError) as caught:
        views.normalize_dim(5, 2)
    assert str(caught.value) == expected
    with pytest.raises(IndexError, match="tensor has no dimensions"):
        views.normalize_dim(0, 0, wrap_scalar=False)
    with pytest.raises(RuntimeError, match="dim 1 appears multiple times"):
        views.normalize_dims((1, -1), 2)


def test_shapes_of_flatten():
    assert views.flatten_shape((2, 3, 4)) == (24,)
    assert views.flatten_shape((2, 3, 4), 1) == (2, 12)
    assert views.flatten_shape((2, 3, 4), 0, 1) == (6, 4)
    assert views.flatten_shape(()) == (1,)
    assert views.unflatten_shape((2, 12), 1, (3, -1)) == (2, 3, 4)
    with pytest.raises(RuntimeError, match="start_dim cannot come after end_dim"):
        views.flatten_shape((2, 3), 1, 0)
    with pytest.raises(RuntimeError, match="non-empty"):
        views.unflatten_shape((2,), 0, ())


@FAST
@given(arrays(), st.data())
def test_movedim(array, data):
    count = data.draw(st.integers(0, array.ndim))
    source = data.draw(st.permutations(range(array.ndim)))[:count]
    target = data.draw(st.permutations(range(-array.ndim, 0)))[:count]
    order = views.movedim_order(array.ndim, source, target)
    check(array, views.permute, (order,), lambda x: np.moveaxis(x, source, target))


@pytest.mark.parametrize(("arguments", "error", "text"), [
    ((2, (0,), (0, 1)), RuntimeError, "same number of dims"),
    ((2, (0, 0), (0, 1)), RuntimeError, "repeated dim in `source`"),
    ((2, (0, 1), (1, -1)), RuntimeError, "repeated dim in `destination`"),
    ((2, 5, 0), IndexError, "out of range"),
])
def test_movedim_refuses(arguments, error, text):
    with pytest.raises(error, match=text):
        views.movedim_order(*arguments)


@pytest.mark.parametrize(("function", "arguments", "error", "text"), [
    (views.permute, ((0, 0),), RuntimeError, "duplicate dims"),
    (views.permute, ((0,),), RuntimeError, "does not match the length"),
    (views.select, (0, 9), IndexError, r"index 9 out of range for tensor of size \[2, 3\]"),
    (views.narrow, (0, 1, 5), RuntimeError, r"start \(1\) \+ length \(5\) exceeds"),
    (views.narrow, (0, 0, -1), RuntimeError, "non-negative"),
    (views.slice_, (0, None, None, 0), ValueError, "slice step cannot be zero"),
    (views.diagonal, (0, 1, -1), RuntimeError, "cannot be identical 1, -1"),
    (views.unfold, (0, -1, 1), RuntimeError, "size is -1 but must be >= 0"),
    (views.unfold, (0, 1, 0), RuntimeError, "step is 0 but must be > 0"),
])
def test_refusals(function, arguments, error, text):
    with pytest.raises(error, match=text):
        function((2, 3), (3, 1), *arguments)


def test_scalars():
    assert views.transpose((), (), 0, -1) == ((), (), 0)
    assert views.squeeze((), (), 0) == ((), (), 0)
    assert views.unfold((), (), 0, 1, 1) == ((1,), (1,), 0)
    assert views.flip((), (), (0,)) == ((), (), 0)
    assert views.movedim_order(0, 0, 0) == ()
    for function, arguments in ((views.select, (0, 0)), (views.slice_, (0,))):
        with pytest.raises(IndexError, match="0-dim"):
            function((), (), *arguments)
    with pytest.raises(RuntimeError, match="0-dim"):
        views.narrow((), (), 0, 0, 0)


def test_as_strided_bounds():
    views.check_as_strided((2, 2), (2, 1), 0, 4)
    views.check_as_strided((4,), (-1,), 3, 4)
    views.check_as_strided((0, 9), (9, 9), 4, 4)
    for shape, strides, offset, text in (
        ((2, 2), (2, 1), 1, "elements 1 to 4, out of bounds for storage of 4"),
        ((5,), (-1,), 3, "out of bounds"),
        ((2,), (1, 2), 0, "mismatch in length"),
        ((-2,), (1,), 0, "negative dimension"),
        ((2,), (1,), -1, "invalid storage offset -1"),
    ):
        with pytest.raises(RuntimeError, match=text):
            views.check_as_strided(shape, strides, offset, 4)

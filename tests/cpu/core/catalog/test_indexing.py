"""Indexing against NumPy: views, copies, writes, gradients, errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import slipstream as ss
from slipstream.core.catalog.table import ops

Index = Any


def finite_differences(function: Callable[..., Any], x: np.ndarray, seed: int = 0) -> None:
    """Compare the gradient of a random combination of the results with central differences."""
    operand = ss.tensor(x).requires_grad_()
    out = function(operand)
    weight = np.random.RandomState(seed).uniform(-1, 1, tuple(out.shape))
    (out * ss.tensor(weight)).sum().backward()
    expected = np.zeros_like(x)
    for place in np.ndindex(x.shape):
        steps = []
        for shift in (1e-4, -1e-4):
            moved = x.copy()
            moved[place] += shift
            steps.append((function(ss.tensor(moved)).detach().numpy() * weight).sum())
        expected[place] = (steps[0] - steps[1]) / 2e-4
    np.testing.assert_allclose(operand.grad.numpy(), expected, rtol=1e-6, atol=1e-7)


# -- random indices ------------------------------------------------------------------------------
@st.composite
def indexed_arrays(draw: Any) -> tuple[np.ndarray, Index]:
    shape = tuple(draw(st.lists(st.integers(0, 4), min_size=0, max_size=4)))
    array = np.arange(int(np.prod(shape, dtype=int)), dtype=np.float64).reshape(shape)
    for dim, turned in enumerate(draw(st.lists(st.booleans(), max_size=len(shape)))):
        array = np.flip(array, dim) if turned else array
    items: list[Any] = []
    dim = 0
    common = tuple(draw(st.lists(st.integers(1, 3), max_size=2)))
    while dim < len(shape) and draw(st.integers(0, 9)) < 9:
        item = draw(items_of(shape[dim], common))
        items.append(item)
        dim += item is not None
    if draw(st.booleans()):
        items.insert(draw(st.integers(0, len(items))), Ellipsis)
    if len(items) == 1 and draw(st.booleans()):
        return array, items[0]
    return array, tuple(items)


def items_of(size: int, common: tuple[int, ...]) -> Any:
    bound = st.none() | st.integers(-5, 5)
    step = st.sampled_from([None, 1, 2, 3, -1, -2])
    kinds: list[Any] = [st.builds(slice, bound, bound, step), st.none()]
    if size:
        kinds.append(st.integers(-size, size - 1))
        count = int(np.prod(common, dtype=int))
        kinds.append(st.lists(st.integers(-size, size - 1), min_size=count, max_size=count).map(
            lambda values: np.array(values, dtype=np.int64).reshape(common)))
        kinds.append(st.lists(st.booleans(), min_size=size, max_size=size).map(np.array))
    return st.one_of(kinds)


def own(index: Index) -> Index:
    """The index with tensors for arrays."""
    if isinstance(index, tuple):
        return tuple(own(item) for item in index)
    return ss.tensor(index) if isinstance(index, np.ndarray) else index


def torch_like(index: Index) -> bool:
    """Whether NumPy and PyTorch read it alike: an int beside arrays is an array to NumPy only."""
    items = index if isinstance(index, tuple) else (index,)
    arrays = [item for item in items if isinstance(item, np.ndarray) and item.ndim]
    ints = [item for item in items
            if isinstance(item, int) or (isinstance(item, np.ndarray) and not item.ndim)]
    # Arrays around an ellipsis of no dims stand apart for NumPy, side by side for PyTorch.
    apart = len(arrays) > 1 and any(item is Ellipsis for item in items)
    return not (arrays and ints) and not apart


def nothing_is_read(array: np.ndarray, index: Index) -> bool:
    """Whether the result is empty: NumPy looks at the values of index arrays even then, while
    PyTorch looks at a value only where it reads an element.  (Of no dims it selects: an int.)"""
    items = index if isinstance(index, tuple) else (index,)
    zeros = [np.zeros_like(item)
             if isinstance(item, np.ndarray) and item.dtype.kind == "i" and item.ndim else item
             for item in items]
    try:
        return np.size(array[tuple(zeros)]) == 0
    except IndexError:
        return False


@settings(max_examples=300, deadline=None)
@given(indexed_arrays())
def test_reads_as_numpy(case: tuple[np.ndarray, Index]) -> None:
    array, index = case
    tensor = ss.from_numpy(array)
    try:
        expected = array[index]
    except IndexError:
        if nothing_is_read(array, index):
            assert tensor[own(index)].numel() == 0
            return
        with pytest.raises(IndexError):
            tensor[own(index)]
        return
    if not torch_like(index) or (not array.ndim and index == ()):
        return
    found = tensor[own(index)]
    np.testing.assert_array_equal(found.numpy(), expected)
    assert tuple(found.shape) == np.shape(expected)


@settings(max_examples=300, deadline=None)
@given(indexed_arrays(), st.booleans())
def test_writes_as_numpy(case: tuple[np.ndarray, Index], single: bool) -> None:
    array, index = case
    if not torch_like(index):
        return
    target = array.copy()
    tensor = ss.tensor(array)
    try:
        shape = np.shape(target[index])
    except IndexError:
        if nothing_is_read(array, index):
            tensor[own(index)] = 1.0
            return
        with pytest.raises(IndexError):
            tensor[own(index)] = 1.0
        return
    value = -1.5 - np.arange(int(np.prod(shape, dtype=int)), dtype=np.float64).reshape(shape)
    target[index] = 7.5 if single else value
    tensor[own(index)] = 7.5 if single else ss.tensor(value)
    np.testing.assert_array_equal(tensor.numpy(), target)


def test_last_duplicate_wins() -> None:
    x = ss.zeros(3)
    x[ss.tensor([1, 1, 1])] = ss.tensor([1.0, 2.0, 3.0])
    assert x.tolist() == [0.0, 3.0, 0.0]
    x.index_put_((ss.tensor([0, 0]),), ss.tensor([4.0, 5.0]), accumulate=True)
    assert x.tolist() == [9.0, 3.0, 0.0]


# -- views ---------------------------------------------------------------------------------------
def test_basic_index_is_a_view() -> None:
    x = ss.zeros(3, 4)
    for part in (x[1], x[::-2], x[1, 1:3], x[..., 0], x[None], x[ss.tensor(2)], x[...]):
        assert part.untyped_storage() == x.untyped_storage()
        assert part._base is x
    x[1][2] = 5.0
    x[::-1][0, 0] = 7.0
    assert x.tolist() == [[0, 0, 0, 0], [0, 0, 5, 0], [7, 0, 0, 0]]


def test_advanced_index_is_a_copy() -> None:
    x = ss.arange(4)
    for part in (x[[0, 1]], x[x > 1], x[ss.tensor([0])], x[True]):
        assert part._base is None
        part.fill_(9)
    assert x.tolist() == [0, 1, 2, 3]


def test_loops_share_one_plan() -> None:
    x = ss.arange(300).reshape(100, 3)
    before = len(ops.basic_index.plans)
    for i in range(100):
        assert x[i, 1].item() == 3 * i + 1
        assert x[i].shape == (3,)
        assert x.select(0, i).shape == (3,)
        assert x[-1 - i].shape == (3,)
        assert x[i:i + 1].shape == x.narrow(0, i, 1).shape == (1, 3)
    assert len(ops.basic_index.plans) - before <= 3


def test_augmented_assignment() -> None:
    x = ss.arange(6.0)
    x[1:3] += 10
    x[[0, 5]] *= 2
    x[x > 11] -= 1
    assert x.tolist() == [0.0, 11.0, 11.0, 3.0, 4.0, 10.0]


def test_overlapping_value_is_copied_first() -> None:
    x = ss.arange(8).reshape(2, 4)
    x[:, 1:] = x[:, :-1]
    assert x.tolist() == [[0, 0, 1, 2], [4, 4, 5, 6]]
    y = ss.arange(4)
    y[ss.tensor([3, 2, 1, 0])] = y
    assert y.tolist() == [3, 2, 1, 0]
    z = ss.arange(4)
    z.scatter_(0, ss.tensor([1, 2, 3, 0]), z)
    assert z.tolist() == [3, 0, 1, 2]


def test_values_are_broadcast_and_cast() -> None:
    x = ss.zeros(2, 3, dtype=ss.int64)
    x[0] = 2.7
    x[1] = ss.tensor([1.9, -1.9, 0.0])
    x[:, 2] = np.array([5, 6])
    x[x == 2] = -3.9
    x[1, 0] = ss.ones(1, 1, 1)
    assert x.tolist() == [[-3, -3, 5], [1, -1, 6]]
    flags = ss.zeros(3, dtype=ss.bool)
    flags[ss.tensor([True, False, True])] = 0.5
    assert flags.tolist() == [True, False, True]


# -- errors --------------------------------------------------------------------------------------
@pytest.mark.parametrize(("index", "kind", "text"), [
    (3, IndexError, "index 3 is out of bounds for dimension 0 with size 3"),
    ((0, -5), IndexError, "index -5 is out of bounds for dimension 1 with size 4"),
    ((0, 0, 0), IndexError, "too many indices for tensor of dimension 2"),
    (1.0, IndexError, "only integers, slices"),
    ("a", IndexError, "only integers, slices"),
    ((..., ...), IndexError, "single ellipsis"),
    (slice(None, None, 0), ValueError, "zero"),
    ([0, 7], IndexError, "index 7 is out of bounds for dimension 0 with size 3"),
    (([0, 1], [0, 1, 2]), IndexError, "shape mismatch"),
    ([True, False], IndexError, "The shape of the mask"),
    ([0.5], IndexError, "must be long, int, byte or bool"),
])
def test_refused_indices(index: Index, kind: type[Exception], text: str) -> None:
    x = ss.zeros(3, 4)
    with pytest.raises(kind, match=text):
        x[index]
    with pytest.raises(kind, match=text):
        x[index] = 1.0
    assert x.sum().item() == 0


def test_refused_write_changes_nothing() -> None:
    x = ss.zeros(3)
    good_then_bad = ss.tensor([0, 1, 5])
    with pytest.raises(IndexError, match="index 5 is out of bounds for dimension 0 with size 3"):
        x[good_then_bad] = ss.ones(3)
    for write in (lambda: x.scatter_(0, good_then_bad, ss.ones(3)),
                  lambda: x.scatter_add_(0, good_then_bad, ss.ones(3)),
                  lambda: ss.gather(ss.ones(3), 0, good_then_bad, out=x)):
        with pytest.raises(RuntimeError, match="index 5 is out of bounds for dimension 0"):
            write()
    with pytest.raises(RuntimeError, match="shape mismatch"):
        x[[0, 1]] = ss.ones(3)
    with pytest.raises(RuntimeError):
        x[0] = 1j
    assert x.tolist() == [0.0, 0.0, 0.0]


def test_read_only_memory_is_refused() -> None:
    array = np.zeros(3)
    array.flags.writeable = False
    x = ss.from_numpy(array)
    for index in (0, slice(1), [0, 1], ss.tensor([True, False, False])):
        with pytest.raises(ValueError, match="read-only"):
            x[index] = 1.0


# -- other devices -------------------------------------------------------------------------------
def test_delay_device_raises_at_the_wait() -> None:
    x = ss.arange(3, device="delay")
    index = ss.tensor([0, 5], device="delay")
    found = x[index]
    with pytest.raises(IndexError, match="index 5 is out of bounds for dimension 0 with size 3"):
        found.tolist()
    x[ss.tensor([0, 2], device="delay")] = 9
    x[1] = 7
    assert x.tolist() == [9, 7, 9]
    assert x[x > 7].tolist() == [9, 9]


def test_meta_device_has_shapes() -> None:
    x = ss.zeros(3, 4, device="meta")
    index = ss.zeros(2, 5, dtype=ss.int64, device="meta")
    assert x[1:, None, ::2].shape == (2, 1, 2)
    assert x[index].shape == (2, 5, 4)
    assert x[:, index].shape == (3, 2, 5)
    assert x[index[0, 0]].shape == (4,)
    assert x.gather(1, index[:, :4]).shape == (2, 4)
    x[0] = 1.0
    x[x > 0] = 0.0
    for refused in (lambda: x[x > 0], x.nonzero, lambda: x.masked_select(x > 0)):
        with pytest.raises(NotImplementedError, match="meta tensor"):
            refused()


# -- gradients -----------------------------------------------------------------------------------
X = np.random.RandomState(3).uniform(-1, 1, (3, 4))
I = ss.tensor([[0, 2], [2, 2]])  # noqa: E741


def written(index: Index, value: Any) -> Callable[[Any], Any]:
    def function(x: Any) -> Any:
        y = x * 1
        y[index] = value(x) if callable(value) else value
        return y

    return function


GRADIENTS: dict[str, Callable[[Any], Any]] = {
    "int": lambda x: x[1],
    "slices": lambda x: x[::-1, None, 1::2],
    "array": lambda x: x[I],
    "columns": lambda x: x[:, I],
    "pairs": lambda x: x[ss.tensor([0, 1, 0]), ss.tensor([3, 3, 3])],
    "mask": lambda x: x[ss.tensor(X > 0)],
    "mask of rows": lambda x: x[ss.tensor([True, False, True])],
    "write number": written((0, slice(1, 3)), 5.0),
    "write view": written(1, lambda x: x[2] * 3),
    "write array": written(ss.tensor([0, 2]), lambda x: x[1] * x[0]),
    "write mask": written(ss.tensor(X > 0), 2.0),
    "write elements": written(ss.tensor(X > 0), lambda x: x[ss.tensor(X > 0)] ** 2),
    "index_put": lambda x: x.index_put((I,), x[1] * x[1], accumulate=True),
    "gather": lambda x: x.gather(1, ss.tensor([[0, 0, 3], [1, 2, 1]])),
    "scatter": lambda x: (x * 1).scatter(0, ss.tensor([[0, 1, 2]]), x * x),
    "scatter_add": lambda x: x.scatter_add(1, ss.tensor([[0, 0], [3, 2]]), x * x),
    "index_select": lambda x: x.index_select(1, ss.tensor([3, 3, 0])),
    "index_add": lambda x: x.index_add(0, ss.tensor([1, 1]), x[:2] * 2, alpha=3),
    "index_copy": lambda x: x.index_copy(1, ss.tensor([3, 1]), x[:, :2] * 2),
    "index_fill": lambda x: x.index_fill(0, ss.tensor([1, 1]), x.sum()),
    "take_along_dim": lambda x: x.take_along_dim(ss.tensor([[-1], [0], [2]]), 1),
    "take": lambda x: x.take(I),
    "masked_select": lambda x: (x * x).masked_select(ss.tensor([True, False, True, False])),
    "masked_scatter": lambda x: x.masked_scatter(ss.tensor(X > 0), x.t() * 2),
    "embedding": lambda x: ss.embedding(x, I),
}


@pytest.mark.parametrize("name", list(GRADIENTS))
def test_gradients(name: str) -> None:
    finite_differences(GRADIENTS[name], X)


@pytest.mark.parametrize("name", ["slices", "array", "columns", "mask", "gather", "index_select",
                                  "scatter_add", "index_add", "masked_select", "write array"])
def test_second_gradients(name: str) -> None:
    def slope(x: Any) -> Any:
        x = x if x.requires_grad else x.clone().requires_grad_()
        (found,) = ss.autograd.grad((GRADIENTS[name](x) ** 3).sum(), x, create_graph=True)
        return found

    finite_differences(slope, X)


def test_embedding_gradients() -> None:
    weight = ss.ones(4, 2).requires_grad_()
    ss.embedding(weight, ss.tensor([[1, 1], [3, 2]]), 3).sum().backward()
    assert weight.grad.tolist() == [[0, 0], [2, 2], [1, 1], [0, 0]]
    weight.grad = None
    ss.embedding(weight, ss.tensor([1, 1, 2]), -1, True).sum().backward()
    assert weight.grad.tolist() == [[0, 0], [1, 1], [1, 1], [0, 0]]
    with pytest.raises(IndexError, match="index 4 is out of bounds for dimension 0 with size 4"):
        ss.embedding(weight, ss.tensor([4]))


def test_arguments_of_a_wrong_type() -> None:
    with pytest.raises(TypeError, match="argument 'mask' must be Tensor, not int"):
        ss.ones(3).masked_select(3)
    with pytest.raises(TypeError, match="argument 'index' must be Tensor, not list"):
        ss.ones(3).gather(0, [1])


def test_multiple_views_refuse_writes() -> None:
    root = ss.ones(4, 2, requires_grad=True)
    for views in (lambda x: x.unbind(), lambda x: x.split(2), lambda x: x.chunk(2),
                  list):
        x = root * 1
        with pytest.raises(RuntimeError, match="modified inplace"):
            views(x)[0].mul_(2)
    x = ss.ones(4)
    x.unbind()[0].mul_(2)
    assert x.tolist() == [2, 1, 1, 1]


# -- the entries' own samples --------------------------------------------------------------------
NAMES = ("basic_index", "index_read", "gather", "scatter", "scatter_add", "index_select",
         "masked_select", "nonzero", "argwhere", "embedding")


def cases() -> Iterator[Any]:
    for name in NAMES:
        for number, sample in enumerate(getattr(ops, name).entry.samples()):
            yield pytest.param(name, sample, id=f"{name}-{number}")


@pytest.mark.parametrize(("name", "sample"), list(cases()))
def test_reference(name: str, sample: Any) -> None:
    args, keywords = sample
    op = getattr(ops, name)
    tensors = [ss.tensor(a) if isinstance(a, np.ndarray) else
               [ss.tensor(each) for each in a] if isinstance(a, list) else a for a in args]
    found = op(*tensors, **keywords)
    np.testing.assert_array_equal(found.numpy(), op.entry.reference(*args, **keywords))


@pytest.mark.parametrize("dtype", [ss.bool, ss.uint8, ss.int16, ss.float16, ss.bfloat16,
                                   ss.float64, ss.complex64])
def test_dtypes(dtype: Any) -> None:
    x = ss.tensor([[1, 0, 1], [0, 1, 0]]).to(dtype)
    assert (x[:, ss.tensor([2, 0])] == ss.tensor([[1, 1], [0, 0]]).to(dtype)).all()
    x[[0], [1]] = 1
    added = x.scatter_add(1, ss.tensor([[0, 0], [0, 0]]), ss.ones(2, 2).to(dtype))
    expected = [[1, 1, 1], [1, 1, 0]] if dtype is ss.bool else [[3, 1, 1], [2, 1, 0]]
    assert (added == ss.tensor(expected).to(dtype)).all()
    assert x.nonzero().tolist() == [[0, 0], [0, 1], [0, 2], [1, 1]]
    assert ss.one_hot(ss.tensor([1, 0])).tolist() == [[0, 1], [1, 0]]


def test_one_number_under_one_mask_is_converted() -> None:
    x, number = ss.zeros(3, 4, dtype=ss.bfloat16), ss.tensor([1.5], requires_grad=True)
    rows = ss.tensor([True, False, True])
    found = x.index_put([rows], number)
    assert found.dtype is ss.bfloat16
    assert found.sum(1).tolist() == [6.0, 0.0, 6.0]
    found.sum().backward()
    assert number.grad.tolist() == [8.0]
    assert x.clone().index_put_([x == 0], ss.tensor(2.5)).sum().item() == 30.0
    for indices, values, accumulate in (([rows], ss.ones(2, 4), False), ([rows], number, True),
                                        ([ss.tensor([0])], number, False)):
        with pytest.raises(RuntimeError, match="dtypes match"):
            x.index_put(indices, values, accumulate)


def test_one_number_is_converted_where_a_mask_is_assigned_to() -> None:
    mask = ss.tensor([True, False, True])
    x = ss.zeros(3, dtype=ss.float16)
    x[mask] = ss.tensor([7.0])
    y = ss.zeros(2, 3)
    y[:, mask] = ss.tensor(1)
    y[..., mask] = ss.tensor([[2]])
    assert (x.tolist(), y.tolist()) == ([7.0, 0.0, 7.0], [[2.0, 0.0, 2.0]] * 2)
    whole = ss.zeros(3, 4, dtype=ss.int64)
    with pytest.raises(RuntimeError, match="dtypes match"):
        whole[mask] = ss.tensor([0.5, 1.5, 2.5, 3.5])
    assert whole.sum() == 0


NARROW = [ss.float16, ss.bfloat16]


@pytest.mark.parametrize("dtype", NARROW)
def test_sums_of_narrow_numbers_do_not_stand_still(dtype):
    """A sum that is rounded after each addition stays at 256 (bfloat16) or 2048 (float16)."""
    count = 4096
    index, ones = ss.zeros(count, dtype=ss.int64), ss.ones(count, dtype=dtype)
    start = ss.zeros(3, dtype=dtype)
    for summed in (start.scatter_add(0, index, ones), start.index_add(0, index, ones),
                   start.index_put((index,), ones, accumulate=True)):
        assert summed.tolist() == [count, 0, 0]
    weight = ss.zeros(3, 2, dtype=dtype, requires_grad=True)
    ss.nn.functional.embedding(index, weight).sum().backward()
    assert weight.grad.tolist() == [[count, count], [0, 0], [0, 0]]


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("few", [True, False])
def test_narrow_sums_into_views_leave_what_lies_between(dtype, few):
    length = 400 if few else 8
    rng = np.random.default_rng(3)
    held = rng.standard_normal((length, 6)).astype(np.float32)
    index = rng.integers(0, length, (7,)) if few else rng.integers(0, length, (60,))
    values = rng.standard_normal((len(index), 3)).astype(np.float32)
    whole = ss.from_numpy(held).to(dtype)
    before = whole.to(ss.float32).numpy().copy()
    narrow = ss.from_numpy(values).to(dtype)
    whole[::-1, ::2].index_add_(0, ss.from_numpy(index), narrow[:, ::-1])
    expected = before.copy()
    np.add.at(expected[::-1][:, ::2], index, narrow.to(ss.float32).numpy()[:, ::-1])
    rounded = ss.from_numpy(expected).to(dtype)
    assert ss.equal(whole, rounded)


def test_a_narrow_sum_beyond_the_greatest_number_comes_back():
    index = ss.zeros(4, dtype=ss.int64)
    values = ss.tensor([60000.0, 60000.0, -60000.0, -60000.0], dtype=ss.float16)
    assert ss.zeros(1, dtype=ss.float16).index_add(0, index, values).tolist() == [0.0]
    assert ss.zeros(1, dtype=ss.float16).index_add(0, index[:2], values[:2]).tolist() == [np.inf]


@pytest.mark.parametrize("dtype", NARROW)
def test_products_of_narrow_numbers_are_rounded_once(dtype):
    values = ss.full((200,), 1.01).to(dtype)
    index = ss.zeros(200, dtype=ss.int64)
    found = ss.ones(1, dtype=dtype).scatter(0, index, values, reduce="multiply")
    assert ss.equal(found, ss.full((1,), values[0].item() ** 200).to(dtype))

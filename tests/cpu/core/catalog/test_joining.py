"""cat, stack, split and their kin against NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import slipstream as ss
from slipstream.core.catalog.table import ops

NAMES = ("cat", "stack", "split", "unbind", "repeat", "tile", "flip", "roll")


def cases() -> Iterator[Any]:
    for name in NAMES:
        for number, sample in enumerate(getattr(ops, name).entry.samples()):
            yield pytest.param(name, sample, id=f"{name}-{number}")


def tensors_of(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return ss.tensor(value)
    return [tensors_of(each) for each in value] if isinstance(value, list) else value


def leaves(args: Any) -> list[Any]:
    found = []
    for value in args:
        found += value if isinstance(value, list) else [value]
    return [each for each in found if isinstance(each, ss.Tensor)]


@pytest.mark.parametrize(("name", "sample"), list(cases()))
def test_reference_and_gradient(name: str, sample: Any) -> None:
    args, keywords = sample
    op = getattr(ops, name)
    inputs = tensors_of(list(args))
    wanted = [tensor.requires_grad_() for tensor in leaves(inputs)]
    found = op(*inputs, **keywords)
    expected = op.entry.reference(*args, **keywords)
    if not isinstance(found, tuple):
        found, expected = (found,), (expected,)
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours.detach().numpy(), theirs)
    # Every op of this family moves elements: the gradient counts how often each was moved.
    sum((part * 2).sum() for part in found).backward()
    total = sum(float(tensor.grad.sum()) for tensor in wanted)
    assert total == 2 * sum(part.numel() for part in found)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_cat_and_split_undo_each_other(data: Any) -> None:
    rank = data.draw(st.integers(1, 3))
    dim = data.draw(st.integers(-rank, rank - 1))
    base = data.draw(st.lists(st.integers(0, 3), min_size=rank, max_size=rank))
    lengths = data.draw(st.lists(st.integers(0, 3), min_size=1, max_size=4))
    dtypes = data.draw(st.lists(st.sampled_from([np.float32, np.int64, np.bool_, np.float64]),
                                min_size=len(lengths), max_size=len(lengths)))
    arrays = []
    for length, dtype in zip(lengths, dtypes, strict=True):
        shape = list(base)
        shape[dim] = length
        turned = np.random.RandomState(1).randint(0, 9, shape[::-1]).astype(dtype).transpose()
        arrays.append(turned)
    joined = ss.cat([ss.from_numpy(array) for array in arrays], dim)
    expected = np.concatenate(arrays, dim)
    np.testing.assert_array_equal(joined.numpy(), expected)
    for part, array in zip(joined.split(lengths, dim), arrays, strict=True):
        np.testing.assert_array_equal(part.numpy(), array.astype(part.numpy().dtype))
        assert part._base is joined


def test_promotion_and_legacy_empties() -> None:
    assert ss.cat([ss.ones(2, dtype=ss.int32), ss.ones(2, dtype=ss.float16)]).dtype is ss.float16
    assert ss.cat([ss.zeros(0), ss.ones(2, 2)]).shape == (2, 2)
    assert ss.concat([ss.zeros(0), ss.zeros(0)]).shape == (0,)
    assert ss.stack([ss.tensor(1), ss.tensor(2.5)]).tolist() == [1.0, 2.5]
    x = ss.zeros(0, requires_grad=True)
    y = ss.ones(2, 2, requires_grad=True)
    ss.cat([x, y * 3], 1).sum().backward()
    assert x.grad.shape == (0,)
    assert y.grad.tolist() == [[3, 3], [3, 3]]


def test_out() -> None:
    out = ss.empty(4)
    assert ss.cat([ss.ones(2), ss.zeros(2)], out=out) is out
    assert out.tolist() == [1, 1, 0, 0]
    with pytest.raises(RuntimeError, match="single memory location"):
        ss.cat([out[:2], out[2:]], out=out)


@pytest.mark.parametrize(("call", "kind", "text"), [
    (lambda: ss.cat([]), ValueError, "non-empty list"),
    (lambda: ss.cat([ss.ones(2, 3), ss.ones(2)]), RuntimeError, "same number of dimensions"),
    (lambda: ss.cat([ss.ones(2, 3), ss.ones(2, 4)]), RuntimeError,
     "Sizes of tensors must match except in dimension 0. Expected size 3 but got size 4"),
    (lambda: ss.cat([ss.tensor(1), ss.tensor(2)]), RuntimeError, "zero-dimensional"),
    (lambda: ss.stack([]), RuntimeError, "non-empty TensorList"),
    (lambda: ss.stack([ss.ones(2), ss.ones(3)]), RuntimeError, "equal size"),
    (lambda: ss.ones(3).split([1, 1]), RuntimeError, "sum exactly to 3"),
    (lambda: ss.ones(3).split(-1), RuntimeError, "non-negative"),
    (lambda: ss.ones(3).chunk(0), RuntimeError, "greater than 0"),
    (lambda: ss.ones(3).unbind(1), IndexError, "Dimension out of range"),
    (lambda: ss.ones(2, 2).repeat(2), RuntimeError, "can not be smaller"),
    (lambda: ss.cat([ss.ones(3), ss.ones(3, device="meta")]), RuntimeError, "same device"),
])
def test_errors(call: Any, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        call()


def test_shapes_of_pieces() -> None:
    x = ss.arange(10)
    assert [part.tolist() for part in x.chunk(4)] == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]
    assert [part.numel() for part in x.tensor_split(4)] == [3, 3, 2, 2]
    assert [part.numel() for part in x.tensor_split([2, 7])] == [2, 5, 3]
    assert [part.numel() for part in ss.zeros(0).chunk(3)] == [0, 0, 0]
    assert isinstance(x.split(3), tuple)
    assert x[:2].repeat_interleave(3).tolist() == [0, 0, 0, 1, 1, 1]
    assert [row.tolist() for row in ss.arange(4).reshape(2, 2)] == [[0, 1], [2, 3]]
    assert ss.stack([ss.ones(2, device="meta")] * 3, 1).shape == (2, 3)


def test_delay_device() -> None:
    x = ss.arange(3, device="delay")
    joined = ss.cat([x, x + 10])
    x.add_(100)
    assert joined.tolist() == [0, 1, 2, 10, 11, 12]


def test_gradients_go_through_pieces_that_are_not_used() -> None:
    x = ss.ones(4, requires_grad=True)
    first, _, third, _ = x.unbind()
    (first * 2 + third * 5).backward()
    assert x.grad.tolist() == [2, 0, 5, 0]
    y = ss.ones(3, requires_grad=True)
    (slope,) = ss.autograd.grad((ss.cat([y, y * 2]) ** 3).sum(), y, create_graph=True)
    slope.sum().backward()
    assert y.grad.tolist() == [6 + 8 * 6] * 3


def test_what_is_made_like_one_reversed_element_has_strides_that_go_forward():
    reversed_column = ss.ones(3, 1)[:, ::-1]
    assert ss.zeros_like(reversed_column).stride() == (1, 1)
    assert ss.ones(3, 1).flip(-1).stride() == (1, 1)
    assert ss.equal(ss.zeros_like(ss.ones(1, 4).flip(0)), ss.zeros(1, 4))

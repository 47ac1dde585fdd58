"""The old constructors: Tensor, FloatTensor and its like, new, type, where(condition)."""

from __future__ import annotations

import numpy as np
import pytest

import slipstream as ss
from slipstream import nn


@pytest.mark.parametrize(("make", "expected", "dtype"), [
    (lambda: ss.Tensor([1, 2]), [1.0, 2.0], ss.float32),
    (lambda: ss.Tensor([[1], [2]]), [[1.0], [2.0]], ss.float32),
    (lambda: ss.Tensor((2, 3)), [2.0, 3.0], ss.float32),
    (lambda: ss.Tensor(np.arange(3.0)), [0.0, 1.0, 2.0], ss.float32),
    (lambda: ss.Tensor(range(2)), [0.0, 1.0], ss.float32),
    (lambda: ss.Tensor(), [], ss.float32),
    (lambda: ss.LongTensor([3, 4]), [3, 4], ss.int64),
    (lambda: ss.DoubleTensor([0.1]), [0.1], ss.float64),
    (lambda: ss.BoolTensor([1, 0]), [True, False], ss.bool),
    (lambda: ss.ones(2, dtype=ss.int32).new([5]), [5], ss.int32),
])
def test_data(make, expected, dtype):
    made = make()
    assert (made.tolist(), made.dtype, type(made)) == (expected, dtype, ss.Tensor)


@pytest.mark.parametrize("make", [
    lambda: ss.Tensor(2, 3), lambda: ss.IntTensor(2, 3), lambda: ss.Tensor(ss.Size([2, 3])),
    lambda: ss.ones(1).new(2, 3), lambda: ss.Tensor(2, 3, device="cpu"),
])
def test_sizes(make):
    assert make().shape == (2, 3)


def test_the_default_dtype_counts():
    ss.set_default_dtype(ss.float64)
    try:
        assert ss.Tensor([1]).dtype is ss.float64
    finally:
        ss.set_default_dtype(ss.float32)


def test_a_tensor_shares_its_memory():
    x = ss.ones(2)
    ss.Tensor(x)[0] = 5
    assert x.tolist() == [5.0, 1.0]


@pytest.mark.parametrize(("make", "message"), [
    (lambda: ss.Tensor(1.5), "data must be a sequence"),
    (lambda: ss.Tensor("ab"), "data must be a sequence"),
    (lambda: ss.Tensor(None), "data must be a sequence"),
    (lambda: ss.Tensor(2, [3]), "sizes, or one sequence"),
    (lambda: ss.Tensor([1], dtype=ss.int64), "unexpected keyword argument 'dtype'"),
    (lambda: ss.LongTensor(ss.ones(2)), "expected a tensor of int64"),
])
def test_what_is_refused(make, message):
    with pytest.raises(TypeError, match=message):
        make()


def test_negative_sizes_are_refused():
    with pytest.raises(RuntimeError, match="negative"):
        ss.Tensor(-1)


class Plain(ss.Tensor):
    """A subclass with nothing of its own."""


class Named(ss.Tensor):
    """A subclass that makes itself and takes more arguments."""

    def __new__(cls, data, name):
        return ss.tensor(data).as_subclass(cls)

    def __init__(self, data, name):
        self.name = name


def test_subclasses():
    plain, named = Plain([1.0, 2.0]), Named([1, 2], "x")
    assert (type(plain), plain.tolist()) == (Plain, [1.0, 2.0])
    assert (type(named), named.name, named.tolist()) == (Named, "x", [1, 2])


def test_instances_by_dtype():
    assert isinstance(ss.ones(2), ss.FloatTensor)
    assert not isinstance(ss.ones(2), ss.LongTensor)
    assert not isinstance(ss.ones(2, device="meta"), ss.FloatTensor)
    assert not isinstance(np.ones(2, np.float32), ss.FloatTensor)


def test_type():
    x = ss.ones(2)
    assert x.type(ss.LongTensor).dtype is ss.int64
    assert x.type("torch.DoubleTensor").dtype is ss.float64
    assert x.type(ss.float16).dtype is ss.float16
    with pytest.raises(ValueError, match=r"invalid type: 'torch\.Foo'"):
        x.type("torch.Foo")


def test_places_of_what_is_true():
    condition = ss.tensor([[True, False], [True, True]])
    assert [each.tolist() for each in ss.where(condition)] == [[0, 1, 1], [0, 0, 1]]
    assert ss.where(condition, 1, 0).tolist() == [[1, 0], [1, 1]]
    out = ss.empty(2, 2)
    assert ss.where(condition, ss.ones(2, 2), ss.zeros(2, 2), out=out) is out


def test_other_names():
    x = ss.ones(2, 3)
    assert (x.nelement(), x.ndimension()) == (6, 2)
    assert str(nn.Parameter(x)).startswith("Parameter containing:\ntensor(")


def test_arange_takes_its_end_by_name() -> None:
    assert ss.arange(end=3).tolist() == [0, 1, 2]
    assert ss.arange(1, end=6, step=2).tolist() == [1, 3, 5]
    with pytest.raises(TypeError, match="end"):
        ss.arange()


def test_full_like_needs_a_number() -> None:
    x = ss.ones(2, 3)
    for _ in range(2):
        with pytest.raises(TypeError, match="fill_value"):
            ss.full_like(x, None)
        assert ss.full_like(x, 0.0).tolist() == [[0.0] * 3] * 2

"""What no caller should do, and what happens then: an error of the right kind, nothing broken."""

from __future__ import annotations

import copy
import inspect
import math
from typing import Any

import numpy as np
import pytest

import slipstream as ss

MISTAKES = (TypeError, ValueError, RuntimeError, IndexError, AttributeError)
METHODS = [name for name, value in inspect.getmembers(ss.Tensor, callable)
           if not name.startswith("__") or name in ("__getitem__", "__setitem__", "__len__")]


# -- what is no tensor ---------------------------------------------------------------------------
@pytest.mark.parametrize("name", METHODS)
def test_none_is_no_tensor(name: str) -> None:
    method = getattr(ss.Tensor, name)
    for arguments in ((None,), (None, 0), (None, 0, 1)):
        with pytest.raises(MISTAKES):
            method(*arguments)


def test_none_among_what_is_differentiated() -> None:
    x = ss.ones(3, requires_grad=True)
    for call in (lambda: ss.autograd.backward([None]),
                 lambda: ss.autograd.grad([None], [x]),
                 lambda: ss.autograd.grad((x * 2).sum(), [None])):
        with pytest.raises(TypeError, match="Tensor"):
            call()


# -- the constructor -----------------------------------------------------------------------------
def test_the_constructor_takes_sizes_or_values() -> None:
    assert ss.Tensor().shape == (0,)
    assert ss.Tensor(2, 3).shape == ss.Tensor(ss.Size([2, 3])).shape == (2, 3)
    assert ss.Tensor([2, 3]).tolist() == ss.Tensor((2, 3)).tolist() == [2.0, 3.0]
    assert ss.Tensor(np.array([1, 2])).dtype is ss.float32
    x = ss.ones(2, requires_grad=True)
    ss.Tensor(x).sum().backward()
    assert x.grad.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("data", [(True,), ("a",), (None,), (2.5,), (1, 2.5), ([1], [2])])
def test_the_constructor_refuses(data: Any) -> None:
    with pytest.raises(TypeError, match="new"):
        ss.Tensor(*data)


def test_instances_of_subclasses_are_tensors() -> None:
    class Named(ss.Tensor):
        def __init__(self, data: Any) -> None:
            self.name = "mine"

    made = Named([1.0, 2.0])
    assert type(made) is Named
    assert made.name == "mine"
    assert (made + 1).tolist() == [2.0, 3.0]
    assert (ss.Tensor.__new__(ss.Tensor) + 1).tolist() == []


# -- numbers that do not fit ---------------------------------------------------------------------
MASK = [True, False]
STORES = {
    "fill_": lambda x, v: x.fill_(v),
    "full_like": lambda x, v: ss.full_like(x, v),
    "masked_fill": lambda x, v: x.masked_fill(ss.tensor(MASK), v),
    "where": lambda x, v: ss.where(ss.tensor(MASK), x, v),
    "index_fill": lambda x, v: x.index_fill(0, ss.tensor([0]), v),
    "scatter": lambda x, v: x.scatter(0, ss.tensor([0]), v),
    "x[0] =": lambda x, v: x.__setitem__(0, v),
    "x[[0]] =": lambda x, v: x.__setitem__([0], v),
    "x[mask] =": lambda x, v: x.__setitem__(ss.tensor(MASK), v),
    "tensor": lambda x, v: ss.tensor(v, dtype=x.dtype),
}
TOO_LARGE = [(ss.uint8, 256), (ss.uint8, -256), (ss.int8, 128), (ss.int32, 2**31),
             (ss.int64, 2**63)]


@pytest.mark.parametrize("name", STORES)
@pytest.mark.parametrize(("dtype", "value"), TOO_LARGE)
def test_a_stored_number_has_to_fit(name: str, dtype: Any, value: int) -> None:
    x = ss.ones(2, dtype=dtype)
    # The same call with a number that fits comes first: its plan is known.
    STORES[name](x.clone(), 1)
    with pytest.raises((RuntimeError, ValueError), match=r"without overflow|Overflow"):
        STORES[name](x, value)
    assert x.tolist() == [1, 1]


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e30])
def test_an_integer_takes_no_such_float(value: float) -> None:
    x = ss.ones(2, dtype=ss.int64)
    for call in (lambda: x.fill_(value), lambda: x.__setitem__(0, value),
                 lambda: x.__setitem__([0], value), lambda: ss.tensor(value, dtype=ss.int64),
                 lambda: x.__setitem__(ss.tensor(MASK), value)):
        with pytest.raises(RuntimeError, match="without overflow"):
            call()
    assert x.tolist() == [1, 1]


def test_numbers_that_fit() -> None:
    x = ss.zeros(2, dtype=ss.uint8)
    assert x.fill_(255).tolist() == [255, 255]
    assert x.fill_(-1).tolist() == [255, 255]
    half = ss.zeros(2, dtype=ss.float16)
    assert half.fill_(math.inf).tolist() == [math.inf] * 2
    assert half.fill_(65504).tolist() == [65504.0] * 2
    with pytest.raises(RuntimeError, match="without overflow"):
        half.fill_(1e6)
    least = ss.full((1,), -(2**63), dtype=ss.int64)
    assert least.tolist() == [-(2**63)]
    assert ss.zeros(1, dtype=ss.float64).fill_(10**300).tolist() == [1e300]


@pytest.mark.parametrize("call", [
    lambda x: x + 2**70, lambda x: x == 2**64, lambda x: x.clamp(0, -(2**63) - 1),
    lambda x: x.add_(2**70), lambda x: x.add(1, alpha=2**70)])
def test_an_integer_of_more_than_64_bits(call: Any) -> None:
    x = ss.tensor([1, 2])
    with pytest.raises(OverflowError, match="too big"):
        call(x)
    assert x.tolist() == [1, 2]
    assert (x * 1.0 + 2**70).tolist() == [float(2**70)] * 2


def test_integers_that_only_floats_would_hold() -> None:
    for data in ([2**63, 1], [2**63, -1], [2**63], 2**63):
        with pytest.raises((ValueError, RuntimeError), match="verflow"):
            ss.tensor(data)


# -- memory that others look at ------------------------------------------------------------------
def test_memory_that_an_array_shares_is_not_moved() -> None:
    x = ss.ones(10)
    array = x.numpy()
    with pytest.raises(RuntimeError, match="not resizable"):
        x.resize_(100_000)
    others = [ss.zeros(10) for _ in range(8)]
    array[:] = 5
    assert x.tolist() == [5.0] * 10
    assert all(other.tolist() == [0.0] * 10 for other in others)
    part = np.from_dlpack(x)[2:]
    del array
    with pytest.raises(RuntimeError, match="not resizable"):
        x.resize_(100_000)
    del part
    assert x.resize_(100_000)[:10].tolist() == [5.0] * 10


def test_a_resized_tensor_that_was_saved() -> None:
    w, x = ss.ones(3, requires_grad=True), ss.ones(3)
    y = w * x
    x.resize_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        y.sum().backward()


def test_sizes_of_resize() -> None:
    for size in ("a", 1.5, None):
        with pytest.raises(TypeError):
            ss.ones(2).resize_(size)


@pytest.mark.parametrize("call", [
    lambda x: ss.sum(x, 0, out=x), lambda x: ss.mm(x, ss.ones(3, 2), out=x),
    lambda x: ss.add(x, ss.ones(2, 3, 3), out=x)])
def test_an_operand_is_not_resized_for_the_result(call: Any) -> None:
    x = ss.arange(9.0).view(3, 3)
    with pytest.raises(RuntimeError, match="single memory"):
        call(x)
    assert x.shape == (3, 3)
    assert x.tolist() == ss.arange(9.0).view(3, 3).tolist()


# -- other libraries' objects --------------------------------------------------------------------
def test_arrays_beside_tensors() -> None:
    x, array = ss.ones(2), np.array([1.0, 2.0])
    assert (x == array).tolist() == [True, False]
    assert (x < array).tolist() == [False, True]
    for made in (x + array, x * array, np.sin(x), np.add(x, 1)):
        assert type(made) is ss.Tensor
    assert x.tolist() == [1.0, 1.0]


def test_capsules() -> None:
    x = ss.ones(4)
    capsule = x.__dlpack__()
    taken = ss.from_dlpack(capsule)
    x[0] = 5.0
    assert taken.tolist() == [5.0, 1.0, 1.0, 1.0]
    with pytest.raises(BufferError, match="used up"):
        ss.from_dlpack(capsule)
    for wrong in (3, None, "a"):
        with pytest.raises(TypeError, match="DLPack"):
            ss.from_dlpack(wrong)


def test_parts_of_complex_numbers() -> None:
    x = ss.tensor([1 + 2j, 3 + 4j])
    x.real.fill_(0)
    x[1:].imag[0] = 9
    assert x.tolist() == [2j, 9j]
    x.requires_grad_()
    (x.real * ss.tensor([1.0, 2.0]) + x.imag * 5).sum().backward()
    assert x.grad.tolist() == [1 + 5j, 2 + 5j]
    with pytest.raises(RuntimeError, match="imag"):
        ss.ones(2).imag


def test_membership_and_floats() -> None:
    x = ss.tensor([3.0, 4.0])
    assert 3 in x
    assert ss.tensor(4.0) in x
    with pytest.raises(RuntimeError, match="Tensor or scalar"):
        "a" in x  # noqa: B015
    assert float(ss.tensor(1 + 0j)) == 1.0
    with pytest.raises(RuntimeError, match="complex"):
        float(ss.tensor(1 + 2j))


def test_deep_copies_share_memory_as_their_originals_do() -> None:
    x = ss.arange(6.0).view(2, 3)
    first, second = copy.deepcopy([x, x.t()[1:]])
    assert second.stride() == (1, 3)
    first[0, 1] = 9.0
    assert second.tolist() == [[9.0, 4.0], [2.0, 5.0]]
    assert x[0, 1] == 1.0


def test_python_types_are_dtypes() -> None:
    assert ss.tensor([1], dtype=float).dtype is ss.float64
    for wrong in ("float32", np.float32, [1]):
        with pytest.raises(TypeError, match="dtype"):
            ss.tensor([1], dtype=wrong)


@pytest.mark.parametrize("call", [
    lambda v: ss.avg_pool1d(v, 2), lambda v: ss.conv_transpose2d(v, ss.ones(1, 1, 1, 1)),
    lambda v: ss.nn.functional.huber_loss(v, ss.ones(1)), lambda v: ss.pixel_shuffle(v, 2),
    lambda v: ss.nn.functional.relu(v, inplace=True), lambda v: ss.kl_div(v, ss.ones(2)),
    lambda v: ss.nn.functional.interpolate(v, 2), lambda v: ss.embedding_bag(v, ss.ones(2, 2))])
@pytest.mark.parametrize("value", [3, "a", [1.0], None])
def test_functions_say_what_is_no_tensor(call: Any, value: Any) -> None:
    with pytest.raises(TypeError, match="must be Tensor"):
        call(value)


@pytest.mark.parametrize("call", [
    lambda v: ss.numel(v), lambda v: ss.is_complex(v), lambda v: ss.is_floating_point(v),
    lambda v: ss.can_cast(v, ss.float32), lambda v: ss.promote_types(ss.float32, v),
    lambda v: ss.index_put(ss.ones(2), (v,), ss.ones(1))])
@pytest.mark.parametrize("value", [3, "a", [1.0]])
def test_questions_about_what_is_neither_tensor_nor_dtype(call: Any, value: Any) -> None:
    with pytest.raises(TypeError, match="must be"):
        call(value)


def test_complex_numbers_are_no_bounds() -> None:
    for call in (lambda: ss.ones(2).clamp(0, 1j), lambda: ss.ones(2).clamp(1j)):
        with pytest.raises(RuntimeError, match="complex"):
            call()

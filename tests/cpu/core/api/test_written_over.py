"""Targets that share memory, with themselves or with an operand: what PyTorch refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import slipstream as ss


def test_a_number_may_fill_what_is_one_place_several_times() -> None:
    rows = ss.zeros(3, 1)
    rows.expand(3, 4).fill_(2)
    assert rows.tolist() == [[2]] * 3
    rows.expand(3, 4).zero_()
    assert rows.tolist() == [[0]] * 3
    row = ss.zeros(6)
    row.as_strided((3, 3), (1, 1)).fill_(3)
    assert row.tolist() == [3, 3, 3, 3, 3, 0]


@pytest.mark.parametrize("write", [
    lambda x: x.fill_(ss.tensor(2.0)), lambda x: x.add_(1), lambda x: x.copy_(ss.ones(3, 4)),
    lambda x: x.__setitem__(slice(None), 5), lambda x: x.__setitem__(0, 5), lambda x: x.uniform_(),
])
def test_other_writes_to_it_are_refused(write: Any) -> None:
    base = ss.zeros(3, 1)
    with pytest.raises(RuntimeError, match="more than one element of the written-to"):
        write(base.expand(3, 4))
    assert not base.any()


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "logcumsumexp", "tril", "triu"])
def test_out_may_be_the_operand_itself(name: str) -> None:
    values = np.random.RandomState(0).randn(4, 5)
    arguments = () if name.startswith("tri") else (1,)
    for order in "CF":
        x = ss.from_numpy(np.array(values, order=order))
        expected = getattr(ss, name)(x.clone(), *arguments).tolist()
        assert getattr(ss, name)(x, *arguments, out=x) is x
        assert x.tolist() == expected


@pytest.mark.parametrize("name", ["sort", "cummax", "cummin"])
def test_out_may_be_the_operand_beside_indices(name: str) -> None:
    x, places = ss.tensor([[3.0, 1, 2], [9, 7, 8]]), ss.zeros(2, 3, dtype=ss.int64)
    expected = getattr(ss, name)(x.clone(), 1)
    getattr(ss, name)(x, 1, out=(x, places))
    assert x.tolist() == expected.values.tolist()
    assert places.tolist() == expected.indices.tolist()


@pytest.mark.parametrize("call", [
    lambda x, i: ss.gather(x, 0, i, out=x), lambda x, i: ss.take(x, i, out=x),
    lambda x, i: ss.index_select(x, 0, i, out=x), lambda x, i: ss.cumsum(x[:3], 0, out=x[1:]),
    lambda x, i: ss.scatter(ss.zeros(4), 0, i, x, out=x),
    lambda x, i: ss.masked_select(x, x > 1, out=x),
])
def test_other_sharing_is_refused(call: Any) -> None:
    x = ss.tensor([1.0, 2, 3, 4])
    with pytest.raises(RuntimeError, match="some elements of the input tensor and the written-to"):
        call(x, ss.tensor([3, 0, 1, 2]))
    assert x.tolist() == [1, 2, 3, 4]


def test_hypot_of_an_infinite_side_is_infinite() -> None:
    inf, nan = float("inf"), float("nan")
    found = ss.hypot(ss.tensor([inf, nan, -inf, nan]), ss.tensor([nan, -inf, 3.0, 1.0]))
    np.testing.assert_array_equal(found.numpy(), [inf, inf, inf, nan])


@pytest.mark.parametrize("name", ["all", "any"])
def test_no_dims_reduce_nothing(name: str) -> None:
    x = ss.tensor([[2.0, 0.0], [1.0, -1.0]])
    for dim in ((), []):
        for keepdim in (False, True):
            found = getattr(ss, name)(x, dim=dim, keepdim=keepdim)
            assert found.dtype is ss.bool
            assert found.tolist() == [[True, False], [True, True]]
    assert getattr(ss.tensor([3, 0], dtype=ss.uint8), name)(dim=()).tolist() == [1, 0]
    assert getattr(ss.tensor([3, 1], dtype=ss.uint8), name)().dtype is ss.uint8


@pytest.mark.parametrize("options", [{"size": 2.0}, {"size": True}, {"size": 2, "fill_value": 0.5},
                                     {"size": None}])
def test_a_static_size_is_an_int(options: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="must be int, not"):
        ss.nonzero_static(ss.tensor([0, 1, 1]), **options)

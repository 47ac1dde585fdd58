"""Numbers at the edges of what a dtype, a thread pool or a draw can take."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import slipstream as ss
import slipstream.nn.functional as functional

INF, NAN = math.inf, math.nan


@pytest.fixture(autouse=True)
def no_warning() -> Iterator[None]:
    """NumPy's warnings are not the user's."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def refused(call: Callable[[], Any], text: str) -> None:
    with pytest.raises(RuntimeError, match=text):
        call()


def test_more_threads_than_a_pool_has() -> None:
    before = ss.get_num_threads()
    try:
        ss.set_num_threads(2**30)
        assert ss.get_num_threads() == 257
        x = ss.rand(400, 100)
        assert ss.equal(x.sort().values.sum(1) > 0, ss.ones(400, dtype=ss.bool))
        assert ss.equal(x[ss.arange(400)], x)
    finally:
        ss.set_num_threads(before)


@pytest.mark.parametrize(("value", "dtype"), [
    (300, ss.uint8), (2**63, ss.int64), (INF, ss.int64), (NAN, ss.int32), (1e6, ss.float16)])
def test_a_number_beyond_the_dtype_fills_nothing(value: Any, dtype: Any) -> None:
    for call in (lambda: ss.full((2,), value, dtype=dtype),
                 lambda: ss.zeros(2, dtype=dtype).new_full((2,), value),
                 lambda: functional.pad(ss.zeros(2, dtype=dtype), (1, 0), value=value),
                 lambda: ss.linspace(0, value, 4, dtype=dtype),
                 lambda: ss.zeros(2, dtype=dtype).fill_(value)):
        refused(call, "without overflow")


def test_numbers_that_fit_fill() -> None:
    assert ss.full((2,), -1, dtype=ss.uint8).tolist() == [255, 255]
    assert ss.full((1,), INF).tolist() == [INF]
    assert ss.linspace(0, 255, 2, dtype=ss.uint8).tolist() == [0, 255]
    assert ss.linspace(5, 300, 1, dtype=ss.uint8).tolist() == [5]
    refused(lambda: ss.logspace(0, 300, 4, dtype=ss.uint8), "without overflow")


def test_searching_compares_in_the_common_dtype() -> None:
    table = ss.tensor([0.1])
    assert ss.searchsorted(table, 0.1, right=True).item() == 1
    assert ss.bucketize(0.1, table, right=True).item() == 1
    wide = ss.tensor(0.1, dtype=ss.float64)
    assert ss.searchsorted(table, wide, right=True).item() == 1
    assert ss.searchsorted(table, wide.reshape(1), right=True).tolist() == [0]
    assert ss.searchsorted(ss.tensor([1, 2, 3]), 2.5).item() == 2


def test_nan_goes_behind_everything() -> None:
    table = ss.tensor([1.0, 2.0, NAN])
    given = ss.tensor([NAN, 1.5, 5.0])
    assert ss.searchsorted(table, given).tolist() == [3, 1, 3]
    assert ss.searchsorted(table, given, right=True).tolist() == [3, 1, 3]
    assert ss.searchsorted(table[:2].repeat(3, 1), given.reshape(3, 1)).tolist() == [[2], [1], [2]]


@pytest.mark.parametrize(("weights", "taken"), [
    ([0, 5e-324], 1), ([0, 1e-310], 1), ([1e-310, 0], 0), ([0, 1e308], 1)])
def test_draws_of_extreme_weights(weights: Any, taken: int) -> None:
    weights = ss.tensor(weights, dtype=ss.float64)
    assert weights.multinomial(20, replacement=True).tolist() == [taken] * 20
    for _ in range(5):
        assert weights.multinomial(1).tolist() == [taken]


def test_weights_far_apart_come_before_those_of_zero() -> None:
    weights = ss.tensor([0.0, 1e308, 5e-324, 0.0], dtype=ss.float64)
    assert weights.multinomial(2).tolist() == [1, 2]
    heavy = ss.tensor([1e308, 1e308, 0.0], dtype=ss.float64)
    assert sorted(heavy.multinomial(2).tolist()) == [0, 1]


def test_draws_that_have_no_answer() -> None:
    heavy = ss.tensor([1e308, 1e308], dtype=ss.float64)
    refused(lambda: heavy.multinomial(4, replacement=True), "not finite")
    for shape in ((0,), (2, 0)):
        for again in (False, True):
            refused(lambda s=shape, a=again: ss.zeros(s).multinomial(2, a), "no categories")


def test_bounds_of_uniform_numbers() -> None:
    refused(lambda: ss.zeros(2).uniform_(-3e38, 3e38), "to - from")
    refused(lambda: ss.zeros(2, dtype=ss.float16).uniform_(0, 1e6), "to is out of bounds")
    refused(lambda: ss.zeros(2).uniform_(-INF, 0), "from is out of bounds")
    refused(lambda: ss.zeros(2).uniform_(0, NAN), "to is out of bounds")
    assert ss.isfinite(ss.zeros(9, dtype=ss.float16).uniform_(0, 65504)).all()


def test_deviations_that_are_none() -> None:
    for std in (-1.0, NAN):
        refused(lambda s=std: ss.zeros(3).normal_(0, s), "std >= 0")
        refused(lambda s=std: ss.normal(ss.zeros(3), s), "std >= 0")
        refused(lambda s=std: ss.normal(ss.zeros(2), ss.tensor([1.0, s])), "std >= 0")


@pytest.mark.parametrize(("data", "dtype"), [
    ([ss.tensor(0.1, dtype=ss.float64)], ss.float64), ([np.array([0.1])], ss.float64),
    ([np.int32(1)], ss.int32), ([np.float32(1)], ss.float32), ([np.float64(0.1)], ss.float64),
    ([np.int8(1), 2], ss.int64), ([np.float16(1), 2.0], ss.float32),
    ([[1, 2], [ss.tensor(3, dtype=ss.int16), np.uint8(4)]], ss.int64),
    ([np.float16(1), 1j], ss.complex64), ([ss.ones(2), [1, 2]], ss.float32), ([1, 2.0], ss.float32),
])
def test_what_has_a_dtype_keeps_it_in_lists(data: Any, dtype: Any) -> None:
    assert ss.tensor(data).dtype is dtype


def test_integers_beside_fractions_are_exact() -> None:
    values = [2**53 + 1, 0.5, -(2**63), 2**63 - 1]
    assert ss.tensor(values, dtype=ss.int64).tolist() == [2**53 + 1, 0, -(2**63), 2**63 - 1]
    for value in (INF, NAN, 2.0**63):
        refused(lambda v=value: ss.tensor([v, 1], dtype=ss.int64), "without overflow")


def test_what_overflows_is_infinite() -> None:
    assert ss.tensor([1e40]).tolist() == [INF]
    assert ss.tensor(1e6, dtype=ss.float16).item() == INF
    assert ss.tensor([1e40 + 1j]).tolist() == [complex(INF, 1)]
    assert ss.arange(0.0, 1e5, 2e4, dtype=ss.float16).tolist() == [0, 2e4, 4e4, 6e4, INF]


def test_images_for_which_there_is_no_memory() -> None:
    for mode in ("nearest", "nearest-exact", "linear", "area"):
        refused(lambda m=mode: functional.interpolate(ss.ones(1, 1, 4), size=2**62, mode=m),
                "overflowed")
        refused(lambda m=mode: functional.interpolate(ss.ones(1, 1, 4), size=2**50, mode=m),
                "no memory")
    refused(lambda: functional.interpolate(ss.ones(1, 1, 2, 2), size=(2**50, 2), mode="bicubic"),
            "no memory")


def test_a_step_that_is_no_whole_number() -> None:
    for dtype in (ss.int32, ss.int64, ss.uint8):
        refused(lambda d=dtype: ss.arange(0, 5, 0.5, dtype=d), "step must be nonzero")
    assert ss.arange(0, 5, 1.5, dtype=ss.int32).tolist() == [0, 1, 2, 3]

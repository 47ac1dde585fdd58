"""The tensors that results go to, and operands whose sizes do not fit one another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import slipstream as ss
import slipstream.nn.functional as functional


def refused(call: Callable[[], Any], text: str) -> None:
    with pytest.raises(RuntimeError, match=text):
        call()


@pytest.mark.parametrize(("own", "out"), [
    (ss.float32, ss.float64), (ss.int32, ss.int32), (ss.int32, ss.float32), (ss.bool, ss.int8)])
def test_running_sums_in_the_dtype_of_out(own: Any, out: Any) -> None:
    x = ss.tensor([1, 1, 1], dtype=own)
    for op, wanted in ((ss.cumsum, [1, 2, 3]), (ss.cumprod, [1, 1, 1])):
        found = op(x, 0, out=ss.empty(3, dtype=out))
        assert (found.dtype, found.tolist()) == (out, wanted)
    refused(lambda: ss.cumsum(ss.ones(3), 0, out=ss.empty(3, dtype=ss.int64)), "dtype")
    refused(lambda: ss.cumsum(x, 0, dtype=ss.float64, out=ss.empty(3, dtype=ss.int64)), "dtype")


def test_precision_of_running_sums_is_that_of_out() -> None:
    x = ss.tensor([1.0, 2.0**-30])
    assert ss.cumsum(x, 0, out=ss.empty(2, dtype=ss.float64))[1].item() == 1 + 2.0**-30


def test_counts_of_narrow_weights() -> None:
    places = ss.tensor([0, 1, 1])
    for dtype in (ss.float16, ss.bfloat16, ss.int64, ss.float64):
        found = ss.bincount(places, ss.tensor([1, 2, 3], dtype=dtype))
        assert (found.dtype, found.tolist()) == (ss.float64, [1, 5])
    assert ss.bincount(places, ss.tensor([1.0, 2, 3])).dtype is ss.float32


def test_slices_of_nothing_are_not_told_apart() -> None:
    x = ss.zeros(3, 0)
    for call in (lambda: x.unique(dim=0), lambda: x.unique_consecutive(dim=0)):
        refused(call, "0 sized dimensions")
    assert x.unique_consecutive(dim=1).shape == (3, 0)


def test_one_tensor_is_no_two_targets() -> None:
    x, y = ss.tensor([3, 1, 2]), ss.empty(6, dtype=ss.int64)
    for out in ((y[:3], y[:3]), (y[:3], y[2:5])):
        refused(lambda o=out: ss.sort(x, out=o), "two of the written-to tensors")
        refused(lambda o=out: ss.topk(x, 3, out=o), "two of the written-to tensors")
    values, places = ss.sort(x, out=(y[:3], y[3:]))
    assert (values.tolist(), places.tolist()) == ([1, 2, 3], [1, 2, 0])


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("shape", [(1,), (2,), (3, 1), ()])
def test_a_bias_is_of_the_output_channels(rank: int, shape: tuple[int, ...]) -> None:
    x, weight, bias = ss.ones(1, 2, *[4] * rank), ss.ones(3, 2, *[2] * rank), ss.ones(shape)
    text = "expected bias to be 1-dimensional with 3 elements"
    refused(lambda: getattr(functional, f"conv{rank}d")(x, weight, bias), text)
    turned = weight.transpose(0, 1)
    refused(lambda: getattr(functional, f"conv_transpose{rank}d")(x, turned, bias), text)


def test_padding_takes_no_more_than_there_is() -> None:
    x = ss.arange(4.0).reshape(1, 1, 4)
    for sides in ((-5, 3), (3, -5), (-3, -2)):
        for mode in ("constant", "circular"):
            refused(lambda s=sides, m=mode: functional.pad(x, s, mode=m), "negative|takes away")
    for mode in ("reflect", "replicate"):
        refused(lambda m=mode: functional.pad(x, (-2, -2), mode=m), "leaves nothing")
    assert functional.pad(x, (-2, -2)).shape == (1, 1, 0)
    assert functional.pad(x, (-4, 3)).tolist() == [[[0, 0, 0]]]
    assert functional.pad(x, (-1, 2)).tolist() == [[[1, 2, 3, 0, 0]]]


@pytest.mark.parametrize(("dtype", "table", "value", "place"), [
    (ss.int32, [1, 2], 2**40, 2), (ss.uint8, [1, 2, 200], 300, 3), (ss.uint8, [1, 2, 200], -1, 0),
    (ss.int64, [1, 2**60], 2**60, 1), (ss.float16, [1, 2], 1e6, 2), (ss.float32, [1, 2], 2**40, 2)])
def test_searching_wraps_no_number(dtype: Any, table: list[int], value: Any, place: int) -> None:
    row = ss.tensor(table, dtype=dtype)
    assert ss.searchsorted(row, value).item() == place
    assert ss.searchsorted(row, ss.tensor(value)).item() == place
    assert ss.bucketize(ss.tensor([value]), row).tolist() == [place]

"""Writes that were met before: what depends on a call's tensors and numbers is looked at anew."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import slipstream as ss
from slipstream.core.catalog.table import ops
from slipstream.core.dispatch.op import Op, drop_plans
from slipstream.core.vocab.modes import decode_site

COMPILED = not inspect.isfunction(Op.call)
ROUNDS = range(4)


def told(call: Any, kind: type[Exception]) -> str:
    """The text of a call's error."""
    with pytest.raises(kind) as caught:
        call()
    return str(caught.value)


@pytest.mark.skipif(not COMPILED, reason="the uncompiled core makes keys")
@pytest.mark.parametrize("call", [
    lambda x, number: x.add_(number), lambda x, number: x.add(number),
    lambda x, number: x.add_(x, alpha=number), lambda x, number: ss.add(x, number, out=x)])
def test_a_number_that_changes_makes_one_way(call: Any) -> None:
    drop_plans(ops.add)
    x = ss.ones(3)
    for step in range(100):
        call(x, 1.0 + step / 100)
    assert len([way for way in ops.add.ways.table if way is not None]) == 1


@pytest.mark.parametrize("words", [lambda x, y: x.mul(y), lambda x, y: ss.mul(x, other=y)])
def test_operators_are_short_whatever_was_said_before(words: Any) -> None:
    for other in (ss.ones(3), 2.0):
        drop_plans(ops.mul)
        x = ss.ones(3)
        words(x, other)
        for _ in range(2):
            assert (x * other).tolist() == words(x, other).tolist()
        key = (x.spec, other.spec if isinstance(other, ss.Tensor) else float, 0)
        assert ops.mul.binary[key] in ops.mul.plans.values()
        assert len(ops.mul.binary) == len(ops.mul.plans) == 1


def test_numbers_told_by_their_types_are_each_calls_own() -> None:
    x, expected = ss.zeros(3), np.zeros(3, np.float32)
    for number in (1.5, 2.5, 3, True, -7, 0.0, 1, 2 ** 40, False):
        x.add_(number)
        expected += np.float32(number)
        x.mul_(2.0)
        expected *= 2
        assert x.tolist() == expected.tolist()
        assert (x + number).tolist() == x.add(number).tolist() == ss.add(x, number).tolist()
    for alpha in (1, 2, 1.0, 0.5, -1.25, 1, 3):
        x.add_(ss.ones(3), alpha=alpha)
        expected += np.float32(alpha)
        assert x.tolist() == expected.tolist()
        assert x.add(x, alpha=alpha).tolist() == (expected * np.float32(1 + alpha)).tolist()


@pytest.mark.parametrize("call", [
    lambda x, number: x.add_(number), lambda x, number: x.add(number),
    lambda x, number: x.add_(x, alpha=number), lambda x, number: x.add(x, alpha=number),
    lambda x, number: x.clamp_(-1.0, number)])
def test_a_type_is_no_number_of_its_own(call: Any) -> None:
    x = ss.ones(3)
    first = told(lambda: call(x, float), TypeError)
    for _ in ROUNDS:
        call(x, 2.5)
        call(x, 3)
    assert told(lambda: call(x, float), TypeError) == first
    assert told(lambda: call(x, int), TypeError) == first


@pytest.mark.parametrize(("dtype", "fits", "number"), [
    (ss.int8, 100, 128), (ss.int8, -128, -129), (ss.int8, 3.0, 128.5), (ss.uint8, 255, 256),
    (ss.float16, 6e4, 7e4), (ss.float32, 3e38, 1e39), (ss.int64, 2 ** 62, 2 ** 63),
    (ss.int64, 1.0, 2.0 ** 64), (ss.int32, 5.0, float("nan"))])
def test_a_number_out_of_range_is_refused_however_often_others_fitted(
        dtype: Any, fits: Any, number: Any) -> None:
    x = ss.zeros(3, dtype=dtype)
    first = told(lambda: x.fill_(number), RuntimeError)
    for _ in ROUNDS:
        x.fill_(fits)
        assert x[0].item() == x.fill(fits)[1].item()
    before = x.tolist()
    assert told(lambda: x.fill_(number), RuntimeError) == first
    assert "value" in first
    assert x.tolist() == before


def test_numbers_that_only_floats_have_are_stored() -> None:
    x = ss.zeros(2)
    for number in (1.0, float("inf"), -float("inf"), float("nan")) * 2:
        x.fill_(number)
        assert np.array_equal(x.numpy(), np.full(2, number, np.float32), equal_nan=True)


def test_shared_memory_is_looked_at_in_every_call() -> None:
    whole = ss.arange(6.0)
    other = ss.arange(5.0)
    for _ in ROUNDS:
        whole[1:].add_(other)
    expected = whole.numpy().copy()
    for _ in ROUNDS:
        whole[1:].add_(whole[:-1])
        expected[1:] += expected[:-1].copy()
        assert whole.tolist() == expected.tolist()
        ss.add(whole[:-1], other, out=other)
        ss.add(whole[:-1], whole[1:], out=whole[1:])
        expected[1:] += expected[:-1].copy()
        assert whole.tolist() == expected.tolist()


def test_one_place_written_twice_is_refused() -> None:
    apart, wide = ss.zeros(3, 2), ss.zeros(3, 1).expand(3, 2)
    first = told(lambda: wide.add_(1.0), RuntimeError)
    for _ in ROUNDS:
        apart.add_(1.0)
        assert told(lambda: wide.add_(1.0), RuntimeError) == first
        assert told(lambda: ss.add(apart, 1.0, out=wide), RuntimeError)


def test_read_only_memory_is_refused() -> None:
    array = np.zeros(3, np.float32)
    array.setflags(write=False)
    ours, theirs = ss.zeros(3), ss.from_numpy(array)
    for _ in ROUNDS:
        ours.add_(1.0)
        assert "read-only" in told(lambda: theirs.add_(1.0), ValueError)
        ss.add(ours, ours, out=ours)
        assert "read-only" in told(lambda: ss.add(ours, ours, out=theirs), ValueError)


def test_a_result_of_another_dtype_is_refused() -> None:
    x, y = ss.arange(3), ss.zeros(3)
    for _ in ROUNDS:
        x.add_(1)
        assert "can't be cast" in told(lambda: x.add_(1.5), RuntimeError)
        ss.add(x, x, out=y)
        assert "can't be cast" in told(lambda: ss.add(y, y, out=x), RuntimeError)


def test_what_autograd_forbids_is_refused() -> None:
    x = ss.zeros(3)
    for _ in ROUNDS:
        x.add_(1.0)
        ss.add(x, 1.0, out=x)
    leaf = ss.zeros(3, requires_grad=True)
    for _ in ROUNDS:
        assert "leaf" in told(lambda: leaf.add_(1.0), RuntimeError)
        assert "out=" in told(lambda: ss.add(leaf, 1.0, out=x), RuntimeError)
        assert "out=" in told(lambda: ss.add(x, 1.0, out=leaf), RuntimeError)
        with ss.no_grad():
            leaf.add_(1.0)
            ss.add(x, 1.0, out=leaf)
    x.add_(leaf)
    assert x.requires_grad


def test_writes_are_counted_and_know_their_lines() -> None:
    x = ss.ones(3)
    lines = []
    for step in ROUNDS:
        before = x._version
        x.add_(1.0)
        lines.append(decode_site(*x.storage.write_site)[1])
        ss.add(x, 1.0, out=x)
        lines.append(decode_site(*x.storage.write_site)[1])
        assert x._version == before + 2
        assert lines == [lines[0], lines[0] + 2] * (step + 1)


def test_an_out_of_another_shape_is_resized_each_time() -> None:
    a = ss.arange(4.0)
    for _ in ROUNDS:
        out = ss.zeros(0)
        assert ss.add(a, a, out=out) is out
        assert out.tolist() == [0.0, 2.0, 4.0, 6.0]
        wide = ss.zeros(4)
        assert ss.add(a, 1.0, out=wide).tolist() == [1.0, 2.0, 3.0, 4.0]
        with pytest.warns(UserWarning, match="resized"):
            ss.add(a, a, out=ss.zeros(2))


def test_modes_see_writes_that_were_met_before() -> None:
    x = ss.zeros(3)
    for _ in ROUNDS:
        x.add_(1.0)
        ss.add(x, x, out=x)
        x.add(x)
    with ss.RecordMode() as seen:
        x.add_(1.0)
        ss.add(x, x, out=x)
        x.add(x)
    assert len(seen.calls) == 3

"""Writes by index: the last duplicate wins, sums are taken in order, whatever the sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import slipstream as ss
from gpu.families.sides import (
    COMPLEX,
    DTYPES,
    FLOATS,
    INTEGERS,
    check,
    numbers,
    places,
    shifted,
    tensor,
)

# Positions: few look through all, more are ranked, many are sorted by digits; a table for writes.
COUNTS = (7, 300, 5000)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("rows", [5, 4000])
def test_the_last_duplicate_wins(count: int, rows: int) -> None:
    index, source = places(1, count, rows), numbers(2, (count, 3))

    def call(device: str) -> Any:
        out = ss.zeros(rows, 3, device=device)
        out[tensor(index, device)] = tensor(source, device)
        return out

    check(call)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("rows", [5, 4000])
def test_sums_are_taken_in_order(count: int, rows: int) -> None:
    index, source = places(3, count, rows), numbers(4, (count, 3))

    def call(device: str) -> Any:
        out = tensor(numbers(5, (rows, 3)), device)
        return out.index_add(0, tensor(index, device), tensor(source, device))

    check(call)


def test_many_positions_and_few_targets_are_sorted_by_digits() -> None:
    # More comparisons than ranking is for: 2**24.
    count = 20000
    index, source = places(6, count, 70000), numbers(7, count)

    def call(device: str) -> Any:
        out = ss.zeros(70000, device=device)
        added = out.index_add(0, tensor(index, device), tensor(source, device))
        written = ss.zeros(70000, device=device)
        written[tensor(index % 3, device)] = tensor(source, device)
        return added, written

    check(call)


def test_few_targets_among_very_many() -> None:
    index, source = places(8, 200, 1 << 20), numbers(9, 200)

    def call(device: str) -> Any:
        out = ss.zeros(1 << 20, device=device)
        out[tensor(index, device)] = tensor(source, device)
        return out

    check(call)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [6, 100])
def test_dtypes(dtype: Any, count: int) -> None:
    index, source = places(10, (count, 2), 4), numbers(11, (count, 2), dtype)
    own = numbers(12, (4, 2), dtype)
    ulps = 4.0 * count if dtype in (ss.float16, ss.bfloat16) else 0.0

    def call(device: str) -> Any:
        args = (0, tensor(index, device), tensor(source, device))
        out = tensor(own, device)
        return out.scatter(*args), out.scatter_add(*args)

    check(call, ulps)


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS[2:], *COMPLEX])
def test_products_and_numbers(dtype: Any) -> None:
    index, source = places(13, (5, 3), 4), numbers(14, (5, 3), dtype)
    own = numbers(15, (4, 3), dtype)
    value = 1 + 2j if dtype in COMPLEX else 2.5 if dtype in FLOATS else -3

    def call(device: str) -> Any:
        out, where = tensor(own, device), tensor(index, device)
        return (out.scatter(0, where, tensor(source, device), reduce="multiply"),
                out.scatter(0, where, value), out.scatter(0, where, value, reduce="add"),
                out.scatter(0, where, value, reduce="multiply"))

    check(call, 4.0)


@pytest.mark.parametrize("count", [3, 100])
def test_views_with_an_offset_in_place(count: int) -> None:
    own, index, source = numbers(16, (9, 4)), places(17, count, 9), numbers(18, (count, 4))

    def call(device: str) -> Any:
        out = shifted(own, device)
        out.index_add_(0, shifted(index, device), shifted(source, device))
        turned = shifted(own, device).t()
        turned[:, shifted(index, device)] = shifted(source, device).t()
        return out, turned.contiguous()

    check(call)


def test_several_indices_that_broadcast_and_wrap() -> None:
    own, value = numbers(19, (4, 5, 6)), numbers(20, (2, 5, 3))
    rows, columns = np.array([[-1], [2]]), np.array([0, -6, 3])

    def call(device: str) -> Any:
        x = tensor(own, device)
        where = (tensor(rows, device), slice(None), tensor(columns, device))
        read = x[where]
        x[where] = tensor(value.transpose(0, 2, 1), device)
        x[:, 2, tensor(columns, device)] += 1.0
        return read, x

    check(call)


@pytest.mark.parametrize("dtype", [ss.int32, ss.int64])
def test_index_dtypes(dtype: Any) -> None:
    own, index = numbers(21, (6, 2)), places(22, 5, 6).astype(dtype.numpy)

    def call(device: str) -> Any:
        x, where = tensor(own, device), tensor(index, device)
        return x[where], x.index_select(0, where), ss.embedding(x, where)

    check(call)


def test_nothing_is_written_without_indices() -> None:
    def call(device: str) -> Any:
        x = tensor(numbers(23, (3, 2)), device)
        none = ss.zeros(0, dtype=ss.int64, device=device)
        x[none] = 1.0
        return x, x[none], x.index_add(0, none, ss.zeros(0, 2, device=device))

    check(call)


@pytest.mark.parametrize("padding", [None, 2])
@pytest.mark.parametrize("scaled", [False, True])
def test_the_gradient_of_an_embedding(padding: int | None, scaled: bool) -> None:
    table, index, grad = numbers(24, (7, 4)), places(25, (6, 20), 7), numbers(26, (6, 20, 4))

    def call(device: str) -> Any:
        weight = tensor(table, device).requires_grad_(True)
        layer = ss.nn.functional.embedding
        out = layer(tensor(index, device), weight, padding_idx=padding, scale_grad_by_freq=scaled)
        out.backward(tensor(grad, device))
        return out, weight.grad

    check(call, 2.0)

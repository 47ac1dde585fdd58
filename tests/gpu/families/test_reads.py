"""Reads by index and copies: rows in one access where they lie so, else element by element."""

from __future__ import annotations

from typing import Any

import pytest

import slipstream as ss
from gpu.families.sides import DTYPES, check, numbers, places, shifted, tensor


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [1, 8, 16, 33])
def test_rows(dtype: Any, width: int) -> None:
    table, index = numbers(1, (6, width), dtype), places(2, (3, 5), 6)

    def call(device: str) -> Any:
        where = tensor(index, device)
        found = []
        for make in (tensor, shifted):
            x = make(table, device)
            found += [x[where], ss.embedding(x, where), x.index_select(0, where[0]),
                      x.t().index_select(1, where[0]), x[1:, width // 2:][where % 5]]
        return found

    check(call)


@pytest.mark.parametrize("dtype", [ss.bool, ss.float16, ss.float32, ss.complex128])
def test_columns_and_copies(dtype: Any) -> None:
    table, index = numbers(3, (4, 9, 16), dtype), places(4, (4, 2, 16), 9)

    def call(device: str) -> Any:
        x, where = tensor(table, device), tensor(index, device)
        turned = x.transpose(0, 1)
        # The copy of the target goes before what is written.
        return (x.gather(1, where), turned.gather(0, where.transpose(0, 1)), x[:, where[0, 0]],
                turned.index_copy(2, where[0, 0, :1], x[:, :, :1].transpose(0, 1)),
                x[..., 1:].index_copy(0, where[0, 0, :1] % 4, x[:1, :, 1:]))

    check(call)


def test_out_and_what_is_empty() -> None:
    def call(device: str) -> Any:
        x = tensor(numbers(5, (4, 6)), device)
        out = ss.zeros(6, 3, device=device).t()
        ss.index_select(x, 0, tensor(places(6, 3, 4), device), out=out)
        none = ss.zeros(0, dtype=ss.int64, device=device)
        return out, x[none], ss.zeros(3, 0, device=device)[none + 1]

    check(call)

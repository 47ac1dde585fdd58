"""NumPy's scalars as operands are what Python's numbers are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import slipstream as ss

WAYS = {
    "add": lambda x, n: x + n, "multiply": lambda x, n: x * n, "reflected": lambda x, n: n - x,
    "divide": lambda x, n: x / n, "alpha": lambda x, n: ss.add(x, x, alpha=n),
    "where": lambda x, n: ss.where(x > 1, n, x), "fill": lambda x, n: x.clone().fill_(n),
    "masked_fill": lambda x, n: x.masked_fill(x > 1, n), "less": lambda x, n: x == n,
    "in place": lambda x, n: x.clone().add_(n), "full_like": lambda x, n: ss.full_like(x, n),
}
REFUSED = {("alpha", True)}


def result(way: str, dtype: Any, number: Any) -> Any:
    """What an op gives, or the kind of its error."""
    x = ss.tensor([1, 2]).to(dtype)
    try:
        made = WAYS[way](x, number)
    except (RuntimeError, TypeError, ValueError) as error:
        return type(error)
    return made.dtype, made.tolist()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("number", [
    np.complex64(1 + 2j), np.complex128(1 + 2j), np.True_, np.False_, np.float16(0.5),
    np.float32(0.5), np.float64(0.5), np.int8(3), np.uint8(200), np.int64(-3)],
    ids=lambda number: f"{type(number).__name__}")
@pytest.mark.parametrize("dtype", [ss.float32, ss.int32, ss.bool, ss.complex64])
def test_a_scalar_of_numpys_is_a_number(way: str, number: Any, dtype: Any) -> None:
    # As text: nan equals nothing.
    assert repr(result(way, dtype, number)) == repr(result(way, dtype, number.item()))

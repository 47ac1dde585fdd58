"""Large walks run in parts on several threads: the values, and the errors, of one walk."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import slipstream as ss

ROWS, COLUMNS = 300, 200


@pytest.fixture(params=[1, 3])
def threads(request: Any) -> Iterator[int]:
    before = ss.get_num_threads()
    ss.set_num_threads(request.param)
    yield request.param
    ss.set_num_threads(before)


def drawn(dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    """Numbers, and places along either dim."""
    random = np.random.RandomState(3)
    return (random.randint(-9, 9, (ROWS, COLUMNS)).astype(dtype.numpy),
            random.randint(0, COLUMNS, (ROWS, COLUMNS)))


@pytest.mark.parametrize("dtype", [ss.float32, ss.float64, ss.int64, ss.int32, ss.int8], ids=str)
def test_values(threads: int, dtype: Any) -> None:
    x, places = drawn(dtype)
    for view in (lambda a: a, lambda a: np.ascontiguousarray(a.T).T):
        tensor, index = ss.from_numpy(view(x)), ss.from_numpy(view(places))
        along = np.take_along_axis(x, places, 1)
        np.testing.assert_array_equal(tensor.gather(1, index).numpy(), along)
        np.testing.assert_array_equal(tensor[:, index[0]].numpy(), x[:, places[0]])
        added, written = x.copy(), x.copy()
        np.add.at(added, (np.arange(ROWS)[:, None], places), x)
        np.testing.assert_array_equal(tensor.scatter_add(1, index, tensor).numpy(), added)
        for column in range(COLUMNS):
            written[np.arange(ROWS), places[:, column]] = x[:, column]
        np.testing.assert_array_equal(tensor.scatter(1, index, tensor).numpy(), written)
        down = places % ROWS
        added = np.zeros_like(x)
        np.add.at(added, (down, np.arange(COLUMNS)[None, :]), x)
        found = ss.zeros(ROWS, COLUMNS, dtype=dtype).scatter_add_(
            0, ss.from_numpy(view(down)), tensor)
        np.testing.assert_array_equal(found.numpy(), added)


def test_the_first_bad_index_is_named_and_nothing_is_written(threads: int) -> None:
    x, places = drawn(ss.float32)
    places[290, 5], places[40, 7], places[41, 0] = -3, 1234, 999
    index = ss.from_numpy(places)
    target = ss.from_numpy(x.copy())
    with pytest.raises((RuntimeError, IndexError), match="index 1234 is out of bounds"):
        target.gather(1, index)
    with pytest.raises((RuntimeError, IndexError), match="index 1234 is out of bounds"):
        target.scatter_add_(1, index, target.clone())
    np.testing.assert_array_equal(target.numpy(), x)


@pytest.mark.parametrize("bad", [-201, 200, 2**63 - 1, -2**63])
def test_far_indices(threads: int, bad: int) -> None:
    x, places = drawn(ss.float32)
    places[299, 199] = bad
    rows = ss.from_numpy(np.arange(ROWS)[:, None])
    with pytest.raises(IndexError, match=f"index {bad} is out of bounds"):
        ss.from_numpy(x)[rows, ss.from_numpy(places)]
    with pytest.raises((RuntimeError, IndexError), match=f"index {bad} is out of bounds"):
        ss.from_numpy(x).scatter(1, ss.from_numpy(places), 0.0)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("dtype", [ss.float32, ss.float64, ss.complex64, ss.complex128], ids=str)
def test_a_sum_in_parts_that_is_not_finite(threads: int, dtype: Any, value: float) -> None:
    # In the first part, in the middle, and in the last one; along rows and down columns.
    for place in (3, 65536, (1 << 17) - 1):
        x = np.ones(1 << 17, dtype.numpy)
        x[place] = value
        np.testing.assert_array_equal(ss.from_numpy(x).sum().numpy(), x.sum())
    for row in (0, 1500, 2999):
        x = np.ones((3000, 64), dtype.numpy)
        x[row, 1] = value
        np.testing.assert_array_equal(ss.from_numpy(x).sum(0).numpy(), x.sum(0))
        np.testing.assert_array_equal(ss.from_numpy(x).sum(1).numpy(), x.sum(1))

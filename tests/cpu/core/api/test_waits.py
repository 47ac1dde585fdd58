"""Waits on devices of the host, and the forms of ops that wait for nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import slipstream as ss
from slipstream.core.api import waits
from slipstream.core.launch.waiting import watching


def test_nothing_waits_for_the_cpu() -> None:
    x = ss.tensor([1.0, 0.0, 2.0])
    before = sum(tally.count for tally in watching.waits.values())
    with ss.no_sync():
        assert x.sum().item() == 3.0
        assert x.nonzero().tolist() == [[0], [2]]
        assert bool(x.any())
        x.numpy()
        repr(x)
    assert sum(tally.count for tally in watching.waits.values()) == before


def test_the_delayed_device_is_waited_for() -> None:
    x = ss.ones(3).to("delay") * 2
    with ss.no_sync(), pytest.raises(ss.SyncError, match="would wait for delay") as caught:
        x.tolist()
    assert "tolist(" in str(caught.value)
    assert isinstance(caught.value, RuntimeError)
    assert x.tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize(("mode", "error"), [
    ("loud", RuntimeError), (3, RuntimeError), (-1, RuntimeError), (True, TypeError),
    (None, TypeError), (1.0, TypeError)])
def test_modes_that_do_not_exist(mode: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="debug_mode"):
        waits.set_sync_debug_mode(mode)
    assert waits.get_sync_debug_mode() == 0


@pytest.mark.parametrize("size", [0, 1, 3, 4, 9])
@pytest.mark.parametrize("shape", [(7,), (2, 5), (3, 0), ()])
def test_places_of_a_fixed_number(shape: tuple[int, ...], size: int) -> None:
    array = np.asarray(np.random.default_rng(3).integers(0, 3, shape), np.float32)
    x = ss.tensor(array)
    wanted = np.full((size, len(shape)), -1)
    found = np.argwhere(array)[:size]
    wanted[:len(found)] = found
    np.testing.assert_array_equal(x.nonzero(size=size).numpy(), wanted)
    np.testing.assert_array_equal(ss.nonzero_static(x, size=size).numpy(), wanted)
    if shape:
        columns = ss.nonzero(x, as_tuple=True, size=size, fill_value=5)
        wanted[len(found):] = 5
        for column, expected in zip(columns, wanted.T, strict=True):
            np.testing.assert_array_equal(column.numpy(), expected)


@pytest.mark.parametrize("size", [0, 2, 5, 20])
def test_elements_of_a_fixed_number(size: int) -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    mask = array % 3 == 1
    wanted = np.full(size, 9, np.float32)
    wanted[:4] = array[mask][:size]
    found = ss.masked_select(ss.tensor(array), ss.tensor(mask), size=size, fill_value=9)
    assert found.dtype == ss.float32
    np.testing.assert_array_equal(found.numpy(), wanted)
    rows = ss.masked_select(ss.tensor(array), ss.tensor([True, False, True, False]), size=size)
    expected = np.zeros(size, np.float32)
    some = array[:, [0, 2]].reshape(-1)[:size]
    expected[:len(some)] = some
    np.testing.assert_array_equal(rows.numpy(), expected)


def test_gradients_reach_what_was_selected() -> None:
    x = ss.arange(6, dtype=ss.float32).requires_grad_()
    found = ss.masked_select(x, x.detach() % 2 == 1, size=5)
    (found * ss.tensor([1.0, 2.0, 3.0, 4.0, 5.0])).sum().backward()
    assert x.grad.tolist() == [0.0, 1.0, 0.0, 2.0, 0.0, 3.0]


def test_sizes_are_checked() -> None:
    with pytest.raises(RuntimeError, match="non-negative"):
        ss.ones(3).nonzero(size=-1)
    with pytest.raises(RuntimeError, match="non-negative"):
        ss.masked_select(ss.ones(3), ss.ones(3) > 0, size=-2)


@pytest.mark.parametrize(("row", "col", "offset"), [
    (3, 3, 0), (2, 4, 1), (4, 2, -1), (3, 3, 5), (3, 3, -5), (0, 3, 0), (3, 0, 0)])
def test_triangles_know_how_many_they_are(row: int, col: int, offset: int) -> None:
    np.testing.assert_array_equal(ss.tril_indices(row, col, offset).numpy(),
                                  np.array(np.tril_indices(row, offset, col)))
    np.testing.assert_array_equal(ss.triu_indices(row, col, offset).numpy(),
                                  np.array(np.triu_indices(row, offset, col)))

"""Sorting, searching and distinct elements beyond the catalogue's samples."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import slipstream as ss

ROWS = st.lists(st.integers(-3, 3), min_size=1, max_size=24)


@settings(max_examples=60, deadline=None)
@given(ROWS, st.booleans())
def test_sort_is_stable(row: list[int], descending: bool) -> None:
    values, indices = ss.tensor(row).sort(descending=descending)
    places = sorted(range(len(row)), key=lambda place: -row[place] if descending else row[place])
    assert indices.tolist() == places
    assert values.tolist() == [row[place] for place in places]


@settings(max_examples=60, deadline=None)
@given(ROWS, st.booleans(), st.data())
def test_topk_takes_the_first_of_equals(row: list[int], largest: bool, data: Any) -> None:
    k = data.draw(st.integers(0, len(row)))
    long = row * 9
    found = ss.tensor(long).topk(k, largest=largest)
    places = sorted(range(len(long)), key=lambda place: -long[place] if largest else long[place])
    assert found.indices.tolist() == places[:k]


def test_nan_is_the_largest() -> None:
    x = ss.tensor([2.0, math.nan, 1.0])
    assert x.sort().indices.tolist() == [2, 0, 1]
    assert x.sort(descending=True).indices.tolist() == [1, 0, 2]
    assert math.isnan(x.topk(1).values.item())
    assert math.isnan(x.median().item())
    assert x.kthvalue(2).values.item() == 2.0


def test_results_have_names_and_targets() -> None:
    x = ss.tensor([[3.0, 1.0], [2.0, 4.0]])
    values, indices = ss.empty(2), ss.empty(2, dtype=ss.int64)
    found = ss.max(x, 1, out=(values, indices))
    assert found.values is values
    assert found.indices is indices
    assert values.tolist() == [3.0, 4.0]
    assert indices.tolist() == [0, 1]
    with pytest.raises(RuntimeError):
        ss.max(x, 1, out=(ss.empty(2, dtype=ss.int64), indices))


@settings(max_examples=60, deadline=None)
@given(ROWS)
def test_unique_against_numpy(row: list[int]) -> None:
    x = ss.tensor(row)
    found = x.unique(return_inverse=True, return_counts=True)
    wanted = np.unique(row, return_inverse=True, return_counts=True)
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs)
    assert x.unique().tolist() == found[0].tolist()


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 2)), min_size=1, max_size=12))
def test_unique_rows(rows: list[tuple[int, int]]) -> None:
    found = ss.tensor([list(row) for row in rows]).unique(dim=0, return_inverse=True,
                                                          return_counts=True)
    wanted = np.unique(rows, axis=0, return_inverse=True, return_counts=True)
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.reshape(ours.shape))


def test_bad_arguments() -> None:
    x = ss.arange(4.0)
    for call in (lambda: x.topk(5), lambda: x.topk(-1), lambda: x.kthvalue(0),
                 lambda: x.sort(1), lambda: ss.tensor([1j]).sort(),
                 lambda: ss.bincount(ss.tensor([-1])), lambda: ss.bincount(x),
                 lambda: ss.searchsorted(x, x, side="middle")):
        with pytest.raises((RuntimeError, IndexError)):
            call()


def test_meta_has_no_elements_to_sort() -> None:
    x = ss.empty(3, 4, device="meta")
    assert x.sort(0).indices.shape == (3, 4)
    assert x.topk(2).values.shape == (3, 2)
    assert x.median(1).values.shape == (3,)
    with pytest.raises(NotImplementedError):
        x.unique()


def test_topk_of_no_dims_is_the_element_also_for_none() -> None:
    x = ss.tensor(3.0)
    for k in (0, 1):
        values, indices = x.topk(k)
        assert (values.item(), indices.item()) == (3.0, 0)
    assert ss.tensor([3.0]).topk(0).values.shape == (0,)


@pytest.mark.parametrize(("values", "shares"), [
    ([1.0, 1.0, 0.0], [0.5, 0.5, 0.0]), ([3.0, 1.0, 2.0, 2.0, 2.0], [0, 0, 1 / 3, 1 / 3, 1 / 3]),
    ([math.nan, 1.0, math.nan], [0.5, 0.0, 0.5])])
def test_elements_that_are_the_median_share_its_gradient(values: list[float],
                                                         shares: list[float]) -> None:
    x = ss.tensor(values, requires_grad=True)
    x.median().backward()
    assert x.grad.tolist() == pytest.approx(shares)

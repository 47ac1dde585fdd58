"""einsum and its kin against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import slipstream as ss

SIZES = {"a": 2, "b": 3, "c": 1, "d": 4}


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_random_equations(data: Any) -> None:
    terms = [data.draw(st.lists(st.sampled_from("abcd"), max_size=3, unique=True))
             for _ in range(data.draw(st.integers(1, 3)))]
    known = sorted({label for term in terms for label in term})
    output = data.draw(st.lists(st.sampled_from(known), unique=True)) if known else []
    text = ",".join("".join(term) for term in terms) + "->" + "".join(output)
    random = np.random.RandomState(len(text))
    arrays = [np.asarray(random.randn(*[SIZES[label] for label in term])) for term in terms]
    found = ss.einsum(text, *[ss.tensor(array) for array in arrays])
    np.testing.assert_allclose(found.numpy(), np.einsum(text, *arrays), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("equation", ["ii->i", "ii", "...ij->...ji", "i...->...", "bij,bjk->bik"])
def test_diagonals_and_ellipses(equation: str) -> None:
    random = np.random.RandomState(1)
    arrays = [random.randn(*((3, 3) if "b" not in equation else (3, 3, 3)))
              for _ in range(equation.count(",") + 1)]
    found = ss.einsum(equation, [ss.tensor(array) for array in arrays])
    np.testing.assert_allclose(found.numpy(), np.einsum(equation, *arrays), rtol=1e-9)


def test_the_form_with_lists() -> None:
    a, b = ss.rand(2, 3), ss.rand(3, 4)
    found = ss.einsum(a, [0, 1], b, [1, 2], [0, 2])
    assert ss.allclose(found, a @ b)


@pytest.mark.parametrize("equation", ["ij", "ijk,k", "ij,jk->il", "ij->ijj", "i1->i"])
def test_bad_equations(equation: str) -> None:
    with pytest.raises(RuntimeError):
        ss.einsum(equation, ss.ones(2, 2), ss.ones(2, 2))


def test_beta_zero_reads_nothing() -> None:
    nan = ss.full((1, 1, 1), float("nan"))
    eye = ss.eye(2)[None]
    assert ss.baddbmm(nan, eye, eye, beta=0).tolist() == [[[1, 0], [0, 1]]]


def test_operators_in_both_orders() -> None:
    x = ss.tensor([2, 3])
    assert (7 // x).tolist() == [3, 2]
    assert (7 % x).tolist() == [1, 1]
    assert (2 ** x).tolist() == [4, 8]
    assert (-7 // x).tolist() == [-4, -3]
    assert (-x % 2).tolist() == [0, 1]
    y = x.clone()
    y //= 2
    assert y.tolist() == [1, 1]
    y = x.clone()
    y %= 2
    assert y.tolist() == [0, 1]

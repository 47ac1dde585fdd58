"""fill_diagonal_: it only writes in place, so no sample of the catalogue runs it."""

from __future__ import annotations

import numpy as np
import pytest

import slipstream as ss


@pytest.mark.parametrize("shape", [(3, 3), (2, 4), (7, 3), (8, 3), (3, 3, 3), (4, 1)])
@pytest.mark.parametrize("wrap", [False, True])
def test_against_numpy(shape, wrap):
    x = ss.zeros(shape)
    expected = np.zeros(shape, np.float32)
    np.fill_diagonal(expected, 5, wrap)
    assert x.fill_diagonal_(5, wrap) is x
    np.testing.assert_array_equal(x.numpy(), expected)


def test_views_and_values():
    x = ss.zeros(4, 3)
    x.T.fill_diagonal_(ss.tensor(2.0))
    assert [x[i, i].item() for i in range(3)] == [2.0] * 3
    assert x.sum().item() == 6.0


def test_gradient():
    def function(x):
        return (x * 1).fill_diagonal_(3.0) ** 2

    assert ss.autograd.gradcheck(function, (ss.randn(3, 3, dtype=ss.float64, requires_grad=True),))


@pytest.mark.parametrize("shape", [(3,), (2, 3, 2)])
def test_what_is_refused(shape):
    with pytest.raises(RuntimeError, match="dimensions"):
        ss.zeros(shape).fill_diagonal_(1)
    with pytest.raises(RuntimeError, match="leaf"):
        ss.zeros(2, 2, requires_grad=True).fill_diagonal_(1)


def test_variable():
    x = ss.ones(2)
    assert ss.autograd.Variable(x) is x
    assert ss.autograd.Variable(x, requires_grad=True).requires_grad
    with pytest.raises(TypeError, match="list"):
        ss.autograd.Variable([1.0])

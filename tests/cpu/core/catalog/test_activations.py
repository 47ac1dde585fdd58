"""silu, leaky_relu, softplus and dropout."""

from __future__ import annotations

import numpy as np
import pytest
from slopes import check_slopes

import slipstream as ss

X = np.random.RandomState(6).uniform(-3.0, 3.0, (3, 4))


def test_values() -> None:
    x = ss.tensor(X)
    np.testing.assert_allclose(ss.silu(x).numpy(), X / (1 + np.exp(-X)), rtol=1e-12)
    np.testing.assert_allclose(ss.leaky_relu(x, 0.2).numpy(), np.where(X > 0, X, X * 0.2))
    np.testing.assert_allclose(ss.softplus(x, 2.0).numpy(), np.log1p(np.exp(2 * X)) / 2, rtol=1e-12)
    assert ss.softplus(ss.tensor([1e4])).tolist() == [1e4]


@pytest.mark.parametrize("function", [ss.silu, ss.leaky_relu, ss.softplus])
def test_gradients(function: object) -> None:
    check_slopes(function, X)


def test_in_place() -> None:
    x = ss.tensor(X)
    assert ss.leaky_relu(x, 0.5, inplace=True) is x
    np.testing.assert_allclose(x.numpy(), np.where(X > 0, X, X * 0.5))
    with pytest.raises(NotImplementedError):
        ss.silu(ss.tensor([1]))


def test_dropout_scales_what_it_keeps() -> None:
    ss.manual_seed(0)
    x = ss.ones(1000, requires_grad=True)
    found = ss.dropout(x, 0.25)
    values = set(found.tolist())
    assert values == {0.0, np.float32(1 / 0.75).item()}
    assert 0.7 < (found.data != 0).sum().item() / 1000 < 0.8
    found.sum().backward()
    assert x.grad.tolist() == found.tolist()


def test_dropout_without_training() -> None:
    x = ss.ones(3)
    assert ss.dropout(x, 0.5, False) is x
    assert ss.dropout(x, 0.0) is x
    assert ss.dropout(x, 1.0).tolist() == [0.0, 0.0, 0.0]
    assert ss.dropout(x, 1.0, inplace=True) is x
    assert x.tolist() == [0.0, 0.0, 0.0]
    with pytest.raises(ValueError, match="between 0 and 1"):
        ss.dropout(x, 1.5)

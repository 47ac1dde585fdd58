"""The short way through everything: what has to work wherever the package installs."""

from __future__ import annotations

import numpy as np
import pytest

import slipstream as ss

pytestmark = pytest.mark.smoke


def test_a_plus_b() -> None:
    a = ss.tensor([1.0, 2.0, 3.0])
    b = ss.tensor([10.0, 20.0, 30.0])
    result = a + b
    assert result.dtype is ss.float32
    assert result.tolist() == [11.0, 22.0, 33.0]


def test_broadcasting_and_promotion() -> None:
    a = ss.arange(6).reshape(2, 3)
    result = a * 0.5
    assert result.dtype is ss.float32
    assert tuple((result + ss.ones(3)).shape) == (2, 3)


def test_views_share_storage() -> None:
    a = ss.zeros(2, 3)
    a[:, 1] = 5.0
    view = a.transpose(0, 1)
    view[0, 1] = 7.0
    assert a.tolist() == [[0.0, 5.0, 0.0], [7.0, 5.0, 0.0]]


def test_numpy_shares_memory() -> None:
    array = np.arange(4, dtype=np.float64)
    tensor = ss.from_numpy(array)
    array[0] = 9.0
    assert tensor[0].item() == 9.0
    assert np.shares_memory(tensor.numpy(), array)


def test_gradient() -> None:
    x = ss.tensor([0.0, 1.0, 2.0], requires_grad=True)
    (x * x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [0.0, 2.0, 4.0]


def test_matmul_and_softmax() -> None:
    rng = np.random.default_rng(0)
    a = rng.standard_normal((4, 5)).astype(np.float32)
    b = rng.standard_normal((5, 3)).astype(np.float32)
    product = ss.from_numpy(a) @ ss.from_numpy(b)
    np.testing.assert_allclose(product.numpy(), a @ b, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(product.softmax(-1).sum(-1).numpy(), np.ones(4), rtol=1e-6)


def test_a_step_of_training_lowers_the_loss() -> None:
    ss.manual_seed(0)
    model = ss.nn.Sequential(ss.nn.Linear(4, 8), ss.nn.ReLU(), ss.nn.Linear(8, 2))
    optimizer = ss.optim.AdamW(model.parameters(), lr=0.05)
    inputs, targets = ss.randn(16, 4), ss.tensor([0, 1] * 8)
    losses = []
    for _ in range(20):
        loss = ss.nn.functional.cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


def test_wrong_shapes_raise() -> None:
    with pytest.raises(RuntimeError):
        ss.ones(2, 3) + ss.ones(4)

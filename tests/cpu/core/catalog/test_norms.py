"""layer_norm and rms_norm against NumPy and finite differences."""

from __future__ import annotations

import numpy as np
import pytest
from slopes import check_slopes

import slipstream as ss

RANDOM = np.random.RandomState(2)
X = RANDOM.randn(2, 3, 4)


def normalized(x: np.ndarray, dims: tuple[int, ...], eps: float) -> np.ndarray:
    return (x - x.mean(dims, keepdims=True)) / np.sqrt(x.var(dims, keepdims=True) + eps)


@pytest.mark.parametrize("shape", [(4,), (3, 4), (2, 3, 4)])
@pytest.mark.parametrize("given", [(), ("weight",), ("bias",), ("weight", "bias")])
def test_layer_norm(shape: tuple[int, ...], given: tuple[str, ...]) -> None:
    dims = tuple(range(-len(shape), 0))
    wanted = normalized(X, dims, 0.01)
    values = {name: RANDOM.randn(*shape) for name in given}
    wanted = wanted * values.get("weight", 1.0) + values.get("bias", 0.0)
    tensors = {name: ss.tensor(value) for name, value in values.items()}
    found = ss.layer_norm(ss.tensor(X), shape, **tensors, eps=0.01)
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-10, atol=1e-12)


def test_rms_norm() -> None:
    weight = RANDOM.randn(4)
    wanted = X / np.sqrt((X * X).mean(-1, keepdims=True) + np.finfo(np.float64).eps) * weight
    found = ss.rms_norm(ss.tensor(X), (4,), ss.tensor(weight))
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-12)


def test_narrow_input_with_wide_weight() -> None:
    x = ss.tensor(X).to(ss.bfloat16)
    found = ss.layer_norm(x, (4,), ss.ones(4))
    assert found.dtype is ss.bfloat16
    wanted = normalized(x.to(ss.float64).numpy(), (-1,), 1e-5)
    np.testing.assert_allclose(found.to(ss.float64).numpy(), wanted, rtol=2**-7, atol=1e-3)


def test_result_is_contiguous() -> None:
    assert ss.layer_norm(ss.tensor(X).transpose(0, 1), (4,)).is_contiguous()


def test_refusals() -> None:
    x = ss.zeros(3, 4)
    with pytest.raises(RuntimeError, match=r"expected input with shape \[\*, 3\]"):
        ss.layer_norm(x, (3,))
    with pytest.raises(RuntimeError, match="at least 1-dimensional"):
        ss.layer_norm(x, ())
    with pytest.raises(RuntimeError, match="Expected weight to be of same shape"):
        ss.layer_norm(x, (4,), ss.ones(3))
    with pytest.raises(RuntimeError, match="mixed dtype"):
        ss.layer_norm(x, (4,), ss.ones(4, dtype=ss.float64))
    with pytest.raises(NotImplementedError):
        ss.layer_norm(ss.ones(3, 4, dtype=ss.int64), (4,))


@pytest.mark.parametrize("shape", [(4,), (2, 4)])
def test_gradients(shape: tuple[int, ...]) -> None:
    x = X[:2, :2]
    weight, bias = RANDOM.randn(*shape), RANDOM.randn(*shape)
    check_slopes(lambda x, w, b: ss.layer_norm(x, shape, w, b), x, weight, bias)
    check_slopes(lambda x, b: ss.layer_norm(x, shape, None, b), x, bias)
    check_slopes(lambda x: ss.layer_norm(x, shape), x)
    check_slopes(lambda x, w: ss.rms_norm(x, shape, w), x, weight)


def test_complex_rms_norm() -> None:
    x = X + 1j * RANDOM.randn(*X.shape)
    weight = RANDOM.randn(4) + 1j * RANDOM.randn(4)
    found = ss.rms_norm(ss.tensor(x), (4,), ss.tensor(weight), 0.1)
    wanted = x / np.sqrt((x * x).mean(-1, keepdims=True) + 0.1) * weight
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-12)
    tensors = [ss.tensor(value, requires_grad=True) for value in (x[0], weight)]
    assert ss.autograd.gradcheck(lambda x, w: ss.rms_norm(x, (4,), w, 0.1), tensors)
    with pytest.raises(NotImplementedError):
        ss.layer_norm(ss.tensor(x), (4,))


@pytest.mark.parametrize("norm", [ss.nn.functional.layer_norm, ss.nn.functional.rms_norm])
@pytest.mark.parametrize("weighted", [False, True])
def test_other_sizes_are_refused_after_calls_that_fitted(norm, weighted):
    """A recipe that is known by then has no say about sizes."""
    weight = ss.ones(4) if weighted else None
    for rows in (2, 3):
        assert norm(ss.ones(rows, 4), (4,), weight).shape == (rows, 4)
    for size in (1, 3, 8):
        with pytest.raises(RuntimeError, match=r"Given normalized_shape=\[4\]"):
            norm(ss.ones(2, size), (4,), weight)
    if weighted:
        with pytest.raises(RuntimeError, match="weight to be of same shape as normalized_shape"):
            norm(ss.ones(2, 4), (4,), ss.ones(1))
    assert norm(ss.ones(5, 4), [4], weight).shape == (5, 4)

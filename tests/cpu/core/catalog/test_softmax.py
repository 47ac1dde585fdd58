"""Softmax, log_softmax and logsumexp against SciPy and finite differences."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special
from slopes import check_slopes

import slipstream as ss

X = np.random.RandomState(1).uniform(-3.0, 3.0, (2, 3, 4))


@pytest.mark.parametrize("dim", [0, 1, 2, -1])
def test_values(dim: int) -> None:
    x = ss.tensor(X)
    np.testing.assert_allclose(x.softmax(dim).numpy(), scipy.special.softmax(X, dim), rtol=1e-12)
    np.testing.assert_allclose(ss.log_softmax(x, dim).numpy(), scipy.special.log_softmax(X, dim),
                               rtol=1e-12)
    np.testing.assert_allclose(ss.logsumexp(x, dim).numpy(), scipy.special.logsumexp(X, dim),
                               rtol=1e-12)


def test_several_dims() -> None:
    found = ss.logsumexp(ss.tensor(X), (0, 2), keepdim=True)
    np.testing.assert_allclose(found.numpy(), scipy.special.logsumexp(X, (0, 2), keepdims=True),
                               rtol=1e-12)


def test_large_values_do_not_overflow() -> None:
    x = ss.tensor([1000.0, 1001.0])
    np.testing.assert_allclose(x.softmax(0).numpy(), [0.26894143, 0.7310586], rtol=1e-6)
    np.testing.assert_allclose(x.log_softmax(0).numpy(), [-1.3132616, -0.31326166], rtol=1e-6)
    assert abs(ss.logsumexp(x, 0).item() - 1001.3132616) < 1e-3


def test_rows_of_minus_infinity() -> None:
    x = ss.full((1, 3), -np.inf)
    assert np.isnan(x.softmax(1).numpy()).all()
    assert np.isnan(x.log_softmax(1).numpy()).all()
    assert ss.logsumexp(x, 1).tolist() == [-np.inf]
    partly = ss.tensor([0.0, -np.inf, 0.0])
    assert partly.softmax(0).tolist() == [0.5, 0.0, 0.5]


def test_scalars_and_empty_dims() -> None:
    assert ss.softmax(ss.tensor(3.0), 0).tolist() == 1.0
    assert ss.log_softmax(ss.tensor(3.0), -1).tolist() == 0.0
    assert tuple(ss.softmax(ss.zeros(2, 0), 1).shape) == (2, 0)
    assert tuple(ss.softmax(ss.zeros(0, 2), 1).shape) == (0, 2)
    assert ss.logsumexp(ss.zeros(2, 0), 1).tolist() == [-np.inf, -np.inf]


@pytest.mark.parametrize("dtype", [ss.float16, ss.bfloat16, ss.float32])
def test_narrow_dtypes_are_computed_in_float32(dtype: ss.dtype) -> None:
    x = ss.tensor(X).to(dtype)
    wanted = scipy.special.softmax(x.to(ss.float64).numpy(), 1)
    found = x.softmax(1)
    assert found.dtype is dtype
    step = {ss.float16: 2**-11, ss.bfloat16: 2**-8, ss.float32: 2**-21}[dtype]
    np.testing.assert_allclose(found.to(ss.float64).numpy(), wanted, rtol=step)


def test_dtype_argument() -> None:
    found = ss.softmax(ss.tensor([1, 2]), 0, dtype=ss.float64)
    assert found.dtype is ss.float64
    np.testing.assert_allclose(found.numpy(), scipy.special.softmax([1.0, 2.0]), rtol=1e-12)
    x = ss.tensor([1.0, 2.0], requires_grad=True)
    ss.log_softmax(x, 0, dtype=ss.float64)[0].backward()
    assert x.grad.dtype is ss.float32


def test_results_are_contiguous() -> None:
    assert ss.softmax(ss.tensor(X).transpose(0, 2), 1).is_contiguous()


def test_refusals() -> None:
    with pytest.raises(IndexError, match="Dimension out of range"):
        ss.softmax(ss.zeros(2), 1)
    with pytest.raises(NotImplementedError, match="int64"):
        ss.softmax(ss.tensor([1, 2]), 0)


@pytest.mark.parametrize("function", [
    lambda x: x.softmax(1), lambda x: x.log_softmax(-1), lambda x: ss.logsumexp(x, (0, 1)),
    lambda x: ss.logsumexp(x, 1, keepdim=True)])
def test_gradients(function: object) -> None:
    check_slopes(function, X[:, :2, :3])


def test_complex_logsumexp() -> None:
    x = X + 1j * np.random.RandomState(5).uniform(-1.0, 1.0, X.shape)
    for dim in (1, (0, 2)):
        np.testing.assert_allclose(ss.logsumexp(ss.tensor(x), dim).numpy(),
                                   np.log(np.exp(x).sum(dim)), rtol=1e-12)
    # As large as float64 allows only because the largest real part is taken out first.
    assert ss.logsumexp(ss.tensor([800 + 1j, 800 + 1j]), 0).real.item() == pytest.approx(
        800 + np.log(2.0))
    x = ss.tensor(x[0], requires_grad=True)
    assert ss.autograd.gradcheck(lambda x: ss.logsumexp(x, 1), (x,))
    assert ss.autograd.gradgradcheck(lambda x: ss.logsumexp(x, 1), (x,))

"""Special values of functions whose usual ones the tests over the catalogue compare."""

from __future__ import annotations

import math

import numpy as np
import pytest

import slipstream as ss


@pytest.mark.parametrize("dtype", [ss.float32, ss.float64])
def test_inverse_hyperbolic_functions_far_out(dtype: ss.dtype) -> None:
    top = ss.finfo(dtype).max
    values = [0.0, -0.0, 1e-30, -1e-8, 1e5, -3e9, 1e18, top, -top, math.inf, -math.inf, math.nan]
    x = ss.tensor(values, dtype=dtype)
    for name, other in (("asinh", np.arcsinh), ("acosh", np.arccosh), ("atanh", np.arctanh)):
        with np.errstate(all="ignore"):
            wanted = other(x.numpy())
        np.testing.assert_allclose(getattr(ss, name)(x), wanted, rtol=1e-6)
    assert math.copysign(1, ss.asinh(x)[1].item()) == -1
    assert ss.atanh(ss.tensor([1.0, -1.0, 1.5])).tolist()[:2] == [math.inf, -math.inf]
    assert ss.acosh(ss.tensor([1.0, 0.5, -3.0, -1e20])).isnan().tolist() == [
        False, True, True, True]


@pytest.mark.parametrize("dtype", [ss.float32, ss.float64])
def test_powers_of_ten_have_whole_logarithms(dtype: ss.dtype) -> None:
    powers = ss.tensor([10.0 ** n for n in range(10)], dtype=dtype)
    assert ss.log10(powers).tolist() == list(range(10))


def test_logit_at_its_ends() -> None:
    x = ss.tensor([0.0, 1.0, -0.5, 0.5])
    assert ss.logit(x).tolist()[:2] == [-math.inf, math.inf]
    assert ss.logit(x).isnan().tolist() == [False, False, True, False]
    np.testing.assert_allclose(x.logit(0.25), np.log([1 / 3, 3, 1 / 3, 1]), rtol=1e-6)


def test_a_number_wins_over_nan() -> None:
    a = ss.tensor([1.0, math.nan, math.nan, 2.0], requires_grad=True)
    b = ss.tensor([math.nan, 1.0, math.nan, 3.0], requires_grad=True)
    assert ss.fmax(a, b).tolist()[:2] == [1.0, 1.0]
    assert ss.fmin(a, b).isnan().tolist() == [False, False, True, False]
    ss.fmax(a, b).sum().backward()
    assert a.grad is not None
    assert b.grad is not None
    assert a.grad.tolist() == [1.0, 0.0, 1.0, 0.0]
    assert b.grad.tolist() == [0.0, 1.0, 0.0, 1.0]


def test_what_frac_and_the_splits_refuse() -> None:
    with pytest.raises(NotImplementedError, match="frac"):
        ss.frac(ss.arange(3))
    with pytest.raises(RuntimeError, match="not divisible by the split_size 2"):
        ss.hsplit(ss.ones(3), 2)
    with pytest.raises(RuntimeError, match="vsplit requires a tensor with at least 2"):
        ss.vsplit(ss.ones(4), 2)
    with pytest.raises(RuntimeError, match="dsplit requires a tensor with at least 3"):
        ss.dsplit(ss.ones(4, 4), 2)


def test_isin_of_several_dtypes() -> None:
    few, many = ss.tensor([1, 4]), ss.arange(0, 60, 3)
    for table in (few, many, ss.cat([many.float(), ss.tensor([math.nan])])):
        x = ss.tensor([[1.0, 3.0], [4.5, math.nan]])
        assert ss.isin(x, table).tolist() == np.isin(x.numpy(), table.numpy()).tolist()
    assert ss.isin(ss.tensor([True, False]), ss.ones(20, dtype=ss.bool)).tolist() == [True, False]
    assert ss.isin(3, many).item() is True
    assert ss.isin(ss.tensor([3, 4]), 3, invert=True).tolist() == [False, True]


def test_slopes_of_logit_at_its_ends() -> None:
    x = ss.tensor([0.0, 1.0, 2.0, -1.0], requires_grad=True)
    x.logit().sum().backward()
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad, [math.inf, math.inf, math.nan, math.nan])
    y = ss.tensor([math.nan, 0.05, 0.5], requires_grad=True)
    ss.logit(y, 0.1).sum().backward()
    np.testing.assert_array_equal(y.grad, [math.nan, 0, 4])
    assert ss.logit(ss.tensor([True, False])).tolist() == [math.inf, -math.inf]
    np.testing.assert_allclose(ss.logit(ss.tensor([0.0, 1.0]), eps=0.6), [0.405465, -0.405465],
                               rtol=1e-5)


@pytest.mark.parametrize(("name", "arguments", "slopes"), [
    ("clamp_min_", (0.5,), [0, 1]), ("nan_to_num_", (), [1, 1]), ("logit_", (), [6.25, 4.761905]),
])
def test_ops_made_of_others_are_recorded_in_place(name: str, arguments: tuple[float, ...],
                                                  slopes: list[float]) -> None:
    x = ss.tensor([0.2, 0.7], requires_grad=True)
    y = x * 1
    getattr(y, name)(*arguments)
    y.sum().backward()
    np.testing.assert_allclose(x.grad, slopes, rtol=1e-5)
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        getattr(x, name)(*arguments)


def test_floats_are_not_written_to_integers() -> None:
    for name, arguments in (("logit_", ()), ("clamp_min_", (1.5,))):
        x = ss.tensor([1, 2])
        with pytest.raises(RuntimeError, match=r"result type float32 can't be cast to .* int64"):
            getattr(x, name)(*arguments)
        assert x.tolist() == [1, 2]


def test_an_element_alone_keeps_its_dtype_among_many() -> None:
    assert not ss.isin(ss.tensor(257), ss.ones(20, dtype=ss.uint8))
    assert not ss.isin(ss.tensor(2 ** 32 + 1), ss.ones(20, dtype=ss.int32))
    assert not ss.isin(ss.tensor(1e300, dtype=ss.float64), ss.full((20,), math.inf))

"""Programs with fewer walks, extremes by vectors, and ways that cost less for 16-bit results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from catalogue import host, wide

import slipstream as ss
from gpu.kernels.formulas import Formula, Run, cuda
from slipstream.core.fuse.formula import exp, normal_below, share

F32, BF16, F64 = ss.float32, ss.bfloat16, ss.float64
# Columns, columns that blocks share, rows that blocks share.
SHAPES = [((300, 24), 0), ((5000, 40), 0), ((70001,), 0), ((2, 80000), 1)]


def made(shape: tuple[int, ...], dtype: Any = F32) -> np.ndarray:
    """Normal numbers."""
    return np.random.RandomState(3).standard_normal(shape).astype(dtype.numpy)


@pytest.mark.parametrize(("shape", "dim"), SHAPES)
@pytest.mark.parametrize(("shift", "outlier"), [(0, 0), (1e4, 0), (0, 1e6)])
def test_variances_lose_nothing_far_from_zero(shape: Any, dim: int, shift: float,
                                              outlier: float) -> None:
    x = made(shape) + np.float32(shift)
    # The number that all others are measured by may be the odd one.
    x[(0,) * len(shape)] += np.float32(outlier)
    found = wide(host(cuda(x).var(dim)))
    np.testing.assert_allclose(found, np.var(x.astype(np.float64), dim, ddof=1), rtol=4e-6)


@pytest.mark.parametrize(("shape", "dim"), SHAPES)
@pytest.mark.parametrize("dtype", [F32, F64], ids=lambda each: each.name)
def test_variances_of_infinities_are_none(shape: Any, dim: int, dtype: Any) -> None:
    x = made(shape, dtype)
    x[(-1,) * len(shape)] = np.inf
    found = np.isnan(wide(host(cuda(x).var(dim))))
    assert found.sum() == 1


@pytest.mark.parametrize(("shape", "dim"), SHAPES)
def test_softmax_of_what_is_masked(shape: Any, dim: int) -> None:
    x = made(shape) * 9
    x[: shape[0] // 2] = -np.inf
    x[..., 1] = np.nan if len(shape) > 1 else -np.inf
    if len(shape) > 1:
        x[:, 2], x[0, 3] = -np.inf, np.inf
    with np.errstate(all="ignore"):
        raised = np.exp(x.astype(np.float64) - x.max(dim, keepdims=True))
        wanted = raised / raised.sum(dim, keepdims=True)
    found = wide(host(cuda(x).softmax(dim)))
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=1e-12)


@pytest.mark.parametrize("shape", [(5, 64), (3, 4096), (2, 70001), (4, 1000), (1, 262144)])
@pytest.mark.parametrize("dtype", [F32, BF16, ss.int8], ids=lambda each: each.name)
def test_the_first_of_equal_extremes(shape: Any, dtype: Any) -> None:
    x = np.round(made(shape) * 3)
    if dtype is not ss.int8:
        x[0] = np.where(np.arange(shape[1]) % 3 == 0, -0.0, 0.0)
        x[-1, shape[1] // 3:] = np.nan
    x = x.astype(dtype.numpy)
    values = np.nan_to_num(x.astype(np.float64), nan=np.inf)
    assert host(cuda(x).argmax(-1)).tolist() == values.argmax(-1).tolist()
    values = np.nan_to_num(x.astype(np.float64), nan=-np.inf)
    assert host(cuda(x).argmin(-1)).tolist() == values.argmin(-1).tolist()


def test_extremes_that_no_number_beats() -> None:
    x = np.full((3, 5000), -np.inf, np.float32)
    assert host(cuda(x).argmax(-1)).tolist() == [0, 0, 0]
    assert host(cuda(-x).argmin(-1)).tolist() == [0, 0, 0]


def test_only_narrow_results_take_what_is_near() -> None:
    def formula(x: Any) -> Any:
        return share(exp(x) * normal_below(x), x.sum(-1, keepdim=True))

    x = cuda(made((4, 64), BF16))
    near, exact = [Run(Formula(formula, [dtype]), x=x).traced.program for dtype in (BF16, F32)]
    assert {"exp16", "ndtr16", "reciprocal"} <= {step.primitive for step in near.steps}
    assert {"exp", "erf", "div"} <= {step.primitive for step in exact.steps}


def test_what_is_near_rounds_like_what_is_exact() -> None:
    x = cuda(np.linspace(-6, 6, 40001).astype(BF16.numpy))
    for call in (ss.nn.functional.gelu, lambda x: x.softmax(0), lambda x: x.log_softmax(0)):
        near, exact = wide(host(call(x))), wide(host(call(x.to(F32))))
        # Half a unit of what is rounded, and a hundredth of it for what is near.
        assert np.all(np.abs(near - exact) <= 0.51 * 2.0 ** -7 * np.abs(exact) + 1e-7)

"""Programs on arrays: maps, rows, stored dtypes, shared memory, numbers; and their print."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import scipy.special
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from slipstream.core.fuse.evaluator import evaluate
from slipstream.core.fuse.formula import where
from slipstream.core.fuse.primitives import PRIMITIVES
from slipstream.core.fuse.printing import describe
from slipstream.core.fuse.trace import NumberArgument, TensorArgument, trace
from slipstream.core.vocab import dtypes
from slipstream.core.vocab.dtypes import BY_NUMPY

Run = Callable[..., Any]
INTS = [np.uint8, np.int8, np.int16, np.int32, np.int64]


def softmax(x: Any, dim: int) -> Any:
    shifted = (x - x.amax(dim, keepdim=True)).exp()
    return shifted / shifted.sum(dim, keepdim=True)


def layer_norm(x: Any, weight: Any, bias: Any, dim: Any, eps: float) -> Any:
    mean = x.mean(dim, keepdim=True)
    centred = x - mean
    rstd = (centred.square().mean(dim, keepdim=True) + eps).rsqrt()
    return centred * rstd * weight + bias, mean, rstd


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("dim", [0, 1, 2, -1])
def test_softmax(run: Run, dtype: Any, dim: int) -> None:
    x = np.random.default_rng(0).normal(size=(3, 5, 4)).astype(dtype)
    result = run(softmax, x, dim=dim, outputs=[BY_NUMPY[np.dtype(dtype)]])
    expected = scipy.special.softmax(x.astype(np.float64), axis=dim)
    assert result.dtype == dtype
    np.testing.assert_allclose(result.astype(np.float64), expected,
                               rtol=2 * float(ml_dtypes.finfo(dtype).eps))


@pytest.mark.parametrize("dim", [-1, (1, 2), (0, 2)])
def test_layer_norm(run: Run, dim: Any) -> None:
    generator = np.random.default_rng(1)
    x, weight, bias = (generator.normal(size=shape) for shape in ((3, 4, 5), (4, 5), (5,)))
    result, mean, rstd = run(layer_norm, x, weight, bias, dim=dim, eps=1e-5)
    expected_mean = x.mean(dim, keepdims=True)
    expected_rstd = 1 / np.sqrt(x.var(dim, keepdims=True) + 1e-5)
    np.testing.assert_allclose(mean, expected_mean, rtol=1e-13)
    np.testing.assert_allclose(rstd, expected_rstd, rtol=1e-13)
    np.testing.assert_allclose(result, (x - expected_mean) * expected_rstd * weight + bias,
                               rtol=1e-12, atol=1e-14)


@given(arrays.arrays(np.float64, arrays.array_shapes(max_dims=3, min_side=0, max_side=4),
                     elements=st.floats(-1e3, 1e3)), st.data())
@settings(max_examples=60, deadline=None)
def test_reductions_on_any_shape(run: Run, x: np.ndarray, data: st.DataObject) -> None:
    dims = data.draw(st.sets(st.integers(0, x.ndim - 1), min_size=1).map(tuple))
    keepdim = data.draw(st.booleans())
    total, flag, largest = run(
        lambda x: (x.sum(dims, keepdim), (x > 0).any(dims, keepdim), x.amax(dims, keepdim)), x)
    np.testing.assert_allclose(total, x.sum(dims, keepdims=keepdim), rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(flag, (x > 0).any(dims, keepdims=keepdim))
    np.testing.assert_array_equal(
        largest, np.max(x, dims, keepdims=keepdim, initial=-math.inf))


@given(st.sampled_from(INTS), st.sampled_from(INTS), st.data())
@settings(max_examples=80, deadline=None)
def test_integers_wrap_in_their_dtype(run: Run, a: Any, b: Any, data: st.DataObject) -> None:
    x, y = (data.draw(arrays.arrays(dtype, 4)) for dtype in (a, b))
    result = dtypes.promote(BY_NUMPY[x.dtype], BY_NUMPY[y.dtype])
    bits = 8 * result.itemsize
    for formula in (lambda x, y: x + y, lambda x, y: x * y, lambda x, y: x - y,
                    lambda x, y: x // y):
        computed = run(formula, x, y, outputs=[result]).tolist()
        for one, left, right in zip(computed, x.tolist(), y.tolist(), strict=True):
            exact = 0 if right == 0 and formula(1, 1) == 1 and formula(1, 2) == 0 else formula(
                left, right)
            assert (one - exact) % 2**bits == 0
    assert run(lambda x, y: x < y, x, y).tolist() == [
        left < right for left, right in zip(x.tolist(), y.tolist(), strict=True)]


def test_no_value_warns(run: Run) -> None:
    x = np.array([0.0, -1.0, math.inf, math.nan, 1e38], np.float32)
    for formula in (lambda x: x / 0, lambda x: x.log(), lambda x: x * x, lambda x: x.long(),
                    lambda x: x.sqrt().fmod(0), lambda x: x.exp().double().exp(),
                    lambda x: x // 0, lambda x: x.to_class("c64").exp().to_class("f32")):
        run(formula, x)
    run(lambda x: x // 0 + x % 0, np.arange(3))
    run(lambda x: x.exp(), x, outputs=[dtypes.float16])
    run(lambda x: x, x, outputs=[dtypes.uint8])
    run(lambda x, n: x * n, x, 1e300)


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (1,)])
def test_small_and_empty_shapes(run: Run, shape: tuple[int, ...]) -> None:
    x = np.full(shape, 2, np.int32)
    np.testing.assert_array_equal(run(lambda x: (x + 1) * x - 1, x), np.full(shape, 5))
    np.testing.assert_array_equal(run(lambda x: x.pow(x).exp().erf(), x), np.ones(shape))
    assert run(lambda x: x.sum(), x) == x.sum()
    assert run(lambda x: x.sum() * 0 + x.count(), x) == x.size
    assert x.size == 0 or run(lambda x: (x - x.mean()).square().sum(), x) == 0


def test_an_output_may_be_an_operand() -> None:
    x, y = np.array([1.0, 2.0]), np.array([3.0, 4.0])
    arguments = {name: TensorArgument(dtypes.float64, "f64", 1) for name in "xy"}
    swap = trace(lambda x, y: (y, x), arguments).program
    evaluate(swap, [x, y], [x, y], [], 0)
    assert (x.tolist(), y.tolist()) == ([3.0, 4.0], [1.0, 2.0])
    shifted = np.arange(5.0)
    total = trace(lambda x, y: x + y * y, arguments).program
    evaluate(total, [shifted[1:]], [shifted[:-1], shifted[:-1]], [], 0)
    assert shifted.tolist() == [0.0, 0.0, 2.0, 6.0, 12.0]


def test_stored_dtypes(run: Run) -> None:
    x = np.array([0.0, 1.5, -2.75])
    assert run(lambda x: x, x, outputs=[dtypes.bool_]).tolist() == [False, True, True]
    assert run(lambda x: x, x, outputs=[dtypes.int8]).tolist() == [0, 1, -2]
    assert run(lambda x: x * 100, x, outputs=[dtypes.uint8]).tolist() == [0, 150, 237]
    assert run(lambda x: x + 1j, x, outputs=[dtypes.float32]).tolist() == [0.0, 1.5, -2.75]
    half = x.astype(ml_dtypes.bfloat16)
    assert run(lambda x: x + 1 / 3, half, outputs=[dtypes.bfloat16]).dtype == ml_dtypes.bfloat16


@pytest.mark.parametrize(("number", "expected"), [
    (True, [1, 2, 3]), (2, [2, 4, 6]), (0.5, [0.5, 1.0, 1.5]), (1j, [1j, 2j, 3j])])
def test_numbers_at_run_time(run: Run, number: Any, expected: list[Any]) -> None:
    assert run(lambda x, n: x * n, np.array([1, 2, 3], np.int16), number).tolist() == expected


def test_row_operands() -> None:
    arguments = {"x": TensorArgument(dtypes.float32, "f32", 2),
                 "r": TensorArgument(dtypes.float32, "f32", 2, "row")}
    traced = trace(lambda x, r: x - r * (x * r).sum(-1, keepdim=True), arguments)
    x, r = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32), np.array([2.0, 3.0], np.float32)
    out = np.empty_like(x)
    evaluate(traced.program, [out], [x, r], [], 1)
    column = r[:, None]
    np.testing.assert_array_equal(out, x - column * (x * column).sum(1, keepdims=True))


@given(arrays.arrays(np.float32, (2, 3)), arrays.arrays(np.float32, 3), arrays.arrays(bool, 3))
@settings(max_examples=50, deadline=None)
def test_selection_keeps_bits(run: Run, x: Any, y: Any, condition: Any) -> None:
    result = run(where, condition, x, y)
    np.testing.assert_array_equal(result, np.where(condition, x, y))


def test_relu_and_clamp_keep_nan(run: Run) -> None:
    x = np.array([-1.0, 2.0, math.nan])
    np.testing.assert_array_equal(run(lambda x: x.relu(), x), [0.0, 2.0, math.nan])
    np.testing.assert_array_equal(run(lambda x: x.clamp(0, 1), x), [0.0, 1.0, math.nan])


def test_the_print_runs_and_computes_the_same(run: Run) -> None:
    def formula(x: Any, y: Any, n: Any) -> Any:
        return where(x < y, -x.exp() * n + 0.1, y.sqrt() / -2.0).maximum(x)
    arguments = {"x": TensorArgument(dtypes.float32, "f32", 1),
                 "y": TensorArgument(dtypes.float32, "f32", 1), "n": NumberArgument("f64")}
    traced = trace(formula, arguments)
    text = describe(traced.program, [*traced.operands, *traced.number_names])
    assert text.startswith("def program(x, y, n):\n    # x: float32 as f32\n")
    names = {name: primitive.numpy for name, primitive in PRIMITIVES.items()}
    exec(text, names)
    x, y = np.array([0.5, 3.0], np.float32), np.array([1.0, 2.0], np.float32)
    np.testing.assert_array_equal(names["program"](x, y, np.float32(3.0)),
                                  run(formula, x, y, 3.0))


def test_the_print_of_rows() -> None:
    traced = trace(softmax, {"x": TensorArgument(dtypes.float16, "f32", 2), "dim": -1},
                   [dtypes.float16])
    assert describe(traced.program, traced.operands) == (
        "def program(x):\n"
        "    # x: float16 as f32\n"
        "    v1 = amax(x)  # f32, row\n"
        "    v2 = x - v1  # f32\n"
        "    v3 = exp(v2)  # f32\n"
        "    v4 = sum(v3)  # f32, row\n"
        "    v5 = v3 / v4  # f32\n"
        "    return v5  # float16\n")

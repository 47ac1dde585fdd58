"""Every primitive against NumPy, SciPy or Python's integers, in every class."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import scipy.special
from hypothesis import example, given, settings
from hypothesis import strategies as st

from slipstream.core.fuse import classes as compute
from slipstream.core.fuse import numerics
from slipstream.core.fuse.primitives import (
    COMPLEX,
    EVERY,
    PRIMITIVES,
    REAL,
    Primitive,
    cast_expression,
    helper_names,
)
from slipstream.core.vocab import dtypes

LOW, HIGH = -(2**63), 2**63 - 1
INT64 = st.one_of(st.integers(LOW, HIGH), st.sampled_from([0, 1, -1, LOW, HIGH]))
FLOAT_SAMPLES = [0.0, -0.0, 0.1, -0.3, 0.5, 1.0, 1.5, 2.5, -3.5, 7.25, -12.0, 30.0, 1e-30]
SPECIAL = [math.inf, -math.inf, math.nan]
ODD = {"erf": scipy.special.erf, "erfc": scipy.special.erfc, "sigmoid": scipy.special.expit,
       "as_float16": lambda x: x.astype(np.float16), "exp16": np.exp,
       "as_bfloat16": lambda x: x.astype(dtypes.bfloat16.numpy), "ndtr16": scipy.special.ndtr,
       "rsqrt": lambda x: 1 / np.sqrt(x), "round": np.rint, "neg": np.negative,
       "abs": np.absolute, "sign": lambda x: np.where(np.isnan(x), 0, np.sign(x)),
       "conj": np.conj, "trunc_divide": lambda a, b: np.trunc(a / b),
       "pow": np.power, "atan2": np.arctan2, "sub": np.subtract, "mul": np.multiply,
       "div": np.divide, "fma": lambda a, b, c: a * b + c, "eq": np.equal, "ne": np.not_equal,
       "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
       "bitwise_not": np.invert}
MAPS = [primitive for primitive in PRIMITIVES.values()
        if not primitive.reduction and primitive.name not in ("cast", "where")]
CASES = [(primitive, cls) for primitive in MAPS for cls in primitive.classes]


def wrap(value: int) -> int:
    return (value - LOW) % 2**64 + LOW


def samples(cls: str) -> np.ndarray:
    if cls == "b1":
        return np.array([False, True])
    if cls == "i64":
        return np.array([0, 1, -1, 2, -3, 7, 40])
    values = np.array(FLOAT_SAMPLES + SPECIAL)
    if cls in REAL:
        return values.astype(compute.NUMPY[cls])
    finite = np.array(FLOAT_SAMPLES[:-1])
    return (finite[:, None] + 1j * finite[None, :]).ravel().astype(compute.NUMPY[cls])


def operands(primitive: Primitive, cls: str) -> list[np.ndarray]:
    values = samples(cls)
    grids = np.meshgrid(*[values if primitive.arity < 3 else values[:9]] * primitive.arity)
    columns = [grid.ravel() for grid in grids]
    if primitive.name == "pow" and cls == "i64":
        columns[1] = np.abs(columns[1])
    if primitive.name == "pow" and cls in COMPLEX:
        columns = [np.where(abs(column) < 3, column, 1) for column in columns]
    if primitive.name in ("floor_divide", "remainder", "fmod", "trunc_divide") and cls == "i64":
        columns[1] = np.where(columns[1] == 0, 5, columns[1])
    return columns


@pytest.mark.parametrize(("primitive", "cls"), CASES,
                         ids=[f"{primitive.name}-{cls}" for primitive, cls in CASES])
def test_against_numpy_in_double(primitive: Primitive, cls: str) -> None:
    reference: Any = ODD.get(primitive.name) or getattr(np, primitive.name)
    columns = operands(primitive, cls)
    wide = {"f32": np.float64, "c64": np.complex128}.get(cls, compute.NUMPY[cls])
    if primitive.name == "trunc_divide":
        wide = compute.NUMPY[cls]  # the quotient is rounded before it is cut off
    with np.errstate(all="ignore"):
        result = primitive.numpy(*columns)
        expected = reference(*[column.astype(wide) for column in columns])
    target = compute.NUMPY[primitive.result_class(cls)]
    assert result.dtype == target
    with np.errstate(all="ignore"):
        expected = expected.astype(target)
    tolerance = {"f32": 4e-7, "c64": 2e-5, "f64": 2e-15, "c128": 1e-13}.get(cls, 0)
    np.testing.assert_allclose(result, expected, rtol=tolerance, atol=tolerance * 1e-3)


@pytest.mark.parametrize(("primitive", "cls"), CASES,
                         ids=[f"{primitive.name}-{cls}" for primitive, cls in CASES])
def test_scalars_have_the_class_too(primitive: Primitive, cls: str) -> None:
    operand = np.array(samples(cls)[1])
    with np.errstate(all="ignore"):
        result = primitive.numpy(*[operand] * primitive.arity)
    assert result.shape == ()
    assert result.dtype == compute.NUMPY[primitive.result_class(cls)]


@pytest.mark.parametrize("name", ["erf", "erfc"])
def test_error_functions_are_accurate(name: str) -> None:
    x = np.concatenate([np.linspace(-6, 6, 20001), np.linspace(6, 26, 501), [0.46875, 4.0]])
    exact = np.array([getattr(math, name)(value) for value in x])
    result = getattr(numerics, name)(x)
    error = np.abs(result - exact) / np.spacing(np.maximum(np.abs(exact), 1e-300))
    assert error.max() <= (4 if name == "erf" else 8)
    single = x.astype(np.float32)
    exact = np.array([getattr(math, name)(float(value)) for value in single])
    error = np.abs(getattr(numerics, name)(single) - exact) / np.spacing(
        np.maximum(np.abs(exact), 1e-37).astype(np.float32))
    assert error.max() <= 0.51


@given(INT64, INT64)
@settings(max_examples=200, deadline=None)
@example(LOW, -1)
@example(5, 0)
def test_integers_wrap_and_never_trap(a: int, b: int) -> None:
    x, y = np.array([a]), np.array([b])
    floor = 0 if b == 0 else a // b
    trunc = 0 if b == 0 else int(Fraction(a, b))
    expected = {"add": a + b, "sub": a - b, "mul": a * b, "floor_divide": floor,
                "trunc_divide": trunc, "remainder": 0 if b == 0 else a - floor * b,
                "fmod": 0 if b == 0 else a - trunc * b}
    with np.errstate(all="ignore"):
        for name, value in expected.items():
            assert PRIMITIVES[name].numpy(x, y)[0] == wrap(value), name
        assert PRIMITIVES["neg"].numpy(x)[0] == wrap(-a)
        assert PRIMITIVES["abs"].numpy(x)[0] == wrap(abs(a))


@given(INT64, st.integers(-3, 70))
@settings(max_examples=100, deadline=None)
def test_integer_powers(a: int, b: int) -> None:
    if b >= 0:
        expected = wrap(a**b)
    else:
        expected = {1: 1, -1: 1 if b % 2 == 0 else -1}.get(a, 0)
    assert PRIMITIVES["pow"].numpy(np.array([a]), np.array([b]))[0] == expected


@given(*[st.floats(width=32)] * 3)
@settings(max_examples=200, deadline=None)
def test_fma_rounds_once(a: float, b: float, c: float) -> None:
    with np.errstate(all="ignore"):
        result = numerics.fma(*(np.array([value], np.float32) for value in (a, b, c)))
        plain = np.float32(np.float64(a) * b + c)
    if not np.isfinite(plain) or not all(map(math.isfinite, (a, b, c))):
        np.testing.assert_array_equal(result[0], plain)
        return
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    error = abs(Fraction(float(result[0])) - exact)
    with np.errstate(all="ignore"):
        neighbours = np.nextafter(result[0], np.array([np.inf, -np.inf], np.float32))
    for neighbour in neighbours:
        if np.isfinite(neighbour):
            assert error <= abs(Fraction(float(neighbour)) - exact)


def test_fma_in_double() -> None:
    a = np.array([1 + 2**-30, 1e308, math.nan, -0.0, 1e-320])
    c = np.array([-1.0, 0.0, 1.0, 0.0, 1e-320])
    with np.errstate(all="ignore"):
        result = numerics.fma(a, np.array([1 - 2**-30, 10.0, 1.0, 0.0, 0.25]), c)
    expected = [-(2.0**-60), math.inf, math.nan, 0.0, float(Fraction(1e-320) * Fraction(1.25))]
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("name", ["maximum", "minimum", "amax", "amin", "sum", "prod"])
def test_nan_wins(name: str) -> None:
    primitive = PRIMITIVES[name]
    for pair in ([1.0, math.nan], [math.nan, 1.0]):
        values = np.array(pair)
        columns = [values] if primitive.reduction else [values[:1], values[1:]]
        assert np.isnan(primitive.numpy(*columns)).all()


def test_a_remainder_of_zero_has_the_sign_of_the_dividend() -> None:
    for dtype in (np.float32, np.float64):
        result = PRIMITIVES["remainder"].numpy(np.array([-4, 4, -1], dtype),
                                               np.array([2, -2, 3], dtype))
        np.testing.assert_array_equal(np.signbit(result), [True, False, False])
        assert result.tolist() == [0.0, 0.0, 2.0]


def test_arg_reductions_take_the_first_and_nan() -> None:
    ties = np.array([[3.0, 5.0, 5.0, 3.0], [0.0, math.nan, 9.0, math.nan]])
    assert PRIMITIVES["argmax"].numpy(ties).tolist() == [1, 1]
    assert PRIMITIVES["argmin"].numpy(ties).tolist() == [0, 1]


@pytest.mark.parametrize("primitive", [each for each in PRIMITIVES.values() if each.identity],
                         ids=lambda primitive: primitive.name)
def test_an_empty_reduction_gives_the_identity(primitive: Primitive) -> None:
    for cls, identity in primitive.identity.items():
        result = primitive.numpy(np.empty((2, 0), compute.NUMPY[cls]))
        assert result.dtype == compute.NUMPY[primitive.result_class(cls)]
        expected = 0 if primitive.result == "i64" else identity
        assert result.tolist() == [expected, expected]


def test_single_precision_sums_are_accumulated_in_double() -> None:
    x = np.full(2**20 + 1, 0.1, np.float32)
    assert PRIMITIVES["sum"].numpy(x) == np.float32(float(np.float32(0.1)) * (2**20 + 1))


def test_casts() -> None:
    floats = np.array([1.9, -1.9, math.nan, 1e30, -0.0])
    with np.errstate(all="ignore"):
        assert numerics.cast(floats, np.dtype(np.int64)).tolist() == [1, -1, LOW, LOW, 0]
        assert numerics.cast(floats, np.dtype(np.bool_)).tolist() == [True] * 4 + [False]
        assert numerics.cast(np.array([300.0, -1.0]), np.dtype(np.uint8)).tolist() == [44, 255]
        assert numerics.cast(np.array([2 + 3j]), np.dtype(np.float32)).tolist() == [2.0]


@pytest.mark.parametrize(("value", "cls", "expected"), [
    (2**63, "i64", LOW), (-1.5, "i64", -1), (math.inf, "i64", LOW), (math.nan, "b1", True),
    (3 + 4j, "f64", 3.0), (0.1, "f32", float(np.float32(0.1))), (True, "c64", 1 + 0j)])
def test_literals_in_a_class(value: Any, cls: str, expected: Any) -> None:
    assert compute.to_class(value, cls).item() == expected


@pytest.mark.parametrize("primitive", PRIMITIVES.values(), ids=lambda primitive: primitive.name)
def test_c_expressions_use_every_operand_and_balance(primitive: Primitive) -> None:
    if primitive.name in ("cast", "count"):
        return
    for cls in primitive.classes:
        text = primitive.expression(cls)
        holes = {int(hole) for hole in re.findall(r"\{(\d)\}", text)}
        assert holes == set(range(2 if primitive.reduction else primitive.arity)), (cls, text)
        assert text.count("(") == text.count(")")
        assert "@" not in text


def test_c_casts_cover_every_pair() -> None:
    for source in EVERY:
        for target in EVERY:
            assert "{0}" in cast_expression(source, target)
    assert "slip_exp_c64" in helper_names()
    assert all(re.fullmatch(r"slip_[a-z0-9_]+_(b1|i64|f32|f64|c64|c128)", name)
               for name in helper_names())

"""What a formula becomes: classes, literals, shared and dead values, domains."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from slipstream.core.fuse import classes as compute
from slipstream.core.fuse.formula import fma, maximum, minimum, where
from slipstream.core.fuse.symbols import NotAFormula
from slipstream.core.fuse.trace import NumberArgument, TensorArgument, Traced, trace
from slipstream.core.vocab import dtypes
from slipstream.core.vocab.programs import FULL, ROW, Constant

Formula = Callable[..., Any]
CLASSES = {"b1": dtypes.bool_, "i64": dtypes.int32, "f32": dtypes.float32, "f64": dtypes.float64,
           "c64": dtypes.complex64, "c128": dtypes.complex128}


def tensor(cls: str, rank: int = 2, level: str = FULL) -> TensorArgument:
    return TensorArgument(CLASSES[cls], cls, rank, level)


def traced(formula: Formula, *classes: str, **static: Any) -> Traced:
    """Trace with tensors named a, b, c of the given classes."""
    arguments = {name: tensor(cls) for name, cls in zip("abc", classes, strict=False)}
    return trace(formula, {**arguments, **static})


def steps(result: Traced) -> list[str]:
    return [step.primitive for step in result.program.steps]


def result_dtype(result: Traced) -> str:
    return result.program.outputs[0].dtype.name


@pytest.mark.parametrize(("a", "b"), [*itertools.combinations_with_replacement(CLASSES, 2)])
def test_tensors_promote_as_their_dtypes(a: str, b: str) -> None:
    natural = [compute.natural_dtype(cls) for cls in (a, b)]
    expected = dtypes.promote(*natural).name
    assert result_dtype(traced(lambda a, b: a + b, a, b)) == expected
    assert result_dtype(traced(lambda a, b: a + b, b, a)) == expected


@pytest.mark.parametrize(("cls", "literal", "expected"), [
    ("b1", True, "bool"), ("b1", 2, "int64"), ("b1", 2.0, "float32"), ("i64", 2, "int64"),
    ("i64", 0.5, "float32"), ("f32", 2, "float32"), ("f32", 0.5, "float32"),
    ("f64", 0.5, "float64"), ("f32", 1j, "complex64"), ("f64", 1j, "complex128"),
    ("c64", 0.5, "complex64"), ("i64", 1j, "complex64")])
def test_numbers_are_weak(cls: str, literal: Any, expected: str) -> None:
    assert result_dtype(traced(lambda a: a + literal, cls)) == expected
    assert result_dtype(traced(lambda a: literal + a, cls)) == expected
    number = NumberArgument(compute.class_of_number(literal))
    assert result_dtype(traced(lambda a, n: a + n, cls, n=number)) == expected


def test_a_number_is_taken_in_the_class_it_is_used_in() -> None:
    result = traced(lambda a, n: a * n, "f32", n=NumberArgument("f64"))
    assert result.program.numbers == ("f32",)
    assert steps(result) == ["mul"]
    both = trace(lambda a, b, n: (a * n) + (b * n), {
        "a": tensor("f32"), "b": tensor("f64"), "n": NumberArgument("f64")})
    assert both.program.numbers == ("f64",)


def test_numbers_compute_as_python_does() -> None:
    result = traced(lambda a, n: a * (1 - n), "f32", n=NumberArgument("f64"))
    described = [(step.primitive, step.cls) for step in result.program.steps]
    assert described == [("sub", "f64"), ("cast", "f32"), ("mul", "f32")]


def test_literals_fold() -> None:
    result = traced(lambda a, k: a * (k + 1) ** 2 - 0.0, "f32", k=2)
    assert result.program.constants == (Constant(9.0, "f32"), Constant(0.0, "f32"))
    assert steps(result) == ["mul", "sub"]


def test_zero_and_minus_zero_are_two_constants() -> None:
    result = traced(lambda a: (a.maximum(0.0), a.maximum(-0.0)), "f64")
    assert len(result.program.constants) == 2


def test_shared_values_are_computed_once_and_dead_ones_never() -> None:
    def formula(a: Any, b: Any, c: Any) -> Any:
        _ = a.exp() * c
        return (a + b).tanh() * (a + b).tanh()
    result = traced(formula, "f32", "f32", "f32")
    assert steps(result) == ["add", "tanh", "mul"]
    assert result.operands == ("a", "b")
    assert result.program.steps[2].sources == (3, 3)


def test_operands_are_matched_by_name() -> None:
    result = trace(lambda y, x: x - y, {"x": tensor("f32"), "z": tensor("f32"), "y": tensor("f64")})
    assert result.operands == ("y", "x")
    with pytest.raises(TypeError, match="parameter 'w'"):
        trace(lambda w: w, {"x": tensor("f32")})


def test_defaults_and_static_values_are_passed_as_they_are() -> None:
    def formula(a: Any, approximate: str = "none", scale: float = 2.0) -> Any:
        return a.tanh() if approximate == "tanh" else a * scale
    assert steps(traced(formula, "f32")) == ["mul"]
    assert steps(traced(formula, "f32", approximate="tanh")) == ["tanh"]


def test_outputs_are_cast_to_the_class_of_their_dtype() -> None:
    result = trace(lambda a: a.exp(), {"a": tensor("f64")}, [dtypes.float16])
    assert steps(result) == ["exp", "cast"]
    assert result_dtype(result) == "float16"
    with pytest.raises(ValueError, match="2 results"):
        trace(lambda a: (a, a), {"a": tensor("f64")}, [dtypes.float16])


def test_several_results_and_a_bare_number() -> None:
    result = traced(lambda a: (a, 0.0, a > 0), "f32")
    assert not result.single
    names = [output.dtype.name for output in result.program.outputs]
    assert names == ["float32", "float32", "bool"]
    assert result.output_operands == (("a",), (), ("a",))


@pytest.mark.parametrize(("exponent", "cls", "expected"), [
    (2, "f32", ["mul"]), (2, "i64", ["mul"]), (3, "f32", ["mul", "mul"]), (1, "f32", []),
    (0.5, "f64", ["sqrt"]), (-0.5, "f32", ["rsqrt"]), (-1, "f32", ["reciprocal"]),
    (-1, "i64", ["pow"]), (2.5, "f32", ["pow"]), (0.5, "i64", ["cast", "sqrt"])])
def test_literal_powers(exponent: float, cls: str, expected: list[str]) -> None:
    assert steps(traced(lambda a: a**exponent, cls)) == expected


def test_identities() -> None:
    assert steps(traced(lambda a, b: a.add(b, alpha=1) * 1, "f32", "f32")) == ["add"]
    assert steps(traced(lambda a: a.floor().real.conj(), "i64")) == []
    assert steps(traced(lambda a: a.isfinite(), "i64")) == ["eq"]


def test_primitives_move_up_to_a_class_that_they_have() -> None:
    assert result_dtype(traced(lambda a: a.exp(), "i64")) == "float32"
    assert result_dtype(traced(lambda a, b: a / b, "i64", "b1")) == "float32"
    assert result_dtype(traced(lambda a, b: a - b, "b1", "b1")) == "int64"
    assert result_dtype(traced(lambda a, b: a.logical_and(b), "f32", "i64")) == "bool"
    assert result_dtype(traced(lambda a: a.abs(), "c64")) == "float32"
    assert result_dtype(traced(lambda a: a.sum(0, True), "b1")) == "int64"


def test_selection() -> None:
    result = traced(lambda a, b: a.where(b, 0), "f32", "b1")
    assert steps(result) == ["where"]
    assert result.program.steps[0].sources == (1, 0, 2)
    assert result_dtype(traced(lambda a: where(a, 1.0, 0), "b1")) == "float32"
    assert result_dtype(traced(lambda a, b: where(a, 1, b), "f32", "f64")) == "float64"
    assert where(True, 1, 2) == 1


def test_functions_on_symbols_and_numbers() -> None:
    assert steps(traced(lambda a: maximum(0, minimum(a, 6)), "f32")) == ["minimum", "maximum"]
    assert steps(traced(lambda a: fma(2.0, a, 1.0), "f32")) == ["fma"]
    assert steps(traced(lambda a: fma(a, 2, 1), "i64")) == ["mul", "add"]


def test_levels_and_reduced_dims() -> None:
    result = traced(lambda a, n: a - a.mean(-1, keepdim=True) * (n + 1), "f32",
                    n=NumberArgument("f64"))
    levels = {step.primitive: step.level for step in result.program.steps}
    assert levels == {"sum": ROW, "count": ROW, "div": ROW, "add": ROW, "cast": ROW, "mul": ROW,
                      "sub": FULL}
    assert (result.reduced_dims, result.rank) == ((1,), 2)
    assert result.reduction_operands == (("a",),)


def test_a_map_has_no_rows() -> None:
    result = traced(lambda a, n: a * (n + 1), "f32", n=NumberArgument("f64"))
    assert not result.program.has_rows
    row = trace(lambda a, r: a - r, {"a": tensor("f32"), "r": tensor("f32", 2, ROW)})
    assert [operand.level for operand in row.program.inputs] == [FULL, FULL]


def test_row_operands() -> None:
    result = trace(lambda a, r: (a * r).sum(-1, keepdim=True) - r,
                   {"a": tensor("f32"), "r": tensor("f32", 2, ROW)})
    assert [operand.level for operand in result.program.inputs] == [FULL, ROW]
    assert result.reduction_operands == (("a",),)


@pytest.mark.parametrize(("dim", "expected"), [
    (0, (0,)), (-1, (2,)), ((2, 0), (0, 2)), (None, (0, 1, 2)), ((), (0, 1, 2))])
def test_dims(dim: Any, expected: tuple[int, ...]) -> None:
    result = trace(lambda a: a.amax(dim), {"a": tensor("f32", 3)})
    assert result.reduced_dims == expected
    assert result.keepdims == (False,)


def test_bad_dims() -> None:
    with pytest.raises(IndexError, match=r"range of \[-2, 1\], but got 2"):
        traced(lambda a: a.sum(2), "f32")
    with pytest.raises(RuntimeError, match="twice"):
        traced(lambda a: a.sum((0, -2)), "f32")


def test_a_reduction_of_a_row_is_the_row() -> None:
    result = traced(lambda a: a.sum(0, keepdim=True).amax(0, keepdim=True), "f32")
    assert steps(result) == ["sum"]


def test_squeezed_reductions() -> None:
    result = traced(lambda a: (a * a).sum(-1).sqrt(), "f32")
    assert result.keepdims == (False,)
    # Where the leading dims are reduced, broadcasting restores them: [C] beside [N, C].
    assert traced(lambda a: a - a.mean(0), "f32").keepdims == (True,)
    with pytest.raises(NotAFormula, match="keepdim"):
        traced(lambda a: a - a.mean(1), "f32")


@pytest.mark.parametrize("formula", [
    lambda a: a.cumsum(0), lambda a: a[0], lambda a: a @ a, lambda a: a.shape,
    lambda a: a + "text", lambda a: a + None, lambda a: a.sum(0, True) + a.sum(1, True),
    lambda a: a.to(dtypes.float16), lambda a: a.to(dtypes.int8), lambda a: a.imag,
    lambda a: a.count(0, True)])
def test_what_is_no_formula(formula: Formula) -> None:
    with pytest.raises(NotAFormula):
        traced(formula, "f32")
    assert issubclass(NotAFormula, AttributeError)


def test_two_domains_of_different_rank() -> None:
    with pytest.raises(NotAFormula, match="two domains"):
        trace(lambda a, b: a * b.sum(-1, True), {"a": tensor("f32"), "b": tensor("f32", 1)})


def test_complex_values_have_no_order() -> None:
    for formula in (lambda a: a < 1, lambda a: a.floor(), lambda a: a.amax(0)):
        with pytest.raises(NotAFormula, match="not defined for class c64"):
            traced(formula, "c64")


def test_branching_says_what_to_do_instead() -> None:
    with pytest.raises(TypeError, match="where"):
        traced(lambda a: a if a > 0 else -a, "f32")


def test_conversion_within_a_formula() -> None:
    assert result_dtype(traced(lambda a: a.to(dtypes.float64), "f32")) == "float64"
    assert result_dtype(traced(lambda a: a.double().long(), "f32")) == "int64"
    same = trace(lambda a: a.to(dtypes.bfloat16) + 1,
                 {"a": TensorArgument(dtypes.bfloat16, "f32", 1)}, [dtypes.bfloat16])
    assert steps(same) == ["add"]


def test_formulas_are_traced_once_for_each_structure() -> None:
    calls = []

    def formula(a: Any, b: Any, n: Any) -> Any:
        calls.append(a.cls)
        return a * b + n

    def given(first: str, second: str, n: Any, result: str) -> Traced:
        a, b = [TensorArgument(getattr(dtypes, name), "i64", 1) for name in (first, second)]
        return trace(formula, {"a": a, "b": b, "n": n}, [getattr(dtypes, result)])

    before = given("int32", "int8", 2, "int32")
    after = given("uint8", "int64", 2, "int64")
    assert calls == ["i64"]
    assert [each.dtype for each in after.program.inputs] == [dtypes.uint8, dtypes.int64]
    assert after.program.outputs[0].dtype is dtypes.int64
    assert after.program.steps == before.program.steps
    # Values that compare equal are told apart, as are the classes of results.
    given("int32", "int8", True, "int32")
    given("int32", "int8", 2, "float32")
    assert len(calls) == 3


def test_a_formula_that_asks_for_a_stored_dtype_is_traced_anew() -> None:
    def formula(a: Any) -> Any:
        return a.to(dtypes.float16)

    narrow = trace(formula, {"a": TensorArgument(dtypes.float16, "f32", 1)})
    assert not steps(narrow)
    with pytest.raises(NotAFormula):
        trace(formula, {"a": TensorArgument(dtypes.float32, "f32", 1)})

"""The passes one by one: the grammar holds after each, and no bit of the results changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from core.fuse.running import bind

from slipstream.core.fuse import classes as compute
from slipstream.core.fuse.evaluator import evaluate
from slipstream.core.fuse.formula import fma, maximum, where
from slipstream.core.fuse.grammar import EVERY, Ungrammatical, check
from slipstream.core.fuse.passes import PASSES, Work, describe_passes, run_passes
from slipstream.core.fuse.printing import describe, vocabulary
from slipstream.core.fuse.symbols import NotAFormula
from slipstream.core.fuse.trace import NumberArgument, TensorArgument, Traced, trace
from slipstream.core.vocab import dtypes
from slipstream.core.vocab.programs import ROW, Program

STORED = (dtypes.float32, dtypes.float64, dtypes.bfloat16, dtypes.int32, dtypes.bool_,
          dtypes.complex64, dtypes.uint8, dtypes.float16)
UNARY = ("neg", "abs", "exp", "sqrt", "sign", "relu", "square", "sigmoid", "isnan", "logical_not",
         "floor", "reciprocal", "tanh", "conj", "bool", "double", "float", "long", "bitwise_not")
BINARY = ("add", "sub", "mul", "div", "maximum", "eq", "lt", "pow", "remainder", "floor_divide",
          "logical_and", "atan2", "fmod", "bitwise_xor")
REDUCTIONS = ("sum", "mean", "amax", "argmin", "any", "prod", "count")
LITERALS = (0, 1, 2, 1.0, 0.5, -1.5, True, 3, 1, float("inf"), -0.0, 2.5)


class Random:
    """A formula drawn from a seed: it does the same in every call."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def __call__(self, a: Any, b: Any, n: Any) -> Any:
        draw = np.random.default_rng(self.seed)
        values = [a, b, n, a]
        for _ in range(draw.integers(3, 14)):
            try:
                values.append(self.one(draw, values))
            except NotAFormula:
                continue
        count = draw.integers(1, 4)
        return tuple(values[-count:])

    @staticmethod
    def one(draw: np.random.Generator, values: list[Any]) -> Any:
        def pick() -> Any:
            if draw.random() < 0.3:
                return LITERALS[draw.integers(len(LITERALS))]
            return values[draw.integers(len(values))]

        first, kind = values[draw.integers(len(values))], draw.random()
        if kind < 0.3:
            return getattr(first, UNARY[draw.integers(len(UNARY))])()
        if kind < 0.7:
            return getattr(first, BINARY[draw.integers(len(BINARY))])(pick())
        if kind < 0.8:
            return where(first, pick(), pick())
        if kind < 0.85:
            return fma(first, pick(), pick())
        if kind < 0.9:
            return maximum(first, pick()) * 1
        return getattr(first, REDUCTIONS[draw.integers(len(REDUCTIONS))])(-1, keepdim=True)


def drawn(seed: int) -> tuple[Work, dict[str, Any]]:
    """A random formula with operands of random dtypes, some of them special."""
    draw = np.random.default_rng(1000 + seed)
    arrays: dict[str, Any] = {}
    arguments: dict[str, Any] = {}
    for name in "ab":
        dtype = STORED[draw.integers(len(STORED))]
        array = np.round(draw.uniform(-3, 3, (3, 4)), 1)
        array.reshape(-1)[draw.integers(12)] = (0.0, -0.0, 1.0, -1.0)[draw.integers(4)]
        if dtype.kind in ("float", "bfloat", "complex") and draw.random() < 0.3:
            array[0, :2] = np.inf, np.nan
        with np.errstate(all="ignore"):
            arrays[name] = np.abs(array).astype(dtype.numpy) if dtype is dtypes.uint8 else (
                array.astype(dtype.numpy))
        arguments[name] = TensorArgument(dtype, dtype.compute, 2)
    number = (2, 0.5, True, -1.25)[draw.integers(4)]
    arrays["n"] = number
    arguments["n"] = NumberArgument(compute.class_of_number(number))
    return Work(Random(seed), arguments), arrays


def bits(array: np.ndarray) -> bytes:
    """Its elements; one bit pattern for all nans."""
    wide = np.array(array, copy=True)
    if wide.dtype.kind in "fcV" or wide.dtype.itemsize == 2:
        with np.errstate(all="ignore"):
            wide = np.where(wide != wide, np.array(np.nan, wide.dtype), wide)
    return wide.tobytes()


def values_of(program: Program, traced: Traced, arrays: dict[str, Any]) -> list[bytes]:
    """The results of a pass's program, whose operands may be more than the last one's."""
    graph_names = [name for name in arrays if name != "n"]
    names = traced.operands if len(program.inputs) == len(traced.operands) else graph_names
    numbers = [arrays["n"]] if program.numbers else []
    again = traced._replace(program=program, operands=tuple(names),
                            number_names=("n",) * len(numbers))
    with np.errstate(all="ignore"):
        # Dead operands belong to the domain until they are dropped.
        return [bits(each if each.ndim else np.broadcast_to(each, (3, 4)))
                for each in bind(again, arrays)]


SEEDS = range(300)


def made(seed: int) -> tuple[list[Any], dict[str, Any], Traced]:
    """What the passes give for a seed; skips formulas that are none."""
    work, arrays = drawn(seed)
    try:
        traced = trace(work.formula, work.arguments)
    except NotAFormula:
        pytest.skip("no formula: two domains, or no tensor")
    return run_passes(work), arrays, traced


@pytest.mark.parametrize("seed", SEEDS)
def test_every_pass_keeps_grammar_and_bits(seed: int) -> None:
    found, arrays, traced = made(seed)
    results = []
    for step, work in found:
        check(work.program, step.rules)
        results.append(values_of(work.program, traced, arrays))
    assert all(each == results[0] for each in results)
    last = found[-1][1].traced
    assert repr(last) == repr(traced)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_print_of_random_programs_runs(seed: int) -> None:
    _, arrays, traced = made(seed)
    program, inner = traced.program, len(traced.reduced_dims)
    names = vocabulary((4,) * inner)
    exec(describe(program, (*traced.operands, *traced.number_names)), names)
    loaded = {}
    with np.errstate(all="ignore"):
        for name, operand in zip(traced.operands, program.inputs, strict=True):
            loaded[name] = np.asarray(arrays[name]).astype(compute.NUMPY[operand.cls])
        for name, cls in zip(traced.number_names, program.numbers, strict=True):
            loaded[name] = compute.NUMPY[cls].type(compute.to_class(arrays[name], cls))
        found = names["program"](**loaded)
        found = found if len(program.outputs) > 1 else (found,)
        for output, mine, wanted in zip(program.outputs, found, outputs_of(traced, arrays),
                                        strict=True):
            mine = np.asarray(mine)
            assert mine.dtype == compute.NUMPY[program.class_of(output.value)]
            np.testing.assert_array_equal(np.broadcast_to(mine, wanted.shape), wanted)


def outputs_of(traced: Traced, arrays: dict[str, Any]) -> list[np.ndarray]:
    """The evaluator's results in the classes that they are computed in, rows with an axis of 1."""
    program, inner = traced.program, len(traced.reduced_dims)
    wide = program._replace(outputs=tuple([each._replace(dtype=compute.natural_dtype(
        program.class_of(each.value))) for each in program.outputs]))
    outputs = [np.empty((3,) if program.has_rows and program.level_of(each.value) == ROW
                        else (3, 4), each.dtype.numpy) for each in wide.outputs]
    evaluate(wide, outputs, [arrays[name] for name in traced.operands],
             [arrays[name] for name in traced.number_names], inner)
    return [each[:, None] if each.ndim == 1 else each for each in outputs]


def work_of(formula: Callable[..., Any], cls: Any = dtypes.float32, **static: Any) -> Work:
    return Work(formula, {"a": TensorArgument(cls, cls.compute, 2), **static})


def programs(work: Work) -> dict[str, Program]:
    return {step.name: after.program for step, after in run_passes(work)}


def names(program: Program) -> list[str]:
    return [step.primitive for step in program.steps if step.primitive != "cast"]


def test_what_each_pass_does() -> None:
    found = programs(work_of(lambda a: (a * 1 + a.exp(), a.sin())[0] + a.exp() * ((a - a) + 2.0)))
    assert names(found["decompose"]) == ["mul", "exp", "add", "sin", "exp", "sub", "add", "mul",
                                         "add"]
    assert names(found["fold"]) == ["exp", "add", "sin", "exp", "sub", "add", "mul", "add"]
    assert names(found["common subexpressions"]) == ["exp", "add", "sin", "sub", "add", "mul",
                                                     "add"]
    assert names(found["dead code"]) == ["exp", "add", "sub", "add", "mul", "add"]
    assert len(found["decompose"].constants) > len(found["dead code"].constants) == 1


def test_the_rules_that_do_not_hold_yet() -> None:
    found = programs(work_of(lambda a: (a.exp() + a.exp(), a.sin())[0]))
    with pytest.raises(Ungrammatical, match="computes what step"):
        check(found["fold"], EVERY)
    with pytest.raises(Ungrammatical, match="is never used"):
        check(found["common subexpressions"], EVERY)
    check(found["dead code"], EVERY)


def test_the_list_is_flat_and_prints() -> None:
    assert [each.name for each in PASSES] == ["decompose", "fold", "common subexpressions",
                                              "dead code"]
    second = describe_passes().splitlines()[1]
    assert second == "2. fold: steps of constants, products and quotients by one"


def test_before_the_first_pass_there_is_no_program() -> None:
    with pytest.raises(ValueError, match="run the pass 'decompose' first"):
        _ = work_of(lambda a: a).program

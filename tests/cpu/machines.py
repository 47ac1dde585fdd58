"""Programs and operands to try machines on, and what the NumPy evaluator says of them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from slipstream.core.fuse import classes as compute
from slipstream.core.fuse.evaluator import evaluate
from slipstream.core.fuse.primitives import PRIMITIVES
from slipstream.core.kernels.cpu import machine
from slipstream.core.vocab import dtypes
from slipstream.core.vocab.dtypes import DType
from slipstream.core.vocab.programs import FULL, ROW, Constant, Input, Output, Program, Step

Array = Any

FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.5, -2.5, 1.5, 3.0, 1e-40, -1e-40, 1e-30, 88.7, -87.5,
          -103.5, 1e10, -1e10, 3e38, -3e38, math.inf, -math.inf, math.nan]
INTEGERS = [0, 1, -1, 2, -2, 3, 7, -7, 63, 255, 256, -129, 2**31, -(2**31), 2**53 + 1, 2**63 - 1,
            -(2**63), 10**12]


def strides_of(array: Array, rank: int) -> tuple[int, ...]:
    """Strides in elements, with 0 for dims that the array lacks at its end."""
    return tuple(stride // array.itemsize for stride in array.strides) + (0,) * (rank - array.ndim)


def run(program: Program, outer: tuple[int, ...], inner: tuple[int, ...], outputs: list[Array],
        inputs: list[Array], numbers: tuple[Any, ...] = ()) -> None:
    """Runs a program on arrays by the machine."""
    rank = len(outer) + len(inner)
    operands = [np.asarray(array) for array in (*outputs, *inputs)]
    binding = machine.Machine(program).bind(
        outer, inner, tuple(strides_of(array, rank) for array in operands))
    machine.Machine(program)  # one that has gone must not matter
    own = machine.Machine(program)
    own.run_addresses(own.bind(outer, inner, binding.strides),
                      tuple(array.ctypes.data for array in operands), numbers)


def fresh_outputs(program: Program, outer: tuple[int, ...], inner: tuple[int, ...]) -> list[Array]:
    outputs = []
    for output in program.outputs:
        row = program.has_rows and program.level_of(output.value) == ROW
        outputs.append(np.zeros(outer if row else outer + inner, output.dtype.numpy))
    return outputs


def both(program: Program, outer: tuple[int, ...], inner: tuple[int, ...], inputs: list[Array],
         numbers: tuple[Any, ...] = ()) -> Iterator[tuple[Array, Array]]:
    """Pairs of what the machine and what the evaluator write."""
    ours = fresh_outputs(program, outer, inner)
    theirs = fresh_outputs(program, outer, inner)
    run(program, outer, inner, ours, inputs, numbers)
    evaluate(program, theirs, inputs, numbers, len(inner))
    yield from zip(ours, theirs, strict=True)


def same(a: Array, b: Array) -> None:
    """The same values, nan equal to nan."""
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype == dtypes.bfloat16.numpy:
        a, b = a.astype(np.float32), b.astype(np.float32)
    np.testing.assert_array_equal(a, b)


def near(a: Array, b: Array, ulps: float) -> None:
    """Within some units in the last place of b's dtype; the parts of complex numbers apart."""
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype.kind == "c":
        scale = np.abs(b)
        near_parts(a.real, b.real, scale, ulps)
        near_parts(a.imag, b.imag, scale, ulps)
    elif a.dtype.kind not in "fc":
        same(a, b)
    else:
        near_parts(a, b, np.abs(b), ulps)


def near_parts(a: Array, b: Array, scale: Array, ulps: float) -> None:
    regular = np.isfinite(a) & np.isfinite(b) & np.isfinite(scale)
    np.testing.assert_array_equal(np.isnan(a), np.isnan(b))
    np.testing.assert_array_equal(a[~regular], b[~regular])
    with np.errstate(all="ignore"):
        unit = np.spacing(scale[regular].astype(a.dtype))
        error = np.abs(a[regular].astype(np.longdouble) - b[regular])
    assert np.all(error <= ulps * unit), (error / unit).max()


def map_program(primitive: str, cls: str, sources: tuple[str, ...], result: str) -> Program:
    inputs = tuple(Input(compute.natural_dtype(source), source) for source in sources)
    step = Step(primitive, cls, tuple(range(len(sources))), result, FULL)
    return Program(inputs, (), (), (step,), (Output(len(sources), compute.natural_dtype(result)),))


def fold_program(primitive: str, cls: str) -> Program:
    result = PRIMITIVES[primitive].result_class(cls)
    step = Step(primitive, cls, (0,), result, ROW)
    return Program((Input(compute.natural_dtype(cls), cls),), (), (), (step,),
                   (Output(1, compute.natural_dtype(result)),))


def softmax_program(dtype: DType = dtypes.float32) -> Program:
    steps = (Step("amax", "f32", (0,), "f32", ROW), Step("sub", "f32", (0, 1), "f32", FULL),
             Step("exp", "f32", (2,), "f32", FULL), Step("sum", "f32", (3,), "f32", ROW),
             Step("div", "f32", (3, 4), "f32", FULL))
    return Program((Input(dtype, "f32"),), (), (), steps, (Output(5, dtype),))


def variance_program() -> Program:
    """Mean, variance and normalized rows: three outputs, two of row level, and a count."""
    steps = (Step("count", "f64", (), "f64", ROW), Step("sum", "f64", (0,), "f64", ROW),
             Step("div", "f64", (4, 3), "f64", ROW), Step("sub", "f64", (0, 5), "f64", FULL),
             Step("mul", "f64", (6, 6), "f64", FULL), Step("sum", "f64", (7,), "f64", ROW),
             Step("div", "f64", (8, 3), "f64", ROW), Step("add", "f64", (9, 2), "f64", ROW),
             Step("rsqrt", "f64", (10,), "f64", ROW), Step("mul", "f64", (6, 11), "f64", FULL),
             Step("mul", "f64", (12, 1), "f64", FULL))
    return Program((Input(dtypes.float64, "f64"), Input(dtypes.float64, "f64")), ("f64",), (),
                   steps, (Output(5, dtypes.float64), Output(13, dtypes.float64),
                           Output(9, dtypes.float32)))


def samples(cls: str, n: int, seed: int, special: bool = True) -> Array:
    """n values of a class: special ones first, then random ones of many sizes."""
    rng = np.random.default_rng(seed)
    dtype = compute.NUMPY[cls]
    if cls == "b1":
        return rng.integers(0, 2, n).astype(bool)
    if cls == "i64":
        values = rng.integers(-300, 300, n)
        values[: len(INTEGERS)] = rng.permutation(INTEGERS)[:n]
        return values
    if cls in ("c64", "c128"):
        return (rng.standard_normal(n) + 1j * rng.standard_normal(n)).astype(dtype)
    values = rng.standard_normal(n) * 10.0 ** rng.integers(-3, 3, n)
    if special:
        values[: len(FLOATS)] = rng.permutation(FLOATS)[:n]
    with np.errstate(all="ignore"):
        return values.astype(dtype)


def layouts(shape: tuple[int, ...], dtype: Any, seed: int) -> Iterator[Array]:
    """Arrays of one shape: contiguous, transposed, stepped, reversed, broadcast, with gaps."""
    rng = np.random.default_rng(seed)
    rank = len(shape)
    x = np.array(rng.standard_normal(shape) * 10)
    # Through int64, so that narrow integers wrap.
    x = (x.astype(np.int64) if np.dtype(dtype).kind in "iu" else x).astype(dtype)
    yield x
    if rank == 0:
        return
    order = rng.permutation(rank)
    yield np.ascontiguousarray(x.transpose(order)).transpose(np.argsort(order))
    yield np.repeat(x, 2, axis=-1)[..., ::2]
    yield x[tuple(slice(None, None, -1) for _ in shape)]
    yield np.broadcast_to(x[:1], shape) if 0 not in shape else x
    yield np.broadcast_to(x[..., :1], shape) if 0 not in shape else x
    wide = np.zeros(tuple(size + 3 for size in shape), dtype)
    gap = wide[tuple(slice(1, size + 1) for size in shape)]
    gap[...] = x
    yield gap


class RandomProgram:
    """A program of integer arithmetic, which is exact in any order, with folds at any depth."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.folding = bool(self.rng.integers(0, 3))
        integers = [dtype for dtype in dtypes.ALL if dtype.kind == "int"]
        self.inputs = tuple(
            Input(integers[self.rng.integers(len(integers))], "i64",
                  ROW if self.folding and place and self.rng.integers(0, 3) == 0 else FULL)
            for place in range(self.rng.integers(1, 4)))
        self.numbers = ("i64",) * int(self.rng.integers(0, 3))
        self.constants = (Constant(3, "i64"), Constant(-5, "i64"))[: self.rng.integers(0, 3)]
        self.classes = ["i64"] * (len(self.inputs) + len(self.numbers) + len(self.constants))
        self.levels = [operand.level for operand in self.inputs]
        self.levels += [ROW] * (len(self.classes) - len(self.levels))
        self.steps: list[Step] = []
        for _ in range(self.rng.integers(0, 12)):
            self.add_step()

    def pick(self, cls: str, level: str = "") -> int | None:
        places = [place for place, known in enumerate(self.classes)
                  if known == cls and level in ("", self.levels[place])]
        return int(self.rng.choice(places[-6:])) if places else None

    def add_step(self) -> None:
        names = ["add", "sub", "mul", "maximum", "neg", "lt", "where", "cast", "logical_not"]
        names += ["sum", "amax", "argmin", "any", "count", "sum"] * self.folding
        name = str(self.rng.choice(names))
        fold = PRIMITIVES[name].reduction and name != "count"
        cls = "b1" if name in ("any", "logical_not") else "i64"
        wanted = ("b1", cls, cls) if name == "where" else (cls,) * PRIMITIVES[name].arity
        if name == "cast":
            wanted = ("b1",)
        sources = [self.pick(known, FULL if fold else "") for known in wanted]
        if None in sources:
            return
        full = not fold and any(self.levels[source] == FULL for source in sources)
        result = "i64" if name == "cast" else PRIMITIVES[name].result_class(cls)
        self.steps.append(Step(name, cls, tuple(sources), result, FULL if full else ROW))
        self.classes.append(result)
        self.levels.append(self.steps[-1].level)

    def program(self) -> Program:
        outputs = []
        for _ in range(self.rng.integers(1, 4)):
            value = int(self.rng.integers(max(0, len(self.classes) - 4), len(self.classes)))
            choice = [dtypes.int64, dtypes.int32, dtypes.uint8]
            dtype = choice[self.rng.integers(3)] if self.classes[value] == "i64" else dtypes.bool_
            outputs.append(Output(value, dtype))
        return Program(self.inputs, self.numbers, self.constants, tuple(self.steps),
                       tuple(outputs))

"""The machine against the NumPy evaluator: every primitive, dtype, schedule and kind of stride."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from machines import (
    Array,
    RandomProgram,
    both,
    fold_program,
    fresh_outputs,
    layouts,
    map_program,
    near,
    near_parts,
    run,
    same,
    samples,
    softmax_program,
    variance_program,
)

from slipstream.core.fuse import classes as compute
from slipstream.core.fuse.evaluator import evaluate
from slipstream.core.fuse.primitives import EVERY, PRIMITIVES
from slipstream.core.kernels.cpu import machine
from slipstream.core.vocab import dtypes
from slipstream.core.vocab.dtypes import DType
from slipstream.core.vocab.programs import FULL, ROW, Constant, Input, Output, Program, Step

COMPILED = not machine.__file__.endswith(".py")
FOLDS = [name for name, primitive in PRIMITIVES.items() if primitive.reduction and name != "count"]
# Rounded once or not at all, by C and by NumPy.
EXACT = frozenset(
    """add sub mul neg abs reciprocal fma sqrt floor ceil trunc round sign floor_divide remainder
    trunc_divide fmod isnan isinf isfinite eq ne lt le gt ge maximum minimum where conj real imag
    bitwise_and bitwise_or bitwise_xor bitwise_not logical_and logical_or logical_xor logical_not
    div rsqrt""".split())
# Of complex numbers, where NumPy may contract a product and a sum.
ROUNDED = ("mul", "div", "abs", "sqrt")
OWN = ("exp", "log", "tanh", "erf", "expm1", "log1p", "sigmoid")


def pointwise() -> list[tuple[str, str]]:
    return [(name, cls) for name, primitive in PRIMITIVES.items() for cls in primitive.classes
            if not primitive.reduction and name != "cast"]


@pytest.mark.parametrize(("name", "cls"), pointwise())
@pytest.mark.parametrize("n", [1, 7, 1000, 2500])
def test_primitive(name: str, cls: str, n: int) -> None:
    primitive = PRIMITIVES[name]
    sources = ("b1", cls, cls) if name == "where" else (cls,) * primitive.arity
    program = map_program(name, cls, sources, primitive.result_class(cls))
    inputs = [samples(source, n, seed) for seed, source in enumerate(sources)]
    for ours, theirs in both(program, (n,), (), inputs):
        if cls in ("b1", "i64") or (name in EXACT and not (cls[0] == "c" and name in ROUNDED)):
            same(ours, theirs)
        elif name == "ndtr16":
            # A share of one: what is small only has to be as near as what is large.
            near_parts(ours, theirs, np.ones_like(theirs), 1)
        elif cls == "f32" and name in OWN:
            near(ours, theirs, 4)
        else:
            near(ours, theirs, 16 if cls in ("c64", "c128") else 4)


@pytest.mark.parametrize("name", OWN)
def test_float32_functions_are_within_two_units(name: str) -> None:
    bits = np.arange(0, 2**32, 65521, dtype=np.uint64).astype(np.uint32)
    x = bits.view(np.float32)
    program = map_program(name, "f32", ("f32",), "f32")
    ours = np.empty_like(x)
    run(program, x.shape, (), [ours], [x])
    wide = np.empty(x.shape, np.float64)
    with np.errstate(all="ignore"):
        evaluate(map_program(name, "f64", ("f64",), "f64"), [wide], [x.astype(np.float64)], (), 0)
        exact = wide.astype(np.float32)
        unit = np.maximum(np.spacing(np.abs(exact)), 2.0**-149)
        error = np.abs(ours.astype(np.float64) - wide) / unit
    regular = np.isfinite(exact) & (np.abs(exact) >= 2.0**-126 if name == "sigmoid" else True)
    np.testing.assert_array_equal(np.isnan(ours), np.isnan(exact))
    np.testing.assert_array_equal(ours[np.isinf(exact)], exact[np.isinf(exact)])
    # NumPy's own are not quite as near.
    assert error[regular].max() <= (2.0 if COMPILED else 3.0)
    np.testing.assert_array_equal(np.signbit(ours[exact == 0]), np.signbit(exact[exact == 0]))


@pytest.mark.parametrize("source", EVERY)
@pytest.mark.parametrize("target", EVERY)
def test_cast(source: str, target: str) -> None:
    program = map_program("cast", target, (source,), target)
    for ours, theirs in both(program, (200,), (), [samples(source, 200, 3)]):
        same(ours, theirs)


def stored(dtype: DType, n: int, seed: int) -> Array:
    values = samples(dtype.compute, n, seed)
    with np.errstate(all="ignore"):
        return values.astype(dtype.numpy)


@pytest.mark.parametrize("cls", EVERY)
@pytest.mark.parametrize("dtype", dtypes.ALL, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("step", [1, 3, -2])
def test_load_and_store(dtype: DType, cls: str, step: int) -> None:
    natural = compute.natural_dtype(cls)
    loads = Program((Input(dtype, cls),), (), (), (), (Output(0, natural),))
    values = stored(dtype, 700, 5)[::step]
    for ours, theirs in both(loads, values.shape, (), [values]):
        same(ours, theirs)
    stores = Program((Input(natural, cls),), (), (), (), (Output(0, dtype),))
    values = samples(cls, 700, 6)
    ours = np.zeros(700 * abs(step), dtype.numpy)[::step]
    theirs = np.zeros(700, dtype.numpy)
    run(stores, values.shape, (), [ours[:700]], [values])
    evaluate(stores, [theirs], [values], (), 0)
    same(ours[:700], theirs)


def test_float16_rounds_to_nearest_even() -> None:
    bits = np.arange(0, 2**32, 40009, dtype=np.uint64).astype(np.uint32)
    x = bits.view(np.float32)
    for dtype in (dtypes.float16, dtypes.bfloat16):
        with np.errstate(all="ignore"):
            wanted = x.astype(dtype.numpy)
        ours = np.empty(x.shape, dtype.numpy)
        run(Program((Input(dtypes.float32, "f32"),), (), (), (), (Output(0, dtype),)), x.shape, (),
            [ours], [x])
        same(ours, wanted)


def test_every_float16_is_loaded() -> None:
    bits = np.arange(2**16, dtype=np.uint32).astype(np.uint16)
    for dtype in (dtypes.float16, dtypes.bfloat16):
        x = bits.view(dtype.numpy)
        ours = np.empty(x.shape, np.float32)
        run(Program((Input(dtype, "f32"),), (), (), (), (Output(0, dtypes.float32),)), x.shape, (),
            [ours], [x])
        same(ours, x.astype(np.float32))


def test_any_byte_is_a_bool() -> None:
    x = np.arange(256, dtype=np.uint8)
    ours = np.empty(256, np.uint8)
    run(map_program("logical_not", "b1", ("b1",), "b1"), (256,), (), [ours], [x])
    assert ours.tolist() == [1] + [0] * 255 or not COMPILED


@pytest.mark.skipif(not COMPILED, reason="NumPy looks at values")
@pytest.mark.parametrize("dtype", dtypes.ALL, ids=lambda dtype: dtype.name)
def test_copies_keep_every_bit(dtype: DType) -> None:
    rng = np.random.default_rng(15)
    program = Program((Input(dtype, dtype.compute),), (), (), (), (Output(0, dtype),))
    for shape in ((3,), (5000,), (70, 90)):
        raw = rng.integers(0, 256, (*shape, dtype.itemsize)).astype(np.uint8)
        x = raw.reshape(*shape[:-1], -1).view(dtype.numpy)
        for values in (x, x[::-1], x.T, x[..., ::2]):
            ours = np.zeros(values.shape, dtype.numpy)
            run(program, values.shape, (), [ours], [values])
            assert ours.tobytes() == np.ascontiguousarray(values).tobytes()


SHAPES = [(), (0,), (1,), (5,), (3, 0, 2), (1, 1), (4, 5), (33, 65), (2, 3, 4), (17, 1, 9),
          (2, 1, 3, 2), (3, 4, 2, 5), (2, 3, 1, 2, 3), (2, 1, 2, 2, 1, 3), (1500,), (3, 1500),
          (700, 3), (2, 600, 5), (5, 37, 40)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_strides_of_a_map(shape: tuple[int, ...]) -> None:
    steps = (Step("mul", "f32", (0, 1), "f32", FULL), Step("add", "f32", (3, 2), "f32", FULL))
    program = Program((Input(dtypes.float32, "f32"), Input(dtypes.float16, "f32")), ("f32",), (),
                      steps, (Output(4, dtypes.float32), Output(3, dtypes.float64)))
    for a in layouts(shape, np.float32, 1):
        for b in layouts(shape, np.float16, 2):
            for ours, theirs in both(program, shape, (), [a, b], (1.25,)):
                same(ours, theirs)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_strides_of_an_output(shape: tuple[int, ...]) -> None:
    program = map_program("sub", "i64", ("i64", "i64"), "i64")
    rng = np.random.default_rng(3)
    a, b = rng.integers(-9, 9, (2, *shape))
    for place, output in enumerate(layouts(shape, np.int64, 4)):
        if place not in (4, 5):
            run(program, shape, (), [output], [a, b])
            same(output, a - b)


def cuts(shape: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    for rank in range(len(shape) + 1):
        yield shape[:rank], shape[rank:]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("make", [softmax_program, variance_program])
def test_strides_of_rows(shape: tuple[int, ...], make: Callable[[], Program]) -> None:
    program = make()
    dtype = program.inputs[0].dtype.numpy
    numbers = (0.5,) * len(program.numbers)
    for outer, inner in cuts(shape):
        for a in layouts(shape, dtype, 5):
            others = [np.ones(shape, dtype)] * (len(program.inputs) - 1)
            for ours, theirs in both(program, outer, inner, [a, *others], numbers):
                np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("name", FOLDS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_strides_of_folds(name: str, shape: tuple[int, ...]) -> None:
    for cls in PRIMITIVES[name].classes:
        program = fold_program(name, cls)
        exact = name not in ("sum", "prod") or cls in ("b1", "i64")
        for outer, inner in cuts(shape):
            for x in layouts(shape, np.float64, 6):
                with np.errstate(all="ignore"):
                    values = np.round(x / 30).astype(compute.NUMPY[cls], copy=False)
                for ours, theirs in both(program, outer, inner, [values]):
                    same(ours, theirs) if exact else near(ours, theirs, 8)


@pytest.mark.parametrize("name", FOLDS)
@pytest.mark.parametrize("width", [1, 7, 1000, 5000, 100003])
@pytest.mark.parametrize("order", ["rows", "columns"])
def test_fold(name: str, width: int, order: str) -> None:
    for cls in PRIMITIVES[name].classes:
        x = samples(cls, 5 * width, 7, special=False)
        if name == "prod" and cls != "b1":
            x = np.where(x == 0, x, x / np.abs(x) + 0 * x).astype(x.dtype) if cls != "i64" else x
        x = x.reshape(5, width) if order == "rows" else x.reshape(width, 5).T
        for ours, theirs in both(fold_program(name, cls), (5,), (width,), [x]):
            if name in ("sum", "prod") and cls != "i64":
                np.testing.assert_allclose(ours, theirs, rtol=2e-6 if "32" in cls or cls == "c64"
                                           else 1e-12, atol=1e-9)
            else:
                same(ours, theirs)


@pytest.mark.parametrize("name", ["amax", "amin", "argmax", "argmin", "sum"])
@pytest.mark.parametrize("place", [0, 3, 1030, 99999])
def test_nan_in_a_fold(name: str, place: int) -> None:
    x = np.arange(100003, dtype=np.float32)[::-1].copy()
    x[place] = np.nan
    x[place + 2] = np.nan
    both_ways = (x.reshape(1, -1), np.ascontiguousarray(np.stack([x] * 6, -1)).T)
    for values in both_ways:
        for ours, theirs in both(fold_program(name, "f32"), values.shape[:1], values.shape[1:],
                                 [values]):
            same(ours, theirs)


def test_sums_of_float32_are_rounded_about_once() -> None:
    x = np.random.default_rng(8).random(1_000_003).astype(np.float32)
    exact = math.fsum(x.tolist())
    ours = np.zeros((), np.float32)
    run(fold_program("sum", "f32"), (), x.shape, [ours], [x])
    assert abs(float(ours) - exact) <= 0.51 * np.spacing(np.float32(exact))


def test_sums_of_float64_carry_what_is_lost() -> None:
    x = np.random.default_rng(9).standard_normal(300_000) * 1e8
    x = np.concatenate([x, [1.0], -x])
    ours = np.zeros((), np.float64)
    run(fold_program("sum", "f64"), (), x.shape, [ours], [x])
    assert abs(float(ours) - 1.0) < 1e-3


def test_infinite_sums() -> None:
    for values, wanted in (([1e308] * 3, math.inf), ([math.inf, 1.0], math.inf),
                           ([math.inf, -math.inf], math.nan)):
        ours = np.zeros((), np.float64)
        run(fold_program("sum", "f64"), (), (len(values),), [ours], [np.array(values)])
        same(ours, wanted)


@pytest.mark.parametrize("outer", [1, 3, 40])
@pytest.mark.parametrize("width", [1, 7, 1000, 5000, 100003])
@pytest.mark.parametrize("order", ["rows", "columns"])
def test_row_program(outer: int, width: int, order: str) -> None:
    if outer * width > 400_000:
        outer = 2
    rng = np.random.default_rng(10)
    shape = (outer, width) if order == "rows" else (width, outer)
    x = rng.standard_normal(shape)
    x = x if order == "rows" else x.T
    for ours, theirs in both(softmax_program(), (outer,), (width,), [x.astype(np.float32)]):
        near(ours, theirs, 16)
    for ours, theirs in both(softmax_program(dtypes.bfloat16), (outer,), (width,),
                             [x.astype(dtypes.bfloat16.numpy)]):
        np.testing.assert_allclose(ours.astype(float), theirs.astype(float), rtol=2e-2)
    for ours, theirs in both(variance_program(), (outer,), (width,), [x, x + 1], (1e-5,)):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1, 2**70 + 5])
def test_a_number_of_more_than_64_bits_is_refused(number: int) -> None:
    program = Program((), ("i64",), (), (), (Output(0, dtypes.int64),))
    with pytest.raises(OverflowError, match="too big"):
        list(both(program, (3,), (), [], (number,)))


def test_numbers_and_constants() -> None:
    values = {"b1": [True, 0, math.nan],
              "i64": [3, -7, 2**64 - 5, 2**63, -(2**63), 1e30, 2.9, True],
              "f32": [0.1, 3, True, math.inf], "f64": [0.1, 10**20],
              "c64": [1 + 2j, 0.1, 3], "c128": [0.1j, 2]}
    for cls, numbers in values.items():
        dtype = compute.natural_dtype(cls)
        program = Program((), (cls,), (), (), (Output(0, dtype),))
        for number in numbers:
            for ours, theirs in both(program, (3,), (), [], (number,)):
                same(ours, theirs)
            constant = Program((), (), (Constant(number, cls),), (), (Output(0, dtype),))
            for ours, theirs in both(constant, (3,), (), []):
                same(ours, theirs)


def test_many_numbers() -> None:
    count = 40
    steps = tuple(Step("add", "f64", (place if place == 0 else count + place, place + 1), "f64",
                       FULL) for place in range(count))
    program = Program((Input(dtypes.float64, "f64"),), ("f64",) * count, (), steps,
                      (Output(2 * count, dtypes.float64),))
    for ours, theirs in both(program, (5,), (), [np.arange(5.0)], tuple(range(count))):
        same(ours, theirs)


def test_wrong_number_of_operands() -> None:
    own = machine.Machine(map_program("add", "f32", ("f32", "f32"), "f32"))
    binding = own.bind((1,), (), ((1,),) * 3)
    with pytest.raises(ValueError, match="another number"):
        own.run_addresses(binding, (0, 0), ())


@pytest.mark.parametrize("shape", [(5,), (4000,), (33, 65), (200, 3)])
def test_in_place(shape: tuple[int, ...]) -> None:
    """An output may be an input, element for element, also where an input is used again."""
    steps = (Step("add", "f32", (0, 1), "f32", FULL), Step("mul", "f32", (2, 0), "f32", FULL),
             Step("sub", "f32", (3, 1), "f32", FULL))
    program = Program((Input(dtypes.float32, "f32"), Input(dtypes.float32, "f32")), (), (), steps,
                      (Output(2, dtypes.float32), Output(4, dtypes.float32)))
    rng = np.random.default_rng(11)
    for transposed in (False, True):
        a, b = rng.standard_normal((2, *shape)).astype(np.float32)
        if transposed:
            a = np.asfortranarray(a)
        total, result = a + b, (a + b) * a - b
        run(program, shape, (), [a, b], [a, b])
        same(a, total)
        same(b, result)


def test_rows_in_place() -> None:
    x = np.random.default_rng(12).standard_normal((20, 3000)).astype(np.float32)
    wanted = np.empty_like(x)
    run(softmax_program(), (20,), (3000,), [wanted], [x])
    run(softmax_program(), (20,), (3000,), [x], [x])
    same(x, wanted)


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    before = machine.workers.threads

    def set_threads(count: int) -> None:
        machine.workers.threads = count
    yield set_threads
    machine.workers.threads = before


LARGE = [((), (1_000_003,)), ((3,), (300_001,)), ((2000,), (300,)), ((40_000,), (12,)),
         ((70, 7), (9, 111))]


@pytest.mark.parametrize(("outer", "inner"), LARGE, ids=str)
@pytest.mark.parametrize("order", ["C", "F"])
def test_threads_change_no_bit(outer: tuple[int, ...], inner: tuple[int, ...], order: str,
                               threads: Callable[[int], None]) -> None:
    rng = np.random.default_rng(13)
    x = np.asarray(rng.standard_normal(outer + inner), order=order)
    for program, values in ((softmax_program(), x.astype(np.float32)),
                            (variance_program(), x), (fold_program("sum", "f64"), x),
                            (fold_program("argmax", "f32"), x.astype(np.float32)),
                            (map_program("exp", "f64", ("f64",), "f64"), x)):
        inputs = [values] * len(program.inputs)
        results = []
        for count in (1, 2, 3, 7):
            threads(count)
            outputs = fresh_outputs(program, outer, inner)
            run(program, outer, inner, outputs, inputs, (1e-5,) * len(program.numbers))
            results.append([output.tobytes() for output in outputs])
        assert results.count(results[0]) == len(results)


def test_order_does_not_depend_on_the_address() -> None:
    rng = np.random.default_rng(14)
    memory = np.zeros(300_100, np.float32)
    values = rng.standard_normal(300_000).astype(np.float32)
    results = set()
    for offset in (0, 1, 3, 8, 13):
        x = memory[offset:offset + 300_000]
        x[...] = values
        ours = np.zeros((), np.float32)
        run(fold_program("prod", "f32"), (), x.shape, [ours], [x + 0 * x])
        run(fold_program("sum", "f32"), (), x.shape, [ours], [x])
        results.add(ours.tobytes())
    assert len(results) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_the_pool_works_in_a_child(threads: Callable[[int], None]) -> None:
    threads(3)
    x = np.ones(1_000_000, np.float32)
    ours = np.zeros((), np.float32)
    own = machine.Machine(fold_program("sum", "f32"))
    binding = own.bind((), x.shape, ((), (1,)))
    addresses = (ours.ctypes.data, x.ctypes.data)
    own.run_addresses(binding, addresses, ())
    child = os.fork()
    if child == 0:
        ours[...] = 0
        own.run_addresses(binding, addresses, ())
        os._exit(0 if float(ours) == 1_000_000 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert float(ours) == 1_000_000


RANDOM_SHAPES = [((), (1,)), ((3,), (5,)), ((2, 3), (4,)), ((4,), (2, 3)), ((40,), (70,)),
                 ((3,), (2500,)), ((2, 3), (700, 3)), ((1, 5), (3, 1200)), ((900,), (4,)),
                 ((2,), (70_001,)), ((0,), (3,)), ((3,), (0,)), ((5, 2, 2), ())]


@pytest.mark.parametrize("seed", range(400))
def test_random_program(seed: int, threads: Callable[[int], None]) -> None:
    maker = RandomProgram(seed)
    program = maker.program()
    threads(1 + seed % 3)
    outer, inner = RANDOM_SHAPES[seed % len(RANDOM_SHAPES)]
    if 0 in inner and any(step.primitive.startswith("a") and step.primitive != "add"
                          for step in program.steps):
        inner = (2,)
    inputs = []
    for operand in program.inputs:
        shape = outer if operand.level == ROW else outer + inner
        choices = list(layouts(shape, operand.dtype.numpy, seed))
        inputs.append(choices[(seed + len(inputs)) % len(choices)])
    for ours, theirs in both(program, outer, inner, inputs, (7, -2)[: len(program.numbers)]):
        same(ours, theirs)

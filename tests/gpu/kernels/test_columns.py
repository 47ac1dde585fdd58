"""Columns: blocks of every shape, parts that blocks leave, and how a block walks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from catalogue import host, wide

import slipstream as ss
from gpu.kernels.formulas import Formula, Run, check, cuda, numbers, shifted
from slipstream.core.fuse.formula import Symbol

BF16, F32, I32 = ss.bfloat16, ss.float32, ss.int32


def totals(x: Symbol) -> Any:
    """Results that any wrong or missing element shows in."""
    return x.sum(0), x.argmax(0), x.amin(0)


@pytest.mark.parametrize("columns", [1, 2, 3, 8, 33, 64, 130, 516])
@pytest.mark.parametrize("length", [1, 2, 7, 16, 33, 70, 300, 2100])
def test_blocks_of_every_shape(columns: int, length: int) -> None:
    x = numbers([length, columns], I32, length)
    run = Run(Formula(totals, [I32, ss.int64, I32]), x=cuda(x)).launch()
    found = [host(each).reshape(-1) for each in run.results]
    for result, wanted in zip(found, (x.sum(0), x.argmax(0), x.min(0)), strict=True):
        np.testing.assert_array_equal(result, wanted)


# Of more blocks than a thread joins at once, of a last block of few columns, of several batches.
SHARED = [((40000, 12), 0), ((20000, 130), 0), ((3, 9000, 40), 1), ((2, 5000, 130), 1),
          ((30000, 1), 0)]


@pytest.mark.parametrize(("shape", "dim"), SHARED)
def test_parts_that_blocks_leave(shape: Any, dim: int) -> None:
    x = numbers(shape, I32)
    given = cuda(x)
    for found, wanted in ((given.sum(dim), x.sum(dim)), (given.argmax(dim), x.argmax(dim)),
                          (given.to(F32).var(dim), np.var(x.astype(np.float64), dim, ddof=1))):
        np.testing.assert_allclose(wide(host(found)), wanted, rtol=2e-6)
    # Beginning at an odd address, and every second column.
    odd = cuda(np.concatenate([x.reshape(-1)[:1], x.reshape(-1)]))[1:].view(shape)
    np.testing.assert_array_equal(host(odd.sum(dim)), x.sum(dim))
    np.testing.assert_array_equal(host(given[..., ::2].argmax(dim)), x[..., ::2].argmax(dim))


def plan_of(x: Any, op: str) -> Any:
    """The plan of the kernel of an op's reduction over the first dim."""
    formula = Formula(lambda x: getattr(x, op)(0), [ss.int64 if op == "argmax" else x.dtype])
    made, kernel = formula.traced({"x": x})
    domain = tuple(x.shape)
    steps = [(0, *range(1, len(domain))), tuple(x.spec.strides)]
    return kernel.schedule(kernel.collapse(domain, made.reduced_dims, steps))[0][0]


def tall(width: int, dtype: Any = BF16) -> Any:
    """A matrix of this width, as high as a card is filled with."""
    return ss.empty((1 << 23) // width, width, dtype=dtype, device="cuda")


def test_how_blocks_walk() -> None:
    narrow, broad = tall(64), tall(1024)
    for x, op, threads, batch, ahead in (
            (narrow, "sum", 512, 8, False), (broad, "sum", 512, 8, False),
            (narrow, "argmax", 512, 8, True), (broad, "argmax", 512, 8, True),
            # What takes the registers to ask twice asks once.
            (tall(1024, F32), "argmax", 512, 8, False)):
        plan = plan_of(x, op)
        assert plan.exact
        assert (plan.threads, plan.batch, plan.ahead) == (threads, batch, ahead), (x.shape, op)


def test_batches_are_asked_for_ahead() -> None:
    for width in (64, 1024):
        x = np.random.RandomState(width).randint(-9, 9, ((1 << 23) // width, width))
        x = x.astype(BF16.numpy)
        # The first and the last row, two equal ones, and numbers that are none.
        x[0, 0] = x[-1, 1] = x[1000, 2] = x[700, 2] = 99
        x[1500, 3] = x[900, 3] = np.nan
        given = cuda(x)
        assert plan_of(given, "argmax").ahead
        values = x.astype(np.float32)
        np.testing.assert_array_equal(host(given.argmax(0)), np.argmax(values, 0))
        np.testing.assert_array_equal(host(given.argmin(0)), np.argmin(values, 0))


@pytest.mark.parametrize("dtype", [BF16, F32], ids=lambda each: each.name)
def test_moments_of_tall_columns(dtype: Any) -> None:
    for width in (64, 1024):
        x = np.random.RandomState(width).standard_normal(((1 << 23) // width, width))
        x = (x * 3 + 50).astype(dtype.numpy)
        wanted = np.var(x.astype(np.float64), 0, ddof=1)
        near = 2e-6 if dtype is F32 else 5e-3
        np.testing.assert_allclose(wide(host(cuda(x).var(0))), wanted, rtol=near)


def sums_of(g: Symbol, x: Symbol, mean: Symbol, factor: Symbol) -> Any:
    """The gradients of a norm's weight and bias: two sums, and operands that are one a row."""
    return (g * ((x - mean) * factor)).sum(0), g.sum(0)


def moments_of(x: Symbol) -> Any:
    """Reductions whose parts are structures, and a value that follows from one."""
    centred = x - x.mean(0, keepdim=True)
    return (centred * centred).mean(0).sqrt(), x.argmax(0), x.amax(0)


# Of one vector a thread and of several, of less than a warp's rows, of a last block of few columns.
SMALL = [(65, 8), (77, 24), (128, 256), (100, 100), (300, 20), (1000, 12), (1024, 36), (4096, 8)]


@pytest.mark.parametrize("shape", SMALL, ids=str)
@pytest.mark.parametrize("dtype", [F32, BF16, ss.float64], ids=lambda each: each.name)
def test_narrow_blocks(dtype: Any, shape: tuple[int, int]) -> None:
    length, _ = shape
    for function, outputs in ((totals, [dtype, ss.int64, dtype]), (sums_of, [F32, F32]),
                              (moments_of, [F32, ss.int64, dtype])):
        operands = {}
        for place, name in enumerate(function.__code__.co_varnames[
                :function.__code__.co_argcount]):
            line = name in ("mean", "factor")
            kind = F32 if line or name == "g" else dtype
            given = numbers([length, 1] if line else shape, kind, place)
            # Beginning at an odd address, some of them.
            operands[name] = shifted(given) if place % 2 else cuda(given)
        run = check(Formula(function, outputs), ulps=8.0 if dtype is BF16 else 256.0, **operands)
        assert run.launches() == 1
        assert "slip_join_warps" in run.source()


@pytest.mark.parametrize("dim", [0, 1, (0, 1)], ids=str)
def test_narrow_blocks_of_batches_and_steps(dim: Any) -> None:
    x = numbers([70, 66, 24], I32)
    given = cuda(x)
    for view, array in ((given, x), (given[:, :, ::2], x[:, :, ::2]), (given[::-1], x[::-1]),
                        (given.transpose(0, 1), x.transpose(1, 0, 2))):
        np.testing.assert_array_equal(host(view.sum(dim)), array.sum(dim))
        np.testing.assert_array_equal(host(view.amin(dim)), array.min(dim))


def test_which_blocks_are_narrow() -> None:
    for shape, dtype, side in (
            # As many threads side by side as read whole sectors.
            ((1024, 256), F32, 2), ((1024, 256), BF16, 4), ((65, 256), F32, 2),
            ((256, 64), ss.int8, 4), ((80, 8), BF16, 2), ((4096, 512), F32, 2),
            # Long, large, few and short columns are others' part.
            ((4097, 256), F32, 0), ((4096, 520), F32, 0), ((1024, 4), F32, 0), ((64, 256), F32, 0),
            ((100, 4096), F32, 0)):
        plan = plan_of(ss.empty(*shape, dtype=dtype, device="cuda"), "sum")
        assert plan.narrow == side, (shape, dtype)
        # Nothing that depends on the length is in the text.
        assert (plan.threads, plan.batch, plan.stage) == (512, 4, -1) or not side
    # There are blocks enough without.
    many, few = [ss.empty(count, 80, 64, device="cuda").transpose(0, 1) for count in (300, 30)]
    assert not plan_of(many, "sum").narrow
    assert plan_of(few, "sum").narrow
    for width in (64, 768, 4096):
        for dtype in (BF16, F32):
            assert not plan_of(tall(width, dtype), "sum").narrow


def test_narrow_blocks_give_the_same_bits_wherever_operands_lie(restart: Any) -> None:
    found = []
    for model in ("H100", "A100"):
        restart(model=model)
        for place in (cuda, shifted):
            x = place(numbers([777, 48]))
            run = Run(Formula(moments_of, [F32, ss.int64, F32]), x=x).launch()
            found.append([host(each).tobytes() for each in run.results])
            assert run.kernel.schedule(run.kernel.collapse(
                run.domain, run.traced.reduced_dims,
                [run._strides(each) for each in (*run.results, x)]))[0][0].narrow
    assert all(each == found[0] for each in found[1:])

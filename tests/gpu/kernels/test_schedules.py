"""The schedules: maps, rows and columns over shapes that take each of their ways."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from catalogue import host

import slipstream as ss
from gpu.kernels.formulas import DTYPES, Formula, Run, assert_close, check, cuda, numbers, shifted
from slipstream.core.kernels.cuda import layouts
from slipstream.core.launch.door import backend_of

F32, BF16 = ss.float32, ss.bfloat16


def add(dtype: Any) -> Formula:
    """a + b."""
    return Formula(lambda a, b: a + b, [dtype])


def softmax_of(x: Any, dims: Any) -> Any:
    """A chain of two reductions and maps."""
    raised = (x - x.amax(dims, keepdim=True)).exp()
    return raised / raised.sum(dims, keepdim=True)


def normalized_of(x: Any, weight: Any, dims: Any) -> tuple[Any, Any]:
    """A chain of reductions of maps of reductions, and a row value beside."""
    mean = x.mean(dims, keepdim=True)
    centred = x - mean
    root = ((centred * centred).mean(dims, keepdim=True) + 1e-5).rsqrt()
    return centred * root * weight, mean


# ---- maps ----


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
def test_maps_of_every_dtype(dtype: Any) -> None:
    formula = add(dtype)
    for count in (1, 5, 1000, 4099):
        check(formula, a=cuda(numbers([count], dtype)), b=cuda(numbers([count], dtype, 1)))


SHAPES = [
    ((33, 64), (64,)), ((33, 65), (65,)), ((33, 65), (33, 1)), ((32, 64), (32, 1)), ((8, 8), ()),
    ((4, 6, 8), (6, 1)), ((4, 6, 7), (6, 1)), ((4, 1, 8), (5, 1)), ((2, 3, 4, 5), (3, 1, 5)),
    ((2, 3, 2, 3, 2), (3, 1, 3, 1)), ((2, 2, 2, 3, 2, 3), (2, 1, 3, 1, 3)),
]


@pytest.mark.parametrize(("shape", "other"), SHAPES)
def test_maps_that_broadcast(shape: Any, other: Any) -> None:
    for dtype in (ss.float32, ss.uint8):
        check(add(dtype), a=cuda(numbers(shape, dtype)), b=cuda(numbers(other, dtype, 1)))


def test_maps_of_mixed_dtypes() -> None:
    for left, right in ((BF16, F32), (ss.uint8, ss.float64), (ss.bool, ss.complex64)):
        outcome = ss.result_type(left, right)
        formula = Formula(lambda a, b: a * b, [outcome])
        check(formula, a=cuda(numbers([3, 1001], left)), b=cuda(numbers([3, 1001], right, 1)))


STRIDED = {
    "transposed": lambda x: x.transpose(0, 1),
    "reversed": lambda x: x[::-1],
    "stepped": lambda x: x[:, ::2],
    "expanded": lambda x: x[:1].expand(48, 48),
    "narrowed": lambda x: x[1:, 3:47],
}


@pytest.mark.parametrize("layout", STRIDED)
def test_maps_of_views(layout: str) -> None:
    view = STRIDED[layout](cuda(numbers([48, 48])))
    other = cuda(numbers(view.shape, F32, 1))
    check(add(F32), a=view, b=other)
    check(add(F32), a=view, b=view)


def test_maps_write_into_views() -> None:
    memory = cuda(np.zeros([20, 30], np.float32))
    for target in (memory[:, ::2], memory[3:5], memory.transpose(0, 1)[:4, 5:9], memory[1:, 1:]):
        shape = target.shape
        run = Run(add(F32), a=cuda(numbers(shape)), b=cuda(numbers(shape, F32, 1)))
        run.launch([target])
        assert_close(target, run.expected()[0])


def test_numbers_are_arguments() -> None:
    formula = Formula(lambda x, k: x * k, [F32])
    x = cuda(numbers([100]))
    runs = [check(formula, x=x, k=value) for value in (2.5, -1e-3, float("inf"))]
    assert len({run.source() for run in runs}) == 1
    check(Formula(lambda x, k: x * k, [ss.int32]), x=cuda(numbers([9], ss.int32)), k=-3)
    check(Formula(lambda x, k: x * k, [ss.complex64]), x=cuda(numbers([9], ss.complex64)), k=1 + 2j)


def test_other_sizes_need_no_other_kernel() -> None:
    formula = add(F32)
    sources = set()
    for shape in ([7, 40], [12, 44], [300, 4]):
        b = cuda(numbers(shape[1:], F32, 1))
        sources.add(check(formula, a=cuda(numbers(shape)), b=b).source())
    assert len(sources) == 1


# ---- tiles ----


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
def test_transposed_copies_of_every_dtype(dtype: Any) -> None:
    copy = Formula(lambda a: a, [dtype])
    for shape in ((64, 128), (67, 33), (130, 72)):
        x = numbers(shape, dtype)
        for view in (cuda(x).transpose(0, 1), shifted(x).transpose(0, 1)):
            run = check(copy, a=view)
            assert "_shared[" in run.source()


PERMUTED = [((5, 40, 72), (0, 2, 1)), ((5, 40, 72), (2, 0, 1)), ((5, 40, 72), (2, 1, 0)),
            ((3, 4, 20, 36), (3, 1, 0, 2)), ((2, 64, 5, 32), (0, 3, 2, 1)),
            ((3, 20, 2000), (2, 0, 1))]


@pytest.mark.parametrize(("shape", "dims"), PERMUTED)
def test_permuted_operands(shape: Any, dims: Any) -> None:
    for dtype, other in ((F32, F32), (BF16, F32), (ss.uint8, BF16)):
        view = cuda(numbers(shape, dtype)).permute(*dims)
        kinds = {"a": view, "b": cuda(numbers(view.shape, other, 1)),
                 "c": cuda(numbers(view.shape[-1:], other, 2))}
        mixed = Formula(lambda a, b, c: (a + b * c, a * 2), [F32, dtype])
        assert ("_shared[" in check(mixed, **kinds).source()) == (view.shape[-1] > 16)
        both = Formula(lambda a, b: a * b, [F32])
        check(both, a=view, b=cuda(numbers(shape, other)).permute(*dims))


def test_results_that_lie_across() -> None:
    for shape in ((64, 80), (33, 70)):
        memory = cuda(np.zeros(shape[::-1], np.float32))
        run = Run(add(F32), a=cuda(numbers(shape)), b=cuda(numbers(shape, F32, 1)))
        run.launch([memory.transpose(0, 1)])
        assert "_shared[" in run.source()
        assert_close(memory.transpose(0, 1), run.expected()[0])


def test_contiguous_goes_by_tiles() -> None:
    x = cuda(numbers((70, 50)))
    assert host(x.t().contiguous()).tobytes() == host(x).T.tobytes()
    assert host(x.view(7, 10, 50).permute(2, 0, 1).contiguous()).tobytes() == (
        host(x).reshape(7, 10, 50).transpose(2, 0, 1).tobytes())


# ---- rows ----

ROWS = [(7, 3), (5, 64), (3, 1000), (2, 4096), (300, 40), (2, 20000), (9, 1), (3, 4099), (1, 70000),
        (2, 70001)]


@pytest.mark.parametrize("shape", ROWS)
@pytest.mark.parametrize("dtype", [BF16, F32], ids=lambda dtype: dtype.name)
def test_rows(shape: Any, dtype: Any) -> None:
    x = cuda(numbers(shape, dtype))
    check(Formula(lambda x: x.sum(-1), [dtype]), x=x)
    check(Formula(lambda x: softmax_of(x, -1), [dtype]), x=x)
    weight = cuda(numbers(shape[1:], dtype, 1))
    check(Formula(lambda x, weight: normalized_of(x, weight, -1), [dtype, F32]),
          ulps=1024.0 if dtype is F32 else 4.0, x=x, weight=weight)


def test_row_values_given_as_operands() -> None:
    def backward(g: Any, x: Any, weight: Any, mean: Any, root: Any) -> Any:
        unit = (x - mean) * root
        scaled = g * weight
        return (scaled - scaled.mean(-1, keepdim=True)
                - unit * (scaled * unit).mean(-1, keepdim=True)) * root

    formula = Formula(backward, [BF16], rows=("mean", "root"))
    for shape in ((6, 64), (3, 5000)):
        line = [shape[0], 1]
        check(formula, ulps=8.0, g=cuda(numbers(shape, BF16)), x=cuda(numbers(shape, BF16, 1)),
              weight=cuda(numbers(shape[1:], BF16, 2)), mean=cuda(numbers(line, F32, 3)),
              root=cuda(np.abs(numbers(line, F32, 4))))


def backward_of(g: Any, y: Any) -> Any:
    """The gradient of a softmax."""
    return (g - (g * y).sum(-1, keepdim=True)) * y


@pytest.mark.parametrize("dtype", [BF16, F32], ids=lambda dtype: dtype.name)
def test_long_rows_wait_in_shared_memory(dtype: Any) -> None:
    long = 12001 * 4 if dtype is F32 else 13001 * 4
    for shape in ((2, 9000), (3, 20001), (2, long)):
        x, y = cuda(numbers(shape, dtype)), cuda(numbers(shape, dtype, 1))
        run = check(Formula(lambda x: softmax_of(x, -1), [dtype]), x=x)
        assert ("_shelf" in run.source()) == (shape[1] > 9000)
        check(Formula(backward_of, [dtype]), g=x, y=y)
        weight = cuda(numbers(shape[1:], dtype, 1))
        run = check(Formula(lambda x, weight: normalized_of(x, weight, -1), [dtype, F32]),
                    ulps=1024.0 if dtype is F32 else 4.0, x=x, weight=weight)
        other = Run(run.kernel and Formula(lambda x, weight: normalized_of(x, weight, -1),
                                           [dtype, F32]), x=shifted(host(x)), weight=weight)
        assert host(other.launch().results[0]).tobytes() == host(run.results[0]).tobytes()


def test_where_a_row_waits_changes_no_bit(restart: Any) -> None:
    x, texts, results = numbers([3, 30001]), [], []
    for model in ("H100", "T4"):
        restart(model=model)
        run = Run(Formula(lambda x: softmax_of(x, -1), [F32]), x=cuda(x)).launch()
        texts.append("_shelf" in run.source())
        results.append(host(run.results[0]).tobytes())
    assert texts == [True, False]
    assert results[0] == results[1]


def test_blocks_that_take_row_after_row_change_no_bit(restart: Any) -> None:
    # An L4 has 58 processors for 71 rows, an H100 a block for each.
    one = Formula(lambda x: x * (x * x).sum(-1, keepdim=True).rsqrt(), [F32])
    two = Formula(lambda x: softmax_of(x, -1), [F32])
    x, found = numbers([71, 23001]), []
    for model in ("L4", "H100"):
        restart(model=model)
        results = []
        for formula in (one, two):
            formula.kernels.clear()
            run = check(formula, ulps=256.0, x=cuda(x))
            assert "slip_copies_done" in run.source()
            grid = run.binding.shape[0][0]
            assert grid == (58 if model == "L4" else 71)
            results.append(host(run.results[0]).tobytes())
            # The same where each row is written to its own place.
            tensor = cuda(x)
            assert host(Run(formula, x=tensor).launch([tensor]).tensors[0]).tobytes() == results[-1]
        found.append(results)
    assert found[0] == found[1]


@pytest.mark.parametrize("dtype", [BF16, F32], ids=lambda dtype: dtype.name)
def test_batches_that_are_not_full(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # As if there were much to read: in whole batches, whole turns of the threads, neither, and of
    # vectors of one element.
    monkeypatch.setattr(layouts, "EXACT", 1)
    rows = Formula(lambda x: (x.sum(-1), x.amax(-1)), [dtype, dtype])
    whole = Formula(lambda x: (x.sum((0, 1)), x.amax((0, 1))), [dtype, dtype])
    down = Formula(lambda x: x.sum(0), [dtype])
    short = Formula(lambda x: softmax_of(x, -1), [dtype])
    sources: list[list[str]] = []
    for length in (65536, 70016, 70000, 70001):
        x = numbers([2, length], dtype)
        runs = [check(each, ulps=256.0, x=cuda(x)) for each in (rows, whole)]
        runs.append(check(down, ulps=256.0, x=cuda(x[:, :length // 64 * 64].reshape(-1, 32))))
        runs.append(check(short, ulps=256.0, x=cuda(x[0, :length // 32 * 32].reshape(32, -1))))
        sources.append([each.source() for each in runs])
    # Where all batches are full, a text of its own asks for no ends.
    for exact, *others in zip(*sources, strict=True):
        assert exact not in others


# ---- columns ----

COLUMNS = [(7, 3), (5, 64), (300, 1000), (1000, 33), (20000, 8), (3, 4, 50), (2, 500, 130),
           (2, 3, 1)]


@pytest.mark.parametrize("shape", COLUMNS)
@pytest.mark.parametrize("dtype", [BF16, F32, ss.int32, ss.complex64], ids=lambda each: each.name)
def test_columns(shape: Any, dtype: Any) -> None:
    x, dim = cuda(numbers(shape, dtype)), len(shape) - 2
    check(Formula(lambda x: x.sum(dim), [dtype]), ulps=256.0, x=x)
    if dtype is ss.complex64:
        return
    check(Formula(lambda x: x.argmax(dim), [ss.int64]), x=x)
    if dtype is not ss.int32:
        check(Formula(lambda x: (softmax_of(x, dim), x.amax(dim)), [dtype, dtype]), x=x)


def test_images_are_normalized_over_three_dims() -> None:
    formula = Formula(lambda x, weight: normalized_of(x, weight, (0, 2, 3)), [F32, F32])
    for shape in ((4, 5, 4, 8), (4, 5, 7, 7), (64, 3, 32, 40), (2, 6, 1, 1)):
        weight = cuda(numbers([shape[1], 1, 1], F32, 1))
        x = numbers(shape)
        check(formula, ulps=1024.0, x=cuda(x), weight=weight)
        last = cuda(np.ascontiguousarray(x.transpose(0, 2, 3, 1))).permute(0, 3, 1, 2)
        check(formula, ulps=1024.0, x=last, weight=weight)


# ---- all kinds of reductions ----


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
def test_reductions_of_every_dtype(dtype: Any) -> None:
    for shape in ((4, 37), (70, 4)):
        plain = numbers(shape, dtype)
        for x in (cuda(plain), cuda(plain)[:, ::-1], cuda(plain.T.copy()).transpose(0, 1)):
            if dtype is ss.bool:
                check(Formula(lambda x: (x.any(-1), x.all(-1)), [dtype, dtype]), x=x)
            else:
                check(Formula(lambda x: x.sum((0, 1)), [dtype]), x=x)
                check(Formula(lambda x: x.prod(-1), [dtype]), ulps=256.0, x=x)
            if dtype.kind != "complex":
                check(Formula(lambda x: (x.amin(-1), x.amax(-1)), [dtype, dtype]), x=x)
                check(Formula(lambda x: x.argmin(0), [ss.int64]), x=x)
                check(Formula(lambda x: x.argmax(-1), [ss.int64]), x=x)


def test_first_of_equal_extremes_and_nan_first() -> None:
    for shape in ((3, 40), (3, 5000), (1, 70000)):
        x = np.zeros(shape, np.float32)
        x[0, 7] = x[0, -1] = 1.0
        if shape[0] > 1:
            x[1, 5] = x[1, 30] = np.nan
            x[2] = -np.inf
        both = Formula(lambda x: (x.argmax(-1), x.argmin(-1)), [ss.int64, ss.int64])
        run = check(both, x=cuda(x))
        assert host(run.results[0])[0, 0] == 7
        down = check(Formula(lambda x: x.argmax(0), [ss.int64]), x=cuda(x.T.copy()))
        assert host(down.results[0])[0, 0] == 7
        if shape[0] > 1:
            assert host(run.results[0])[1:, 0].tolist() == [5, 0]


def test_no_elements() -> None:
    total = Formula(lambda x: x.sum(-1), [F32])
    assert check(total, x=cuda(np.zeros([0, 5], np.float32))).launches() == 0
    assert check(total, x=cuda(np.zeros([3, 0], np.float32))).launches() == 1
    soft = Formula(lambda x: softmax_of(x, -1), [F32])
    assert check(soft, x=cuda(np.zeros([3, 0], np.float32))).launches() == 0
    assert check(add(F32), a=cuda(np.zeros([0], np.float32)),
                 b=cuda(np.zeros([0], np.float32))).launches() == 0
    down = Formula(lambda x: x.sum(0), [F32])
    assert check(down, x=cuda(np.zeros([0, 5], np.float32))).launches() == 1


# ---- laws ----


def test_alignment_changes_no_bit() -> None:
    for dtype in (ss.uint8, BF16, F32):
        for shape, dims in (((4096,), 0), ((6, 1000), -1), ((128, 64), 0), ((70000,), 0)):
            x = numbers(shape, dtype)
            formula = Formula(lambda x, dims=dims: x.sum(dims), [F32])
            both = [Run(formula, x=each).launch() for each in (cuda(x), shifted(x))]
            assert host(both[0].results[0]).tobytes() == host(both[1].results[0]).tobytes()
            twice = Formula(lambda x: x + x, [dtype])
            both = [Run(twice, x=each).launch() for each in (cuda(x), shifted(x))]
            assert host(both[0].results[0]).tobytes() == host(both[1].results[0]).tobytes()


def test_results_may_take_the_place_of_operands() -> None:
    for shape in ((5, 64), (2, 3000), (3, 20000), (1, 70000)):
        x = cuda(numbers(shape))
        run = Run(Formula(lambda x: softmax_of(x, -1), [F32]), x=x)
        wanted = run.expected()[0]
        run.launch([x])
        assert_close(x, wanted)
    for shape in ((64, 5), (3000, 70)):
        x = cuda(numbers(shape))
        run = Run(Formula(lambda x: softmax_of(x, 0), [F32]), x=x)
        wanted = run.expected()[0]
        run.launch([x])
        assert_close(x, wanted)


def test_launches() -> None:
    soft = Formula(lambda x: softmax_of(x, -1), [F32])
    assert check(soft, x=cuda(numbers([64, 300]))).launches() == 1
    assert check(soft, x=cuda(numbers([1, 70000]))).launches() == 2
    # The block that comes last joins what all have found.
    total = Formula(lambda x: (x.sum((0, 1)), x.argmax((0, 1))), [F32, ss.int64])
    for shape in ((7, 1000), (70, 1000), (300, 1000)):
        assert check(total, x=cuda(numbers(shape))).launches() == 1
    spread = Formula(lambda x: normalized_of(x, 1.0, -1)[1:], [F32])
    assert check(spread, x=cuda(numbers([3, 70000]))).launches() == 1


def distance_of(x: Any, dims: Any) -> Any:
    """A reduction of what another one shifts."""
    return (x - x.mean(dims, keepdim=True)).abs().mean(dims).sqrt()


def spread_of(x: Any, dims: Any) -> Any:
    """The same of squares, which are joined without the mean of all."""
    away = x - x.mean(dims, keepdim=True)
    return (away * away).mean(dims).sqrt()


@pytest.mark.parametrize(("shape", "dims", "split"), [
    ((1, 70000), -1, 2), ((2, 70000), (0, 1), 2), ((20000, 33), 0, 2), ((40, 3, 4000), (0, 2), 2),
    ((3, 30000, 7), 1, 2), ((5, 4000), -1, 1)])
def test_a_chain_of_reductions_leaves_its_results_between_launches(shape: Any, dims: Any,
                                                                   split: int) -> None:
    for dtype in (F32, BF16):
        x = cuda(numbers(shape, dtype))
        chain = check(Formula(lambda x: distance_of(x, dims), [dtype]), x=x)
        assert chain.launches() == split
        assert check(Formula(lambda x: spread_of(x, dims), [dtype]), x=x).launches() == 1


SPLIT = [((300, 1000), (0, 1)), ((1, 99991), -1), ((3, 70001), -1), ((50000, 12), 0),
         ((9, 5000, 40), 1), ((100, 9001), -1), ((6, 100, 900), (0, 2))]


@pytest.mark.parametrize(("shape", "dims"), SPLIT)
def test_rows_and_columns_that_blocks_share(shape: Any, dims: Any) -> None:
    for dtype in (F32, BF16, ss.int32, ss.complex64):
        x = cuda(numbers(shape, dtype))
        check(Formula(lambda x: x.sum(dims), [dtype]), ulps=256.0, x=x)
        if dtype is not ss.complex64:
            both = Formula(lambda x: (x.argmax(dims), x.argmin(dims), x.amax(dims)),
                           [ss.int64, ss.int64, dtype])
            check(both, x=x)
            check(both, x=x.flip(-1))


def test_tickets_are_zero_again() -> None:
    total = Formula(lambda x: x.sum((0, 1)), [F32])
    x = cuda(numbers([300, 1000]))
    run = check(total, x=x)
    first = host(run.results[0]).tobytes()
    for _ in range(20):
        run.launch()
        assert host(run.results[0]).tobytes() == first
    backend = backend_of(x.spec.device)
    words = backend.read_back(backend.tickets(), 4096)
    assert not any(words)


def test_short_rows_several_at_once() -> None:
    # A thread takes up to four rows where they are many; the last ones are fewer.
    for shape in ((70001, 64), (140003, 16), (66000, 33)):
        for dtype in (F32, BF16):
            x = cuda(numbers(shape, dtype))
            run = Run(Formula(lambda x: (x.sum(-1), x.argmax(-1)), [dtype, ss.int64]), x=x)
            run.launch()
            data = host(x).astype(np.float64)
            assert_close(run.results[0], data.sum(-1, keepdims=True).astype(dtype.numpy))
            assert (host(run.results[1])[:, 0] == data.argmax(-1)).all()


def test_quotients_by_a_row_value_are_rounded_correctly() -> None:
    random = np.random.RandomState(5)
    x = (random.uniform(0.5, 1.0, [300, 512]) * 2.0**random.randint(-3, 4, [300, 512]))
    x[:50] *= 2.0**random.randint(-120, 120, [50, 1])
    x[50:60, ::7] *= 1e-30
    x[60:70, ::3], x[61:71, ::5] = 0.0, -0.0
    x[70, 3], x[71], x[72, 9], x[73] = np.inf, -np.inf, np.nan, -0.0
    x = x.astype(np.float32)
    divide = Formula(lambda x: (x / x.amax(-1, keepdim=True), x.amax(-1)), [F32, F32])
    down = Formula(lambda x: (x / x.amax(0, keepdim=True), x.amax(0)), [F32, F32])
    for formula, data in ((divide, x), (down, x.T.copy())):
        quotients, largest = Run(formula, x=cuda(data)).launch().results
        with np.errstate(all="ignore"):
            wanted = data / host(largest)
        found = host(quotients)
        nan = np.isnan(wanted)
        assert (np.isnan(found) == nan).all()
        assert found[~nan].tobytes() == wanted[~nan].tobytes()


def test_elements_beyond_two_to_the_31st(restart: Any) -> None:
    # Only the pages that are touched take memory.
    restart(memory=5 << 30, poison=False, race=False)
    memory = ss.empty(2**31 + 4096, dtype=ss.uint8, device="cuda")
    for shape, steps in (((3, 64), (2**30, 1)), ((17, 64), (2**27, 1)),
                         ((2, 3, 40), (64, 2**30, 1)), ((3, 1000), (2**30, 1))):
        x = numbers(shape, ss.uint8)
        far = memory.as_strided(shape, steps)
        far.copy_(cuda(x))
        assert (host(far.contiguous()) == x).all()
        rank = len(shape)
        for view in (far, far.transpose(-1, -2), far.flip(0)):
            check(add(ss.uint8), a=view, b=cuda(numbers(view.shape, ss.uint8, 1)))
            for dims in ((-1,), (0,), (rank - 2,), tuple(range(rank))):
                both = Formula(lambda x, dims=dims: (x.sum(dims), x.argmax(dims)),
                               [ss.int64, ss.int64])
                check(both, x=view)
        target = memory.as_strided(shape, steps).transpose(-1, -2)
        target.copy_(cuda(x.swapaxes(-1, -2).copy()) + 1)
        assert (host(far) == x + 1).all()

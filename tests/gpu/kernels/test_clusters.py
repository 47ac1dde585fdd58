"""Rows that the blocks of a cluster share: the same bits as where one block has the whole row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from catalogue import host

import slipstream as ss
from gpu.kernels.formulas import Formula, Run, check, cuda, numbers, shifted
from slipstream.core.kernels.cuda import layouts
from slipstream.core.kernels.cuda.programs import ProgramKernel
from slipstream.core.kernels.cuda.shelves import ShelfWriter

F32, BF16 = ss.float32, ss.bfloat16
# Bytes of shared memory, and processors: so few that blocks take row after row.
CARD = (227 << 10, 2)


def softmax_of(x: Any, weight: Any) -> Any:
    """A chain of two reductions and maps, and a weight that all rows share."""
    raised = (x - x.amax(-1, keepdim=True)).exp()
    return raised / raised.sum(-1, keepdim=True) * weight


def normalized_of(x: Any, weight: Any) -> tuple[Any, Any, Any]:
    """A chain of reductions, and row values beside."""
    mean = x.mean(-1, keepdim=True)
    centred = x - mean
    root = ((centred * centred).mean(-1, keepdim=True) + 1e-5).rsqrt()
    return centred * root * weight, mean, x.amax(-1, keepdim=True)


def added_of(x: Any, weight: Any, residual: Any) -> Any:
    """One operand on the shelf, one that is read in the end, one reduction of two."""
    return x * (x * x * weight).sum(-1, keepdim=True) + residual


def formulas(dtype: Any) -> list[Formula]:
    """Formulas whose rows wait on the shelf."""
    return [Formula(softmax_of, [dtype]), Formula(normalized_of, [dtype, F32, dtype]),
            Formula(added_of, [dtype]),
            Formula(lambda x, weight: x * (x * x).sum(-1, keepdim=True).rsqrt() * weight, [dtype]),
            Formula(lambda x, weight: ((x - x.amin(-1, keepdim=True)) * weight,
                                       x.argmax(-1, keepdim=True)), [dtype, ss.int64])]


def results_of(formula: Formula, shape: Sequence[int], dtype: Any) -> tuple[Run, list[bytes]]:
    """A formula over rows; every other operand begins at an odd place."""
    formula.kernels.clear()
    operands: dict[str, Any] = {}
    names = formula.function.__code__.co_varnames[:formula.function.__code__.co_argcount]
    for place, name in enumerate(names):
        given = numbers(shape[1:] if name == "weight" else shape, dtype, place)
        operands[name] = shifted(given) if place % 2 else cuda(given)
    run = check(formula, ulps=1024.0 if dtype is F32 else 8.0, **operands)
    return run, [host(each).tobytes() for each in run.results]


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of a few thousand elements are long."""
    monkeypatch.setattr(layouts, "KEPT_VECTORS", 1)
    monkeypatch.setattr(layouts, "MOST_THREADS", 512)


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("length", [5000, 8192, 9999, 12288 + 8])
@pytest.mark.parametrize("dtype", [BF16, F32], ids=lambda dtype: dtype.name)
def test_how_many_blocks_share_a_row_changes_no_bit(
        dtype: Any, length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for formula in formulas(dtype):
        found = []
        for blocks in (1, 2, 4):
            monkeypatch.setattr(ProgramKernel, "card", (*CARD, blocks > 1))
            monkeypatch.setattr(layouts, "SHARED_BY", blocks)
            run, results = results_of(formula, (11, length), dtype)
            assert ("__cluster_dims__" in run.source()) == (blocks > 1)
            found.append(results)
        assert found[0] == found[1] == found[2]


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("clusters", [False, True])
@pytest.mark.parametrize("dtype", [BF16, F32], ids=lambda dtype: dtype.name)
def test_aligned_operands_have_a_body_of_their_own(
        dtype: Any, clusters: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProgramKernel, "card", (*CARD, clusters))
    x, weight = numbers([7, 6000], dtype), numbers([6000], dtype, 1)
    formula = Formula(softmax_of, [dtype])
    found = []
    for move in (cuda, shifted):
        run = Run(formula, x=move(x), weight=move(weight)).launch()
        found.append(host(run.results[0]).tobytes())
    source = run.source()
    assert found[0] == found[1]
    assert source.count("rows_of<true>(") == source.count("rows_of<false>(") == 1
    # There, and only there, the kernel asks.
    assert source.count("slip_aligned<") == 3


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("length", [6000, 8192, 512 * 8 * 4])
@pytest.mark.parametrize("dtype", [BF16, F32], ids=lambda dtype: dtype.name)
def test_when_weights_are_asked_for_changes_no_bit(
        dtype: Any, length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProgramKernel, "card", (*CARD, True))
    for formula in formulas(dtype)[:2]:
        run, results = results_of(formula, (5, length), dtype)
        # Before the threads wait for the last reduction, and a batch further on for each vector.
        places = [run.source().index(text) for text in
                  ("in1_ahead[k] = slip_read", ": outputs.", "const int next = ")]
        assert places == sorted(places)
        with monkeypatch.context() as later:
            later.setattr(ShelfWriter, "early", lambda self: [])
            run, others = results_of(formula, (5, length), dtype)
        assert "_ahead[" not in run.source()
        assert results == others


def test_weights_that_a_reduction_needs_are_not_asked_for_early(
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProgramKernel, "card", (*CARD, True))
    weighed = Formula(lambda x, weight: x * (x * weight).sum(-1, keepdim=True) + weight, [F32])
    run, _ = results_of(weighed, (3, 50304), F32)
    assert "_shelf" in run.source()
    assert "_ahead[" not in run.source()


def test_blocks_of_a_cluster_are_whole_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProgramKernel, "card", (227 << 10, 3, True))
    formula = Formula(softmax_of, [F32])
    run, _ = results_of(formula, (20, 50304), F32)
    (grid, _, _), block, shared = run.binding.shape
    assert grid % layouts.SHARED_BY == 0
    assert block[0] * layouts.SHARED_BY == layouts.MOST_THREADS
    # Fewer clusters than rows, and no more than run at once.
    assert grid // layouts.SHARED_BY == 3
    assert shared * layouts.SHARED_BY >= 4 * 50304
    few, _ = results_of(formula, (2, 50304), F32)
    assert few.binding.shape[0][0] == 2 * layouts.SHARED_BY


def test_one_block_has_a_row_that_is_short_or_shares_nothing(
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProgramKernel, "card", (*CARD, True))
    squares = Formula(lambda x: x * (x * x).sum(-1, keepdim=True).rsqrt(), [F32])
    for formula, length, shared in ((squares, 50304, False), (Formula(softmax_of, [F32]), 24000,
                                                              False),
                                    (Formula(softmax_of, [F32]), 50304, True)):
        run, _ = results_of(formula, (3, length), F32)
        assert ("__cluster_dims__" in run.source()) == shared


def test_older_cards_are_given_no_clusters(restart: Any) -> None:
    x, weight, texts, results = numbers([3, 50304]), numbers([50304]), [], []
    for model in ("H100", "B200", "A100"):
        restart(model=model)
        run = Run(Formula(softmax_of, [F32]), x=cuda(x), weight=cuda(weight)).launch()
        texts.append("__cluster_dims__" in run.source())
        results.append(host(run.results[0]).tobytes())
    assert texts == [True, True, False]
    assert results[0] == results[1] == results[2]


@pytest.mark.usefixtures("short")
def test_results_may_take_the_place_of_operands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProgramKernel, "card", (*CARD, True))
    x = numbers([9, 6000])
    formula = Formula(softmax_of, [F32])
    run, results = results_of(formula, x.shape, F32)
    assert "__cluster_dims__" in run.source()
    tensor = cuda(x)
    again = Run(formula, x=tensor, weight=run.operands["weight"]).launch([tensor])
    assert host(again.tensors[0]).tobytes() == results[0]


@pytest.mark.usefixtures("short")
def test_rows_in_any_place(monkeypatch: pytest.MonkeyPatch) -> None:
    # Rows that are steps of each other, and elements that are.
    monkeypatch.setattr(ProgramKernel, "card", (*CARD, True))
    x = cuda(numbers([6, 3, 5000]))
    formula = Formula(softmax_of, [F32])
    for view in (x[:, 1], x[::2, :, 1::2], x.transpose(0, 1), x[:, :, ::2].flip(-1)):
        weight = cuda(numbers(view.shape[-1:], seed=1))
        run = check(formula, ulps=256.0, x=view, weight=weight)
        assert "__cluster_dims__" in run.source()

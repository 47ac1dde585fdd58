"""Losses against NumPy and finite differences."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.special
from slopes import check_slopes

import slipstream as ss

RANDOM = np.random.RandomState(5)
SCORES = RANDOM.randn(4, 5)
TARGET = np.array([0, 4, 2, 2])
WEIGHT = np.arange(5) + 0.5


def by_rows(scores: np.ndarray, target: np.ndarray, weight: np.ndarray | None, ignore: int,
            smoothing: float, reduction: str) -> Any:
    """Cross entropy, row by row."""
    logarithms = scipy.special.log_softmax(scores, 1)
    each = np.ones(scores.shape[1]) if weight is None else weight
    losses, weights = [], []
    for row, label in zip(logarithms, target, strict=True):
        used = label != ignore
        label = label if used else 0
        loss = (1 - smoothing) * each[label] * row[label] + smoothing * (each * row).mean()
        losses.append(-loss * used)
        weights.append(each[label] * used)
    if reduction == "none":
        return np.array(losses)
    return sum(losses) / (sum(weights) if reduction == "mean" else 1.0)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("ignore", [-100, 2])
@pytest.mark.parametrize("weight", [None, WEIGHT])
def test_cross_entropy(reduction: str, smoothing: float, ignore: int,
                       weight: np.ndarray | None) -> None:
    found = ss.cross_entropy(
        ss.tensor(SCORES), ss.tensor(TARGET), None if weight is None else ss.tensor(weight),
        ignore_index=ignore, reduction=reduction, label_smoothing=smoothing)
    wanted = by_rows(SCORES, TARGET, weight, ignore, smoothing, reduction)
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-12)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_probabilities(reduction: str) -> None:
    parts = scipy.special.softmax(RANDOM.randn(4, 5), 1)
    found = ss.cross_entropy(ss.tensor(SCORES), ss.tensor(parts), ss.tensor(WEIGHT),
                             reduction=reduction, label_smoothing=0.1)
    terms = -(scipy.special.log_softmax(SCORES, 1) * WEIGHT * (parts * 0.9 + 0.02)).sum(1)
    wanted = terms if reduction == "none" else getattr(np, reduction)(terms)
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-12)


def test_positions_and_single_rows() -> None:
    scores, target = RANDOM.randn(2, 5, 3), RANDOM.randint(0, 5, (2, 3))
    found = ss.cross_entropy(ss.tensor(scores), ss.tensor(target), reduction="none")
    wanted = by_rows(scores.transpose(0, 2, 1).reshape(6, 5), target.reshape(6), None, -100, 0.0,
                     "none")
    np.testing.assert_allclose(found.numpy(), wanted.reshape(2, 3), rtol=1e-12)
    single = ss.cross_entropy(ss.tensor(SCORES[1]), ss.tensor(4))
    assert abs(single.item() - by_rows(SCORES[1:2], TARGET[1:2], None, -100, 0.0, "sum")) < 1e-12


def test_ignored_rows_count_nowhere() -> None:
    scores = ss.tensor([[0.0, 0.0], [5.0, -5.0], [0.0, math.log(3.0)]], requires_grad=True)
    loss = ss.cross_entropy(scores, ss.tensor([0, -100, 1]))
    loss.backward()
    assert abs(loss.item() - (math.log(2) + math.log(4 / 3)) / 2) < 1e-6
    assert scores.grad[1].tolist() == [0.0, 0.0]
    none = ss.full((3,), -100)
    assert ss.cross_entropy(scores, none, reduction="none").tolist() == [0.0, 0.0, 0.0]
    assert ss.cross_entropy(scores, none, reduction="sum").item() == 0.0
    assert math.isnan(ss.cross_entropy(scores, none).item())


def test_ignored_scores_may_be_infinite() -> None:
    scores = ss.tensor([[-math.inf, 0.0], [0.0, -1.0]], requires_grad=True)
    loss = ss.nll_loss(scores, ss.tensor([-100, 1]), reduction="sum")
    loss.backward()
    assert loss.item() == 1.0
    assert scores.grad.tolist() == [[0.0, 0.0], [0.0, -1.0]]


@pytest.mark.parametrize("dtype", [ss.float16, ss.bfloat16, ss.float32])
def test_narrow_dtypes(dtype: ss.dtype) -> None:
    found = ss.cross_entropy(ss.tensor(SCORES).to(dtype), ss.tensor(TARGET))
    assert found.dtype is dtype
    assert abs(found.item() - by_rows(SCORES, TARGET, None, -100, 0.0, "mean")) < 0.02


@pytest.mark.parametrize(("target", "facts", "kind", "text"), [
    ([0, 1, 5, 2], {}, IndexError, "Target 5 is out of bounds"),
    ([0, -4, 1, 2], {"ignore_index": -1}, IndexError, "Target -4 is out of bounds"),
    ([0, 1], {}, ValueError, "Expected input batch_size"),
    ([[0, 1], [0, 1], [0, 1], [0, 1]], {}, RuntimeError, "Expected target size"),
    ([0.0, 1.0, 2.0, 3.0], {}, RuntimeError, "to be Long or Byte"),
    ([0, 1, 2, 3], {"weight": ss.ones(3)}, RuntimeError, "either for all 5 classes"),
    ([0, 1, 2, 3], {"reduction": "some"}, ValueError, "some is not a valid value"),
    ([0, 1, 2, 3], {"label_smoothing": 2.0}, RuntimeError, "between 0.0 and 1.0"),
])
def test_refusals(target: Any, facts: dict[str, Any], kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        ss.cross_entropy(ss.tensor(SCORES), ss.tensor(target), **facts)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_class_gradients(reduction: str) -> None:
    target, weight = ss.tensor(TARGET), ss.tensor(WEIGHT)
    check_slopes(lambda x: ss.cross_entropy(x, target, weight, ignore_index=4, reduction=reduction,
                                            label_smoothing=0.2), SCORES)
    check_slopes(lambda x: ss.nll_loss(x, target, reduction=reduction), SCORES)


def test_probability_gradients() -> None:
    parts = scipy.special.softmax(RANDOM.randn(2, 3), 1)
    check_slopes(ss.cross_entropy, SCORES[:2, :3], parts)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_differences(reduction: str) -> None:
    a, b = RANDOM.randn(3, 4), RANDOM.randn(3, 4)
    for function, terms in ((ss.mse_loss, (a - b) ** 2), (ss.l1_loss, np.abs(a - b))):
        found = function(ss.tensor(a), ss.tensor(b), reduction=reduction)
        wanted = terms if reduction == "none" else getattr(np, reduction)(terms)
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-12)
        check_slopes(lambda a, b, f=function: f(a, b, reduction=reduction), a, b)


def test_weighted_differences() -> None:
    a, b, w = RANDOM.randn(3, 4), RANDOM.randn(3, 4), RANDOM.rand(3, 4)
    found = ss.mse_loss(ss.tensor(a), ss.tensor(b), weight=ss.tensor(w))
    np.testing.assert_allclose(found.item(), ((a - b) ** 2 * w).sum() / w.sum(), rtol=1e-12)
    with pytest.raises(ValueError, match="same size"):
        ss.mse_loss(ss.tensor(a), ss.tensor(b), weight=ss.ones(4))


@pytest.mark.parametrize("function", [ss.mse_loss, ss.l1_loss])
def test_a_target_that_broadcasts_is_warned_of(function: Any) -> None:
    a, b = ss.tensor([2.0, 4.0, 9.0]), ss.tensor([[2.0], [4.0], [9.0]])
    with pytest.warns(UserWarning, match=r"size \[3, 1\]"):
        function(a, b)
    with pytest.raises(NotImplementedError):
        ss.mse_loss(ss.tensor([1]), ss.tensor([2]))

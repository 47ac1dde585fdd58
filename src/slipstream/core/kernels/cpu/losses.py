"""Losses of classes on the CPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

NARROW = ("float16", "bfloat16")


class Terms(NamedTuple):
    """The static arguments: the index that counts nowhere, the reduction, the smoothing."""

    ignore_index: int
    reduction: str
    smoothing: float


@dataclass(slots=True, eq=False, repr=False)
class Classes:
    """The targets as (N, positions), with the weight of each and the weights of all classes."""

    index: np.ndarray
    weight: np.ndarray
    each: np.ndarray | None

    def smooth(self, count: int) -> np.ndarray:
        """The weight of every class, (count, 1)."""
        each = np.ones(count, self.weight.dtype) if self.each is None else self.each
        return each[:, None]


def _wide(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float32) if array.dtype.name in NARROW else array


def _classes(target: np.ndarray, each: np.ndarray | None, shape: tuple[int, ...],
             terms: Terms, dtype: np.dtype) -> Classes:
    """Targets and weights; IndexError for a target that is no class and not ignored."""
    index = target.reshape(shape[0], shape[2]).astype(np.int64)
    kept = index != terms.ignore_index
    wrong = kept & ((index < 0) | (index >= shape[1]))
    if wrong.any():
        raise IndexError(f"Target {index[wrong][0]} is out of bounds.")
    index = np.where(kept, index, 0)
    weight = kept.astype(dtype)
    if each is not None and shape[1]:
        weight *= each[index]
    return Classes(index, weight, each)


def split(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """A shape (C) or (N, C, ...) as (N, C, positions)."""
    if len(shape) == 1:
        return 1, shape[0], 1
    positions = 1
    for size in shape[2:]:
        positions *= size
    return shape[0], shape[1], positions


def forward(outputs: list[Any], inputs: list[Any], numbers: tuple[Any, ...], plan: Any) -> None:
    """-((1 - s) w_t x_t + s / C sum_c w_c x_c), reduced; 0 where the target is ignored."""
    terms: Terms = plan.statics[0]
    shape = split(inputs[0].shape)
    scores = _wide(inputs[0]).reshape(shape)
    each = _wide(inputs[2]) if len(inputs) > 2 else None
    classes = _classes(inputs[1], each, shape, terms, scores.dtype)
    kept = _kept(inputs[1], terms, shape)
    losses = -_picked(scores, classes.index) * classes.weight
    if terms.smoothing:
        spread = -(scores * classes.smooth(shape[1])).sum(1)
        losses = losses * (1.0 - terms.smoothing) + spread * (terms.smoothing / shape[1])
    # Selected and not multiplied, because an ignored score may be infinite.
    losses = np.where(kept, losses, losses.dtype.type(0))
    if terms.reduction == "none":
        outputs[0][...] = losses.reshape(outputs[0].shape)
    else:
        total = losses.sum(dtype=np.float64)
        if terms.reduction == "mean":
            total = total / classes.weight.sum(dtype=np.float64)
        outputs[0][...] = total


def _kept(target: np.ndarray, terms: Terms, shape: tuple[int, ...]) -> np.ndarray:
    return target.reshape(shape[0], shape[2]) != terms.ignore_index


def _picked(scores: np.ndarray, index: np.ndarray) -> np.ndarray:
    """scores[n, index[n, p], p]."""
    if not index.size or not scores.shape[1]:
        return np.zeros(index.shape, scores.dtype)
    return np.take_along_axis(scores, index[:, None, :], 1)[:, 0, :]


def backward(outputs: list[Any], inputs: list[Any], numbers: tuple[Any, ...], plan: Any) -> None:
    """The transpose of `forward`, which is linear in the scores."""
    terms: Terms = plan.statics[0]
    out = outputs[0]
    shape = split(out.shape)
    grad = _wide(inputs[0])
    each = _wide(inputs[2]) if len(inputs) > 2 else None
    classes = _classes(inputs[1], each, shape, terms, grad.dtype)
    factor = -grad.reshape(shape[0], shape[2]) if terms.reduction == "none" else -grad
    if terms.reduction == "mean":
        factor = (factor / classes.weight.sum(dtype=np.float64)).astype(grad.dtype)
    kept = _kept(inputs[1], terms, shape)
    share = np.where(kept, factor, grad.dtype.type(0))
    result = np.zeros(shape, grad.dtype)
    if terms.smoothing:
        result += (share * (terms.smoothing / shape[1]))[:, None, :] * classes.smooth(shape[1])
    if result.size:
        values = np.where(kept, share * classes.weight * (1.0 - terms.smoothing), 0)
        rows = np.arange(shape[0])[:, None]
        result[rows, classes.index, np.arange(shape[2])[None, :]] += values
    out[...] = result.reshape(out.shape)

"""The loss of classes and its gradient: reductions, weights, smoothing, ignored targets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import slipstream as ss
from gpu.families.sides import FLOATS, check, numbers, places, tensor

ULPS = 16.0


def loss(shape: tuple[int, ...], dtype: Any = ss.float32, layout: Any = None,
         **facts: Any) -> None:
    """Compare a loss and its gradient on both sides."""
    classes = shape[1] if len(shape) > 1 else shape[0]
    rows = (shape[0], *shape[2:]) if len(shape) > 1 else ()
    scores, target = numbers(1, shape, dtype), places(2, rows, classes)
    each = np.abs(numbers(3, classes, dtype)) + dtype.numpy.type(0.5)
    weighted = facts.pop("weighted", False)

    def call(device: str) -> Any:
        x = tensor(scores, device)
        x = (x if layout is None else layout(x)).requires_grad_(True)
        out = ss.nn.functional.cross_entropy(
            x, tensor(target, device), tensor(each, device) if weighted else None, **facts)
        out.backward(tensor(numbers(4, out.shape, dtype), device))
        return out, x.grad

    check(call, ULPS)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("shape", [(5,), (6, 4), (3, 4, 2, 3)])
def test_shapes_and_reductions(shape: tuple[int, ...], reduction: str) -> None:
    for weighted in (False, True):
        loss(shape, reduction=reduction, weighted=weighted)
        loss(shape, reduction=reduction, weighted=weighted, label_smoothing=0.2, ignore_index=1)


@pytest.mark.parametrize("dtype", FLOATS)
def test_dtypes(dtype: Any) -> None:
    loss((6, 4), dtype, weighted=True, label_smoothing=0.1)


def test_layouts() -> None:
    loss((4, 6, 3), layout=lambda x: x.transpose(1, 2).contiguous().transpose(1, 2))
    loss((4, 6, 3, 5), layout=lambda x: x.flip(2), reduction="none")
    loss((4, 6, 3, 5), layout=lambda x: x.permute(3, 0, 2, 1).contiguous().permute(1, 3, 2, 0))


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_many_targets_are_summed_in_parts(reduction: str) -> None:
    loss((10000, 3), reduction=reduction, ignore_index=2)
    loss((3, 3, 4000), reduction=reduction, weighted=True)


def test_no_targets() -> None:
    loss((0, 4), reduction="mean")
    loss((0, 4), reduction="sum")
    loss((0, 4), reduction="none")


def test_targets_of_bytes() -> None:
    scores, target = numbers(5, (4, 3)), places(6, 4, 3).astype(np.uint8)
    check(lambda device: ss.nn.functional.nll_loss(tensor(scores, device), tensor(target, device)),
          ULPS)

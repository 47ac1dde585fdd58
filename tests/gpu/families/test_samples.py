"""The catalogue's samples of the families on the device against the CPU's kernels."""

from __future__ import annotations

from typing import Any

import pytest
from catalogue import (
    case_of,
    depends_on_dtype,
    dtypes_of,
    layouts_of,
    main_dtype,
    results_of,
)

import slipstream as ss
from gpu.families.sides import assert_same, numbers, tensor
from slipstream.core.catalog.table import table
from slipstream.core.dispatch.op import Op
from slipstream.core.dispatch.registry import candidates_of

NAMES = (
    "gather", "scatter", "scatter_add", "take_along_dim", "index_select", "index_copy", "index_add",
    "index_fill", "take", "embedding", "one_hot", "index_read", "index_put", "nonzero", "argwhere",
    "masked_select", "masked_scatter", "cat", "stack", "roll", "arange", "matmul", "mm", "bmm",
    "addmm", "linear", "conv2d", "conv1d", "max_pool2d", "nll_loss", "view_as_real",
    "complex_part", "real", "imag", "conj", "cdist", "inverse", "det", "solve",
    "svdvals", "matrix_norm", "matrix_power",
)
# Sums of products and of losses are taken in another order.
ULPS = 16.0


def check(op: Op, sample: Any, dtype: Any, layout: str) -> None:
    """Run one case on both sides."""
    sides = []
    for device in ("cpu", "cuda"):
        case = case_of(op, sample, dtype, layout, device)
        sides.append(results_of(op.call(case.args, case.kwargs)))
    for wanted, found in zip(*sides, strict=True):
        assert_same(found, wanted, ULPS)


@pytest.mark.parametrize("name", NAMES)
def test_dtypes(name: str) -> None:
    op = table[name]
    for sample in op.entry.samples():
        for dtype in dtypes_of(op) if depends_on_dtype(sample) else [main_dtype(op)]:
            check(op, sample, dtype, "contiguous")


@pytest.mark.parametrize("name", NAMES)
def test_layouts(name: str) -> None:
    op = table[name]
    for sample in op.entry.samples():
        for layout in layouts_of(op):
            check(op, sample, main_dtype(op), layout)


def leaves_of(value: Any) -> list[Any]:
    """The float tensors among a call's arguments, lists opened."""
    several = value if isinstance(value, (list, tuple)) else [value]
    return [each for each in several if isinstance(each, ss.Tensor) and each.is_floating_point()]


# The losses have tests of their own: weights of classes take no gradient.
@pytest.mark.parametrize("name", [name for name in NAMES if name != "nll_loss"])
def test_gradients(name: str) -> None:
    op = table[name]
    for sample in op.entry.samples():
        sides = []
        for device in ("cpu", "cuda"):
            case = case_of(op, sample, ss.float32, "contiguous", device)
            leaves = [leaf for value in case.args for leaf in leaves_of(value)]
            for leaf in leaves:
                leaf.requires_grad_(True)
            outs = results_of(op.call(case.args, case.kwargs))
            for out in outs:
                if out.requires_grad:
                    out.backward(tensor(numbers(out.numel(), tuple(out.shape)), device))
            sides.append([leaf.grad for leaf in leaves if leaf.grad is not None])
        for wanted, found in zip(*sides, strict=True):
            assert_same(found, wanted, ULPS)


def test_every_kernel_that_an_entry_names_is_there() -> None:
    for op in table.values():
        for candidate in candidates_of(op, "cuda"):
            assert callable(candidate.make)

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
from gpu.families.sides import assert_same

from slipstream.core.catalog.table import table
from slipstream.core.dispatch.op import Op

NAMES = (
    "gather", "scatter", "scatter_add", "take_along_dim", "index_select", "index_copy", "index_add",
    "index_fill", "take", "embedding", "one_hot", "index_read", "index_put", "nonzero", "argwhere",
    "masked_select", "masked_scatter", "cat", "stack", "roll", "arange", "matmul", "mm", "bmm",
    "addmm", "linear", "conv2d", "conv1d", "max_pool2d", "nll_loss",
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


def test_every_op_of_the_cpu_has_a_kernel_here() -> None:
    missing = [name for name, op in table.items() if op.kernels.get("cpu")
               and not op.kernels.get("cuda")]
    assert missing == []

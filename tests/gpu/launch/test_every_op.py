"""Every op of the catalogue on the device, forward and backward, against the CPU's results."""

from __future__ import annotations

from typing import Any

import pytest
from catalogue import NAMES, SAMPLED, layouts_of, main_dtype

import slipstream as ss
from gpu.launch.everyop import backward, forward, other_dtypes
from slipstream.core.catalog.table import table
from slipstream.core.dispatch.entry import VIEW
from slipstream.core.dispatch.registry import candidates_of

DIFFERENTIABLE = [name for name in SAMPLED if "float" in table[name].entry.dtypes]


def test_every_op_has_a_road() -> None:
    without = [name for name in NAMES if not table[name].compound
               and table[name].entry.formula is None and table[name].entry.kind != VIEW
               and not table[name].entry.host
               and not candidates_of(table[name], "cuda")]
    assert not without


@pytest.mark.parametrize("name", SAMPLED)
def test_forward(name: str) -> None:
    op = table[name]
    for sample in op.entry.samples():
        for layout in layouts_of(op):
            forward(op, sample, main_dtype(op), layout)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_backward(name: str) -> None:
    op = table[name]
    for sample in op.entry.samples():
        for layout in ("contiguous", "offset", "stepped"):
            if layout in layouts_of(op):
                backward(op, sample, layout)


@pytest.mark.parametrize("name", SAMPLED)
def test_dtypes(name: str) -> None:
    op = table[name]
    for sample in op.entry.samples():
        for dtype in other_dtypes(op, sample):
            forward(op, sample, dtype, "contiguous")


def test_a_result_is_written_over_a_view_with_an_offset() -> None:
    results: dict[str, Any] = {}
    for device in ("cpu", "cuda"):
        memory = ss.zeros(17, device=device)
        ss.exp(ss.arange(16, device=device) / 16.0, out=memory[1:])
        memory[1:].mul_(3.0)
        memory[::2].add_(1.0)
        results[device] = memory.cpu().tolist()
    assert results["cuda"] == pytest.approx(results["cpu"], rel=1e-6)

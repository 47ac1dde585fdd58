"""Every op that is a formula, on the device: dtypes, layouts and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from catalogue import (
    SAMPLED,
    assert_near,
    case_of,
    depends_on_dtype,
    dtypes_of,
    host,
    layouts_of,
    main_dtype,
    results_of,
    spec_of,
)

import slipstream as ss
from slipstream.core.catalog.table import table

FORMULAS = [name for name in SAMPLED if table[name].entry.formula is not None]
DIFFERENTIABLE = [name for name in FORMULAS if table[name].entry.gradient]


def check(name: str, sample: Any, dtype: Any, layout: str) -> None:
    """Run one case and compare it with the reference, and its spec with the CPU's."""
    op = table[name]
    case = case_of(op, sample, dtype, layout, "cuda")
    found = results_of(op.call(case.args, case.kwargs))
    keywords = {key: value for key, value in case.kwargs.items() if key != "device"}
    with np.errstate(all="ignore"):
        expected = op.entry.reference(*case.arrays, **keywords)
    for result, array in zip(found, results_of(expected), strict=True):
        assert result.device.type == "cuda"
        assert_near(result, array)
    other = case_of(op, sample, dtype, layout, "cpu")
    on_cpu = results_of(op.call(other.args, other.kwargs))
    assert [spec_of(each) for each in found] == [spec_of(each) for each in on_cpu]


@pytest.mark.parametrize("name", FORMULAS)
def test_dtypes(name: str) -> None:
    """The first sample that has other dtypes; `test_layouts` takes all samples."""
    op = table[name]
    for sample in op.entry.samples():
        if depends_on_dtype(sample):
            for dtype in dtypes_of(op):
                check(name, sample, dtype, "contiguous")
            break


@pytest.mark.parametrize("name", FORMULAS)
def test_layouts(name: str) -> None:
    op = table[name]
    for sample in op.entry.samples():
        for layout in layouts_of(op):
            check(name, sample, main_dtype(op), layout)


def gradients(name: str, sample: Any, layout: str, device: str) -> list[np.ndarray]:
    """The gradients of the sum of squares of an op's float results."""
    op = table[name]
    case = case_of(op, sample, main_dtype(op), layout, device)
    leaves = [each.detach().requires_grad_() if isinstance(each, ss.Tensor)
              and each.dtype.is_floating_point else each for each in case.args]
    total = None
    for result in results_of(op.call(tuple(leaves), case.kwargs)):
        if result.requires_grad and result.dtype.is_floating_point:
            square = (result * result).sum()
            total = square if total is None else total + square
    if total is None:
        return []
    total.backward()
    return [host(each.grad) for each in leaves if isinstance(each, ss.Tensor)
            and each.requires_grad and each.grad is not None]


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients(name: str) -> None:
    if "float" not in table[name].entry.dtypes:
        return
    for sample in table[name].entry.samples():
        for layout in ("contiguous", "transposed"):
            if layout not in layouts_of(table[name]):
                continue
            wanted = gradients(name, sample, layout, "cpu")
            found = gradients(name, sample, layout, "cuda")
            assert len(found) == len(wanted)
            for each, other in zip(found, wanted, strict=True):
                finite = np.abs(other[np.isfinite(other)])
                scale = max(1.0, float(finite.max())) if finite.size else 1.0
                np.testing.assert_allclose(each, other, rtol=1e-5, atol=1e-5 * scale)

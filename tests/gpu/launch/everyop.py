"""One call of an op of the catalogue on the CPU and on the device, with gradients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from catalogue import (
    DTYPES,
    case_of,
    depends_on_dtype,
    dtypes_of,
    host,
    main_dtype,
    precision,
    results_of,
    spec_of,
    wide,
)

import slipstream as ss
from slipstream.core.dispatch.op import Op

# Sums may be taken in another order than on the CPU.
ULPS = 16.0
# Arguments that no gradient is defined for.
FIXED = {"nll_loss": ("weight",), "cross_entropy": ("weight",)}
# Ops whose gradients on the device lie as their operands do; on the CPU products leave some turned.
OWN_LAYOUT = ("scaled_dot_product_attention",)


def same(found: Any, wanted: Any, ulps: float = ULPS, strides: bool = True) -> None:
    """The device's result is the CPU's: integers bit for bit, floats within some units."""
    if not isinstance(wanted, ss.Tensor):
        assert found == wanted
        return
    assert spec_of(found)[:2 + strides] == spec_of(wanted)[:2 + strides]
    assert found.device.type == "cuda"
    mine, other = host(found), host(wanted)
    near = precision(wanted.dtype) * ulps
    if not near:
        np.testing.assert_array_equal(mine, other)
        return
    finite = np.abs(wide(other)[np.isfinite(wide(other))])
    scale = max(1.0, float(finite.max())) if finite.size else 1.0
    np.testing.assert_allclose(wide(mine), wide(other), rtol=near, atol=near * scale)


def leaves_of(value: Any) -> Iterator[Any]:
    """The float tensors of an argument, lists opened."""
    for each in value if isinstance(value, (list, tuple)) else [value]:
        if isinstance(each, ss.Tensor) and each.is_floating_point():
            yield each


def outputs(op: Op, sample: Any, dtype: Any, layout: str, device: str) -> list[Any]:
    """The results of a sample."""
    case = case_of(op, sample, dtype, layout, device)
    return results_of(op.call(case.args, case.kwargs))


def forward(op: Op, sample: Any, dtype: Any, layout: str) -> None:
    """Compare a sample's results."""
    wanted = outputs(op, sample, dtype, layout, "cpu")
    found = outputs(op, sample, dtype, layout, "cuda")
    for mine, other in zip(found, wanted, strict=True):
        same(mine, other)


def gradients(op: Op, sample: Any, layout: str, device: str) -> list[Any]:
    """The gradients of a sample's float operands; each result's own gradient is the same."""
    case = case_of(op, sample, ss.float32, layout, device)
    fixed = FIXED.get(op.name, ())
    leaves = [leaf for name, value in zip(op.names, case.args, strict=False)
              for leaf in leaves_of(value) if name not in fixed]
    for leaf in leaves:
        leaf.requires_grad_(True)
        leaf.retain_grad()
    draw = np.random.default_rng(len(leaves))
    for out in results_of(op.call(case.args, case.kwargs)):
        if isinstance(out, ss.Tensor) and out.requires_grad and out.is_floating_point():
            upstream = draw.uniform(-1, 1, tuple(out.shape)).astype(out.dtype.numpy)
            out.backward(ss.tensor(upstream).to(device), retain_graph=True)
    return [leaf.grad for leaf in leaves if leaf.grad is not None]


def backward(op: Op, sample: Any, layout: str) -> None:
    """Compare a sample's gradients."""
    wanted = gradients(op, sample, layout, "cpu")
    found = gradients(op, sample, layout, "cuda")
    for mine, other in zip(found, wanted, strict=True):
        same(mine, other, 4 * ULPS, op.name not in OWN_LAYOUT)


def other_dtypes(op: Op, sample: Any) -> list[Any]:
    """The dtypes beside the main one that make other cases of a sample."""
    if not depends_on_dtype(sample):
        return []
    return [dtype for dtype in dtypes_of(op) if dtype is not main_dtype(op)]


__all__ = ["DTYPES", "backward", "forward", "gradients", "other_dtypes", "outputs", "same"]

"""Convolutions of long rows: values by the definition, gradients as adjoints."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import slipstream as ss
import slipstream.nn.functional as F
from slipstream.core.catalog import convolution
from slipstream.core.catalog.table import ops
from slipstream.core.kernels.cpu import row_convolutions

# x, weight, further arguments
CASES = [
    ((2, 3, 100), (4, 3, 3), {"padding": 1}),
    ((3, 4, 150), (6, 2, 4), {"stride": 2, "padding": 3, "groups": 2}),
    ((1, 5, 300), (5, 1, 7), {"dilation": 3, "groups": 5}),
    ((2, 6, 200), (12, 1, 3), {"padding": 1, "groups": 6, "stride": 3, "dilation": 2}),
    ((4, 90), (7, 4, 5), {"padding": "same"}),
    ((1, 2, 50_000), (3, 2, 5), {"padding": 2}),
    ((1, 64, 9_000), (8, 64, 3), {"stride": 2}),
    ((300, 2, 80), (1, 2, 1), {}),
    ((0, 3, 100), (4, 3, 3), {"padding": 1}),
]


def operands(x: tuple[int, ...], w: tuple[int, ...], dtype: Any) -> tuple[Any, Any, Any]:
    random = np.random.RandomState(sum(x))
    arrays = [random.randn(*shape) for shape in (x, w, w[:1])]
    return tuple(ss.tensor(array).to(dtype) for array in arrays)  # type: ignore[return-value]


def wanted(x: Any, w: Any, b: Any, facts: dict[str, Any]) -> np.ndarray:
    x, w, b = [each.double().numpy() for each in (x, w, b)]
    window = {name: value if isinstance(value, str) else (filler, value)
              for (name, filler) in (("stride", 1), ("padding", 0), ("dilation", 1))
              if (value := facts.get(name)) is not None}
    return convolution.reference(x[..., None, :], w[..., None, :], b,
                                 groups=facts.get("groups", 1), **window)[..., 0, :]


@pytest.mark.parametrize(("x", "w", "facts"), CASES)
@pytest.mark.parametrize("dtype", [ss.float32, ss.float64, ss.bfloat16], ids=str)
def test_values(x: tuple[int, ...], w: tuple[int, ...], facts: Any, dtype: Any) -> None:
    images, weight, bias = operands(x, w, dtype)
    bound = {ss.float32: 2e-5, ss.float64: 1e-12, ss.bfloat16: 1e-1}[dtype]
    right = wanted(images, weight, bias, facts)
    found = F.conv1d(images, weight, bias, **facts)
    assert found.dtype == dtype
    np.testing.assert_allclose(found.double().numpy(), right, rtol=bound, atol=bound)
    spread = ss.zeros(*x[:-1], 2 * x[-1], dtype=dtype)[..., ::2]
    spread.copy_(images)
    assert ss.equal(F.conv1d(spread, weight, bias, **facts), found)


@pytest.mark.parametrize(("x", "w", "facts"), CASES)
def test_gradients_are_adjoint(x: tuple[int, ...], w: tuple[int, ...], facts: Any) -> None:
    images, weight, _ = [each.requires_grad_() for each in operands(x, w, ss.float64)]
    out = F.conv1d(images, weight, **facts)
    g = ss.tensor(np.random.RandomState(1).randn(*out.shape))
    out.backward(g)
    product = float((out.detach() * g).sum())
    for operand in (images, weight):
        found = float((operand.detach() * operand.grad).sum())
        assert found == pytest.approx(product, rel=1e-9, abs=1e-9)
    # Each element of the gradients: that of a unit in it.
    for operand in (images, weight):
        for number in range(0, operand.numel(), max(operand.numel() // 5, 1)):
            unit = ss.zeros_like(operand)
            unit.view(-1)[number] = 1.0
            pair = (unit, weight.detach()) if operand is images else (images.detach(), unit)
            expected = float((F.conv1d(*pair, **facts) * g).sum())
            assert float(operand.grad.view(-1)[number]) == pytest.approx(
                expected, rel=1e-9, abs=1e-9)


def test_which_kernel_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    forward = row_convolutions.Rows.columns

    def columns(self: Any, *arguments: Any) -> Any:
        seen.append(self.count)
        return forward(self, *arguments)

    monkeypatch.setattr(row_convolutions.Rows, "columns", columns)
    F.conv1d(ss.randn(1, 32, 70), ss.randn(32, 32, 3))
    F.conv1d(ss.randn(1, 32, 60), ss.randn(32, 32, 3))
    assert seen == [68]
    assert ops.conv2d.kernels["cpu"][-1].name == "columns and matrix product"

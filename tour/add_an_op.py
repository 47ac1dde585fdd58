"""Add an op in one place: method, in-place form, gradient, meta and explain follow from the entry.

Run: python tour/add_an_op.py

In the package an entry stands in a family of ``core/catalog``, and `install` runs once at import;
here it is called for one op.
"""

from __future__ import annotations

import sys

import numpy as np

import slipstream as ss
from slipstream.core.api.install import functions, install_op
from slipstream.core.catalog import samples
from slipstream.core.catalog.table import define
from slipstream.core.dispatch import promotion
from slipstream.core.dispatch.entry import POINTWISE, Entry


def main() -> None:
    # The one place.  The formula and its gradient are written over operators and methods; they are
    # called with symbols, once for each kind of operand, and become programs for every device.
    softratio = define(Entry(
        "softratio(Tensor self, Number scale=1)", POINTWISE,
        formula=lambda self, scale: self / (self.abs() + scale),
        gradient={"self": lambda g, self, scale: g * scale / ((self.abs() + scale) ** 2)},
        promotion=promotion.floating, path="softratio", inplace=True, out=True,
        samples=samples.unary, dtypes=("float",),
        reference=lambda x, scale=1: x / (np.abs(x) + scale),
        doc="self / (|self| + scale).",
    ))
    install_op(softratio)

    # The function and the method; integers are promoted as the entry says.
    x = ss.tensor([[-2.0, 0.5, 3.0]])
    expected = np.array([[-2 / 3, 1 / 3, 0.75]], np.float32)
    function = functions[""]["softratio"]
    np.testing.assert_allclose(function(x).numpy(), expected, rtol=1e-6)
    np.testing.assert_allclose(x.softratio().numpy(), expected, rtol=1e-6)
    assert ss.tensor([1, 2]).softratio().dtype is ss.float32

    # The in-place form, and out=.
    y = x.clone()
    assert y.softratio_() is y
    np.testing.assert_allclose(y.numpy(), expected, rtol=1e-6)
    out = ss.empty(1, 3)
    function(x, out=out)
    np.testing.assert_allclose(out.numpy(), expected, rtol=1e-6)

    # The gradient, and the gradient's gradient.
    z = ss.tensor([-2.0, 0.5, 3.0], dtype=ss.float64, requires_grad=True)
    (slope,) = ss.autograd.grad(z.softratio(2.0).sum(), z, create_graph=True)
    np.testing.assert_allclose(slope.detach().numpy(), 2 / (np.abs(z.detach().numpy()) + 2) ** 2)
    slope.sum().backward()
    assert z.grad is not None
    print("slope", slope.detach().tolist(), "curvature", z.grad.tolist())

    # Shapes without data, and the same kernel on the device whose work runs only at waits.
    assert ss.empty(4, 5, device="meta").softratio().shape == (4, 5)
    assert ss.tensor([1.0], device="delay").softratio().tolist() == [0.5]

    # How it ran.
    print(ss.explain(x.softratio))


if __name__ == "__main__":
    sys.exit(main())

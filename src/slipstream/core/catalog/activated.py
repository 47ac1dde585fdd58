# cython: annotation_typing=False
"""A sum with a product and an activation of it, in one launch where a library has that."""

from __future__ import annotations

from typing import Any

import numpy as np

from slipstream.core.catalog import checks, samples
from slipstream.core.catalog.checks import ROOT_TWO_OVER_PI, gelu_slope
from slipstream.core.catalog.products import addmm_shape, turned
from slipstream.core.catalog.table import define, ops
from slipstream.core.dispatch.entry import COMPOUND, LIBRARY, POINTWISE, Entry, passed_on
from slipstream.core.dispatch.registry import Candidate
from slipstream.core.engine.tape import tape
from slipstream.core.fuse.formula import where
from slipstream.core.kernels.cpu import products
from slipstream.core.kernels.cpu.arrays import ArrayKernel
from slipstream.core.vocab.modes import modes

# Dtypes in which an activation by the epilogue is as exact as by a formula: what an epilogue is off
# by is less than what the result is rounded by.
NARROW = ("float16", "bfloat16")


def gelu_curvature(x: Any) -> Any:
    """The slope of gelu's slope: with t = tanh(u), (1 - t^2) (u' + x / 2 (u'' - 2 t u'^2))."""
    inner = (ROOT_TWO_OVER_PI * (x + 0.044715 * x * x * x)).tanh()
    first = ROOT_TWO_OVER_PI * (1 + 3 * 0.044715 * x * x)
    second = ROOT_TWO_OVER_PI * 6 * 0.044715 * x
    return (1 - inner * inner) * (first + 0.5 * x * (second - 2 * inner * first * first))


define(Entry(
    "gelu_tanh_slope(Tensor grad, Tensor self)", POINTWISE,
    formula=lambda grad, self: gelu_slope(grad, self, "tanh"),
    gradient={"grad": lambda g, self: gelu_slope(g, self, "tanh"),
              "self": lambda g, grad, self: g * grad * gelu_curvature(self)},
    path="", method=False, dtypes=("float",),
    doc="grad times the slope of gelu by a tanh at self.",
))
define(Entry(
    "relu_slope(Tensor grad, Tensor result)", POINTWISE,
    formula=lambda grad, result: where(result <= 0, 0, grad),
    gradient={"grad": lambda g, result: where(result <= 0, 0, g)},
    path="", method=False, dtypes=("float",), doc="grad where relu's result is not 0.",
))


def _shape(call: Any) -> Any:
    (result,) = addmm_shape(call)
    return [result, result] if call["keep"] else [result]


def _before(grads: Any, out: Any, use_gelu: bool, keep: bool) -> Any:
    """The gradient of what the activation is taken of; ``out`` is that itself where it is kept."""
    if not use_gelu:
        return ops.relu_slope.call((grads[-1], out), None)
    own, g = grads
    if g is None:
        return own
    found = ops.gelu_tanh_slope.call((g, out), None)
    return found if own is None else own + found


_KERNEL = ArrayKernel("numpy addmm_activated", products.addmm_activated)


def _arrays(plan: Any, call: Any) -> Any:
    plan.statics = (call["use_gelu"],)
    return _KERNEL


define(Entry(
    "addmm_activated(Tensor self, Tensor mat1, Tensor mat2, bool use_gelu, bool keep)", LIBRARY,
    shape=_shape, upstream=_before,
    gradient={"self": passed_on,
              "mat1": lambda g, mat2: ops.matmul.call((g, turned(mat2)), None),
              "mat2": lambda g, mat1: ops.matmul.call((turned(mat1), g), None)},
    check=checks.real_floats, path="", method=False, dtypes=("float",),
    doc="relu, or gelu by a tanh, of self + mat1 @ mat2, rounded once; keep: before it what the "
        "activation is taken of.",
), cpu=(Candidate("numpy", _arrays),), cuda=("library.addmm_activated",
                                             "products.addmm_activated"))


def _one_launch(self: Any, mat1: Any, beta: Any, alpha: Any, use_gelu: bool) -> bool:
    dtype = self.spec.dtype
    return (beta == 1 and alpha == 1 and self.spec.ndim == 1 and mat1.spec.dtype is dtype
            and (dtype.name in NARROW or (dtype.kind == "float" and not use_gelu)))


def _addmm_activation(self: Any, mat1: Any, mat2: Any, beta: Any, alpha: Any,
                      use_gelu: bool) -> Any:
    if not _one_launch(self, mat1, beta, alpha, use_gelu):
        total = ops.addmm.call((self, mat1, mat2), {"beta": beta, "alpha": alpha})
        return ops.gelu.call((total,), {"approximate": "tanh"}) if use_gelu else (
            ops.relu.call((total,), None))
    keep = use_gelu and modes.current().grad_enabled and any(
        [tape.requires_grad(each) for each in (self, mat1, mat2)])
    found = ops.addmm_activated.call((self, mat1, mat2, use_gelu, keep), None)
    return found[1] if keep else found


def _reference(c: Any, a: Any, b: Any, beta: float = 1, alpha: float = 1,
               use_gelu: bool = False) -> Any:
    total = beta * c + alpha * (a @ b)
    return checks.gelu_reference(total, "tanh") if use_gelu else np.maximum(total, 0)


define(Entry(
    "addmm_activation(Tensor self, Tensor mat1, Tensor mat2, *, Number beta=1, Number alpha=1, "
    "bool use_gelu=False)", COMPOUND, function=_addmm_activation, path="addmm_activation",
    method=False, dtypes=("float",),
    samples=samples.products(((2,), (3, 4), (4, 2)), ((2,), (3, 4), (4, 2), {"use_gelu": True}),
                             ((3, 2), (3, 4), (4, 2), {"use_gelu": True, "beta": 2}),
                             ((8,), (5, 3), (3, 8), {"use_gelu": True})),
    reference=_reference,
    doc="relu, or with use_gelu gelu by a tanh, of beta * self + alpha * (mat1 @ mat2). With a "
        "vector self and neither beta nor alpha it is one launch on CUDA (gelu: for float16 and "
        "bfloat16, where a library's epilogue is as exact as the dtype), rounded once.",
    autocast={"cpu": "lower"},
))

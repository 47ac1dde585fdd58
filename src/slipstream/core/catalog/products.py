"""Matrix products."""

from __future__ import annotations

from typing import Any

import numpy as np

from slipstream.core.catalog import samples
from slipstream.core.catalog.checks import conj
from slipstream.core.catalog.table import define, ops
from slipstream.core.dispatch.entry import COMPOUND, LIBRARY, Entry
from slipstream.core.dispatch.registry import Candidate
from slipstream.core.kernels.cpu import products
from slipstream.core.kernels.cpu.arrays import ArrayKernel
from slipstream.core.shapes.broadcast import broadcast_shapes


def array_candidate(name: str, function: Any) -> Candidate:
    """A kernel over NumPy arrays, without conditions."""
    kernel = ArrayKernel(name, function)
    return Candidate(name, lambda plan, call: kernel)


def same_dtype(call: Any, *names: str) -> None:
    """Refuse operands of different dtypes: products do not promote."""
    first = call.spec(names[0]).dtype
    for name in names[1:]:
        other = call.spec(name).dtype
        if other is not first:
            raise call.error(RuntimeError,
                             "expected m1 and m2 to have the same dtype, but got: "
                             f"{first.name} != {other.name}",
                             f"convert one of them, for example with .to(ss.{first.name})")


def _matmul_shape(call: Any) -> Any:
    a, b = call.spec("self"), call.spec("other")
    same_dtype(call, "self", "other")
    if not a.ndim or not b.ndim:
        raise call.error(RuntimeError, "both arguments to matmul need to be at least 1D, but they "
                                       f"are {a.ndim}D and {b.ndim}D")
    left = a.shape if a.ndim > 1 else (1, *a.shape)
    right = b.shape if b.ndim > 1 else (*b.shape, 1)
    if left[-1] != right[-2]:
        raise call.error(RuntimeError, "mat1 and mat2 shapes cannot be multiplied "
                                       f"({left[-2]}x{left[-1]} and {right[-2]}x{right[-1]})")
    try:
        batch = broadcast_shapes(left[:-2], right[:-2])
    except (RuntimeError, ValueError) as failure:
        raise call.error(RuntimeError, str(failure)) from None
    rows = left[-2:-1] if a.ndim > 1 else ()
    columns = right[-1:] if b.ndim > 1 else ()
    return [(a.dtype, (*batch, *rows, *columns))]


def _turned(x: Any) -> Any:
    return x.transpose(-2, -1)


def matmul_left(g: Any, self_spec: Any, other: Any) -> Any:
    """g @ other^T, with the dims that a vector operand left out put in again."""
    if other.spec.ndim == 1:
        if self_spec.ndim == 1:
            return g * conj(other)
        return g.unsqueeze(-1) * conj(other)
    if self_spec.ndim == 1:
        g = g.unsqueeze(-2)
        return ops.matmul(g, _turned(conj(other))).squeeze(-2)
    return ops.matmul(g, _turned(conj(other)))


def matmul_right(g: Any, other_spec: Any, self: Any) -> Any:
    """self^T @ g, with the dims that a vector operand left out put in again."""
    if self.spec.ndim == 1:
        if other_spec.ndim == 1:
            return g * conj(self)
        return conj(self).unsqueeze(-1) * g.unsqueeze(-2)
    if other_spec.ndim == 1:
        return ops.matmul(_turned(conj(self)), g.unsqueeze(-1)).squeeze(-1)
    return ops.matmul(_turned(conj(self)), g)


def _samples() -> Any:
    random = np.random.RandomState(3)
    shapes = (((3, 4), (4, 2)), ((4,), (4,)), ((2, 3, 4), (4, 2)), ((4,), (4, 2)), ((3, 4), (4,)),
              ((2, 1, 3, 4), (5, 4, 2)), ((2, 0), (0, 3)))
    return [((random.randn(*a), random.randn(*b)), {}) for a, b in shapes]


define(Entry(
    "matmul(Tensor self, Tensor other)", LIBRARY, shape=_matmul_shape,
    gradient={"self": lambda g, self_spec, other: matmul_left(g, self_spec, other),
              "other": lambda g, other_spec, self: matmul_right(g, other_spec, self)},
    path="matmul", out=True, aliases=("linalg.matmul",), samples=_samples, reference=np.matmul,
    dtypes=("int", "float", "complex"),
    doc="Matrix product, batched over leading dims; vectors as in NumPy.",
), cpu=array_candidate("numpy matmul", products.matmul))


def _ranked(name: str, rank: int) -> Any:
    def check(self: Any, mat2: Any) -> Any:
        for each in (self, mat2):
            if each.spec.ndim != rank:
                raise RuntimeError(f"{name}: expected {rank}D tensors, got {self.spec!r} and "
                                   f"{mat2.spec!r}")
        if rank == 3 and self.spec.shape[0] != mat2.spec.shape[0]:
            raise RuntimeError(f"{name}: batch sizes differ: {self.spec!r} and {mat2.spec!r}")
        return ops.matmul.call((self, mat2), None)

    return check


define(Entry("mm(Tensor self, Tensor mat2)", COMPOUND, function=_ranked("mm", 2), path="mm",
             out=True, dtypes=("int", "float", "complex"), reference=np.matmul,
             samples=samples.products(((3, 4), (4, 2)), ((2, 0), (0, 3))),
             doc="Product of two matrices."))
define(Entry("bmm(Tensor self, Tensor mat2)", COMPOUND, function=_ranked("bmm", 3), path="bmm",
             out=True, dtypes=("int", "float", "complex"), reference=np.matmul,
             samples=samples.products(((2, 3, 4), (2, 4, 2)), ((0, 3, 4), (0, 4, 2))),
             doc="Products of two batches of matrices."))


def _addmm_shape(call: Any) -> Any:
    c, a, b = call.spec("self"), call.spec("mat1"), call.spec("mat2")
    same_dtype(call, "mat1", "mat2", "self")
    if a.ndim != 2 or b.ndim != 2:
        raise call.error(RuntimeError, f"mat1 must be a matrix, got {a.ndim}-D tensor"
                         if a.ndim != 2 else f"mat2 must be a matrix, got {b.ndim}-D tensor")
    if a.shape[1] != b.shape[0]:
        raise call.error(RuntimeError, "mat1 and mat2 shapes cannot be multiplied "
                                       f"({a.shape[0]}x{a.shape[1]} and "
                                       f"{b.shape[0]}x{b.shape[1]})")
    shape = (a.shape[0], b.shape[1])
    try:
        fits = broadcast_shapes(c.shape, shape) == shape
    except (RuntimeError, ValueError):
        fits = False
    if not fits:
        raise call.error(RuntimeError, f"The expanded size of the tensor ({shape}) must match the "
                                       f"existing size {c.shape}: input does not broadcast")
    for name in ("beta", "alpha"):
        if a.dtype.category < 2 and isinstance(call[name], float):
            raise call.error(RuntimeError, f"For integral input tensors, argument {name} must not "
                                           "be a floating point number.")
    return [(a.dtype, shape)]


define(Entry(
    "addmm(Tensor self, Tensor mat1, Tensor mat2, *, Number beta=1, Number alpha=1)", LIBRARY,
    shape=_addmm_shape,
    gradient={"self": lambda g, beta: g * conj(beta),
              "mat1": lambda g, mat2, alpha: ops.matmul(g, _turned(conj(mat2))) * conj(alpha),
              "mat2": lambda g, mat1, alpha: ops.matmul(_turned(conj(mat1)), g) * conj(alpha)},
    path="addmm", out=True, inplace=True, dtypes=("int", "float", "complex"),
    samples=samples.products(((3, 2), (3, 4), (4, 2)), ((2,), (3, 4), (4, 2), {"beta": 2}),
                             ((), (3, 4), (4, 2), {"alpha": 3, "beta": 0}), ((3, 2), (3, 0), (0, 2))),
    reference=lambda c, a, b, beta=1, alpha=1: beta * c + alpha * (a @ b),
    doc="beta * self + alpha * (mat1 @ mat2); self is ignored where beta is 0.",
), cpu=array_candidate("numpy addmm", products.addmm))


def _linear(input: Any, weight: Any, bias: Any) -> Any:
    if weight.spec.ndim == 2 and input.spec.ndim == 2 and bias is not None and (
            bias.spec.ndim == 1):
        return ops.addmm.call((bias, input, ops.t.call((weight,), None)), None)
    turned = ops.t.call((weight,), None)
    out = ops.matmul.call((input, turned), None)
    return out if bias is None else out + bias


define(Entry("linear(Tensor input, Tensor weight, Tensor? bias=None)", COMPOUND, function=_linear,
             path="nn.functional.linear", method=False, dtypes=("int", "float", "complex"),
             samples=samples.products(((3, 4), (2, 4)), ((3, 4), (2, 4), (2,)),
                                      ((2, 3, 4), (2, 4), (2,)), ((4,), (2, 4), (2,))),
             reference=lambda x, weight, bias=0: x @ weight.T + bias,
             doc="input @ weight^T + bias; input [..., in], weight [out, in], bias [out]."))

# cython: annotation_typing=False
"""Matrix products."""

from __future__ import annotations

from typing import Any

import cython
import numpy as np

from slipstream.core.catalog import samples
from slipstream.core.catalog.checks import conj
from slipstream.core.catalog.table import define, ops, table
from slipstream.core.dispatch.carrying import OpCore
from slipstream.core.dispatch.entry import COMPOUND, LIBRARY, Entry
from slipstream.core.dispatch.registry import Candidate
from slipstream.core.kernels.cpu import products
from slipstream.core.kernels.cpu.arrays import ArrayKernel
from slipstream.core.kernels.cpu.small_products import SmallProduct, refusal
from slipstream.core.shapes.broadcast import broadcast_shapes
from slipstream.core.shapes.specs import specs
from slipstream.core.vocab import optional
from slipstream.core.vocab.errors import explain
from slipstream.core.vocab.modes import modes
from slipstream.core.vocab.records import OpBase, Spec, TensorBase


def array_candidate(name: str, function: Any) -> Candidate:
    """A kernel over NumPy arrays, without conditions."""
    kernel = ArrayKernel(name, function)
    return Candidate(name, lambda plan, call: kernel)


def _small(a: str, b: str, c: str | None = None) -> Candidate:
    """The loops for small products of the arguments so named."""
    return Candidate(
        "cpu small product",
        lambda plan, call: SmallProduct(plan.out_spec, call.spec(a), call.spec(b),
                                        None if c is None else call.spec(c)),
        lambda call: refusal(call.spec(a), call.spec(b)),
    )


_small_matmul = _small("self", "other")
_small_addmm = _small("mat1", "mat2", "self")


def same_dtype(call: Any, *names: str) -> None:
    """Refuse operands of different dtypes: products do not promote."""
    first = call.spec(names[0]).dtype
    for name in names[1:]:
        other = call.spec(name).dtype
        if other is not first:
            raise call.error(RuntimeError,
                             "expected m1 and m2 to have the same dtype, but got: "
                             f"{first.name} != {other.name}", _conversion(names, first, other))


def _conversion(names: tuple[str, ...], first: Any, other: Any) -> str:
    """What to convert: a layer's input to the dtype of its weight."""
    if names[0] == "input":
        return f"convert the input to the weight's dtype with .to(ss.{other.name})"
    return f"convert one of them, for example with .to(ss.{first.name})"


# Where CUDA's kernels are.
CUDA_PRODUCTS = "core.kernels.cuda.products"
# Which size of the second operand is summed over, as people count.
SUMMED = "second last size"


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
                                       f"({left[-2]}x{left[-1]} and {right[-2]}x{right[-1]})",
                         f"the last size of self, {left[-1]}, and the {SUMMED} of other, "
                         f"{right[-2]}, have to agree: transpose one of them (.mT)?")
    try:
        batch = broadcast_shapes(left[:-2], right[:-2])
    except (RuntimeError, ValueError) as failure:
        raise call.error(RuntimeError, str(failure)) from None
    rows = left[-2:-1] if a.ndim > 1 else ()
    columns = right[-1:] if b.ndim > 1 else ()
    return [(a.dtype, (*batch, *rows, *columns))]


def turned(x: Any) -> Any:
    """A matrix transposed, or each of a batch."""
    return table["transpose"].call((x, -2, -1), None)


def matmul_left(g: Any, self_spec: Any, other: Any) -> Any:
    """g @ other^T, with the dims that a vector operand left out put in again."""
    if other.spec.ndim == 1:
        if self_spec.ndim == 1:
            return g * conj(other)
        return g.unsqueeze(-1) * conj(other)
    if self_spec.ndim == 1:
        g = g.unsqueeze(-2)
        return ops.matmul(g, turned(conj(other))).squeeze(-2)
    return ops.matmul(g, turned(conj(other)))


def matmul_right(g: Any, other_spec: Any, self: Any) -> Any:
    """self^T @ g, with the dims that a vector operand left out put in again."""
    if self.spec.ndim == 1:
        if other_spec.ndim == 1:
            return g * conj(self)
        return conj(self).unsqueeze(-1) * g.unsqueeze(-2)
    if other_spec.ndim == 1:
        return ops.matmul(turned(conj(self)), g.unsqueeze(-1)).squeeze(-1)
    return ops.matmul(turned(conj(self)), g)


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
    autocast="lower",
), cpu=(_small_matmul, array_candidate("numpy matmul", products.matmul)),
   cuda=("library.matmul", "products.matmul"))


def _ranked(name: str, rank: int) -> Any:
    def check(self: Any, mat2: Any) -> Any:
        for each in (self, mat2):
            if each.spec.ndim != rank:
                raise RuntimeError(explain(
                    name, {"self": self, "mat2": mat2}, f"{name}: expected {rank}D tensors",
                    "matmul() takes vectors and batches too"))
        if rank == 3 and self.spec.shape[0] != mat2.spec.shape[0]:
            raise RuntimeError(explain(
                name, {"self": self, "mat2": mat2}, f"{name}: batch sizes differ",
                "matmul() broadcasts batches of size 1"))
        return ops.matmul.call((self, mat2), None)

    return check


define(Entry("mm(Tensor self, Tensor mat2)", COMPOUND, function=_ranked("mm", 2), path="mm",
             out=True, dtypes=("int", "float", "complex"), reference=np.matmul,
             samples=samples.products(((3, 4), (4, 2)), ((2, 0), (0, 3))),
             doc="Product of two matrices.", autocast="lower"))
define(Entry("bmm(Tensor self, Tensor mat2)", COMPOUND, function=_ranked("bmm", 3), path="bmm",
             out=True, dtypes=("int", "float", "complex"), reference=np.matmul,
             samples=samples.products(((2, 3, 4), (2, 4, 2)), ((0, 3, 4), (0, 4, 2))),
             doc="Products of two batches of matrices.", autocast="lower"))


def addmm_shape(call: Any) -> Any:
    """The shape and dtype rule of a matrix or row plus a product."""
    c, a, b = call.spec("self"), call.spec("mat1"), call.spec("mat2")
    same_dtype(call, "mat1", "mat2", "self")
    if a.ndim != 2 or b.ndim != 2:
        raise call.error(RuntimeError, f"mat1 must be a matrix, got {a.ndim}-D tensor"
                         if a.ndim != 2 else f"mat2 must be a matrix, got {b.ndim}-D tensor")
    if a.shape[1] != b.shape[0]:
        raise call.error(RuntimeError, "mat1 and mat2 shapes cannot be multiplied "
                                       f"({a.shape[0]}x{a.shape[1]} and "
                                       f"{b.shape[0]}x{b.shape[1]})",
                         "columns of mat1 and rows of mat2 have to agree: transpose one (.mT)?")
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
    shape=addmm_shape,
    gradient={"self": lambda g, beta: g * conj(beta),
              "mat1": lambda g, mat2, alpha: ops.matmul(g, turned(conj(mat2))) * conj(alpha),
              "mat2": lambda g, mat1, alpha: ops.matmul(turned(conj(mat1)), g) * conj(alpha)},
    path="addmm", out=True, inplace=True, dtypes=("int", "float", "complex"),
    samples=samples.products(((3, 2), (3, 4), (4, 2)), ((2,), (3, 4), (4, 2), {"beta": 2}),
                             ((), (3, 4), (4, 2), {"alpha": 3, "beta": 0}),
                             ((3, 2), (3, 0), (0, 2))),
    reference=lambda c, a, b, beta=1, alpha=1: beta * c + alpha * (a @ b),
    doc="beta * self + alpha * (mat1 @ mat2); self is ignored where beta is 0.",
    autocast="lower",
), cpu=(_small_addmm, array_candidate("numpy addmm", products.addmm)),
   cuda=("library.addmm", "products.addmm"))



def _linear_shape(call: Any) -> Any:
    x, weight, bias = call.spec("input"), call.spec("weight"), call["bias"]
    same_dtype(call, "input", "weight", *(("bias",) if bias is not None else ()))
    if weight.ndim not in (1, 2):
        raise call.error(RuntimeError, "linear needs a weight [out, in], not one of "
                                       f"{weight.ndim} dims")
    if not x.ndim or x.shape[-1] != weight.shape[-1]:
        rows = x.numel // x.shape[-1] if x.ndim and x.shape[-1] else 0
        raise call.error(RuntimeError, "mat1 and mat2 shapes cannot be multiplied "
                                       f"({rows}x{x.shape[-1] if x.ndim else 1} and "
                                       f"{weight.shape[-1]}x{weight.shape[0]})",
                         f"the input's last size has to be {weight.shape[-1]}, the features that "
                         "the weight takes")
    shape = (*x.shape[:-1], *weight.shape[:-1])
    if bias is not None and bias.spec.shape != shape[-1:]:
        try:
            fits = broadcast_shapes(bias.spec.shape, shape) == shape
        except (RuntimeError, ValueError):
            fits = False
        if not fits:
            raise call.error(RuntimeError, f"a bias of shape {list(bias.spec.shape)} does not "
                                           f"broadcast to the result's shape {list(shape)}")
    return [(x.dtype, shape)]


def _weight_grad(g: Any, input: Any, weight_spec: Any) -> Any:
    """g^T @ input, over all leading dims."""
    # Once a layer and step: what is usual goes straight on.
    upstream = cython.declare(TensorBase, g)
    spec = cython.declare(Spec, weight_spec)
    if spec.ndim == 2 == upstream.spec.ndim and not spec.dtype.is_complex:
        matmul = cython.declare(OpBase, table["matmul"])
        transpose = cython.declare(OpBase, table["transpose"])
        return matmul.call2(transpose.call((g, -2, -1), None), input)
    if weight_spec.ndim == 1:
        return (g.unsqueeze(-1) * conj(input)).reshape((-1, weight_spec.shape[0])).sum(0)
    known = conj(input) if input.spec.dtype.is_complex else input
    if g.spec.ndim != 2:
        if _are_rows(g.spec, input.spec) and not modes.current().grad_enabled:
            return ops.rows_product.call2(g, input)
        g = g.reshape((-1, weight_spec.shape[0]))
        known = known.reshape((-1, weight_spec.shape[1]))
    return ops.matmul.call2(turned(g), known)


def _are_rows(a: Any, b: Any) -> Any:
    """Whether two tensors are rows without gaps, for the kernel that takes them as they are."""
    return (a.device.type == "cuda" and a.contiguous and b.contiguous and a.numel and b.numel
            and not a.dtype.is_complex)


def _rows_shape(call: Any) -> Any:
    same_dtype(call, "self", "other")
    a, b = call.spec("self"), call.spec("other")
    return [(a.dtype, (a.shape[-1], b.shape[-1]))]


def _rows_and_sums_shape(call: Any) -> Any:
    return [*_rows_shape(call), (call.spec("self").dtype, call.spec("self").shape[-1:])]


def _summed_rows(left: Any, right: Any) -> Any:
    """What `rows_product_sums` gives for two tensors; None where it does not take them."""
    product = cython.declare(OpCore, table["rows_product_sums"])
    # What it has a plan for it took before.
    known = product.call_again(left, right)
    if known is not None or not optional.load(CUDA_PRODUCTS).sums_rows(left.spec, right.spec):
        return known
    return product.call2(left, right)


def _linear_gradients(wanted: Any, g: Any, input: Any, weight: Any, weight_spec: Any,
                      bias_spec: Any) -> Any:
    """All gradients, the weight's and the bias's by one kernel where it takes them.

    The input's comes last: what its own gradient asks for next can be done where it is made.
    """
    names = wanted[0]
    # Of what wants no gradient there is no spec.
    if "weight" not in names:
        return None
    upstream = cython.declare(TensorBase, g)
    rows = cython.declare(Spec, weight_spec)
    shared = cython.declare(Spec, bias_spec)
    if upstream.spec.device.type != "cuda" or rows.ndim != 2:
        return None
    if "bias" not in names:
        shares = [_weight_grad(g, input, weight_spec)]
    else:
        sums = None
        if shared.ndim == 1 and shared.shape[0] == rows.shape[0]:
            sums = _summed_rows(g, input)
        shares = [_weight_grad(g, input, weight_spec), g] if sums is None else list(sums)
    return [_input_grad(g, weight), *shares] if "input" in names else shares


def _input_grad(g: Any, weight: Any) -> Any:
    other = cython.declare(TensorBase, weight)
    if other.spec.ndim == 2 and not other.spec.dtype.is_complex:
        matmul = cython.declare(OpBase, table["matmul"])
        return matmul.call2(g, weight)
    if weight.spec.ndim == 1:
        return g.unsqueeze(-1) * conj(weight)
    return ops.matmul.call2(g, conj(weight) if weight.spec.dtype.is_complex else weight)


def _turned_spec(spec: Any) -> Any:
    return specs.intern(spec.device, spec.dtype, spec.shape[::-1], spec.strides[::-1])


def _small_linear(plan: Any, call: Any) -> Any:
    bias = call["bias"]
    kernel = SmallProduct(plan.out_spec, call.spec("input"), _turned_spec(call.spec("weight")),
                          None if bias is None else bias.spec)
    kernel.addend_last = bias is not None
    return kernel


def _refuses_linear(call: Any) -> str:
    if call.spec("weight").ndim != 2:
        return "the weight is a vector"
    return refusal(call.spec("input"), _turned_spec(call.spec("weight")))


define(Entry(
    "rows_product(Tensor self, Tensor other)", LIBRARY, shape=_rows_shape, path="", method=False,
    dtypes=("int", "float"),
    doc="self^T @ other of rows, (..., n) and (..., m), summed over all leading dims; CUDA tensors "
        "without gaps.",
), cuda=("library.rows_product", "products.rows_product"))
define(Entry(
    "rows_product_sums(Tensor self, Tensor other)", LIBRARY, shape=_rows_and_sums_shape, path="",
    method=False, dtypes=("float",),
    doc="rows_product, and self summed over all leading dims; CUDA rows of 16-bit floats, or of "
        "few float32.",
), cuda=("products.rows_product_sums",))
define(Entry(
    "linear(Tensor input, Tensor weight, Tensor? bias=None)", LIBRARY, shape=_linear_shape,
    gradient={"input": _input_grad, "weight": _weight_grad, "bias": lambda g, bias_spec: g},
    joint=_linear_gradients,
    path="nn.functional.linear", method=False, dtypes=("int", "float", "complex"),
    samples=samples.products(((3, 4), (2, 4)), ((3, 4), (2, 4), (2,)),
                             ((2, 3, 4), (2, 4), (2,)), ((4,), (2, 4), (2,))),
    reference=lambda x, weight, bias=0: x @ weight.T + bias,
    doc="input @ weight^T + bias; input [..., in], weight [out, in], bias [out].",
    autocast="lower",
), cpu=(Candidate("cpu small product", _small_linear, _refuses_linear),
        array_candidate("numpy linear", products.linear)),
   cuda=("library.linear", "products.linear"))

# cython: annotation_typing=False
"""Products of tensors made of matrix products: baddbmm, einsum, tensordot and their kin."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from slipstream.core.catalog import reasons, samples
from slipstream.core.catalog.checks import conj
from slipstream.core.catalog.products import array_candidate, same_dtype
from slipstream.core.catalog.table import define, ops
from slipstream.core.catalog.triangles import listed
from slipstream.core.dispatch.arguments import ints
from slipstream.core.dispatch.entry import COMPOUND, LIBRARY, Entry
from slipstream.core.kernels.cpu import products
from slipstream.core.shapes.broadcast import broadcast_shapes
from slipstream.core.shapes.views import normalize_dim, normalize_dims

NUMBERS = ("int", "float", "complex")


def _turned(x: Any) -> Any:
    return x.transpose(-2, -1)


def _baddbmm_shape(call: Any) -> Any:
    c, a, b = call.spec("self"), call.spec("batch1"), call.spec("batch2")
    same_dtype(call, "batch1", "batch2", "self")
    for name, spec in (("batch1", a), ("batch2", b)):
        if spec.ndim != 3:
            raise call.error(RuntimeError, f"{name} must be a 3D tensor")
    if a.shape[0] != b.shape[0] or a.shape[2] != b.shape[1]:
        raise call.error(RuntimeError, "Expected size for first two dimensions of batch2 tensor to "
                                       f"be: [{a.shape[0]}, {a.shape[2]}] but got: "
                                       f"[{b.shape[0]}, {b.shape[1]}].")
    shape = (a.shape[0], a.shape[1], b.shape[2])
    try:
        fits = broadcast_shapes(c.shape, shape) == shape
    except (RuntimeError, ValueError):
        fits = False
    if not fits:
        raise call.error(RuntimeError, f"The expanded size of the tensor ({shape}) must match the "
                                       f"existing size {c.shape}: input does not broadcast")
    return [(a.dtype, shape)]


define(Entry(
    "baddbmm(Tensor self, Tensor batch1, Tensor batch2, *, Number beta=1, Number alpha=1)",
    LIBRARY, shape=_baddbmm_shape,
    gradient={"self": lambda g, beta: g * conj(beta),
              "batch1": lambda g, batch2, alpha: ops.matmul(g, _turned(conj(batch2)))
              * conj(alpha),
              "batch2": lambda g, batch1, alpha: ops.matmul(_turned(conj(batch1)), g)
              * conj(alpha)},
    path="baddbmm", out=True, inplace=True, dtypes=NUMBERS,
    samples=samples.products(((2, 3, 2), (2, 3, 4), (2, 4, 2)),
                             ((2,), (2, 3, 4), (2, 4, 2), {"beta": 2}),
                             ((), (2, 3, 4), (2, 4, 2), {"alpha": 3, "beta": 0})),
    reference=lambda c, a, b, beta=1, alpha=1: beta * c + alpha * (a @ b),
    exceptions=reasons.SUMMED,
    doc="beta * self + alpha * (batch1 @ batch2); self is ignored where beta is 0.",
    autocast="lower",
), cpu=array_candidate("numpy addmm", products.addmm), cuda="products.baddbmm")


def compound(signature: str, function: Any, doc: str, **facts: Any) -> None:
    """An entry that calls other ops."""
    facts.setdefault("path", signature.partition("(")[0])
    facts.setdefault("dtypes", NUMBERS)
    define(Entry(signature, COMPOUND, function=function, doc=doc, **facts))


def require_ranks(name: str, *wanted: tuple[Any, int]) -> None:
    """RuntimeError unless every tensor has its rank."""
    for tensor, rank in wanted:
        if tensor.spec.ndim != rank:
            raise RuntimeError(f"{name}: expected a tensor of {rank} dims, got {tensor.spec!r}")


# -- vectors -------------------------------------------------------------------------------------
def _dot(self: Any, tensor: Any) -> Any:
    require_ranks("dot", (self, 1), (tensor, 1))
    if self.spec.shape != tensor.spec.shape:
        raise RuntimeError("inconsistent tensor size, expected tensor and src to have the same "
                           f"number of elements, but got {self.spec.shape[0]} and "
                           f"{tensor.spec.shape[0]} elements respectively")
    return ops.matmul.call((self, tensor), None)


def _mv(self: Any, vec: Any) -> Any:
    require_ranks("mv", (self, 2), (vec, 1))
    return ops.matmul.call((self, vec), None)


def _outer(self: Any, vec2: Any) -> Any:
    require_ranks("outer", (self, 1), (vec2, 1))
    return ops.mul.call((ops.unsqueeze.call((self, 1), None), vec2), None)


def _scaled_sum(self: Any, product: Any, beta: Any, alpha: Any) -> Any:
    """beta * self + alpha * product; self is not read where beta is 0."""
    dtype = product.spec.dtype
    if dtype.category < 2:
        # Numbers are cut off to the kind of the result.
        beta, alpha = [int(each) if dtype.category else bool(each) for each in (beta, alpha)]
    part = product if alpha == 1 else product * alpha
    if beta == 0:
        return part
    return (self if beta == 1 else self * beta) + part


def _inner(self: Any, other: Any) -> Any:
    if not self.spec.ndim or not other.spec.ndim:
        return self * other
    if self.spec.shape[-1] != other.spec.shape[-1]:
        raise RuntimeError("inner() the last dimension must match on both input tensors but got "
                           f"shapes {list(self.spec.shape)} and {list(other.spec.shape)}")
    last = [[self.spec.ndim - 1], [other.spec.ndim - 1]]
    return ops.tensordot.call((self, other, last), None)


compound("dot(Tensor self, Tensor tensor)", _dot, "The inner product of two vectors.", out=True,
         samples=samples.products(((4,), (4,))), reference=np.dot,
         autocast={"cpu": "asleep", "cuda": "widest"})
compound("vdot(Tensor self, Tensor other)", lambda self, other: _dot(conj(self), other),
         "The inner product of two vectors, the first conjugated.", out=True,
         samples=samples.products(((4,), (4,))), reference=np.vdot,
         autocast={"cpu": "asleep", "cuda": "widest"})
compound("mv(Tensor self, Tensor vec)", _mv, "Product of a matrix and a vector.", out=True,
         samples=samples.products(((3, 4), (4,))), reference=np.matmul,
         autocast={"cpu": "asleep", "cuda": "lower"})
compound("outer(Tensor self, Tensor vec2)", _outer, "All products of two vectors' elements.",
         out=True, aliases=("ger", "linalg.outer"), samples=samples.products(((3,), (4,))),
         reference=np.outer)
compound("inner(Tensor self, Tensor other)", _inner,
         "Sums of products over the last dims of both.", out=True,
         samples=samples.products(((4,), (4,)), ((2, 4), (3, 4)), ((), (3,))), reference=np.inner)
compound("addmv(Tensor self, Tensor mat, Tensor vec, *, Number beta=1, Number alpha=1)",
         lambda self, mat, vec, beta, alpha: _scaled_sum(self, _mv(mat, vec), beta, alpha),
         "beta * self + alpha * (mat @ vec).", inplace=True, out=True,
         samples=samples.products(((3,), (3, 4), (4,))),
         reference=lambda c, a, b, beta=1, alpha=1: beta * c + alpha * (a @ b),
         autocast={"cpu": "asleep", "cuda": "lower"})
compound("addr(Tensor self, Tensor vec1, Tensor vec2, *, Number beta=1, Number alpha=1)",
         lambda self, vec1, vec2, beta, alpha: _scaled_sum(
             self, _outer(vec1, vec2), beta, alpha),
         "beta * self + alpha * outer(vec1, vec2).", inplace=True, out=True,
         samples=samples.products(((3, 4), (3,), (4,))),
         reference=lambda c, a, b, beta=1, alpha=1: beta * c + alpha * np.outer(a, b),
         autocast={"cpu": "asleep", "cuda": "lower"})
compound("addbmm(Tensor self, Tensor batch1, Tensor batch2, *, Number beta=1, Number alpha=1)",
         lambda self, batch1, batch2, beta, alpha: _scaled_sum(
             self, ops.bmm.call((batch1, batch2), None).sum(0), beta, alpha),
         "beta * self + alpha * the sum of batch1 @ batch2 over the batch.", inplace=True,
         out=True, samples=samples.products(((3, 2), (2, 3, 4), (2, 4, 2))),
         reference=lambda c, a, b, beta=1, alpha=1: beta * c + alpha * (a @ b).sum(0),
         autocast="lower")


# -- tensordot -----------------------------------------------------------------------------------
def _tensordot(self: Any, other: Any, dims: Any) -> Any:
    if hasattr(dims, "tolist"):
        dims = dims.tolist()
    if isinstance(dims, int):
        if dims < 0:
            raise RuntimeError(f"tensordot expects dims >= 0, but got dims={dims}")
        if dims > min(self.spec.ndim, other.spec.ndim):
            raise RuntimeError("tensordot expects dims < ndim_a or ndim_b, but got dims="
                               f"{dims}")
        left = tuple(range(self.spec.ndim - dims, self.spec.ndim))
        right = tuple(range(dims))
    else:
        left, right = [ints(each) for each in dims]
    left = normalize_dims(tuple(left), self.spec.ndim)
    right = normalize_dims(tuple(right), other.spec.ndim)
    for i, j in zip(left, right, strict=False):
        # A dim of size one counts for every element of the other operand's.
        if self.spec.shape[i] == 1 != other.spec.shape[j]:
            other = ops.sum.call((other, (j,), True), {"dtype": other.spec.dtype})
        elif other.spec.shape[j] == 1 != self.spec.shape[i]:
            self = ops.sum.call((self, (i,), True), {"dtype": self.spec.dtype})
    a, b = self.spec.shape, other.spec.shape
    if len(left) != len(right) or any(a[i] != b[j] for i, j in zip(left, right, strict=True)):
        raise RuntimeError("contracted dimensions need to match, but first has size "
                           f"{[a[i] for i in left]} and second {[b[j] for j in right]}")
    kept = [i for i in range(len(a)) if i not in left]
    added = [j for j in range(len(b)) if j not in right]
    inner = math.prod(a[i] for i in left)
    rows = ops.reshape.call((ops.permute.call((self, (*kept, *left)), None),
                             (math.prod(a[i] for i in kept), inner)), None)
    columns = ops.reshape.call((ops.permute.call((other, (*right, *added)), None),
                                (inner, math.prod(b[j] for j in added))), None)
    shape = (*[a[i] for i in kept], *[b[j] for j in added])
    if not shape:
        return ops.dot.call((rows.reshape(-1), columns.reshape(-1)), None)
    return ops.reshape.call((ops.matmul.call((rows, columns), None), shape), None)


compound("tensordot(Tensor self, Tensor other, any dims=2)", _tensordot,
         "Sums of products over the last dims of self and the first of other, or given dims.",
         method=False, out=True,
         samples=lambda: [((samples.random_array(160, 2, 3, 4), samples.random_array(161, 3, 4, 5)),
                           {}), ((samples.random_array(162, 2, 3), samples.random_array(163, 3, 2)),
                                 {"dims": [[0, 1], [1, 0]]})],
         reference=lambda a, b, dims=2: np.tensordot(a, b, dims), autocast={"cuda": "widest"})


# -- einsum --------------------------------------------------------------------------------------
class Equation:
    """An equation such as ``ij,jk->ik``: labels of each operand, and of the result.

    An ellipsis becomes labels of its own: negative numbers, counted from its last dim.
    """

    def __init__(self, text: str, ranks: list[int]) -> None:
        text = text.replace(" ", "")
        left, arrow, right = text.partition("->")
        terms = left.split(",")
        if len(terms) != len(ranks):
            raise RuntimeError("einsum(): more operands were provided than specified in the "
                               "equation" if len(terms) < len(ranks) else
                               "einsum(): fewer operands were provided than specified in the "
                               "equation")
        self.inputs = [self._labels(term, rank) for term, rank in zip(terms, ranks, strict=True)]
        known = [label for labels in self.inputs for label in labels]
        spread = sorted({label for label in known if isinstance(label, int)})
        if arrow:
            self.output = self._given(right, spread)
        else:
            letters = sorted({each for each in known if isinstance(each, str)
                              and known.count(each) == 1})
            self.output = [*spread, *letters]
        self._check_output(known)

    def _check_output(self, known: list[Any]) -> None:
        for label in self.output:
            if self.output.count(label) > 1:
                raise RuntimeError(f"einsum(): output subscript {label} appears more than once in "
                                   "the output")
            if label not in known:
                raise RuntimeError(f"einsum(): output subscript {label} does not appear in the "
                                   "equation for any input operand")

    def _labels(self, term: str, rank: int) -> list[Any]:
        before, dots, after = term.partition("...")
        named = len(before) + len(after)
        for letter in before + after:
            if not letter.isalpha():
                raise RuntimeError(f"einsum(): invalid subscript given: {letter}, subscripts must "
                                   "be in [a-zA-Z]")
        if named > rank or (named < rank and not dots):
            raise RuntimeError(f"einsum(): the number of subscripts in the equation ({named}) "
                               f"does not match the number of dimensions ({rank}) of an operand")
        middle = list(range(named - rank, 0)) if dots else []
        return [*before, *middle, *after]

    def _given(self, right: str, spread: list[int]) -> list[Any]:
        before, dots, after = right.partition("...")
        for letter in before + after:
            if not letter.isalpha():
                raise RuntimeError(f"einsum(): invalid subscript given: {letter}, subscripts must "
                                   "be in [a-zA-Z]")
        return [*before, *(spread if dots else []), *after]


def _merged(tensor: Any, labels: list[Any]) -> tuple[Any, list[Any]]:
    """Repeated labels of one operand become its diagonal."""
    labels = list(labels)
    for label in list(dict.fromkeys(labels)):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            shape = tensor.spec.shape
            if shape[first] != shape[second]:
                raise RuntimeError(f"einsum(): subscript {label} is repeated for operand 0 but the "
                                   f"sizes don't match, {shape[first]} != {shape[second]}")
            tensor = ops.diagonal.call((tensor, 0, first, second), None)
            del labels[second], labels[first]
            labels.append(label)
    return tensor, labels


def _summed_out(tensor: Any, labels: list[Any], needed: set[Any]) -> tuple[Any, list[Any]]:
    """Dims whose label nobody else needs are summed."""
    dims = tuple([place for place, label in enumerate(labels) if label not in needed])
    if not dims:
        return tensor, labels
    return (ops.sum.call((tensor, dims), {"dtype": tensor.spec.dtype}),
            [label for label in labels if label in needed])


def _arranged(tensor: Any, labels: list[Any], wanted: list[Any]) -> Any:
    """The dims in the order of ``wanted``; those it lacks have size one."""
    order = tuple([labels.index(label) for label in wanted if label in labels])
    turned = ops.permute.call((tensor, order), None)
    for place, label in enumerate(wanted):
        if label not in labels:
            turned = ops.unsqueeze.call((turned, place), None)
    return turned


def _pair(a: Any, b: Any, needed: set[Any]) -> tuple[Any, list[Any]]:
    """Two operands as one: a batch of matrix products."""
    (x, left), (y, right) = a, b
    sizes = _sizes((x, left), (y, right))
    # A label that is 1 in one operand and longer in the other is not contracted with it.
    x, left = _summed_out(x, left, needed | set(right))
    y, right = _summed_out(y, right, needed | set(left))
    both = [label for label in left if label in right]
    batch = [label for label in both if label in needed]
    inner = [label for label in both if label not in needed]
    rows = [label for label in left if label not in right]
    columns = [label for label in right if label not in left]
    x = _expanded(_arranged(x, left, [*batch, *rows, *inner]), sizes, [*batch, *rows, *inner],
                  inner + batch)
    y = _expanded(_arranged(y, right, [*batch, *inner, *columns]), sizes,
                  [*batch, *inner, *columns], inner + batch)
    lead = tuple([sizes[label] for label in batch])
    count = [math.prod(sizes[label] for label in group) for group in (batch, rows, inner, columns)]
    x = ops.reshape.call((x, (count[0], count[1], count[2])), None)
    y = ops.reshape.call((y, (count[0], count[2], count[3])), None)
    product = ops.matmul.call((x, y), None) if inner else x * y
    shape = (*lead, *[sizes[label] for label in rows], *[sizes[label] for label in columns])
    return ops.reshape.call((product, shape), None), [*batch, *rows, *columns]


def _expanded(tensor: Any, sizes: dict[Any, int], labels: list[Any], shared: list[Any]) -> Any:
    shape = tuple([sizes[label] if label in shared else size
                   for label, size in zip(labels, tensor.spec.shape, strict=True)])
    return tensor if shape == tensor.spec.shape else ops.expand.call((tensor, shape), None)


def _sizes(*operands: Any) -> dict[Any, int]:
    sizes: dict[Any, int] = {}
    for tensor, labels in operands:
        for label, size in zip(labels, tensor.spec.shape, strict=True):
            before = sizes.get(label, 1)
            if size not in (1, before) and before != 1:
                raise RuntimeError(f"einsum(): subscript {label} has size {size} for an operand "
                                   f"which does not broadcast with previously seen size {before}")
            sizes[label] = size if before == 1 else before
    return sizes


def _interleaved(equation: Any, operands: list[Any]) -> tuple[str, list[Any]]:
    """The form einsum(x, [0, 1], y, [1, 2], [0, 2]) as an equation."""
    flat = [equation, *operands]
    tensors = [each for each in flat if hasattr(each, "spec")]
    letters = "".join(chr(code) for code in (*range(65, 91), *range(97, 123)))
    lists = [each for each in flat if not hasattr(each, "spec")]

    def written(each: Any) -> str:
        return "".join("..." if item is Ellipsis else letters[item] for item in each)

    text = ",".join(written(each) for each in lists[:len(tensors)])
    if len(lists) > len(tensors):
        text += "->" + written(lists[-1])
    return text, tensors


def _einsum(equation: Any, operands: Any) -> Any:
    if not isinstance(equation, str):
        equation, operands = _interleaved(equation, list(operands))
    tensors = listed(operands)
    if not tensors:
        raise RuntimeError("einsum(): must provide at least one operand")
    parsed = Equation(equation, [tensor.spec.ndim for tensor in tensors])
    pieces = [_merged(tensor, labels) for tensor, labels in zip(
        tensors, parsed.inputs, strict=True)]
    _sizes(*pieces)
    current = pieces[0]
    for place, piece in enumerate(pieces[1:], 1):
        later = {label for _, labels in pieces[place + 1:] for label in labels}
        current = _pair(current, piece, set(parsed.output) | later)
    tensor, labels = _summed_out(*current, set(parsed.output))
    return _arranged(tensor, labels, parsed.output)


def _einsum_samples() -> Any:
    a, b, c = [samples.random_array(seed, *shape) for seed, shape in (
        (164, (2, 3)), (165, (3, 4)), (166, (2, 4)))]
    return [(("ij,jk->ik", [a, b]), {}), (("ij,jk,ik->i", [a, b, c]), {}), (("ij->ji", [a]), {}),
            (("ij", [a]), {}), (("...j,...j->...", [a, a]), {}), (("i,j->ij", [a[0], c[0]]), {})]


compound("einsum(any equation, Tensor... operands)", _einsum,
         "Sums of products of elements by their labels, as 'ij,jk->ik'; an ellipsis stands for "
         "dims that broadcast; by pairs from left to right.", method=False,
         samples=_einsum_samples,
         reference=lambda equation, arrays: np.einsum(equation, *arrays),
         autocast={"cuda": "lower"})


# -- others --------------------------------------------------------------------------------------
def _kron(self: Any, other: Any) -> Any:
    rank = max(self.spec.ndim, other.spec.ndim)
    a = (1,) * (rank - self.spec.ndim) + self.spec.shape
    b = (1,) * (rank - other.spec.ndim) + other.spec.shape
    wide = ops.reshape.call((self, tuple([n for size in a for n in (size, 1)])), None)
    fine = ops.reshape.call((other, tuple([n for size in b for n in (1, size)])), None)
    shape = tuple([m * n for m, n in zip(a, b, strict=True)])
    return ops.reshape.call((wide * fine, shape), None)


def _cross(self: Any, other: Any, dim: Any) -> Any:
    if dim is None:
        dim = next((place for place, size in enumerate(self.spec.shape) if size == 3), -1)
    rank = self.spec.ndim
    if rank != other.spec.ndim:
        raise RuntimeError("linalg.cross: inputs must have the same number of dimensions.")
    dim = normalize_dim(dim, rank)
    if self.spec.shape[dim] != 3 or other.spec.shape[dim] != 3:
        raise RuntimeError(f"linalg.cross: inputs dimension {dim} must have length 3. Got "
                           f"{self.spec.shape[dim]} and {other.spec.shape[dim]}")
    a, b = [[ops.select.call((tensor, dim, place), None) for place in range(3)]
            for tensor in (self, other)]
    parts = [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]
    return ops.stack.call((parts, dim), None)


compound("kron(Tensor self, Tensor other)", _kron, "The Kronecker product.", out=True,
         samples=samples.products(((2, 3), (3, 2)), ((2,), (3, 2))), reference=np.kron)
compound("cross(Tensor self, Tensor other, int? dim=None)", _cross,
         "The vector product along a dim of size 3.", out=True,
         samples=samples.products(((4, 3), (4, 3)), ((3,), (3,))), reference=np.cross,
         autocast={"cuda": "widest"})


def _cdist(self: Any, other: Any, p: Any, compute_mode: Any) -> Any:
    rows, others = self.spec, other.spec
    if rows.ndim < 2 or others.ndim < 2 or rows.shape[-1] != others.shape[-1]:
        raise RuntimeError("cdist: X1 and X2 must have at least two dims and the same number of "
                           f"columns, but got {rows!r} and {others!r}")
    if p < 0:
        raise RuntimeError("cdist only supports non-negative p values")
    by_product = p == 2 and compute_mode != "donot_use_mm_for_euclid_dist" and (
        max(rows.shape[-2], others.shape[-2]) > 25
        or compute_mode == "use_mm_for_euclid_dist")
    if not by_product:
        apart = ops.unsqueeze.call((self, -2), None) - ops.unsqueeze.call((other, -3), None)
        return ops.vector_norm.call((apart, p, -1), None)
    squares = [ops.sum.call((each * each, -1, True), None) for each in (self, other)]
    product = self @ ops.transpose.call((other, -2, -1), None)
    square = squares[0] + ops.transpose.call((squares[1], -2, -1), None) - 2 * product
    # The root of what rounding makes zero or negative is zero, and so is its slope.
    apart = square > 0
    return ops.where.call((apart, ops.sqrt.call((ops.where.call((apart, square, 1.0), None),),
                                                None), 0.0), None)


def _cdist_reference(x: Any, y: Any, p: float = 2.0) -> Any:
    apart = np.abs(x[..., :, None, :] - y[..., None, :, :])
    if p == 0:
        return (apart != 0).sum(-1).astype(x.dtype)
    return apart.max(-1) if p == np.inf else (apart ** p).sum(-1) ** (1 / p)


compound("cdist(Tensor self, Tensor other, float p=2.0, "
         "str compute_mode='use_mm_for_euclid_dist_if_necessary')", _cdist,
         "The p-norm of the difference of each row of self (..., m, k) and other (..., n, k); for "
         "p = 2 and more than 25 rows by a product.", method=False, dtypes=("float",),
         samples=samples.products(
             ((2, 3, 4), (2, 5, 4)), ((3, 4), (2, 4), {"p": 1.0}), ((3, 4), (2, 4), {"p": 3.0}),
             ((3, 4), (2, 4), {"compute_mode": "use_mm_for_euclid_dist"})),
         reference=lambda x, y, p=2.0, compute_mode="": _cdist_reference(x, y, p),
         autocast="float32")

"""Decompositions, solvers, determinants and norms of matrices, over batches (..., m, n).

On the CPU LAPACK computes, by NumPy; matrices of other devices are brought there and back.
Gradients: A is the matrix, g a gradient, ^H the adjoint; M. Giles, "Collected matrix derivative
results for forward and reverse mode algorithmic differentiation" (2008), has the formulas.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from slipstream.core.catalog import samples
from slipstream.core.catalog.checks import conj
from slipstream.core.catalog.results import result
from slipstream.core.catalog.sorting import array_kernel
from slipstream.core.catalog.table import define, ops
from slipstream.core.dispatch.entry import COMPOUND, LIBRARY, Entry
from slipstream.core.engine.tape import tape
from slipstream.core.kernels.cpu import linear_algebra as lapack
from slipstream.core.launch.waiting import asking_as
from slipstream.core.shapes.views import normalize_dim
from slipstream.core.vocab import dtypes
from slipstream.core.vocab.devices import CPU
from slipstream.core.vocab.modes import modes

INEXACT = ("float", "complex")
Eigh = result("linalg_eigh", "eigenvalues", "eigenvectors")
SVD = result("linalg_svd", "U", "S", "Vh")
QR = result("linalg_qr", "Q", "R")
Slogdet = result("slogdet", "sign", "logabsdet")


# -- shapes and checks ---------------------------------------------------------------------------
def _check(call: Any, square: bool) -> None:
    for tensor in call.tensors():
        spec = tensor.spec
        if spec.dtype.category < 2:
            raise call.error(RuntimeError, f"linalg: Expected a floating point or complex tensor "
                                           f"as input. Got {spec.dtype.name}")
        if spec.ndim < 2:
            raise call.error(RuntimeError, "linalg: The input tensor must have at least 2 "
                                           f"dimensions, but got {spec.ndim}")
    spec = call.spec("self")
    if square and spec.shape[-1] != spec.shape[-2]:
        raise call.error(RuntimeError, "linalg: A must be batches of square matrices, but they "
                                       f"are {spec.shape[-2]} by {spec.shape[-1]} matrices")


def _square(call: Any) -> None:
    _check(call, True)


def _any_matrix(call: Any) -> None:
    _check(call, False)


def _same(call: Any) -> Any:
    return [(call.spec("self").dtype, call.spec("self").shape)]


def _real(call: Any) -> Any:
    return call.spec("self").dtype.to_real()


def _svd_shapes(call: Any) -> Any:
    spec = call.spec("self")
    *lead, m, n = spec.shape
    k = min(m, n)
    rows, columns = (m, n) if call["full"] else (k, k)
    return [(spec.dtype, (*lead, m, rows)), (_real(call), (*lead, k)),
            (spec.dtype, (*lead, columns, n))]


def _qr_shapes(call: Any) -> Any:
    spec = call.spec("self")
    *lead, m, n = spec.shape
    k = m if call["mode"] == "complete" else min(m, n)
    return [(spec.dtype, (*lead, m, k)), (spec.dtype, (*lead, k, n))]


# -- pieces of gradients -------------------------------------------------------------------------
def _adjoint(x: Any) -> Any:
    return ops.transpose.call((conj(x), -2, -1), None)


def _column(x: Any) -> Any:
    return ops.unsqueeze.call((x, -1), None)


def _inverse_slope(g: Any, out: Any) -> Any:
    """-A^-H g A^-H."""
    turned = _adjoint(out)
    return -(turned @ g @ turned)


def _det_slope(g: Any, self: Any, out: Any) -> Any:
    """g conj(det) A^-H; of singular matrices by U (products of the other singular values) V^H."""
    share = _column(_column(g * conj(out)))
    if not ops.any.call((out == 0,), None).item():
        return share * _adjoint(ops.inverse.call((self,), None))
    u, s, vh = ops.svd_parts.call((_constant(self, "det of singular matrices"), False), None)
    count = s.spec.shape[-1]
    spread = ops.expand.call((ops.unsqueeze.call((s, -2), None), (*s.spec.shape, count)), None)
    eye = ops.eye.call((count,), {"dtype": s.spec.dtype, "device": s.spec.device})
    others = ops.prod.call((ops.where.call((eye == 1, 1.0, spread), None), -1), None)
    turn = conj(ops.det.call((u,), None) * ops.det.call((vh,), None))
    return _column(_column(g * turn)) * ((u * ops.unsqueeze.call((others, -2), None)) @ vh)


def _slogdet_slope(grads: Any, self: Any, out: Any) -> Any:
    """(g - i Im(conj(g_sign) sign)) A^-H; a real sign has no slope."""
    share = grads[1]
    if self.spec.dtype.is_complex:
        share = share - ops.imag.call((conj(grads[0]) * out,), None) * 1j
    return _column(_column(share)) * _adjoint(ops.inverse.call((self,), None))


def _cholesky_slope(g: Any, out: Any, upper: bool) -> Any:
    """(S + S^H) / 2 with S = L^-H P(L^H g) L^-1, P taking the triangle and half the diagonal."""
    lower, slope = (_adjoint(out), _adjoint(g)) if upper else (out, g)
    inner = ops.tril.call((_adjoint(lower) @ slope,), None)
    inner = inner - 0.5 * ops.diag_embed.call((ops.diagonal.call((inner, 0, -2, -1), None),), None)
    inverse = ops.inverse.call((lower,), None)
    found = _adjoint(inverse) @ inner @ inverse
    return (found + _adjoint(found)) * 0.5


def _eigh_slope(grads: Any, self: Any, out: Any, UPLO: str) -> Any:
    """V (diag(g_L) + (V^H g_V) / (L_j - L_i)) V^H."""
    turned = _adjoint(out)
    # The op read one triangle alone, and the other one may hold anything.
    keep, beyond = (ops.tril, -1) if UPLO in "Ll" else (ops.triu, 1)
    whole = keep.call((self,), None) + _adjoint(keep.call((self, beyond), None))
    values = ops.real.call((ops.diagonal.call((turned @ whole @ out, 0, -2, -1), None),), None)
    apart = ops.unsqueeze.call((values, -2), None) - _column(values)
    # Divided where it is not zero alone: the slope of 1 / 0 would be nan.
    same = apart == 0
    share = ops.where.call((same, 0.0, 1.0 / ops.where.call((same, 1.0, apart), None)), None)
    inner = (turned @ grads[0]) * share + ops.diag_embed.call((grads[1],), None)
    return out @ inner @ turned


def _qr_slope(grads: Any, self: Any, out: Any, mode: str) -> Any:
    """(g_Q + Q C) R^-H, C the triangle of R g_R^H - g_Q^H Q, mirrored."""
    rows, columns = self.spec.shape[-2:]
    if mode != "reduced" or rows < columns:
        raise NotImplementedError("linalg.qr has a gradient for mode='reduced' of matrices with "
                                  f"no more columns than rows, not for {self.spec!r}")
    r = _adjoint(out) @ self
    inner = r @ _adjoint(grads[1]) - _adjoint(grads[0]) @ out
    lower = ops.tril.call((inner, -1), None)
    mirrored = lower + _adjoint(lower) + ops.diag_embed.call(
        (ops.diagonal.call((inner, 0, -2, -1), None),), None)
    return (grads[0] + out @ mirrored) @ _adjoint(ops.inverse.call((r,), None))


def _constant(self: Any, what: str) -> Any:
    """The tensor outside the tape; NotImplementedError where its gradient is asked for."""
    if modes.current().grad_enabled and tape.requires_grad(self):
        raise NotImplementedError(f"the gradient of linalg.{what} is not there yet\n  mend: "
                                  "detach() the matrix, or use svdvals or eigh")
    return ops.detach.call((self,), None)


def _values_slope(g: Any, self: Any, out: Any) -> Any:
    """U diag(g) V^H; to be differentiated again as A V diag(g / S) V^H, V from A^H A."""
    if not modes.current().grad_enabled:
        u, _, vh = ops.svd_parts.call((self, False), None)
        return (u * ops.unsqueeze.call((g, -2), None)) @ vh
    wide = self.spec.shape[-2] < self.spec.shape[-1]
    matrix = _adjoint(self) if wide else self
    vectors = ops.eigh_parts.call((_adjoint(matrix) @ matrix, "L"), None)[0]
    vectors = ops.flip.call((vectors, (-1,)), None)
    found = matrix @ (vectors * ops.unsqueeze.call((g / out, -2), None)) @ _adjoint(vectors)
    return _adjoint(found) if wide else found


# -- what LAPACK computes ------------------------------------------------------------------------
def _kernel(function: Any, *names: str) -> Any:
    return array_kernel("LAPACK", lapack.lapack(function),
                        lambda call: tuple([call[name] for name in names]))


def _library(signature: str, function: Any, shape: Any, gradient: Any, doc: str,
             check: Any = _square) -> None:
    names = [word.split("=")[0].split()[-1] for word in signature.rstrip(")").split("(")[1].split(
        ",") if not word.strip().startswith("Tensor")]
    define(Entry(signature, LIBRARY, shape=shape, gradient=gradient, check=check, path="",
                 method=False, dtypes=INEXACT, doc=doc, host=True),
           cpu=_kernel(function, *names))


_library("inverse_of(Tensor self)", np.linalg.inv, _same, {"self": _inverse_slope},
         "The inverse.")
_library("det_of(Tensor self)", np.linalg.det,
         lambda call: [(call.spec("self").dtype, call.spec("self").shape[:-2])],
         {"self": _det_slope}, "The determinant.")
_library("slogdet_of(Tensor self)", lapack.slogdet,
         lambda call: [(call.spec("self").dtype, call.spec("self").shape[:-2]),
                       (_real(call), call.spec("self").shape[:-2])],
         {"self": _slogdet_slope}, "Sign and logarithm of the determinant.")
_library("cholesky_of(Tensor self, bool upper)", lapack.cholesky, _same,
         {"self": _cholesky_slope}, "The factor of a positive matrix.")
_library("eigh_parts(Tensor self, str UPLO)", lapack.eigh,
         lambda call: [*_same(call), (_real(call), call.spec("self").shape[:-1])],
         {"self": _eigh_slope}, "Eigenvectors and eigenvalues of a symmetric matrix.")
_library("svd_parts(Tensor self, bool full)", lapack.svd, _svd_shapes, {},
         "U, S and V^H; without gradient.", _any_matrix)
_library("singular_values(Tensor self)", lapack.singular_values,
         lambda call: [(_real(call), (*call.spec("self").shape[:-2],
                                      min(call.spec("self").shape[-2:])))],
         {"self": _values_slope}, "The singular values.", _any_matrix)
_library("qr_parts(Tensor self, str mode)", lapack.qr, _qr_shapes, {"self": _qr_slope},
         "Q and R.", _any_matrix)


def _solution(call: Any) -> Any:
    first, other = call.spec("self"), call.spec("other")
    lead = np.broadcast_shapes(first.shape[:-2], other.shape[:-2])
    return [(first.dtype, (*lead, first.shape[-1], other.shape[-1]))]


def _check_solve(call: Any) -> None:
    _square(call)
    first, other = call.spec("self"), call.spec("other")
    if first.dtype is not other.dtype:
        raise call.error(RuntimeError, "linalg.solve: Expected A and B to have the same dtype, but "
                                       f"found {first.dtype.name} and {other.dtype.name} instead")
    if first.shape[-1] != other.shape[-2]:
        raise call.error(RuntimeError, "linalg.solve: Incompatible shapes of A and B for the "
                                       f"equation AX = B ({list(first.shape[-2:])} and "
                                       f"{list(other.shape[-2:])})")


def _solved_back(g: Any, self: Any) -> Any:
    return ops.solve_for.call((_adjoint(self), g), None)


def _summed(value: Any, spec: Any) -> Any:
    return ops.sum_to.call((value, spec.shape), None)


define(Entry(
    "solve_for(Tensor self, Tensor other)", LIBRARY, shape=_solution, check=_check_solve,
    gradient={"self": lambda g, self, out, self_spec: _summed(
                  -(_solved_back(g, self) @ _adjoint(out)), self_spec),
              "other": lambda g, self, other_spec: _summed(_solved_back(g, self), other_spec)},
    path="", method=False, dtypes=INEXACT, doc="X with self X = other.", host=True,
), cpu=_kernel(np.linalg.solve))


# -- what users call -----------------------------------------------------------------------------
def _at_host(name: str, *args: Any) -> Any:
    """The op on the CPU, its results on the matrices' device."""
    device = args[0].spec.device
    if device.type != "cuda":
        return getattr(ops, name).call(args, None)
    moved = tuple([ops.to_device.call((each, CPU), None) if hasattr(each, "spec") else each
                   for each in args])
    found = getattr(ops, name).call(moved, None)
    if not isinstance(found, tuple):
        return ops.to_device.call((found, device), None)
    return tuple([ops.to_device.call((each, device), None) for each in found])


def _public(signature: str, function: Any, doc: str, **facts: Any) -> None:
    facts.setdefault("method", False)
    facts.setdefault("dtypes", INEXACT)
    named = asking_as(signature.partition("(")[0], function)
    define(Entry(signature, COMPOUND, function=named, doc=doc, waits="data", **facts))


def _regular() -> Any:
    x = samples.random_array(181, 2, 3, 3) * 0.3 + 2 * np.eye(3)
    return [((x,), {}), ((x[0],), {}), ((x[:0],), {})]


def _positive() -> Any:
    return [((x @ np.swapaxes(x, -1, -2) + np.eye(3),), {}) for ((x,), _) in _regular()]


def _tall() -> Any:
    x = samples.random_array(182, 2, 4, 3)
    return [((x,), {}), ((x[0].T,), {}), ((x[:0],), {})]


def _solve(self: Any, other: Any, left: bool) -> Any:
    if not left:
        turned = _solve(ops.transpose.call((self, -2, -1), None),
                        ops.transpose.call((other, -2, -1), None), True)
        return ops.transpose.call((turned, -2, -1), None)
    vector = other.spec.ndim == 1 or other.spec.shape == self.spec.shape[:-1]
    found = _at_host("solve_for", self, _column(other) if vector else other)
    return ops.squeeze.call((found, -1), None) if vector else found


def _svd(self: Any, full_matrices: bool) -> Any:
    return SVD(*_at_host("svd_parts", _constant(self, "svd"), full_matrices))


def _eigh(self: Any, UPLO: str) -> Any:
    if UPLO not in ("L", "U", "l", "u"):
        raise RuntimeError(f"Expected UPLO argument to be 'L' or 'U', but got {UPLO}")
    vectors, values = _at_host("eigh_parts", self, UPLO.upper())
    return Eigh(values, vectors)


def _qr(self: Any, mode: str) -> Any:
    if mode not in ("reduced", "complete", "r"):
        raise RuntimeError(f"qr received unrecognized mode '{mode}' but expected one of 'reduced' "
                           "(default), 'r', or 'complete'")
    q, r = _at_host("qr_parts", self, "reduced" if mode == "r" else mode)
    return QR(ops.empty.call(((0,),), {"dtype": q.spec.dtype}) if mode == "r" else q, r)


def _logdet(self: Any) -> Any:
    sign, size = _at_host("slogdet_of", self)
    if self.spec.dtype.is_complex:
        return ops.log.call((sign,), None) + size
    return ops.where.call((sign < 0, float("nan"), size), None)


def _matrix_power(self: Any, n: int) -> Any:
    _at_least_a_matrix(self, "matrix_power")
    power = _at_host("inverse_of", self) if n < 0 else self
    eye = ops.eye.call((self.spec.shape[-1],), {"dtype": self.spec.dtype,
                                                "device": self.spec.device})
    found = ops.expand.call((eye, self.spec.shape), None)
    for bit in reversed(f"{abs(n):b}"):
        found = found @ power if bit == "1" else found
        power = power @ power
    return found


def _at_least_a_matrix(self: Any, name: str) -> None:
    if self.spec.ndim < 2 or self.spec.shape[-1] != self.spec.shape[-2]:
        raise RuntimeError(f"linalg.{name}: A must be batches of square matrices, but got "
                           f"{self.spec!r}")


def _least(values: Any, shape: Any, atol: Any, rtol: Any) -> Any:
    """What counts as zero: max(atol, rtol * largest), rtol being eps * the larger size."""
    if rtol is None:
        own = np.finfo(np.float64 if values.spec.itemsize == 8 else np.float32).eps
        rtol = max(shape[-2:]) * float(own) if atol is None else 0.0
    largest = ops.narrow.call((values, -1, 0, 1), None)
    bound = largest * (_column(rtol) if hasattr(rtol, "spec") and rtol.spec.ndim else rtol)
    if atol is None:
        return bound
    return ops.clamp.call((bound, _column(atol) if hasattr(atol, "spec") else atol), None)


def _singular_sizes(self: Any, hermitian: bool, what: str) -> Any:
    """The singular values, falling; of a Hermitian matrix from one triangle of it."""
    constant = _constant(self, what)
    if not hermitian:
        return _at_host("singular_values", constant)
    sizes = ops.abs.call((_eigh(constant, "L")[0],), None)
    return ops.sort.call((sizes, -1, True), None)[0]


def _mirrored(self: Any) -> Any:
    """The Hermitian matrix of a lower triangle."""
    lower = ops.tril.call((self, -1), None)
    diagonal = ops.real.call((ops.diagonal.call((self, 0, -2, -1), None),), None)
    return lower + _adjoint(lower) + ops.diag_embed.call((diagonal,), None)


def _pinv(self: Any, atol: Any, rtol: Any, hermitian: bool) -> Any:
    u, s, vh = _svd(_mirrored(self) if hermitian else self, False)
    if not s.spec.numel:
        return _adjoint(vh) @ _adjoint(u)
    inverted = ops.where.call((s > _least(s, self.spec.shape, atol, rtol), 1.0 / s, 0.0), None)
    return (_adjoint(vh) * ops.unsqueeze.call((inverted, -2), None)) @ _adjoint(u)


def _matrix_rank(self: Any, tol: Any, hermitian: bool, atol: Any, rtol: Any) -> Any:
    values = _singular_sizes(self, hermitian, "matrix_rank")
    if not values.spec.shape[-1]:
        return ops.zeros.call((values.spec.shape[:-1],), {"dtype": dtypes.int64})
    atol = tol if atol is None else atol
    return ops.sum.call((values > _least(values, self.spec.shape, atol, rtol), -1), None)


def _multi_dot(tensors: Any) -> Any:
    if len(tensors) < 2:
        raise RuntimeError("multi_dot(): expected at least 2 tensors but got "
                           f"{len(tensors)}")
    found = tensors[0]
    for each in tensors[1:]:
        found = found @ each
    return found


_public("inverse(Tensor self)", lambda self: _at_host("inverse_of", self),
        "The inverse; LinAlgError of singular matrices.", path="inverse", method=True,
        aliases=("linalg.inv",), samples=_regular, reference=np.linalg.inv,
        autocast={"cpu": "float32"})
_public("det(Tensor self)", lambda self: _at_host("det_of", self), "The determinant.",
        path="det", method=True, aliases=("linalg.det",), samples=_regular,
        reference=np.linalg.det)
_public("slogdet(Tensor self)", lambda self: Slogdet(*_at_host("slogdet_of", self)),
        "The determinant's sign, and the logarithm of its size.", path="slogdet", method=True,
        aliases=("linalg.slogdet",), samples=_regular, reference=lapack.slogdet)
_public("logdet(Tensor self)", _logdet, "The logarithm of the determinant; nan of negative ones.",
        path="logdet", method=True, samples=_positive,
        reference=lambda x: np.log(np.linalg.det(x)))
_public("cholesky(Tensor self, *, bool upper=False)",
        lambda self, upper: _at_host("cholesky_of", self, upper),
        "L with L L^H = self, or L^H for ``upper``; LinAlgError where self is not positive.",
        path="linalg.cholesky", exceptions={"samples": "it reads one triangle of the matrix alone"},
        autocast={"cpu": "float32"})
_public("eigh(Tensor self, str UPLO='L')", _eigh,
        "Eigenvalues, rising, and eigenvectors of a symmetric or Hermitian matrix, of which one "
        "triangle is read.", path="linalg.eigh",
        exceptions={"samples": "it reads one triangle, and the signs of vectors are open"},
        autocast={"cpu": "float32"})
_public("eigvalsh(Tensor self, str UPLO='L')", lambda self, UPLO: _eigh(self, UPLO)[0],
        "The eigenvalues of a symmetric or Hermitian matrix, rising.", path="linalg.eigvalsh",
        exceptions={"samples": "it reads one triangle of the matrix alone"},
        autocast={"cpu": "float32"})
_public("svd(Tensor self, bool full_matrices=True)", _svd,
        "U, S and Vh with U diag(S) Vh = self, S falling; without gradient: NotImplementedError.",
        path="linalg.svd", exceptions={"samples": "the signs of vectors are open"},
        autocast={"cpu": "float32"})
_public("svdvals(Tensor self)", lambda self: _at_host("singular_values", self),
        "The singular values, falling.", path="linalg.svdvals", samples=_tall,
        reference=lapack.singular_values, autocast={"cpu": "float32"})
_public("qr(Tensor self, str mode='reduced')", _qr,
        "Q and R with Q R = self; modes 'reduced', 'complete' and 'r'.", path="linalg.qr",
        exceptions={"samples": "the signs of columns are open"}, autocast={"cpu": "float32"})
_public("solve(Tensor self, Tensor other, *, bool left=True)", _solve,
        "X with self X = other, or X self = other; other holds matrices or vectors.",
        path="linalg.solve",
        samples=lambda: [((x, samples.random_array(183, *x.shape[:-1], 2)), {})
                         for ((x,), _) in _regular()], reference=np.linalg.solve,
        autocast={"cpu": "float32"})
_public("pinv(Tensor self, *, any atol=None, any rtol=None, bool hermitian=False)", _pinv,
        "The pseudoinverse by the singular values above max(atol, rtol * largest); rtol is eps "
        "times the larger size where neither is given. Without gradient.",
        path="linalg.pinv", exceptions={"samples": "it has no gradient"},
        autocast={"cpu": "float32"})
_public("matrix_rank(Tensor self, any tol=None, bool hermitian=False, *, any atol=None, "
        "any rtol=None)", _matrix_rank,
        "How many singular values are above max(atol, rtol * largest); see pinv.",
        path="linalg.matrix_rank", exceptions={"samples": "it has no gradient"},
        autocast={"cpu": "float32"})
_public("matrix_power(Tensor self, int n)", _matrix_power,
        "The n-th power; of the inverse for negative n.", path="matrix_power", method=True,
        aliases=("linalg.matrix_power",),
        samples=lambda: [((x, n), {}) for ((x,), _) in _regular()[:2] for n in (0, 3, -2)],
        reference=np.linalg.matrix_power)
_public("multi_dot(Tensor... tensors)", _multi_dot, "Products from left to right.",
        path="linalg.multi_dot", exceptions={"samples": "its products are tested with matmul"},
        autocast={"cuda": "lower"})


# -- norms ---------------------------------------------------------------------------------------
def _matrix_norm(self: Any, ord: Any, dim: Any, keepdim: bool, dtype: Any) -> Any:
    if self.spec.ndim < 2:
        raise RuntimeError("linalg.matrix_norm: The input tensor must have at least 2 dimensions, "
                           f"but got {self.spec!r}")
    dims = tuple([normalize_dim(each, self.spec.ndim) for each in dim])
    if len(dims) != 2 or dims[0] == dims[1]:
        raise RuntimeError(f"linalg.matrix_norm: dim must be a 2-tuple of different dims, got "
                           f"{dim}")
    self = self if dtype is None else ops.cast.call((self, dtype), None)
    if self.spec.dtype.category < 2:
        raise RuntimeError("linalg.matrix_norm: Expected a floating point or complex tensor as "
                           f"input. Got {self.spec!r}")
    if ord == "fro":
        return ops.vector_norm.call((self, 2, dims, keepdim), None)
    found = _norm_of(ops.movedim.call((self, dims, (-2, -1)), None), ord)
    for each in sorted(dims) if keepdim else ():
        found = ops.unsqueeze.call((found, each), None)
    return found


def _norm_of(matrix: Any, ord: Any) -> Any:
    """A norm of the last two dims: of the singular values, or of the sums of columns or rows."""
    if ord in ("nuc", 2, -2):
        values = _at_host("singular_values", matrix)
        if ord == "nuc" or not values.spec.shape[-1]:
            return ops.sum.call((values, -1), None)
        return (ops.amax if ord == 2 else ops.amin).call((values, -1), None)
    if ord not in (1, -1, float("inf"), float("-inf")):
        raise RuntimeError(f"linalg.matrix_norm: Order {ord} not supported.")
    sums = ops.sum.call((ops.abs.call((matrix,), None), -2 if abs(ord) == 1 else -1), None)
    if ord > 0 and not sums.spec.shape[-1]:
        return ops.sum.call((sums, -1), None)
    return (ops.amax if ord > 0 else ops.amin).call((sums, -1), None)


def _any_norm(self: Any, ord: Any, dim: Any, keepdim: bool, dtype: Any) -> Any:
    """A matrix norm where ``ord`` and the dims make it one, else a vector norm."""
    count = self.spec.ndim if dim is None else len(dim) if isinstance(dim, (tuple, list)) else 1
    if isinstance(ord, str) or (ord is not None and count == 2):
        if count != 2:
            raise RuntimeError(f"linalg.norm: If ord={ord} is specified, input must be 1D or 2D "
                               f"or dim of length 2, got {self.spec!r}")
        return _matrix_norm(self, ord, (-2, -1) if dim is None else dim, keepdim, dtype)
    return ops.vector_norm.call((self, 2 if ord is None else ord, dim, keepdim), {"dtype": dtype})


def _orders() -> Any:
    x = samples.random_array(184, 3, 2, 4)
    return [((x, order), {}) for order in ("fro", "nuc", 1, -1, float("inf"), 2)] + [
        ((x, "nuc", (2, 0)), {"keepdim": True})]


def _matrix_norm_reference(x: Any, ord: Any = "fro", dim: Any = (-2, -1),
                           keepdim: bool = False) -> Any:
    return np.linalg.norm(x, ord, dim, keepdim)


_public("matrix_norm(Tensor self, any ord='fro', int[] dim=(-2, -1), bool keepdim=False, *, "
        "dtype? dtype=None)", _matrix_norm,
        "A norm of matrices: 'fro', 'nuc', 1, -1, 2, -2, inf or -inf.", path="linalg.matrix_norm",
        samples=_orders, reference=_matrix_norm_reference, autocast={"cuda": "float32"})
_public("general_norm(Tensor self, any ord=None, any dim=None, bool keepdim=False, *, "
        "dtype? dtype=None)", _any_norm,
        "matrix_norm where ord is given for two dims, else vector_norm.", path="linalg.norm",
        samples=lambda: [((samples.random_array(185, 2, 3), order), {})
                         for order in (None, 1, "nuc")],
        reference=lambda x, ord=None: np.linalg.norm(x, ord), autocast={"cuda": "float32"})

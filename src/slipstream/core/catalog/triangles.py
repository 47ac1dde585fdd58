# cython: annotation_typing=False
"""Triangles and diagonals of matrices, and grids of coordinates."""

from __future__ import annotations

from typing import Any

import numpy as np

from slipstream.core.catalog import reasons, samples
from slipstream.core.catalog.creation import TAIL, creation
from slipstream.core.catalog.table import define, ops
from slipstream.core.dispatch.entry import COMPOUND, Entry
from slipstream.core.dispatch.numbers import check_fits
from slipstream.core.dispatch.promotion import defaults
from slipstream.core.shapes.broadcast import broadcast_shapes
from slipstream.core.shapes.views import normalize_dim
from slipstream.core.vocab import dtypes
from slipstream.core.vocab.records import TensorBase


def compound(signature: str, function: Any, doc: str, **facts: Any) -> None:
    """An entry that calls other ops."""
    facts.setdefault("path", signature.partition("(")[0])
    define(Entry(signature, COMPOUND, function=function, doc=doc, **facts))


# -- triangles -----------------------------------------------------------------------------------
def _kept(self: Any, diagonal: int, upper: bool, name: str) -> Any:
    """A mask of the last two dims: the columns up to, or from, the row's diagonal."""
    spec = self.spec
    if spec.ndim < 2:
        raise RuntimeError(f"{name}: input tensor must have at least 2 dimensions: {spec!r}")
    place = {"device": spec.device}
    rows = ops.arange.call((diagonal, spec.shape[-2] + diagonal), place)
    rows = ops.unsqueeze.call((rows, 1), None)
    columns = ops.arange.call((spec.shape[-1],), place)
    return (ops.ge if upper else ops.le).call((columns, rows), None)


def _triangle(upper: bool) -> Any:
    name = "triu" if upper else "tril"

    def function(self: Any, diagonal: int) -> Any:
        zero = self.spec.dtype is not dtypes.bool_ and 0
        return ops.where.call((_kept(self, diagonal, upper, name), self, zero), None)

    return function


_reference: Any
for _name, _upper, _reference in (("tril", False, np.tril), ("triu", True, np.triu)):
    compound(f"{_name}(Tensor self, int diagonal=0)", _triangle(_upper),
             f"The {'upper' if _upper else 'lower'} triangle of the last two dims, zeros "
             "elsewhere; diagonal moves its edge.", inplace=True, out=True, reference=_reference,
             samples=samples.with_arguments(((3, 4), ()), ((4, 3), (1,)), ((2, 3, 3), (-1,))))


# -- diagonals -----------------------------------------------------------------------------------
def _diag_embed(self: Any, offset: int, dim1: int, dim2: int) -> Any:
    spec = self.spec
    rank = spec.ndim + 1
    first, second = normalize_dim(dim1, rank), normalize_dim(dim2, rank)
    if first == second:
        raise RuntimeError("diagonal dimensions cannot be identical "
                           f"{dim1}, {dim2}")
    size = spec.shape[-1] + abs(offset)
    shape = list(spec.shape[:-1])
    for dim in sorted((first, second)):
        shape.insert(dim, size)
    return ops.diagonal_spread.call((self, tuple(shape), offset, first, second), None)


def _diagonal_spread(self: Any, shape: Any, offset: int, dim1: int, dim2: int) -> Any:
    zeros = ops.new_zeros.call((self, shape), None)
    place = ops.diagonal.call((zeros, offset, dim1, dim2), None)
    ops.copy.call_inplace((place, self), None)
    return zeros


compound("diagonal_spread(Tensor self, any shape, int offset, int dim1, int dim2)",
         _diagonal_spread, "Zeros of a shape with the last dim on a diagonal.", path="",
         method=False)


def _diag_embed_reference(x: Any, offset: int = 0) -> Any:
    return np.stack([np.diag(row, offset) for row in x.reshape(-1, x.shape[-1])]).reshape(
        *x.shape[:-1], x.shape[-1] + abs(offset), x.shape[-1] + abs(offset))


compound("diag_embed(Tensor self, int offset=0, int dim1=-2, int dim2=-1)", _diag_embed,
         "The last dim on the diagonal of two new dims, zeros elsewhere.",
         samples=samples.with_arguments(((2, 3), ()), ((2, 3), (1,))),
         reference=_diag_embed_reference)


def _diag(self: Any, diagonal: int) -> Any:
    if self.spec.ndim == 1:
        return _diag_embed(self, diagonal, 0, 1)
    if self.spec.ndim != 2:
        raise RuntimeError(f"diag(): Supports 1D or 2D tensors. Got {self.spec.ndim}D")
    return ops.clone.call((ops.diagonal.call((self, diagonal, 0, 1), None),), None)


compound("diag(Tensor self, int diagonal=0)", _diag,
         "The diagonal of a matrix, or the matrix that has a vector on it.", reference=np.diag,
         out=True, samples=samples.with_arguments(((3, 4), ()), ((4,), ()), ((3, 3), (-1,))))
compound("diagflat(Tensor self, int offset=0)",
         lambda self, offset: _diag_embed(ops.reshape.call((self, (-1,)), None), offset, 0, 1),
         "The matrix that has all elements on its diagonal.", reference=np.diagflat,
         samples=samples.with_arguments(((2, 2), ()), ((3,), (1,))))
compound("trace(Tensor self)", lambda self: _trace(self), "The sum of a matrix's diagonal.",
         samples=samples.with_arguments(((3, 3), ()), ((2, 4), ())), reference=np.trace,
         autocast={"cpu": "float32", "cuda": "asleep"})


def _trace(self: Any) -> Any:
    if self.spec.ndim != 2:
        raise RuntimeError(f"trace: expected a matrix, but got tensor with dim {self.spec.ndim}")
    return ops.sum.call((ops.diagonal.call((self,), None),), None)


# -- new tensors ---------------------------------------------------------------------------------
def _fill_diagonal(self: Any, value: Any, wrap: bool) -> Any:
    """Only in place: the diagonal is every (sum of strides)-th element."""
    spec = self.spec
    if spec.ndim < 2:
        raise RuntimeError("fill_diagonal_: dimensions must be larger than 1")
    if spec.ndim > 2 and len(set(spec.shape)) > 1:
        raise RuntimeError("fill_diagonal_: all dimensions of input must be of equal length")
    size = min(spec.shape)
    step = sum(spec.strides)
    ops.fill.call_inplace((ops.strided_view.call((self, (size,), (step,), 0), None), value), None)
    rows, columns = spec.shape[:2]
    if wrap and spec.ndim == 2 and rows > columns + 1:
        # After one row left out the diagonal starts again.
        rest = ops.narrow.call((self, 0, columns + 1, rows - columns - 1), None)
        _fill_diagonal(rest, value, wrap)
    return self


compound("fill_diagonal_(Tensor self, Tensor|Number value, bool wrap=False)", _fill_diagonal,
         "Write the value on the main diagonal; with wrap again and again down a tall matrix.",
         path="", exceptions={"samples": "it only writes in place"})


def _eye(n: int, m: Any, *options: Any) -> Any:
    dtype, _, device, requires_grad, _ = options
    m = n if m is None else m
    if n < 0 or m < 0:
        raise RuntimeError(f"n must be greater or equal to 0, got {n if n < 0 else m}")
    zeros = ops.zeros.call(((n, m),), {"dtype": dtype, "device": device})
    ops.fill.call_inplace((ops.diagonal.call((zeros,), None), 1), None)
    return zeros.requires_grad_(True) if requires_grad else zeros


creation(f"eye(int n, int? m=None, *, {TAIL})", _eye, "Ones on the diagonal of a matrix of zeros.",
         samples=samples.plain_arguments((3,), (2, 3), (0,)), reference=np.eye)


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


def _spaced(start: Any, end: Any, steps: int, dtype: Any, device: Any) -> Any:
    """From both ends to the middle, so that both ends come out exactly."""
    if not isinstance(steps, int):
        raise TypeError("linspace(): argument 'steps' must be int, not "
                        f"{type(steps).__name__}")
    if steps < 0:
        raise RuntimeError("number of steps must be non-negative")
    start, end = _plain(start), _plain(end)
    for value in (start, end)[:steps]:
        check_fits(dtype or defaults.dtype, value)
    if dtype is not None and dtype.category == 1:
        start, end = int(start), int(end)
    wide = dtypes.complex128 if isinstance(start + end, complex) else dtypes.float64
    count = {"device": device}
    places = ops.cast.call((ops.arange.call((steps,), count), wide), None)
    if steps < 2:
        return places + start
    step = (end - start) / (steps - 1)
    return ops.where.call((ops.lt.call((ops.arange.call((steps,), count), steps // 2), None),
                           places * step + start,
                           (places - (steps - 1)) * step + end), None)


def _linspace(start: Any, end: Any, steps: int, *options: Any) -> Any:
    dtype, _, device, requires_grad, _ = options
    made = _spaced(start, end, steps, dtype, device)
    wanted = dtype or (defaults.dtype.to_complex() if made.spec.dtype.is_complex
                       else defaults.dtype)
    made = ops.cast.call((made, wanted), None)
    return made.requires_grad_(True) if requires_grad else made


def _logspace(start: Any, end: Any, steps: int, base: float, *options: Any) -> Any:
    dtype, _, device, requires_grad, _ = options
    exponents = _spaced(start, end, steps, dtype, device)
    made = ops.cast.call((ops.pow.call((float(base), exponents), None), dtype or defaults.dtype),
                         None)
    return made.requires_grad_(True) if requires_grad else made


creation(f"linspace(any start, any end, int steps, *, {TAIL})", _linspace,
         "Numbers at equal distances from start to end, both included.",
         samples=samples.plain_arguments((0, 1, 5), (-2.5, 3, 4), (3, 3, 1), (0, 1, 0)),
         exceptions=reasons.ROUNDED, reference=np.linspace)
creation(f"logspace(any start, any end, int steps, float base=10.0, *, {TAIL})", _logspace,
         "Powers of the base at equal distances of their exponents.",
         samples=samples.plain_arguments((0, 1, 5), (-1, 2, 4, 2.0)),
         reference=lambda start, end, steps, base=10.0: np.logspace(start, end, steps, base=base))


def _inside(upper: bool, diagonal: int, columns: int) -> int:
    """How many elements of a row lie in a triangle; ``diagonal``: the column of its edge."""
    before = min(max(diagonal, 0), columns)
    return columns - before if upper else min(max(diagonal + 1, 0), columns)


def _triangle_indices(upper: bool) -> Any:
    def function(row: int, col: int, offset: int, dtype: Any, layout: Any, device: Any) -> Any:
        whole = ops.ones.call(((row, col),), {"dtype": dtypes.bool_, "device": device})
        part = (ops.triu if upper else ops.tril).call((whole, offset), None)
        # How many there are is known: the device need not be asked.
        count = sum(_inside(upper, line + offset, col) for line in range(row))
        places = ops.true_places.call((part, count), None)
        places = ops.contiguous.call((ops.transpose.call((places, 0, 1), None),), None)
        return ops.cast.call((places, dtype or dtypes.int64), None)

    return function


for _name, _upper, _reference in (("tril_indices", False, np.tril_indices),
                                  ("triu_indices", True, np.triu_indices)):
    creation(f"{_name}(int row, int col, int offset=0, *, dtype? dtype=None, any layout=None, "
             "device? device=None)", _triangle_indices(_upper),
             doc="Rows and columns of a triangle's elements, int64[2, count].",
             samples=samples.plain_arguments((3, 3), (2, 4, 1)),
             reference=lambda row, col, offset=0, f=_reference: np.array(f(row, offset, col)))


def _meshgrid(tensors: Any, indexing: Any) -> Any:
    if indexing not in (None, "ij", "xy"):
        raise RuntimeError("meshgrid: indexing must be one of \"xy\" or \"ij\", but received: "
                           f"{indexing}")
    if not tensors:
        raise RuntimeError("meshgrid expects a non-empty TensorList")
    for tensor in tensors:
        if tensor.spec.ndim > 1:
            raise RuntimeError("meshgrid: Expected 0D or 1D tensor in the tensor list but "
                               f"got: {tensor.spec!r}")
        if tensor.spec.dtype is not tensors[0].spec.dtype:
            raise RuntimeError("meshgrid expects all tensors to have the same dtype")
    sizes = [tensor.spec.numel for tensor in tensors]
    order = list(range(len(sizes)))
    if indexing == "xy" and len(sizes) > 1:
        order[:2] = [1, 0]
    shape = [sizes[place] for place in order]
    found = []
    for place, tensor in enumerate(tensors):
        own = [sizes[place] if order[dim] == place else 1 for dim in range(len(sizes))]
        found.append(ops.expand.call((ops.reshape.call((tensor, tuple(own)), None), tuple(shape)),
                                     None))
    return tuple(found)


def listed(tensors: Any) -> list[Any]:
    """Tensors given one by one, or as one list."""
    if isinstance(tensors, TensorBase):
        return [tensors]
    if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)):
        return list(tensors[0])
    return list(tensors)


compound("meshgrid(Tensor... tensors, *, str? indexing=None)",
         lambda tensors, indexing: _meshgrid(listed(tensors), indexing),
         "The coordinates of a grid, one tensor for each vector.", method=False,
         samples=lambda: [(([samples.random_array(145, 3), samples.random_array(146, 2)],), {}),
                          (([samples.random_array(145, 3), samples.random_array(146, 2)],),
                           {"indexing": "xy"})],
         reference=lambda vectors, indexing="ij": np.meshgrid(*vectors, indexing=indexing))
compound("cartesian_prod(Tensor... tensors)", lambda tensors: _combinations(listed(tensors)),
         "All combinations of the vectors' elements, one a row.", method=False,
         samples=lambda: [(([samples.random_array(147, 3), samples.random_array(148, 2)],), {})],
         reference=lambda vectors: np.stack([each.reshape(-1) for each in np.meshgrid(
             *vectors, indexing="ij")], -1))


def _combinations(tensors: list[Any]) -> Any:
    if len(tensors) == 1:
        return tensors[0]
    grids = [ops.reshape.call((each, (-1,)), None) for each in _meshgrid(tensors, "ij")]
    return ops.stack.call((grids, -1), None)


def _broadcast_tensors(tensors: Any) -> Any:
    every = listed(tensors)
    shape = broadcast_shapes(*[tensor.spec.shape for tensor in every])
    return tuple([ops.expand.call((tensor, shape), None) for tensor in every])


compound("broadcast_tensors(Tensor... tensors)", _broadcast_tensors,
         "The tensors expanded to their common shape.", method=False,
         samples=lambda: [(([samples.random_array(149, 3, 1), samples.random_array(150, 2)],), {})],
         reference=lambda arrays: np.broadcast_arrays(*arrays))
compound("broadcast_to(Tensor self, int... size)",
         lambda self, size: ops.expand.call((self, size), None), "The tensor expanded to a shape.",
         samples=samples.with_arguments(((3, 1), ((2, 3, 4),)), ((), ((2,),))),
         reference=np.broadcast_to)

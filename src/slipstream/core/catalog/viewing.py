# cython: annotation_typing=False
"""Views: other geometries over the same storage."""

from __future__ import annotations

from typing import Any

import cython
import numpy as np

from slipstream.core.catalog import samples
from slipstream.core.catalog.table import define, ops, table
from slipstream.core.dispatch.arguments import ints
from slipstream.core.dispatch.entry import COMPOUND, VIEW, Entry
from slipstream.core.shapes import formats, views
from slipstream.core.shapes import strides as layouts
from slipstream.core.shapes.broadcast import reduce_dims_for
from slipstream.core.vocab import dtypes
from slipstream.core.vocab.dtypes import DType
from slipstream.core.vocab.records import OpBase, Spec, TensorBase


def inverse(dims: tuple[int, ...]) -> tuple[int, ...]:
    """The permutation that undoes another."""
    places = [0] * len(dims)
    for place, dim in enumerate(dims):
        places[dim % len(dims)] = place
    return tuple(places)


def view_op(signature: str, geometry: Any, gradient: Any, doc: str, **facts: Any) -> None:
    """An entry whose result shares the operand's storage."""
    facts.setdefault("path", signature.partition("(")[0])
    define(Entry(signature, VIEW, geometry=geometry, gradient={"self": gradient}, doc=doc, **facts))


def _viewed(spec: Any, size: Any) -> Any:
    return None if isinstance(size, DType) else views.view(spec.shape, spec.strides, ints(size))


def _squeezed(spec: Any, dim: Any) -> Any:
    dims = None if dim is None else ints(dim)
    return views.squeeze(spec.shape, spec.strides, dims)


def _reshaped(x: Any, size: Any) -> Any:
    return np.reshape(x, size)


def _as_dtype(self: Any, dtype: Any) -> Any:
    if dtype is self.spec.dtype:
        return ops.view.call((self, self.spec.shape), None)
    return ops.view_dtype.call((self, dtype), None)


_SHAPES = samples.with_arguments(((2, 6), ((3, -1),)), ((), ((1, 1),)), ((2, 3, 4), ((6, 4),)),
                                 ((0, 3), ((3, 0),)))
_PERMUTED = samples.with_arguments(((2, 3, 4), ((2, 0, -2),)), ((), ((),)), ((2, 3), ((1, 0),)))
_SWAPPED = samples.with_arguments(((2, 3, 4), (0, -1)), ((2, 3), (1, 1)), ((), (0, -1)))
_EXPANDED = samples.with_arguments(((3, 1), ((2, -1, 4),)), ((), ((2, 3),)), ((1, 0), ((5, 0),)))
def _reshaped_back(g: Any, self_spec: Any) -> Any:
    spec = cython.declare(Spec, self_spec)
    reshape = cython.declare(OpBase, table["reshape"])
    return reshape.call((g, spec.shape), None)


view_op("view(Tensor self, dtype|int... size)", _viewed,
        _reshaped_back,
        "The same elements in another shape; raises where strides do not allow it. Given a dtype, "
        "the same bytes as such elements, outside the tape.", path="", otherwise=_as_dtype,
        samples=_SHAPES, reference=_reshaped)


def _dtype_geometry(spec: Any, dtype: Any) -> Any:
    return (*views.view_dtype(spec.shape, spec.strides, spec.itemsize, dtype.itemsize), dtype)


def _real_geometry(spec: Any) -> Any:
    if not spec.dtype.is_complex:
        raise RuntimeError(f"view_as_real is only supported for complex tensors, not {spec!r}")
    return (*spec.shape, 2), (*[2 * step for step in spec.strides], 1), 0, spec.dtype.to_real()


def _complex_geometry(spec: Any) -> Any:
    if spec.dtype.category != 2 or spec.dtype is dtypes.bfloat16 or spec.itemsize < 4:
        raise RuntimeError("view_as_complex is only supported for float32 and float64 tensors, "
                           f"not {spec!r}")
    if not spec.shape or spec.shape[-1] != 2:
        raise RuntimeError(f"Tensor must have a last dimension of size 2, not {spec!r}")
    if spec.strides[-1] != 1 or any(step % 2 for step in spec.strides[:-1]):
        raise RuntimeError("Tensor must have a last dimension with stride 1, and even strides "
                           f"else, not {list(spec.strides)}\n  mend: contiguous() first")
    wide = spec.dtype.to_complex()
    return spec.shape[:-1], tuple([step // 2 for step in spec.strides[:-1]]), 0, wide


def _part_geometry(spec: Any, which: int) -> Any:
    if not spec.dtype.is_complex:
        raise RuntimeError(f"imag is not implemented for tensors with non-complex dtypes: {spec!r}")
    return spec.shape, tuple([2 * step for step in spec.strides]), which, spec.dtype.to_real()


def _complex_samples() -> Any:
    x = samples.random_array(141, 2, 3) + 1j * samples.random_array(142, 2, 3)
    return [((x,), {}), ((x[0, 0],), {}), ((x[:0],), {})]


define(Entry("view_dtype(Tensor self, dtype dtype)", VIEW, geometry=_dtype_geometry, path="",
             method=False, doc="The same bytes as elements of another dtype."))
view_op("view_as_real(Tensor self)", _real_geometry,
        lambda g: ops.view_as_complex(g.contiguous()),
        "A complex tensor's real and imaginary parts, as a new last dim of two.", method=False,
        dtypes=("complex",), samples=_complex_samples,
        reference=lambda x: np.stack([x.real, x.imag], -1))
view_op("view_as_complex(Tensor self)", _complex_geometry,
        lambda g: ops.view_as_real(g),
        "A last dim of two as the real and imaginary parts of complex numbers.", method=False,
        exceptions={"samples": "of the floats only float32 and float64 have complex dtypes"},
        autocast={"cpu": "float32"})
view_op("complex_part(Tensor self, int which)", _part_geometry,
        lambda g, which: g * 1j if which else g,
        "The real (0) or imaginary (1) parts.", path="", method=False, dtypes=("complex",),
        samples=lambda: [((*args, which), {}) for args, _ in _complex_samples()
                         for which in (0, 1)],
        reference=lambda x, which: x.imag if which else x.real)
def _squeeze_reference(x: Any, dim: Any = None) -> Any:
    dims = range(x.ndim) if dim is None else [d % x.ndim for d in ints(dim)]
    return np.squeeze(x, tuple(d for d in dims if x.shape[d] == 1))


def _sum_to_reference(x: Any, size: Any) -> Any:
    extra = x.ndim - len(size)
    dims = tuple(d for d in range(x.ndim) if d < extra or size[d - extra] != x.shape[d])
    return np.reshape(np.sum(x, dims), size)


def _flatten_reference(x: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
    if not x.ndim:
        return x.reshape(1)
    stop = end_dim % x.ndim + 1
    return x.reshape(*x.shape[:start_dim], -1, *x.shape[stop:])


def _transposed_back(g: Any, dim0: Any, dim1: Any) -> Any:
    transpose = cython.declare(OpBase, table["transpose"])
    return transpose.call((g, dim0, dim1), None)


view_op("permute(Tensor self, int... dims)",
        lambda spec, dims: views.permute(spec.shape, spec.strides, ints(dims)),
        lambda g, dims: g.permute(inverse(ints(dims))) if ints(dims) else g,
        "The dims in another order.", samples=_PERMUTED, reference=np.transpose)
view_op("transpose(Tensor self, int dim0, int dim1)",
        lambda spec, dim0, dim1: views.transpose(spec.shape, spec.strides, dim0, dim1),
        _transposed_back,
        "Two dims swapped.", aliases=("swapaxes", "swapdims"), samples=_SWAPPED,
        reference=lambda x, dim0, dim1: np.swapaxes(x, dim0, dim1) if x.ndim else x)
view_op("expand(Tensor self, int... size, *, bool implicit=False)",
        lambda spec, size, implicit: views.expand(spec.shape, spec.strides, ints(size)),
        lambda g, self_spec: ops.sum_to(g, self_spec.shape),
        "Dims of size one repeated without copying.", path="", samples=_EXPANDED,
        reference=lambda x, size: x * np.ones([1 if n == -1 else n for n in size], x.dtype))
view_op("squeeze(Tensor self, int[]? dim=None)", _squeezed,
        _reshaped_back,
        "Dims of size one left out.", samples=samples.with_arguments(
            ((1, 3, 1), ()), ((1, 3, 1), (0,)), ((1, 3, 1), (1,)), ((1, 3, 1), ((0, -1),)),
            ((), ())),
        reference=_squeeze_reference)
view_op("unsqueeze(Tensor self, int dim)",
        lambda spec, dim: views.unsqueeze(spec.shape, spec.strides, dim),
        lambda g, dim: g.squeeze(dim),
        "A dim of size one put in.", reference=np.expand_dims,
        samples=samples.with_arguments(((2, 3), (0,)), ((2, 3), (-1,)), ((), (0,)), ((0,), (1,))))
view_op("diagonal(Tensor self, int offset=0, int dim1=0, int dim2=1)",
        lambda spec, offset, dim1, dim2: views.diagonal(
            spec.shape, spec.strides, offset, dim1, dim2),
        lambda g, self_spec, offset, dim1, dim2: ops.diagonal_backward(
            g, self_spec, offset, dim1, dim2),
        "The diagonal of two dims, as the last dim.", reference=np.diagonal,
        samples=samples.with_arguments(((3, 4), ()), ((3, 4), (1,)), ((2, 3, 4), (-1, 0, 2))))
view_op("unfold(Tensor self, int dimension, int size, int step)",
        lambda spec, dimension, size, step: views.unfold(
            spec.shape, spec.strides, dimension, size, step),
        lambda g, self_spec, dimension, size, step: ops.unfold_backward(
            g, self_spec, dimension, size, step),
        "Windows of a dim, as a new last dim.", path="",
        samples=samples.with_arguments(((7,), (0, 3, 2)), ((3, 5), (1, 2, 1))),
        reference=lambda x, dim, size, step: np.take(
            np.lib.stride_tricks.sliding_window_view(x, size, dim),
            range(0, x.shape[dim] - size + 1, step), dim))
view_op("strided_view(Tensor self, int[] size, int[] stride, int delta)",
        lambda spec, size, stride, delta: (tuple(size), tuple(stride), delta),
        lambda g, self_spec, size, stride, delta: ops.strided_backward(
            g, self_spec, size, stride, delta),
        "Another geometry, delta elements from where the operand starts.", path="", method=False)
define(Entry("detach(Tensor self)", VIEW, geometry=lambda spec: (spec.shape, spec.strides, 0),
             path="", samples=samples.unary, reference=lambda x: x,
             doc="The same elements outside the tape."))


def _filled(g: Any, self_spec: Any, part: Any) -> Any:
    """Zeros of the operand's shape with the gradient in the part that the view showed."""
    zeros = ops.new_zeros(g, self_spec.shape)
    part(zeros).copy_(g)
    return zeros


def compound(signature: str, function: Any, doc: str = "", **facts: Any) -> None:
    """An entry that calls other ops."""
    facts.setdefault("path", signature.partition("(")[0])
    define(Entry(signature, COMPOUND, function=function, doc=doc, **facts))


def _unfold_backward(g: Any, spec: Any, dimension: int, size: int, step: int) -> Any:
    """Elements that several windows show add up."""
    if not spec.ndim:
        return ops.reshape.call((ops.sum.call((g,), None), ()), None)
    dim = dimension % spec.ndim
    starts = ops.arange.call((0, g.spec.shape[dim] * step, step), {"device": g.spec.device})
    within = ops.arange.call((size,), {"device": g.spec.device})
    places = ops.reshape.call((starts.unsqueeze(1) + within, (-1,)), None)
    windows = ops.flatten.call((ops.movedim.call((g, -1, dim + 1), None), dim, dim + 1), None)
    zeros = ops.new_zeros.call((g, spec.shape), None)
    return ops.index_add.call((zeros, dim, places, windows), None)


for _signature, _function in (
    ("unfold_backward(Tensor g, any self_spec, int dimension, int size, int step)",
     _unfold_backward),
    ("diagonal_backward(Tensor g, any self_spec, int offset, int dim1, int dim2)",
     lambda g, spec, offset, dim1, dim2: _filled(
         g, spec, lambda z: ops.diagonal.call((z, offset, dim1, dim2), None))),
):
    compound(_signature, _function, "Gradient of the view of the same name.", path="",
             method=False)


def _sum_to(g: Any, shape: Any) -> Any:
    """Sum over the dims that broadcasting from ``shape`` repeated."""
    shape = tuple(shape)
    if g.spec.shape == shape:
        return g
    dims = reduce_dims_for(g.spec.shape, shape)
    if len(dims) == len(g.spec.shape) - len(shape) and dims == tuple(range(len(dims))):
        # Nothing to keep: the result has memory of its own and the right shape at once.
        return ops.sum.call((g, dims), None)
    if dims:
        g = ops.sum.call((g, dims, True), None)
    return g if g.spec.shape == shape else ops.reshape.call((g, shape), None)


def _reshape(self: Any, shape: Any) -> Any:
    return ops.reshape.call((self, shape), None)


def _flatten(self: Any, start_dim: int, end_dim: int) -> Any:
    return _reshape(self, views.flatten_shape(self.spec.shape, start_dim, end_dim))


def _ravel(self: Any) -> Any:
    return _reshape(ops.contiguous.call((self,), None), (-1,))


def _t(self: Any) -> Any:
    if self.spec.ndim > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is "
                           f"{self.spec.ndim}D: {self.spec!r}")
    return ops.transpose.call((self, 0, 1), None) if self.spec.ndim == 2 else (
        ops.view.call((self, self.spec.shape), None))


def _as_strided(self: Any, size: Any, stride: Any, storage_offset: Any) -> Any:
    """Checked at every call: whether the geometry fits depends on the storage."""
    offset = self.offset if storage_offset is None else storage_offset
    spec = self.spec
    views.check_as_strided(tuple(size), tuple(stride), offset,
                           self.storage.nbytes // spec.itemsize)
    return ops.strided_view.call((self, tuple(size), tuple(stride), offset - self.offset), None)


def _strided_backward(g: Any, spec: Any, size: Any, stride: Any, delta: int) -> Any:
    """Elements that the view shows several times add up."""
    if not layouts.is_dense_non_overlapping(spec.shape, spec.strides):
        raise RuntimeError(f"as_strided of {spec!r} has no gradient: its elements overlap or have "
                           "gaps\n  mend: call contiguous() first")
    places = ops.arange.call((0, spec.numel), {"device": g.spec.device})
    buffer = ops.new_zeros.call((g, (max(spec.numel, 1),)), None)
    index = _as_strided(places, size, stride, delta) if spec.numel else places
    flat = ops.reshape.call((index, (-1,)), None)
    total = ops.index_put.call((buffer, [flat], ops.reshape.call((g, (-1,)), None), True), None)
    return _as_strided(total, spec.shape, spec.strides, 0)


compound("strided_backward(Tensor g, any self_spec, int[] size, int[] stride, int delta)",
         _strided_backward, "Gradient of strided_view.", path="", method=False)
compound("as_strided(Tensor self, int[] size, int[] stride, int? storage_offset=None)",
         _as_strided, "Any geometry over the storage, checked against its size.",
         exceptions={"samples": "it reads the storage, whose layout its operand does not tell"})
compound("sum_to(Tensor self, int[] size)", _sum_to, "Sum to a shape that broadcasts to this one.",
         path="", reference=_sum_to_reference,
         samples=samples.with_arguments(((2, 3, 4), ((3, 1),)), ((2, 3), ((2, 3),)), ((3,), ((),))))
compound("sum_to_size(Tensor self, int... size)",
         lambda self, size: ops.sum_to.call((self, ints(size)), None),
         "Sum to a shape, given as sizes or as one tuple, that broadcasts to this one.",
         path="", reference=_sum_to_reference,
         samples=samples.with_arguments(((2, 3, 4), ((3, 1),)), ((2, 3), ((2, 3),)), ((3,), ((),))))
def _reshape_geometry(spec: Any, shape: Any) -> Any:
    """The geometry where strides allow a view, else None."""
    sizes = views.infer_shape(spec.numel, ints(shape))
    strides = views.view_strides(spec.shape, spec.strides, sizes)
    return None if strides is None else (sizes, strides, 0)


def _reshaped_copy(self: Any, shape: Any) -> Any:
    copy = ops.clone.call((self,), {"memory_format": formats.contiguous_format})
    return ops.view.call((copy, views.infer_shape(self.spec.numel, ints(shape))), None)


view_op("reshape(Tensor self, int... shape)", _reshape_geometry,
        _reshaped_back,
        "The same elements in another shape: a view where strides allow it, else a copy.",
        otherwise=_reshaped_copy, samples=_SHAPES, reference=_reshaped)
compound("flatten(Tensor self, int start_dim=0, int end_dim=-1)", _flatten,
         "Dims from start_dim to end_dim made one.",
         samples=samples.with_arguments(((2, 3, 4), ()), ((2, 3, 4), (1,)), ((2, 3, 4), (0, 1)),
                                        ((), ())),
         reference=_flatten_reference)
compound("ravel(Tensor self)", _ravel, "All dims made one, elements without gaps.",
         samples=samples.with_arguments(((2, 3, 4), ()), ((3,), ()), ((), ()), ((2, 0), ())),
         reference=np.ravel)
compound("t(Tensor self)", _t, "A matrix transposed.", reference=np.transpose,
         samples=samples.with_arguments(((2, 3), ()), ((4,), ()), ((), ())))
compound("conj(Tensor self)",
         lambda self: (ops.conj_physical.call((self,), None) if self.spec.dtype.is_complex
                       else self),
         "The complex conjugate, in memory of its own; a real tensor itself.",
         samples=_complex_samples, reference=np.conj)


def _itself(self: Any) -> Any:
    """The tensor; TypeError for anything else."""
    if not isinstance(self, TensorBase):
        raise TypeError(f"expected a Tensor, but got {type(self).__name__}")
    return self


for _name in ("resolve_conj", "resolve_neg"):
    compound(f"{_name}(Tensor self)", _itself,
             "The tensor itself: conjugates and negatives are always carried out.",
             samples=_complex_samples, reference=np.positive)
compound("real(Tensor self)",
         lambda self: (ops.complex_part.call((self, 0), None) if self.spec.dtype.is_complex
                       else self),
         "The real parts, as a view; a real tensor itself.", method=False,
         samples=_complex_samples, reference=np.real)
compound("imag(Tensor self)", lambda self: ops.complex_part.call((self, 1), None),
         "The imaginary parts, as a view; RuntimeError for a real tensor.", method=False,
         dtypes=("complex",), samples=_complex_samples, reference=np.imag)
compound("expand_as(Tensor self, Tensor other)",
         lambda self, other: ops.expand.call((self, other.spec.shape), None),
         "Expanded to the shape of other.", path="",
         samples=samples.alike(((3, 1), (2, 3, 4)), ((), (2,))),
         reference=lambda x, other: np.broadcast_to(x, other.shape))
compound("view_as(Tensor self, Tensor other)",
         lambda self, other: ops.view.call((self, other.spec.shape), None),
         "Viewed in the shape of other.", path="", samples=samples.alike(((2, 6), (3, 4))),
         reference=lambda x, other: _reshaped(x, other.shape))
compound("reshape_as(Tensor self, Tensor other)",
         lambda self, other: _reshape(self, other.spec.shape),
         "Reshaped to the shape of other.", path="", samples=samples.alike(((2, 6), (3, 4))),
         reference=lambda x, other: _reshaped(x, other.shape))
compound("movedim(Tensor self, int[] source, int[] destination)",
         lambda self, source, destination: ops.permute.call(
             (self, views.movedim_order(self.spec.ndim, source, destination)), None),
         "Dims moved to other places.", aliases=("moveaxis",), reference=np.moveaxis,
         samples=samples.with_arguments(((2, 3, 4), (0, -1)), ((2, 3, 4), ((0, 1), (2, 0)))))
LAYOUTS = layouts

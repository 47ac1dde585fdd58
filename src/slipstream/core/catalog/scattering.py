"""Indices along one dim: gather and scatter, index_select and index_add, embedding, one_hot."""

from __future__ import annotations

from typing import Any

import numpy as np

from slipstream.core.catalog import indexing_samples, samples
from slipstream.core.catalog.indexing import copy_of, same_shape
from slipstream.core.catalog.masks import readable
from slipstream.core.catalog.table import define, ops
from slipstream.core.dispatch.entry import COMPOUND, INDEX, Entry, passed_on
from slipstream.core.dispatch.registry import Candidate
from slipstream.core.kernels.cpu.gathering import GatherBinding
from slipstream.core.kernels.cpu.gathering_arrays import IndexOperand
from slipstream.core.kernels.cpu.indexing import ReadKernel, ScatterProductKernel, WriteKernel
from slipstream.core.shapes.broadcast import broadcast_shapes
from slipstream.core.shapes.views import normalize_dim
from slipstream.core.vocab import dtypes
from slipstream.core.vocab.devices import CPU
from slipstream.core.vocab.records import TensorBase


# -- gather, scatter -----------------------------------------------------------------------------
def _along(kind: str, own: Any, other: tuple[int, ...], index: Any, dim: int) -> GatherBinding:
    """The walk over an index tensor's shape; a scalar tensor counts as a vector of one."""
    scalar = not own.ndim
    shape = index.shape or (1,)
    strides = (0,) if scalar else own.strides
    size, step = (1, 0) if scalar else (own.shape[dim], own.strides[dim])
    moved = (*strides[:dim], 0, *strides[dim + 1:])
    operand = IndexOperand(index.strides or (0,), step, size, index.itemsize, False, dim)
    target, source = (other, moved) if kind == "read" else (moved, other)
    return GatherBinding(own.dtype, shape, target, source, (operand,), kind)


def _dim(call: Any) -> int:
    return normalize_dim(call["dim"], call.spec("self").ndim)


def _check_along(call: Any) -> None:
    own, index = call.spec("self"), call.spec("index")
    name = call.op.name
    if index.numel and index.dtype not in (dtypes.int64, dtypes.int32):
        raise call.error(RuntimeError, f"{name}(): Expected dtype int32/int64 for index")
    dim = _dim(call)
    if max(own.ndim, 1) != max(index.ndim, 1) and index.numel:
        raise call.error(RuntimeError, "Index tensor must have the same number of dimensions as "
                                       "input tensor")
    if not index.numel or not own.ndim or not index.ndim:
        return
    for place, size in enumerate(index.shape):
        if place != dim and size > own.shape[place]:
            raise call.error(RuntimeError, f"Size does not match at dimension {place} expected "
                                           f"index {list(index.shape)} to be no larger than self "
                                           f"{list(own.shape)} apart from dimension {dim}")


def _check_source(call: Any) -> None:
    """Raise unless the source has self's dtype and covers the index."""
    _check_along(call)
    own, index, source = call.spec("self"), call.spec("index"), call["src"]
    if not isinstance(source, TensorBase):
        return
    name = call.op.name
    if source.spec.dtype is not own.dtype:
        raise call.error(RuntimeError, f"{name}(): Expected self.dtype to be equal to src.dtype")
    if not index.numel:
        return
    if max(source.spec.ndim, 1) != max(index.ndim, 1):
        raise call.error(RuntimeError, "Index tensor must have the same number of dimensions as "
                                       "src tensor")
    pairs = zip(index.shape or (1,), source.spec.shape or (1,), strict=True)
    if any(size > limit for size, limit in pairs):
        raise call.error(RuntimeError, f"Expected index {list(index.shape)} to be no larger than "
                                       f"self {list(own.shape)} apart from dimension {_dim(call)} "
                                       f"and to be no larger than src {list(source.spec.shape)}")


def _gather_kernel(plan: Any, call: Any) -> ReadKernel:
    out = plan.out_spec
    binding = _along("read", call.spec("self"), out.strides or (0,), call.spec("index"), _dim(call))
    return ReadKernel("gather", binding, RuntimeError, call.form != 0)


def _scatter_kernel(plan: Any, call: Any) -> Any:
    reduce = call.arguments.get("reduce")
    if call.op.name == "scatter_add":
        reduce = "add"
    out, index, source = plan.out_spec, call.spec("index"), call["src"]
    if reduce == "multiply":
        size = out.shape[_dim(call)] if out.ndim else 1
        return ScatterProductKernel(_dim(call), size, call.form != 1)
    strides = (0,) * max(out.ndim, 1)
    if not index.numel:
        # It writes nothing, whatever its rank and dtype.
        index = _Empty(max(out.ndim, 1))
    elif isinstance(source, TensorBase):
        strides = source.spec.strides or (0,)
    kind = "add" if reduce == "add" else "write"
    binding = _along(kind, out, strides, index, _dim(call))
    return WriteKernel("scatter", binding, RuntimeError, copy_of(plan, call))


class _Empty:
    """Stands for the spec of an index without elements, of another tensor's rank."""

    itemsize = 8

    def __init__(self, rank: int) -> None:
        self.shape = (0,) * rank
        self.strides = (0,) * rank


def _scatter_check(call: Any) -> None:
    _check_source(call)
    reduce = call["reduce"]
    if reduce not in (None, "add", "multiply"):
        raise call.error(RuntimeError, "reduce argument must be either add or multiply.")


def _scatter_self(g: Any, dim: int, index: Any, reduce: Any) -> Any:
    """What was overwritten gets no gradient; what was added to keeps it."""
    if reduce == "multiply":
        raise RuntimeError("scatter() with reduce='multiply' has no gradient")
    return g if reduce == "add" else ops.scatter.call((g, dim, index, 0), None)


def _source_part(g: Any, dim: int, index: Any, src_spec: Any) -> Any:
    """The gradient of a source, of which only the part that the index covers was read."""
    part = ops.gather.call((g, dim, index), None)
    if part.spec.shape == src_spec.shape:
        return part
    whole = ops.new_zeros.call((g, src_spec.shape), None)
    if not part.spec.numel:
        return whole
    pattern = tuple([(size, 1) for size in part.spec.shape])
    place = ops.basic_index.call((whole, pattern, (0,) * len(pattern)), None)
    ops.copy.call_inplace((place, part), None)
    return whole


def gather_reference(x: Any, dim: int, index: Any) -> Any:
    """gather in NumPy."""
    rest = tuple(slice(0, n) if place != dim % x.ndim else slice(None)
                 for place, n in enumerate(index.shape))
    return np.take_along_axis(x[rest], index, dim)


def scatter_reference(x: Any, dim: int, index: Any, src: Any, adds: bool = False) -> Any:
    """scatter and scatter_add in NumPy."""
    out = x.copy()
    places = list(np.indices(index.shape))
    places[dim] = index
    if adds:
        np.add.at(out, tuple(places), src)
    else:
        out[tuple(places)] = src
    return out


define(Entry(
    "gather(Tensor self, int dim, Tensor index, *, bool sparse_grad=False)", INDEX,
    shape=lambda call: [(call.spec("self").dtype, call.spec("index").shape)], check=_check_along,
    gradient={"self": lambda g, self_spec, dim, index: ops.scatter_add.call(
        (ops.new_zeros.call((g, self_spec.shape), None), dim, index, g), None)},
    path="gather", out=True, samples=samples.along, reference=gather_reference,
    doc="out[i][j][k] = self[i][index[i][j][k]][k] for dim 1; RuntimeError for an index that is "
        "out of range; negative ones are.",
), cpu=Candidate("gather loops", _gather_kernel), cuda="indexing.read")
define(Entry(
    "scatter(Tensor self, int dim, Tensor index, Tensor|Number src, *, str? reduce=None)", INDEX,
    shape=same_shape, check=_scatter_check, path="scatter", inplace=True, out=True, stores=("src",),
    gradient={"self": _scatter_self, "src": _source_part},
    samples=samples.along_with_source, reference=scatter_reference,
    doc="self with self[i][index[i][j][k]][k] = src[i][j][k] for dim 1; the last duplicate wins; "
        "reduce: 'add' or 'multiply'.",
), cpu=Candidate("scatter loops", _scatter_kernel), cuda="indexing.write")
define(Entry(
    "scatter_add(Tensor self, int dim, Tensor index, Tensor src)", INDEX, shape=same_shape,
    check=_check_source, path="scatter_add", inplace=True, out=True,
    gradient={"self": passed_on, "src": _source_part},
    samples=samples.along_with_source,
    reference=lambda x, dim, index, src: scatter_reference(x, dim, index, src, True),
    doc="self with src added, in index order, at indices along a dim.",
    autocast={"cuda": "widest"},
), cpu=Candidate("scatter loops", _scatter_kernel), cuda="indexing.write")


def _take_along_dim(self: Any, indices: Any, dim: Any) -> Any:
    if dim is None:
        flat = ops.reshape.call((self, (-1,)), None)
        return ops.gather.call((flat, 0, ops.reshape.call((indices, (-1,)), None)), None)
    if indices.spec.dtype.category != 1 or indices.spec.dtype is dtypes.uint8:
        raise RuntimeError("take_along_dim(): dtype of indices should be Long but got "
                           f"{indices.spec.dtype.name}")
    if self.spec.ndim != indices.spec.ndim:
        raise RuntimeError("take_along_dim(): input and indices should have the same number of "
                           f"dimensions, but got {self.spec.ndim} dimensions for input, and "
                           f"{indices.spec.ndim} dimensions for indices")
    dim = normalize_dim(dim, self.spec.ndim)
    own, index = self.spec.shape, indices.spec.shape
    rest = broadcast_shapes((*own[:dim], 1, *own[dim + 1:]), (*index[:dim], 1, *index[dim + 1:]))
    wide = ops.expand.call((self, (*rest[:dim], own[dim], *rest[dim + 1:])), None)
    size = own[dim]
    wrapped = ops.where.call((ops.lt.call((indices, 0), None),
                              ops.add.call((indices, size), None), indices), None)
    places = ops.expand.call((wrapped, (*rest[:dim], index[dim], *rest[dim + 1:])), None)
    return ops.gather.call((wide, dim, places), None)


define(Entry("take_along_dim(Tensor self, Tensor indices, int? dim=None)", COMPOUND,
             function=_take_along_dim, path="take_along_dim",
             samples=lambda: [((args[0], args[2], args[1]), {}) for args, _ in samples.along()[:2]],
             reference=np.take_along_axis,
             doc="gather where the other dims broadcast; without dim over all elements."))


# -- index_select and its kin --------------------------------------------------------------------
def _check_vector(call: Any) -> None:
    index = call.spec("index")
    if index.ndim > 1:
        raise call.error(IndexError, f"{call.op.name}(): Index is supposed to be a vector")
    if index.dtype not in (dtypes.int64, dtypes.int32):
        raise call.error(RuntimeError, f"{call.op.name}(): Expected dtype int32 or int64 for index")
    if not call.spec("self").ndim and index.numel != 1:
        raise call.error(IndexError, f"{call.op.name}(): Index to scalar can have only 1 value, "
                                     f"got {index.numel} value(s)")
    _dim(call)


def _selected_shape(call: Any) -> Any:
    own = call.spec("self")
    if not own.ndim:
        return [(own.dtype, ())]
    dim = _dim(call)
    return [(own.dtype, (*own.shape[:dim], call.spec("index").numel, *own.shape[dim + 1:]))]


def _vector_walk(kind: str, own: Any, other: tuple[int, ...], index: Any, dim: int,
                 shape: tuple[int, ...]) -> GatherBinding:
    """The walk of a vector of indices along one dim."""
    strides = own.strides or (0,)
    size, step = (own.shape[dim], own.strides[dim]) if own.ndim else (1, 0)
    moved = (*strides[:dim], 0, *strides[dim + 1:])
    steps = [0] * max(own.ndim, 1)
    steps[dim] = index.strides[0] if index.ndim else 0
    operand = IndexOperand(tuple(steps), step, size, index.itemsize, False, dim)
    target, source = (other, moved) if kind == "read" else (moved, other)
    return GatherBinding(own.dtype, shape or (1,), target, source, (operand,), kind)


def _select_kernel(plan: Any, call: Any) -> ReadKernel:
    out = plan.out_spec
    binding = _vector_walk("read", call.spec("self"), out.strides or (0,), call.spec("index"),
                           _dim(call), out.shape)
    return ReadKernel("index_select", binding, IndexError, call.form != 0)


def _check_vector_source(call: Any) -> None:
    _check_vector(call)
    own, index, source = call.spec("self"), call.spec("index"), call.spec("source")
    if source.dtype is not own.dtype:
        # index_sum is index_add's own, without alpha.
        name = call.op.name.replace("index_sum", "index_add")
        raise call.error(RuntimeError, f"{name}(): self ({own.dtype.name}) and source "
                                       f"({source.dtype.name}) must have the same scalar type")
    dim = _dim(call)
    found = source.shape[dim] if source.ndim > dim else 1
    if index.numel != found:
        raise call.error(RuntimeError, f"{call.op.name}(): Number of indices ({index.numel}) should"
                                       f" be equal to source.size(dim): ({found}), for dim: {dim}")
    if own.ndim and source.ndim:
        wanted = (*own.shape[:dim], index.numel, *own.shape[dim + 1:])
        if source.shape != wanted:
            raise call.error(RuntimeError, f"{call.op.name}(): Source/destination tensor must have "
                                           "same slice shapes. Destination slice shape: "
                                           f"{list(wanted)}, source: {list(source.shape)}")


def _vector_write(kind: str) -> Any:
    def make(plan: Any, call: Any) -> WriteKernel:
        out, source = plan.out_spec, call.spec("source")
        shape = _selected_shape(call)[0][1]
        strides = source.strides if source.ndim else (0,) * max(out.ndim, 1)
        if not out.ndim:
            strides = (0,)
        binding = _vector_walk(kind, out, strides, call.spec("index"), _dim(call), shape)
        return WriteKernel(call.op.name, binding, IndexError, copy_of(plan, call))

    return make


define(Entry(
    "index_select(Tensor self, int dim, Tensor index)", INDEX, shape=_selected_shape,
    check=_check_vector, path="index_select", out=True, samples=samples.vectors,
    gradient={"self": lambda g, self_spec, dim, index: ops.index_sum.call(
        (ops.new_zeros.call((g, self_spec.shape), None), dim, index, g), None)},
    reference=lambda x, dim, index: np.take(x, index, dim),
    doc="Indices of a dim in a vector's order; IndexError for one that is out of range.",
), cpu=Candidate("gather loops", _select_kernel), cuda="indexing.read")
define(Entry(
    "index_sum(Tensor self, int dim, Tensor index, Tensor source)", INDEX, shape=same_shape,
    check=_check_vector_source, path="", method=False, inplace=True,
    gradient={"self": passed_on, "source": lambda g, dim, index: ops.index_select.call(
        (g, dim, index), None)},
    doc="index_add without alpha.",
), cpu=Candidate("scatter loops", _vector_write("add")), cuda="indexing.write")
define(Entry(
    "index_copy(Tensor self, int dim, Tensor index, Tensor source)", INDEX, shape=same_shape,
    check=_check_vector_source, path="index_copy", inplace=True, out=True,
    samples=indexing_samples.vector_writes, reference=indexing_samples.written,
    gradient={"self": lambda g, dim, index: ops.index_fill.call((g, dim, index, 0), None),
              "source": lambda g, dim, index: ops.index_select.call((g, dim, index), None)},
    doc="self with the source's indices of a dim at those of a vector; the last duplicate wins.",
    autocast={"cpu": "widest"},
), cpu=Candidate("scatter loops", _vector_write("write")), cuda="indexing.write")


def _scaled(source: Any, alpha: Any) -> Any:
    return source if type(alpha) is int and alpha == 1 else ops.mul.call((source, alpha), None)


def _index_filled(self: Any, dim: int, index: Any, value: Any, inplace: bool) -> Any:
    """A mask of the indices of the dim, then a masked fill: a duplicate counts once."""
    dim = normalize_dim(dim, self.spec.ndim)
    if index.spec.ndim > 1:
        raise IndexError("index_fill_(): Index is supposed to be a vector")
    if isinstance(value, TensorBase) and value.spec.ndim:
        raise RuntimeError("index_fill_ only supports a 0-dimensional value tensor, but got tensor "
                           f"with {value.spec.ndim} dimension(s).")
    size = self.spec.shape[dim] if self.spec.ndim else 1
    none = ops.new_zeros.call((self, (size,)), {"dtype": dtypes.bool_})
    mask = ops.index_write.call((none, [index], True, ((0,), 0, ()), False), None)
    wide = (1,) * dim + (size,) + (1,) * (self.spec.ndim - dim - 1)
    mask = ops.reshape.call((mask, wide if self.spec.ndim else ()), None)
    form = ops.masked_fill.call_inplace if inplace else ops.masked_fill.call
    return form((self, mask, value), None)


def compound(signature: str, function: Any, doc: str, **facts: Any) -> None:
    """An entry that calls other ops."""
    facts.setdefault("path", signature.partition("(")[0])
    define(Entry(signature, COMPOUND, function=function, doc=doc, **facts))


compound("index_add(Tensor self, int dim, Tensor index, Tensor source, *, Number alpha=1)",
         lambda self, dim, index, source, alpha: ops.index_sum.call(
             (self, dim, index, _scaled(source, alpha)), None),
         "self with alpha * source added at a vector of indices of a dim.",
         samples=indexing_samples.vector_writes, reference=indexing_samples.added)
compound("index_add_(Tensor self, int dim, Tensor index, Tensor source, *, Number alpha=1)",
         lambda self, dim, index, source, alpha: ops.index_sum.call_inplace(
             (self, dim, index, _scaled(source, alpha)), None),
         "index_add in place.", path="")
compound("index_fill(Tensor self, int dim, Tensor index, any value)",
         lambda self, dim, index, value: _index_filled(self, dim, index, value, False),
         "self with a value at a vector of indices of a dim.",
         samples=indexing_samples.vector_fills, reference=indexing_samples.written)
compound("index_fill_(Tensor self, int dim, Tensor index, any value)",
         lambda self, dim, index, value: _index_filled(self, dim, index, value, True),
         "index_fill in place.", path="")
compound("take(Tensor self, Tensor index)",
         lambda self, index: ops.index_read.call(
             (ops.reshape.call((self, (-1,)), None), [index], ((0,), 0, ())), None),
         "Elements of the tensor as if it were a vector, in the shape of index.",
         samples=indexing_samples.flat_places, reference=np.take)


# -- embedding, one_hot --------------------------------------------------------------------------
def _table_gradient(g: Any, indices: Any, weight_spec: Any, padding_idx: int,
                    scale_grad_by_freq: bool) -> Any:
    """Rows of g summed at their indices; those of the padding are left out."""
    flat = ops.reshape.call((indices, (-1,)), None)
    rows = ops.reshape.call((g, (flat.spec.numel, *weight_spec.shape[1:])), None)
    if padding_idx >= 0:
        away = ops.unsqueeze.call((ops.eq.call((flat, padding_idx), None), 1), None)
        rows = ops.masked_fill.call((rows, away, 0), None)
    if scale_grad_by_freq:
        ones = ops.new_ones.call((rows, (flat.spec.numel,)), None)
        counts = ops.index_sum.call(
            (ops.new_zeros.call((rows, weight_spec.shape[:1]), None), 0, flat, ones), None)
        share = ops.index_select.call((counts, 0, flat), None)
        rows = ops.div.call((rows, ops.unsqueeze.call((share, 1), None)), None)
    zeros = ops.new_zeros.call((g, weight_spec.shape), None)
    return ops.index_sum.call((zeros, 0, flat, rows), None)


def _rows_kernel(plan: Any, call: Any) -> ReadKernel:
    table, index = call.spec("weight"), call.spec("indices")
    out = plan.out_spec
    operand = IndexOperand((*index.strides, 0), table.strides[0], table.shape[0], index.itemsize)
    binding = GatherBinding(table.dtype, out.shape, out.strides,
                            ((0,) * index.ndim) + (table.strides[1],), (operand,), "read")
    return ReadKernel("embedding", binding, IndexError)


def _check_table(call: Any) -> None:
    if call.spec("weight").ndim != 2:
        raise call.error(RuntimeError, "'weight' must be 2-D")
    if call.spec("indices").dtype not in (dtypes.int64, dtypes.int32):
        raise call.error(RuntimeError, "Expected tensor for argument 'indices' to have one of the "
                                       "following scalar types: Long, Int; but got "
                                       f"{call.spec('indices').dtype.name} instead")


define(Entry(
    "embedding(Tensor weight, Tensor indices, int padding_idx=-1, bool scale_grad_by_freq=False, "
    "bool sparse=False)", INDEX,
    shape=lambda call: [(call.spec("weight").dtype,
                         (*call.spec("indices").shape, call.spec("weight").shape[1]))],
    check=_check_table, path="embedding", method=False, samples=samples.tables,
    gradient={"weight": _table_gradient},
    reference=lambda weight, indices: weight[indices],
    doc="Rows of a matrix at indices; the padding's row gets no gradient; scale_grad_by_freq "
        "divides each gradient by how often its row is used; sparse changes nothing: gradients are "
        "dense.",
), cpu=Candidate("gather loops", _rows_kernel), cuda="indexing.read")


def _one_hot(self: Any, num_classes: int) -> Any:
    if self.spec.dtype is not dtypes.int64:
        raise RuntimeError("one_hot is only applicable to index tensor of type LongTensor, but got "
                           f"{self.spec!r}")
    if not self.spec.numel:
        if num_classes <= 0:
            raise RuntimeError("Can not infer total number of classes from empty tensor.")
        return ops.new_zeros.call((self, (*self.spec.shape, num_classes)), None)
    if num_classes != -1 and self.spec.device is not CPU:
        # Nothing has to be known of the classes: on a card the scatter tells of wrong ones.
        if num_classes < 1:
            raise RuntimeError("num_classes should be positive")
        return _ones_at(self, num_classes)
    low, high = readable(ops.stack.call(
        ([ops.amin.call((self,), None), ops.amax.call((self,), None)],), None), "one_hot").tolist()
    if low < 0:
        raise RuntimeError("Class values must be non-negative.")
    if num_classes == -1:
        num_classes = high + 1
    elif num_classes < 1:
        raise RuntimeError("num_classes should be positive")
    elif high >= num_classes:
        raise RuntimeError("Class values must be smaller than num_classes.")
    return _ones_at(self, num_classes)


def _ones_at(self: Any, num_classes: int) -> Any:
    zeros = ops.new_zeros.call((self, (*self.spec.shape, num_classes)), None)
    places = ops.unsqueeze.call((self, self.spec.ndim), None)
    return ops.scatter.call((zeros, -1, places, 1), None)


compound("one_hot(Tensor tensor, int num_classes=-1)", _one_hot,
         "int64 zeros with a one at each class, in a new last dim; without num_classes it looks "
         "at the classes: waits.",
         path="nn.functional.one_hot", method=False, waits="data",
         samples=indexing_samples.classes, reference=indexing_samples.one_hot)

# cython: annotation_typing=False
"""Indexing: the view of a basic index, reading and writing by tensors of indices.

A basic index is one view op.  Its pattern (which dims are selected, the lengths and steps of
slices, new dims) is static; where it starts is a run-time argument, so that ``x[i]`` in a loop is
one plan.  Indices in tensors are read and written by the walks of `kernels.cpu.gathering`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from slipstream.core.catalog import indexing_samples, mask_writes, samples
from slipstream.core.catalog.mask_writes import without_leading_ones
from slipstream.core.catalog.samples import index_samples, indices_of, select_samples
from slipstream.core.catalog.table import define, ops
from slipstream.core.dispatch.entry import COMPOUND, INDEX, VIEW, Entry
from slipstream.core.dispatch.registry import Candidate
from slipstream.core.kernels.cpu.gathering import GatherBinding
from slipstream.core.kernels.cpu.gathering_arrays import IndexOperand
from slipstream.core.kernels.cpu.indexing import ReadKernel, WriteKernel
from slipstream.core.launch.waiting import asking_as
from slipstream.core.shapes.broadcast import broadcast_shapes, broadcast_strides
from slipstream.core.shapes.indexing import Advanced, plan_index
from slipstream.core.shapes.strides import strides_like
from slipstream.core.shapes.views import normalize_dim
from slipstream.core.vocab import dtypes
from slipstream.core.vocab.devices import CPU
from slipstream.core.vocab.errors import explain
from slipstream.core.vocab.records import Spec, TensorBase

# In a pattern: a dim that one index selects.  Slices are (length, step), new dims None.
SELECT = -1

Pattern = tuple[Any, ...]
Layout = tuple[tuple[int, ...], int, tuple[int, ...]]
# One tensor that indexes the first dim.
FIRST_DIM: Layout = ((0,), 0, ())


# -- basic indices -------------------------------------------------------------------------------
def split(shape: tuple[int, ...], items: tuple[Any, ...]) -> tuple[Pattern, tuple[int, ...], bool]:
    """An index as (pattern, starts, whether tensors or bools take part).

    Tensors in it count as full slices.  IndexError for what is out of range.
    """
    pattern: list[Any] = []
    starts: list[int] = []
    tensors = False
    for place, item in enumerate(items):
        if item is None:
            pattern.append(None)
        elif item is Ellipsis:
            count = len(shape) - len(starts) - sum([_taken(each) for each in items[place + 1:]])
            _keep(pattern, starts, shape, count)
        elif type(item) is bool:
            tensors = True
        elif isinstance(item, TensorBase):
            tensors = True
            _keep(pattern, starts, shape, _taken(item))
        elif len(starts) >= len(shape):
            raise _too_many(shape, items)
        elif type(item) is slice:
            start, length, step = bounds(item, shape[len(starts)])
            pattern.append((length, step))
            starts.append(start)
        else:
            starts.append(place_of(item, shape[len(starts)], len(starts)))
            pattern.append(SELECT)
    return tuple(pattern), tuple(starts), tensors


def _too_many(shape: tuple[int, ...], items: tuple[Any, ...]) -> IndexError:
    if not shape and len(items) == 1 and type(items[0]) is not slice:
        return IndexError("invalid index of a 0-dim tensor. Use `tensor.item()` to convert a "
                          "0-dim tensor to a number")
    if not shape:
        return IndexError("slice() cannot be applied to a 0-dim tensor.")
    return IndexError(f"too many indices for tensor of dimension {len(shape)}")


def _taken(item: Any) -> int:
    """How many dims an item of an index uses up."""
    if isinstance(item, TensorBase):
        masked = item.spec.dtype is dtypes.bool_
        return item.spec.ndim if masked else 1
    if item is Ellipsis:
        raise IndexError("an index can only have a single ellipsis ('...')")
    return 0 if item is None or type(item) is bool else 1


def _keep(pattern: list[Any], starts: list[int], shape: tuple[int, ...], count: int) -> None:
    """Full slices of the next ``count`` dims."""
    first = len(starts)
    if count < 0 or first + count > len(shape):
        raise IndexError(f"too many indices for tensor of dimension {len(shape)}")
    for size in shape[first:first + count]:
        pattern.append((size, 1))
        starts.append(0)


def bounds(item: slice, size: int) -> tuple[int, int, int]:
    """A slice of a dim as (start, length, step); bounds out of range clamp, steps may be < 0."""
    start, stop, step = item.start, item.stop, item.step
    if step is None and (start is None or type(start) is int) and (
            stop is None or type(stop) is int):
        # The common kind, without the detour over slice.indices.
        first = 0 if start is None else max(start + size, 0) if start < 0 else start
        last = size if stop is None else stop + size if stop < 0 else min(stop, size)
        return (first, last - first, 1) if last > first else (0, 0, 1)
    start, stop, step = item.indices(size)
    length = len(range(start, stop, step))
    return (start if length else 0), length, step


def place_of(index: Any, size: int, dim: int) -> int:
    """An integer index counted from the front; IndexError out of range."""
    if not hasattr(index, "__index__"):
        raise IndexError("only integers, slices (`:`), ellipsis (`...`), None and long, int, byte "
                         f"or bool tensors are valid indices (got {type(index).__name__})")
    index = index.__index__()
    if not -size <= index < size:
        raise IndexError(f"index {index} is out of bounds for dimension {dim} with size {size}")
    return index + size if index < 0 else index


def _basic_geometry(spec: Spec, pattern: Pattern, starts: Any) -> Any:
    """Shape, strides, and by how many elements each start moves the view."""
    shape: list[int] = []
    strides: list[int] = []
    dim = 0
    for item in pattern:
        if item is None:
            shape.append(1)
            strides.append(spec.shape[dim] * spec.strides[dim] if dim < spec.ndim else 1)
            continue
        if item != SELECT:
            shape.append(item[0])
            strides.append(spec.strides[dim] * item[1])
        dim += 1
    return (*shape, *spec.shape[dim:]), (*strides, *spec.strides[dim:]), spec.strides[:dim]


def _basic_backward(g: Any, spec: Spec, pattern: Pattern, starts: Any) -> Any:
    zeros = ops.new_zeros.call((g, spec.shape), None)
    part = ops.basic_index.call((zeros, pattern, starts), None)
    ops.copy.call_inplace((part, g), None)
    return zeros


define(Entry(
    "basic_index(Tensor self, any pattern, Offset starts)", VIEW, geometry=_basic_geometry,
    gradient={"self": lambda g, self_spec, pattern, starts: ops.basic_index_backward.call(
        (g, self_spec, pattern, starts), None)},
    path="", method=False, samples=select_samples,
    reference=lambda x, pattern, starts: x[indices_of(pattern, starts)],
    doc="The view of integers, slices, None and the ellipsis in an index: a pattern of selected "
        "dims (-1), slices (length, step) and new dims (None), and the start in each dim.",
))
define(Entry(
    "basic_index_backward(Tensor g, any self_spec, any pattern, any starts)", COMPOUND,
    function=_basic_backward, path="", method=False,
    doc="Gradient of basic_index: zeros with g in the part that the view showed.",
))


# -- indices in tensors --------------------------------------------------------------------------
def index_shape(specs: Any, layout: Layout) -> tuple[int, ...]:
    """What the index tensors broadcast to; IndexError where they do not."""
    shapes = [spec.shape for spec in specs]
    try:
        return broadcast_shapes(*shapes, layout[2])
    except RuntimeError:
        listed = ", ".join(str(list(shape)) for shape in shapes)
        raise IndexError("shape mismatch: indexing tensors could not be broadcast together with "
                         f"shapes {listed}") from None


def result_shape(shape: tuple[int, ...], specs: Any, layout: Layout) -> tuple[int, ...]:
    """Shape of an advanced read: the index dims stand among the kept ones."""
    dims, position, _ = layout
    kept = tuple([size for dim, size in enumerate(shape) if dim not in dims])
    return kept[:position] + index_shape(specs, layout) + kept[position:]


def walk(kind: str, own: Spec, others: Any, indices: Any, layout: Layout,
         wraps: bool) -> GatherBinding:
    """The walk over an advanced result.

    ``own`` is the indexed side, ``others`` the strides of the other side, over the result's dims.
    """
    dims, position, _ = layout
    specs = list(indices)
    broadcast = index_shape(specs, layout)
    kept = [dim for dim in range(own.ndim) if dim not in dims]
    after = own.ndim - len(dims) - position
    strides = [own.strides[dim] for dim in kept]
    strides[position:position] = [0] * len(broadcast)
    walks = []
    for dim, spec in zip(dims, specs, strict=True):
        steps = broadcast_strides(spec.shape, spec.strides, broadcast)
        walks.append(IndexOperand((0,) * position + steps + (0,) * after, own.strides[dim],
                                  own.shape[dim], spec.itemsize, wraps, dim))
    shape = result_shape(own.shape, specs, layout)
    target, source = (others, tuple(strides)) if kind == "read" else (tuple(strides), others)
    return GatherBinding(own.dtype, shape, target, source, tuple(walks), kind)


def check_index(call: Any, tensor: Any) -> None:
    """Raise unless a tensor holds int64 or int32."""
    if tensor.spec.dtype not in (dtypes.int64, dtypes.int32):
        raise call.error(IndexError, "tensors used as indices must be long, int, byte or bool "
                                     f"tensors, but got {tensor.spec.dtype.name}")


def check_read(call: Any) -> None:
    """Index tensors are integers that broadcast; no element is taken from an empty dim."""
    specs = [tensor.spec for tensor in call["indices"]]
    for tensor in call["indices"]:
        check_index(call, tensor)
    own = call.spec("self")
    count = 1
    for size in index_shape(specs, call["layout"]):
        count *= size
    for dim in call["layout"][0]:
        if count and not own.shape[dim]:
            raise call.error(IndexError, f"index is out of bounds for dimension {dim} with size 0")


def check_write(call: Any) -> None:
    """The value broadcasts to the part that is indexed, and has the tensor's dtype."""
    check_read(call)
    value = call["values"]
    if not isinstance(value, TensorBase):
        return
    own = call.spec("self")
    if value.spec.dtype is not own.dtype:
        raise call.error(RuntimeError, "Index put requires the source and destination dtypes match,"
                                       f" got {own.dtype.name} for the destination and "
                                       f"{value.spec.dtype.name} for the source.")
    shape = result_shape(own.shape, [t.spec for t in call["indices"]], call["layout"])
    try:
        broadcast_strides(value.spec.shape, value.spec.strides, shape)
    except RuntimeError:
        raise call.error(RuntimeError, f"shape mismatch: value tensor of shape "
                                       f"{list(value.spec.shape)} cannot be broadcast to indexing "
                                       f"result of shape {list(shape)}") from None


def _read_shape(call: Any) -> Any:
    own = call.spec("self")
    specs = [tensor.spec for tensor in call["indices"]]
    return [(own.dtype, result_shape(own.shape, specs, call["layout"]))]


def _read_kernel(plan: Any, call: Any) -> ReadKernel:
    specs = [tensor.spec for tensor in call["indices"]]
    binding = walk("read", call.spec("self"), plan.out_spec.strides, specs, call["layout"],
                   call["wraps"])
    return ReadKernel("index", binding, IndexError)


def copy_of(plan: Any, call: Any) -> GatherBinding | None:
    """The copy of self into a result that has memory of its own; None in place."""
    if call.form == 1:
        return None
    own = call.spec("self")
    return GatherBinding(own.dtype, own.shape, plan.out_spec.strides, own.strides)


def same_shape(call: Any) -> Any:
    """The result of a write looks like self."""
    own = call.spec("self")
    return [(own.dtype, own.shape, strides_like(own.shape, own.strides))]


def _write_kernel(plan: Any, call: Any) -> WriteKernel:
    own = plan.out_spec
    specs = [tensor.spec for tensor in call["indices"]]
    shape = result_shape(own.shape, specs, call["layout"])
    value = call["values"]
    strides: tuple[int, ...] = (0,) * len(shape)
    if isinstance(value, TensorBase):
        strides = broadcast_strides(value.spec.shape, value.spec.strides, shape)
    kind = "add" if call["accumulate"] else "write"
    binding = walk(kind, own, strides, specs, call["layout"], call["wraps"])
    return WriteKernel("index write", binding, IndexError, copy_of(plan, call))


define(Entry(
    "index_read(Tensor self, Tensor[] indices, any layout, bool wraps=True)", INDEX,
    shape=_read_shape, check=check_read, path="", method=False, samples=index_samples,
    gradient={"self": lambda g, self_spec, indices, layout, wraps: ops.index_write.call(
        (ops.new_zeros.call((g, self_spec.shape), None), indices, g, layout, True, wraps), None)},
    reference=lambda x, indices, layout: x[tuple(indices)],
    shown="getitem",
    doc="Elements at tensors of indices, each for one dim; layout: (their dims, how many other "
        "dims come before the index dims, a shape that they broadcast with).",
), cpu=Candidate("gather loops", _read_kernel), cuda="indexing.read")
define(Entry(
    "index_write(Tensor self, Tensor[] indices, Tensor|Number values, any layout, "
    "bool accumulate=False, bool wraps=True)", INDEX,
    shape=same_shape, check=check_write, path="", method=False, inplace=True, stores=("values",),
    gradient={
        "self": lambda g, indices, layout, accumulate, wraps: g if accumulate else (
            ops.index_write.call((g, indices, 0, layout, False, wraps), None)),
        "values": lambda g, indices, layout, wraps: ops.index_read.call(
            (g, indices, layout, wraps), None),
    },
    shown="setitem",
    doc="self with values written, or added in order, at tensors of indices; the last duplicate "
        "wins; layout as for index_read.",
), cpu=Candidate("scatter loops", _write_kernel), cuda="indexing.write")


# -- the general index ---------------------------------------------------------------------------
def _placeholder(item: Any) -> Any:
    if isinstance(item, TensorBase):
        return Advanced(item.spec.shape, item.spec.dtype is dtypes.bool_)
    return item


# What an index with integer tensors alone does, by rank and kinds of its items.
_layouts: dict[tuple[Any, ...], Layout] = {}


def _kinds(ndim: int, items: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """What the layout of an index depends on; None where a bool or a mask takes part."""
    kinds: list[Any] = [ndim]
    for item in items:
        if item is None or item is Ellipsis:
            kinds.append(item)
        elif isinstance(item, TensorBase):
            if item.spec.dtype is dtypes.bool_:
                return None
            kinds.append(TensorBase if item.spec.ndim else Advanced)
        elif type(item) is bool:
            return None
        else:
            kinds.append(slice if type(item) is slice else int)
    return tuple(kinds)


def _is_whole(shape: tuple[int, ...], pattern: Pattern) -> bool:
    """Whether a pattern keeps every dim as it is."""
    return len(pattern) <= len(shape) and all([
        item is not None and item == (size, 1)
        for item, size in zip(pattern, shape, strict=False)])


def advanced(self: Any, items: tuple[Any, ...]) -> tuple[Any, list[Any], Layout]:
    """The basic view of an index, the integer tensors in it, and where these stand.

    Masks become the coordinates of their true elements: waits for the device.
    """
    spec = self.spec
    if len(items) == 1 and spec.ndim and items[0].__class__ is not bool and (
            items[0].spec.dtype is not dtypes.bool_):
        return self, [items[0]], FIRST_DIM
    pattern, starts, _ = split(spec.shape, items)
    kinds = _kinds(spec.ndim, items)
    known = None if kinds is None else _layouts.get(kinds)
    plan: Any = None
    if known is None:
        plan = plan_index(spec.shape, spec.strides, tuple([_placeholder(item) for item in items]))
    view = self
    if not _is_whole(spec.shape, pattern):
        view = ops.basic_index.call((self, pattern, starts), None)
    if kinds is None:
        return _masked(view, items, plan)
    if known is None:
        dims = tuple([dim for use in plan.uses for dim in use.dims])
        known = _layouts[kinds] = (dims, plan.position, ())
    return view, [item for item in items if isinstance(item, TensorBase)], known


def _masked(view: Any, items: tuple[Any, ...], plan: Any) -> tuple[Any, list[Any], Layout]:
    """`advanced` where bools and masks take part."""
    written = [item for item in items if isinstance(item, TensorBase) or type(item) is bool]
    places = {id(item): ops.nonzero.call((item,), None) for item in written
              if isinstance(item, TensorBase) and item.spec.dtype is dtypes.bool_}
    plan = plan.with_counts(tuple([places[id(item)].spec.shape[0] for item in written
                                   if id(item) in places]))
    indices: list[Any] = []
    dims: list[int] = []
    extra: tuple[int, ...] = ()
    for use, item in zip(plan.uses, written, strict=True):
        found = places.get(id(item))
        if found is not None and not use.dims:
            extra = broadcast_shapes(extra, (found.spec.shape[0],))
        elif found is not None:
            indices += ops.unbind.call((found, 1), None)
        elif use.is_python_bool:
            extra = broadcast_shapes(extra, (int(bool(item)),))
        else:
            indices.append(item)
        dims += use.dims
    return view, indices, (tuple(dims), plan.position, extra)


def shown(view: Any, layout: Layout) -> Any:
    """The view with the dim of one or zero elements that Python bools in an index add."""
    wide = ops.unsqueeze.call((view, layout[1]), None)
    return wide if layout[2] == (1,) else ops.narrow.call((wide, layout[1], 0, 0), None)


def covers(self: Any, items: tuple[Any, ...]) -> bool:
    """Whether the index is one mask of the tensor's own shape."""
    return (len(items) == 1 and isinstance(items[0], TensorBase) and self.spec.ndim > 0
            and items[0].spec.dtype is dtypes.bool_ and items[0].spec.shape == self.spec.shape)


def read(self: Any, items: tuple[Any, ...]) -> Any:
    """A copy of the elements that an index with tensors or bools selects."""
    if covers(self, items):
        return ops.masked_select.call((self, items[0]), None)
    view, indices, layout = advanced(self, items)
    if not indices:
        return ops.clone.call((shown(view, layout),), None)
    return ops.index_read.call((view, indices, layout), None)


def write(self: Any, items: tuple[Any, ...], value: Any, accumulate: bool = False) -> Any:
    """Write a number or a tensor to the elements that an index with tensors or bools selects."""
    view, indices, layout = advanced(self, items)
    if not indices:
        part = shown(view, layout)
        form = ops.add if accumulate else ops.copy if isinstance(value, TensorBase) else ops.fill
        form.call_inplace((part, value), None)
        return self
    shape = result_shape(view.spec.shape, [t.spec for t in indices], layout)
    if isinstance(value, TensorBase) and value.spec.ndim > len(shape):
        value = without_leading_ones(value, len(shape))
    ops.index_write.call_inplace((view, indices, value, layout, accumulate), None)
    return self


def items_of(self: Any, indices: Any) -> tuple[Any, ...]:
    """The indices of ``index_put``, where None stands for a full slice."""
    if not isinstance(indices, (tuple, list)):
        raise TypeError("index_put(): argument 'indices' must be tuple of Tensors, not "
                        f"{type(indices).__name__}")
    found: list[Any] = []
    for item in indices:
        if item is None:
            found.append(slice(None))
        elif not isinstance(item, TensorBase):
            raise TypeError("index_put(): argument 'indices' must be tuple of Tensors, not "
                            f"tuple of {type(item).__name__}")
        else:
            byte = item.spec.dtype is dtypes.uint8
            found.append(ops.ne.call((item, 0), None) if byte else item)
    return tuple(found)


def fitted(self: Any, items: tuple[Any, ...], values: Any, accumulate: bool) -> Any:
    """The values of ``index_put``: one number under one mask is converted, as by masked_fill.

    One without dims may lie on the CPU.
    """
    if values.spec.device is CPU and self.spec.device is not CPU and not values.spec.ndim:
        values = ops.to_device.call((values, self.spec.device), None)
    masks = [item for item in items if isinstance(item, TensorBase)]
    if (accumulate or len(masks) != 1 or masks[0].spec.dtype is not dtypes.bool_
            or values.spec.numel != 1 or values.spec.dtype is self.spec.dtype):
        return values
    return ops.to_dtype.call((values, self.spec.dtype), None)


def _index_put_inplace(self: Any, indices: Any, values: Any, accumulate: bool) -> Any:
    items = items_of(self, indices)
    values = fitted(self, items, values, accumulate)
    if not accumulate and mask_writes.put(self, items, values):
        return self
    return write(self, items, values, accumulate)


def _index_put(self: Any, indices: Any, values: Any, accumulate: bool) -> Any:
    items = items_of(self, indices)
    values = fitted(self, items, values, accumulate)
    if not accumulate and mask_writes.is_mask(self, items):
        return _index_put_inplace(ops.clone.call((self,), None), indices, values, accumulate)
    if not items or not all([isinstance(item, TensorBase) and item.spec.ndim for item in items]):
        return write(ops.clone.call((self,), None), items, values, accumulate)
    # Every dim is whole: one launch copies and writes.
    view, found, layout = advanced(self, items)
    rank = max([t.spec.ndim for t in found]) + view.spec.ndim - len(layout[0])
    if values.spec.ndim > rank:
        values = without_leading_ones(values, rank)
    return ops.index_write.call((view, found, values, layout, accumulate), None)


define(Entry("index(Tensor self, any indices)", COMPOUND, path="", method=False, waits="data",
             function=asking_as("index", lambda self, indices: read(
                 self, items_of(self, indices))),
             doc="Elements at tensors of indices; None stands for a full slice; masks wait."))
define(Entry("index_put(Tensor self, any indices, Tensor values, bool accumulate=False)", COMPOUND,
             function=asking_as("index_put", _index_put), path="index_put", waits="data",
             samples=indexing_samples.writes, reference=indexing_samples.put,
             doc="self with values written (accumulate: added) at tensors of indices, masks or "
                 "None for a full slice; the last duplicate wins.", autocast={"cuda": "widest"}))
define(Entry("index_put_(Tensor self, any indices, Tensor values, bool accumulate=False)",
             COMPOUND, path="index_put_", waits="data",
             function=asking_as("index_put_", _index_put_inplace),
             doc="index_put in place; self is unchanged if an index is out of range."))


# -- views of one dim ----------------------------------------------------------------------------
def one_dim(self: Any, dim: int, item: Any, start: int) -> Any:
    """The view that differs from ``self`` in one dim, as a basic index."""
    lead = tuple([(size, 1) for size in self.spec.shape[:dim]])
    return ops.basic_index.call((self, (*lead, item), (0,) * dim + (start,)), None)


def _select(self: Any, dim: int, index: int) -> Any:
    spec = self.spec
    if not spec.ndim:
        raise IndexError("select() cannot be applied to a 0-dim tensor.")
    dim = normalize_dim(dim, spec.ndim)
    size = spec.shape[dim]
    if isinstance(index, (bool, float)):
        raise TypeError(f"select(): argument 'index' must be int, not {type(index).__name__}")
    if not -size <= index < size:
        raise IndexError(f"select(): index {index} out of range for tensor of size "
                         f"{list(spec.shape)} at dimension {dim}")
    return one_dim(self, dim, SELECT, index + size if index < 0 else index)


def _narrow(self: Any, dim: int, start: Any, length: int) -> Any:
    spec = self.spec
    if not spec.ndim:
        raise RuntimeError("narrow() cannot be applied to a 0-dim tensor.")
    dim = normalize_dim(dim, spec.ndim)
    size = spec.shape[dim]
    if isinstance(start, TensorBase) and (start.spec.ndim or start.spec.dtype.category != 1):
        raise RuntimeError("start must be an 0-dim integral Tensor.")
    start = start.__index__()
    if length < 0:
        raise RuntimeError("narrow(): length must be non-negative.")
    if not -size <= start <= size:
        raise IndexError(f"start out of range (expected to be in range of [{-size}, {size}], "
                         f"but got {start})")
    start = start + size if start < 0 else start
    if start + length > size:
        raise RuntimeError(explain(
            "narrow", {"self": self, "dim": dim, "start": start, "length": length},
            f"start ({start}) + length ({length}) exceeds dimension size ({size}).",
            f"at most {size - start} elements follow from there"))
    return one_dim(self, dim, (length, 1), start if length else 0)


def _slice(self: Any, dim: int, start: Any, end: Any, step: int) -> Any:
    spec = self.spec
    if not spec.ndim:
        raise RuntimeError("slice() cannot be applied to a 0-dim tensor.")
    dim = normalize_dim(dim, spec.ndim)
    first, length, step = bounds(slice(start, end, step), spec.shape[dim])
    return one_dim(self, dim, (length, step), first)


define(Entry("select(Tensor self, int dim, int index)", COMPOUND, function=_select,
             path="select", samples=samples.with_arguments(((2, 3, 4), (1, -2)), ((3,), (0, 2))),
             reference=lambda x, dim, index: np.take(x, index, dim),
             doc="One index of a dim, which is left out: a view."))
define(Entry("narrow(Tensor self, int dim, any start, int length)", COMPOUND, function=_narrow,
             path="narrow", samples=samples.with_arguments(
                 ((2, 5), (1, 1, 3)), ((5,), (-1, 2, 0)), ((3, 4), (0, -2, 2))),
             reference=lambda x, dim, start, length: np.take(
                 x, range(start, start + length), dim, mode="wrap"),
             doc="A range of a dim: a view."))
define(Entry("slice(Tensor self, int dim=0, any start=None, any end=None, int step=1)", COMPOUND,
             function=_slice, path="", method=False,
             doc="Every step-th index of a range of a dim, a view; steps may be negative."))

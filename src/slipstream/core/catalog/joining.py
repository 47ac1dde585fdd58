"""Joining and splitting: cat, stack, split, chunk, unbind, repeat, flip, roll."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from slipstream.core.catalog import indexing_samples, samples
from slipstream.core.catalog.table import define, ops
from slipstream.core.dispatch.arguments import ints
from slipstream.core.dispatch.entry import COMPOUND, INDEX, VIEW, Entry
from slipstream.core.dispatch.registry import Candidate
from slipstream.core.kernels.cpu.gathering import GatherBinding
from slipstream.core.kernels.cpu.indexing import JoinKernel
from slipstream.core.launch.waiting import asking_as
from slipstream.core.shapes import formats, views
from slipstream.core.shapes import strides as layouts
from slipstream.core.vocab import dtypes
from slipstream.core.vocab.devices import CPU
from slipstream.core.vocab.dtypes import promote


# -- cat and stack -------------------------------------------------------------------------------
def _skipped(spec: Any) -> bool:
    """Whether cat passes over it: an empty vector fits everything, as it always did."""
    return spec.shape == (0,)


def _common(call: Any) -> Any:
    """The promoted dtype of all pieces: vectors first, scalar tensors after them."""
    found: list[Any] = [None, None]
    for tensor in call["tensors"]:
        place = 0 if tensor.spec.ndim else 1
        before = found[place]
        found[place] = tensor.spec.dtype if before is None else promote(before, tensor.spec.dtype)
    vector, scalar = found
    if vector is None or (scalar is not None and scalar.category > vector.category):
        return scalar if vector is None else promote(vector, scalar)
    return vector


def _leader(call: Any) -> Any:
    """The first piece that is not passed over, else the first."""
    specs = [tensor.spec for tensor in call["tensors"]]
    return next((spec for spec in specs if not _skipped(spec)), specs[0])


def _cat_check(call: Any) -> None:
    if not call["tensors"]:
        raise ValueError("cat(): expected a non-empty list of Tensors")
    lead = _leader(call)
    for place, tensor in enumerate(call["tensors"]):
        spec = tensor.spec
        if not spec.ndim:
            raise call.error(RuntimeError, "zero-dimensional tensor (at position "
                                           f"{place}) cannot be concatenated")
        if spec.ndim != lead.ndim and not _skipped(spec):
            raise call.error(RuntimeError, "Tensors must have same number of dimensions: got "
                                           f"{lead.ndim} and {spec.ndim}")
    dim = views.normalize_dim(call["dim"], lead.ndim)
    for place, tensor in enumerate(call["tensors"]):
        if not _skipped(tensor.spec):
            _check_sizes(call, lead.shape, tensor.spec.shape, dim, place)


def _check_sizes(call: Any, lead: Any, shape: Any, dim: int, place: int) -> None:
    for at, (wanted, size) in enumerate(zip(lead, shape, strict=True)):
        if at != dim and wanted != size:
            raise call.error(RuntimeError, "Sizes of tensors must match except in dimension "
                                           f"{dim}. Expected size {wanted} but got size {size} "
                                           f"for tensor number {place} in the list.")


def _cat_shape(call: Any) -> Any:
    lead = _leader(call)
    dim = views.normalize_dim(call["dim"], lead.ndim)
    kept = [t.spec for t in call["tensors"] if not _skipped(t.spec) or _skipped(lead)]
    total = sum(spec.shape[dim] for spec in kept)
    shape = (*lead.shape[:dim], total, *lead.shape[dim + 1:])
    for fits, strides in ((layouts.is_channels_last, layouts.channels_last_strides),
                          (layouts.is_channels_last_3d, layouts.channels_last_3d_strides)):
        if all(fits(s.shape, s.strides) and not s.contiguous for s in kept):
            return [(_common(call), shape, strides(shape))]
    return [(_common(call), shape)]


def _cat_kernel(plan: Any, call: Any) -> JoinKernel:
    out = plan.out_spec
    dim = views.normalize_dim(call["dim"], out.ndim)
    start = 0
    found = []
    for place, tensor in enumerate(call["tensors"]):
        spec = tensor.spec
        if spec.numel:
            part = (*(slice(None),) * dim, slice(start, start + spec.shape[dim]))
            found.append((place, spec, spec.strides, start * out.strides[dim], part))
        start += 0 if _skipped(spec) and out.ndim > 1 else spec.shape[dim]
    return _join(out, out.strides, found)


def _join(out: Any, strides: Any, found: Any) -> JoinKernel:
    """The kernel of pieces, each (number, spec, strides, where it begins, its part of out)."""
    same = all(spec.dtype is out.dtype for _, spec, _, _, _ in found)
    places = [each[0] for each in found]
    if not same:
        return JoinKernel([], [], places, [each[4] for each in found])
    bindings = [GatherBinding(out.dtype, spec.shape, strides, own) for _, spec, own, _, _ in found]
    return JoinKernel(bindings, [each[3] * out.itemsize for each in found], places, None)


def _cat_backward(g: Any, tensors_spec: Any, dim: int) -> list[Any]:
    """Each piece's part of the gradient."""
    found = []
    start = 0
    dim = views.normalize_dim(dim, g.spec.ndim)
    for spec in tensors_spec:
        if _skipped(spec) and g.spec.ndim > 1:
            found.append(ops.new_zeros.call((g, (0,)), None))
            continue
        length = spec.shape[dim]
        found.append(ops.narrow.call((g, dim, start, length), None))
        start += length
    return found


define(Entry(
    "cat(Tensor[] tensors, int dim=0)", INDEX, shape=_cat_shape, check=_cat_check, path="cat",
    out=True, recasts=True, method=False, aliases=("concat", "concatenate"),
    samples=samples.pieces,
    gradient={"tensors": _cat_backward},
    reference=lambda pieces, dim=0: np.concatenate(pieces, dim),
    doc="Tensors joined along a dim, in their common dtype; empty vectors are passed over.",
    autocast={"cpu": "widest"},
), cpu=Candidate("copy loops", _cat_kernel), cuda="joining.cat")


def _stack_check(call: Any) -> None:
    tensors = call["tensors"]
    if not tensors:
        raise RuntimeError("stack expects a non-empty TensorList")
    lead = tensors[0].spec.shape
    for place, tensor in enumerate(tensors):
        if tensor.spec.shape != lead:
            raise call.error(RuntimeError, "stack expects each tensor to be equal size, but got "
                                           f"{list(lead)} at entry 0 and "
                                           f"{list(tensor.spec.shape)} at entry {place}")


def _stack_shape(call: Any) -> Any:
    lead = call["tensors"][0].spec.shape
    dim = views.normalize_dim(call["dim"], len(lead) + 1)
    return [(_common(call), (*lead[:dim], len(call["tensors"]), *lead[dim:]))]


def _stack_kernel(plan: Any, call: Any) -> JoinKernel:
    out = plan.out_spec
    dim = views.normalize_dim(call["dim"], out.ndim)
    strides = (*out.strides[:dim], *out.strides[dim + 1:])
    found = [(place, tensor.spec, tensor.spec.strides, place * out.strides[dim],
              (*(slice(None),) * dim, place))
             for place, tensor in enumerate(call["tensors"]) if tensor.spec.numel]
    return _join(out, strides, found)


define(Entry(
    "stack(Tensor[] tensors, int dim=0)", INDEX, shape=_stack_shape, check=_stack_check,
    path="stack", out=True, recasts=True, method=False, samples=samples.equal_pieces,
    gradient={"tensors": lambda g, dim: list(ops.unbind.call((g, dim), None))},
    reference=lambda pieces, dim=0: np.stack(pieces, dim),
    doc="Tensors of one shape joined along a new dim, in their common dtype.",
    autocast={"cpu": "widest"},
), cpu=Candidate("copy loops", _stack_kernel), cuda="joining.stack")


# -- several views -------------------------------------------------------------------------------
def _split_geometry(spec: Any, sizes: Any, dim: int) -> Any:
    if not spec.ndim:
        raise RuntimeError("split expects at least a 1-dimensional tensor")
    dim = views.normalize_dim(dim, spec.ndim)
    size = spec.shape[dim]
    lengths = _lengths(sizes, size, dim)
    found = []
    start = 0
    for length in lengths:
        shape = (*spec.shape[:dim], length, *spec.shape[dim + 1:])
        found.append((shape, spec.strides, start * spec.strides[dim]))
        start += length
    return found


def _lengths(sizes: Any, size: int, dim: int) -> list[int]:
    """The lengths of the pieces: given, or all the same but for a shorter last one."""
    if isinstance(sizes, (tuple, list)):
        if any(each < 0 for each in sizes):
            raise RuntimeError("split_with_sizes expects split_sizes have only non-negative "
                               f"entries, but got split_sizes={list(sizes)}")
        if sum(sizes) != size:
            raise RuntimeError("split_with_sizes expects split_sizes to sum exactly to "
                               f"{size} (input tensor's size at dimension {dim}), but got "
                               f"split_sizes={list(sizes)}")
        return list(sizes)
    if sizes < 0:
        raise RuntimeError("split expects split_size be non-negative, but got "
                           f"split_size={sizes}")
    if sizes == 0 and size:
        raise RuntimeError("split_size can only be 0 if dimension size is 0, but got dimension "
                           f"size of {size}")
    if not size:
        return [0]
    return [min(sizes, size - start) for start in range(0, size, sizes)]


def _unbind_geometry(spec: Any, dim: int) -> Any:
    if not spec.ndim:
        raise IndexError("Dimension specified as 0 but tensor has no dimensions")
    dim = views.normalize_dim(dim, spec.ndim)
    shape = (*spec.shape[:dim], *spec.shape[dim + 1:])
    strides = (*spec.strides[:dim], *spec.strides[dim + 1:])
    return [(shape, strides, place * spec.strides[dim]) for place in range(spec.shape[dim])]


def _split_reference(x: Any, sizes: Any, dim: int = 0) -> Any:
    lengths = _lengths(sizes, x.shape[dim], dim)
    return tuple(np.split(x, np.cumsum(lengths)[:-1], dim))


define(Entry(
    "split(Tensor self, int[] split_size_or_sections, int dim=0)", VIEW, path="split",
    geometry=_split_geometry, samples=samples.splits, reference=_split_reference,
    gradient={"self": lambda grads, dim: ops.cat.call((grads, dim), None)},
    doc="Views of successive ranges of a dim: of one length (the last may be shorter), or of a "
        "list of lengths.",
))
define(Entry(
    "unbind(Tensor self, int dim=0)", VIEW, path="unbind", geometry=_unbind_geometry,
    gradient={"self": lambda grads, dim: ops.stack.call((grads, dim), None)},
    samples=samples.one_dims, reference=lambda x, dim=0: tuple(np.moveaxis(x, dim, 0)),
    doc="Views of every index of a dim.",
))


def _chunk(self: Any, chunks: int, dim: int) -> Any:
    if not self.spec.ndim:
        raise RuntimeError("chunk expects at least a 1-dimensional tensor")
    if chunks <= 0:
        raise RuntimeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    size = self.spec.shape[views.normalize_dim(dim, self.spec.ndim)]
    if not size:
        return ops.split.call((self, [0] * chunks, dim), None)
    return ops.split.call((self, -(-size // chunks), dim), None)


def _tensor_split(self: Any, indices_or_sections: Any, dim: int) -> Any:
    if not self.spec.ndim:
        raise RuntimeError("tensor_split expected at least a 1-dimensional tensor, but got a "
                           "tensor with 0 dims")
    dim = views.normalize_dim(dim, self.spec.ndim)
    size = self.spec.shape[dim]
    if hasattr(indices_or_sections, "tolist"):
        indices_or_sections = indices_or_sections.tolist()
    if isinstance(indices_or_sections, (tuple, list)):
        edges = [0, *[int(each) for each in indices_or_sections], size]
        return tuple([ops.slice.call((self, dim, first, last, 1), None)
                      for first, last in pairwise(edges)])
    if indices_or_sections <= 0:
        raise RuntimeError("number of sections must be larger than 0, got "
                           f"{indices_or_sections}")
    least, longer = divmod(size, indices_or_sections)
    lengths = [least + (place < longer) for place in range(indices_or_sections)]
    return ops.split.call((self, lengths, dim), None)


def compound(signature: str, function: Any, doc: str, **facts: Any) -> None:
    """An entry that calls other ops."""
    facts.setdefault("path", signature.partition("(")[0])
    define(Entry(signature, COMPOUND, function=function, doc=doc, **facts))


compound("chunk(Tensor self, int chunks, int dim=0)", _chunk,
         "At most that many views of successive ranges of a dim, all of one length but the last.",
         samples=samples.with_arguments(((7, 2), (3,)), ((2, 4), (2, -1)), ((2,), (5,))),
         reference=indexing_samples.chunks)
compound("tensor_split(Tensor self, any indices_or_sections, int dim=0)", _tensor_split,
         "Views of successive ranges of a dim: so many of about one length, or between indices.",
         samples=samples.with_arguments(((7, 2), (3,)), ((2, 4), ((1, 3), 1))),
         reference=np.array_split)
compound("split_with_sizes(Tensor self, int[] split_sizes, int dim=0)",
         lambda self, split_sizes, dim: ops.split.call((self, list(split_sizes), dim), None),
         "split by a list of lengths.", reference=indexing_samples.sections,
         samples=samples.with_arguments(((7, 2), ((3, 0, 4),)), ((2, 4), ((1, 3), -1))))


def _split_along(name: str, dim: int, least: int) -> Any:
    """hsplit and its kin: tensor_split along a dim, of which a number of pieces is a divisor."""

    def split(self: Any, indices_or_sections: Any) -> Any:
        rank, shape = self.spec.ndim, self.spec.shape
        if rank < least:
            raise RuntimeError(f"torch.{name} requires a tensor with at least {least} "
                               f"dimension{'s' * (least > 1)}, but got a tensor with {rank} "
                               "dimensions!")
        place = min(dim, rank - 1)
        sections = indices_or_sections
        if isinstance(sections, int) and sections > 0 and shape[place] % sections:
            raise RuntimeError(f"torch.{name} attempted to split along dimension {place}, but the "
                               f"size of the dimension {shape[place]} is not divisible by the "
                               f"split_size {sections}!")
        return _tensor_split(self, sections, place)

    return split


for _name, _dim, _least, _rows in (
    ("hsplit", 1, 1, (((6,), (3,)), ((2, 4), ((1, 3),)))),
    ("vsplit", 0, 2, (((4, 3), (2,)), ((4, 2), ((1, 3),)))),
    ("dsplit", 2, 3, (((1, 2, 4), (2,)), ((1, 2, 4), ((1, 3),)))),
):
    compound(f"{_name}(Tensor self, any indices_or_sections)", _split_along(_name, _dim, _least),
             f"tensor_split along dim {_dim}" + (", or 0 of a vector." if _least == 1 else "."),
             samples=samples.with_arguments(*_rows), reference=getattr(np, _name))


# -- repeated, reversed, moved -------------------------------------------------------------------
def _repeat(self: Any, repeats: Any) -> Any:
    times = ints(repeats)
    lead = len(times) - self.spec.ndim
    if lead < 0:
        raise RuntimeError("Number of dimensions of repeat dims can not be smaller than number of "
                           "dimensions of tensor")
    if any(n < 0 for n in times):
        raise RuntimeError(f"repeat() counts must not be negative, got {list(times)}")
    sizes = (1,) * lead + self.spec.shape
    if all(n == 1 for n in times):
        return ops.clone.call((ops.reshape.call((self, sizes), None),), None)
    # x[s] -> x[1, s] -> x[n, s], read as x[n * s].
    split = tuple([each for size in sizes for each in (1, size)])
    wide = tuple([each for n, size in zip(times, sizes, strict=True) for each in (n, size)])
    whole = tuple([n * size for n, size in zip(times, sizes, strict=True)])
    spread = ops.expand.call((ops.reshape.call((self, split), None), wide), None)
    copy = ops.clone.call((spread,), {"memory_format": formats.contiguous_format})
    return ops.reshape.call((copy, whole), None)


def _tile(self: Any, dims: Any) -> Any:
    times = ints(dims)
    return _repeat(self, (1,) * (self.spec.ndim - len(times)) + times)


def _flip(self: Any, dims: Any) -> Any:
    turned = views.normalize_dims(ints(dims), self.spec.ndim)
    if not self.spec.ndim:
        return ops.clone.call((self,), None)
    pattern = tuple([(size, -1 if dim in turned else 1)
                     for dim, size in enumerate(self.spec.shape)])
    starts = tuple([max(size - 1, 0) if dim in turned else 0
                    for dim, size in enumerate(self.spec.shape)])
    return ops.clone.call((ops.basic_index.call((self, pattern, starts), None),), None)


def _flip_at_rank(self: Any, dim: int, rank: int) -> Any:
    if self.spec.ndim < rank:
        raise RuntimeError(f"Input must be >= {rank}-d.")
    return _flip(self, dim)


def _roll(self: Any, shifts: Any, dims: Any) -> Any:
    if dims is None or dims == ():
        flat = ops.reshape.call((self, (-1,)), None)
        if len(ints(shifts)) != 1:
            raise RuntimeError("shifts and dimensions must align. shifts: "
                               f"{len(ints(shifts))}, dims:0")
        return ops.reshape.call((_roll(flat, shifts, (0,)), self.spec.shape), None)
    shifts, dims = ints(shifts), ints(dims)
    if len(shifts) != len(dims):
        raise RuntimeError(f"shifts and dimensions must align. shifts: {len(shifts)}, "
                           f"dims:{len(dims)}")
    result = self
    for shift, dim in zip(shifts, dims, strict=True):
        size = self.spec.shape[views.normalize_dim(dim, self.spec.ndim)]
        if size and shift % size:
            cut = size - shift % size
            result = ops.cat.call(((ops.narrow.call((result, dim, cut, size - cut), None),
                                    ops.narrow.call((result, dim, 0, cut), None)), dim), None)
    return ops.clone.call((self,), None) if result is self else result


def _places(repeats: Any, output_size: int | None) -> Any:
    """Each place of a vector as often as it says: repeats [1, 0, 2] give [0, 2, 2]."""
    spec = repeats.spec
    if spec.ndim != 1:
        raise RuntimeError(f"repeat_interleave only accept 1D vector as repeat, got {spec!r}")
    if spec.dtype not in (dtypes.int32, dtypes.int64):
        raise RuntimeError(f"repeats has to be Long or Int tensor, got {spec!r}")
    if output_size is not None and spec.numel and spec.device is not CPU:
        return _places_of_known(repeats, output_size)
    if spec.numel and ops.amin.call((repeats,), None).item() < 0:
        raise RuntimeError("repeats can not be negative")
    ends = ops.cumsum.call((repeats, 0), None)
    total = ends[-1].item() if spec.numel else 0
    if output_size is not None and output_size != total:
        raise RuntimeError(f"repeat_interleave: output_size={output_size} is not the sum of the "
                           f"repeats, {total}")
    return ops.cast.call((_searched(ends, total), spec.dtype), None)


def _searched(ends: Any, total: int) -> Any:
    wanted = ops.arange.call((total,), {"device": ends.spec.device, "dtype": ends.spec.dtype})
    return ops.searchsorted.call((ends, wanted), {"right": True})


def _places_of_known(repeats: Any, output_size: int) -> Any:
    """The places without a wait: what is wrong with the repeats becomes an index out of range."""
    spec = repeats.spec
    ends = ops.cumsum.call((repeats, 0), None)
    whole = ops.eq.call((ops.select.call((ends, 0, -1), None), output_size), None)
    right = ops.logical_and.call((whole, ops.ge.call((ops.amin.call((repeats,), None), 0), None)),
                                 None)
    found = ops.where.call((right, _searched(ends, output_size), spec.numel), None)
    every = ops.arange.call((spec.numel,), {"device": spec.device, "dtype": spec.dtype})
    return ops.index_select.call((every, 0, found), None)


def _repeat_each(self: Any, repeats: Any, dim: Any, output_size: int | None) -> Any:
    """Each index of a dim so often as the vector says at its place."""
    if dim is None:
        self, dim = ops.reshape.call((self, (-1,)), None), 0
    size = self.spec.shape[views.normalize_dim(dim, self.spec.ndim)]
    if repeats.spec.ndim == 1 and repeats.spec.numel != size:
        raise RuntimeError(f"repeats must have the same size as input along dim, but got "
                           f"repeats {repeats.spec!r} and {self.spec!r} along dim {dim}")
    return ops.index_select.call((self, dim, _places(repeats, output_size)), None)


def _repeat_interleave(self: Any, repeats: Any, dim: Any, output_size: int | None) -> Any:
    """Every index of a dim so many times in a row: x[s] -> x[s, 1] -> x[s, n], read as x[s * n]."""
    if repeats is None:
        return _places(self, output_size)
    if hasattr(repeats, "spec") and repeats.spec.numel != 1:
        return _repeat_each(self, repeats, dim, output_size)
    if hasattr(repeats, "spec") and output_size is not None and repeats.spec.device is not CPU:
        size = self.spec.numel if dim is None else self.spec.shape[
            views.normalize_dim(dim, self.spec.ndim)]
        one = ops.reshape.call((repeats, (1,)), None)
        return _repeat_each(self, ops.expand.call((one, (size,)), None), dim, output_size)
    times = int(repeats)
    if times < 0:
        raise RuntimeError("repeats can not be negative")
    if dim is None:
        self, dim = ops.reshape.call((self, (-1,)), None), 0
    shape = self.spec.shape
    dim = views.normalize_dim(dim, len(shape))
    wide = ops.unsqueeze.call((self, dim + 1), None)
    spread = ops.expand.call((wide, (*shape[:dim + 1], times, *shape[dim + 1:])), None)
    copy = ops.clone.call((spread,), {"memory_format": formats.contiguous_format})
    return ops.reshape.call((copy, (*shape[:dim], shape[dim] * times, *shape[dim + 1:])), None)


def _interleaved() -> Any:
    counts = np.array([2, 0, 1])
    return [*samples.with_arguments(((2, 3), (2,)), ((2, 3), (3, 1)), ((2, 3), (0, 0)))(),
            ((samples.random_array(131, 2, 3), counts, 1), {}),
            ((samples.random_array(132, 3), counts), {}),
            ((samples.random_array(133, 3), np.array([1])), {})]


compound("repeat(Tensor self, int... repeats)", _repeat, "Copies of the tensor side by side.",
         path="", samples=samples.repeats, reference=np.tile)
compound("tile(Tensor self, int... dims)", _tile,
         "repeat, where dims that are not given count once.", samples=samples.repeats,
         reference=np.tile)
compound("repeat_interleave(Tensor self, any repeats=None, int? dim=None, *, "
         "int? output_size=None)", asking_as("repeat_interleave", _repeat_interleave),
         "Every element, or index of a dim, so many times in a row: one number for all, or a "
         "vector of int32 or int64. Of a vector alone, the places it repeats.", reference=np.repeat,
         samples=_interleaved, waits="data")
compound("flip(Tensor self, int... dims)", _flip, "A copy with the order of dims reversed.",
         samples=samples.flips, reference=np.flip)
compound("fliplr(Tensor self)", lambda self: _flip_at_rank(self, 1, 2),
         "A copy with dim 1 reversed.", reference=np.fliplr,
         samples=samples.with_arguments(((2, 3), ()), ((2, 3, 4), ())))
compound("flipud(Tensor self)", lambda self: _flip_at_rank(self, 0, 1),
         "A copy with dim 0 reversed.", reference=np.flipud,
         samples=samples.with_arguments(((3,), ()), ((2, 3), ())))
compound("roll(Tensor self, int[] shifts, int[]? dims=None)", _roll,
         "A copy with a dim's elements moved on, those at the end to the front.",
         samples=samples.rolls, reference=np.roll)

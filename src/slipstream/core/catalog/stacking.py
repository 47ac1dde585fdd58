# cython: annotation_typing=False
"""Joining and reshaping made of other ops: hstack, vstack, column_stack, unflatten, atleast_nd."""

from __future__ import annotations

from typing import Any

import numpy as np

from slipstream.core.catalog import samples
from slipstream.core.catalog.table import define, ops
from slipstream.core.catalog.triangles import listed
from slipstream.core.dispatch.arguments import ints
from slipstream.core.dispatch.entry import COMPOUND, Entry
from slipstream.core.shapes.views import normalize_dim


def compound(signature: str, function: Any, doc: str, **facts: Any) -> None:
    """An entry that calls other ops."""
    facts.setdefault("path", signature.partition("(")[0])
    define(Entry(signature, COMPOUND, function=function, doc=doc, **facts))


def at_least(tensor: Any, rank: int) -> Any:
    """The tensor with dims of size one in front, and behind for a third, up to a rank."""
    shape = tensor.spec.shape
    if len(shape) >= rank:
        return tensor
    if rank == 3:
        wide = {0: (1, 1, 1), 1: (1, *shape, 1), 2: (*shape, 1)}[len(shape)]
    else:
        wide = (1,) * (rank - len(shape)) + shape
    return ops.reshape.call((tensor, wide), None)


def _each(rank: int) -> Any:
    def function(tensors: Any) -> Any:
        if hasattr(tensors, "spec"):
            return at_least(tensors, rank)
        found = tuple([at_least(tensor, rank) for tensor in listed(tensors)])
        return found if len(tensors) != 1 or isinstance(tensors[0], (tuple, list)) else found[0]

    return function


for _rank in (1, 2, 3):
    compound(f"atleast_{_rank}d(Tensor... tensors)", _each(_rank),
             f"The tensors with at least {_rank} dims.", method=False,
             samples=lambda: [(([samples.random_array(180, 3), samples.random_array(181, 2, 2)],),
                               {})],
             reference=lambda arrays, rank=_rank: getattr(np, f"atleast_{rank}d")(*arrays))


def _hstack(tensors: Any) -> Any:
    wide = [at_least(tensor, 1) for tensor in tensors]
    return ops.cat.call((wide, 0 if wide and wide[0].spec.ndim == 1 else 1), None)


def _columns(tensors: Any) -> Any:
    wide = [tensor if tensor.spec.ndim > 1 else ops.reshape.call(
        (tensor, (tensor.spec.numel, 1)), None) for tensor in tensors]
    return ops.cat.call((wide, 1), None)


def _pieces() -> Any:
    return [(([samples.random_array(182, 3), samples.random_array(183, 3)],), {}),
            (([samples.random_array(184, 2, 3), samples.random_array(185, 2, 3)],), {})]


compound("hstack(Tensor[] tensors)", _hstack, "Joined along dim 1, vectors along dim 0.",
         method=False, out=True, samples=_pieces, reference=np.hstack)
compound("vstack(Tensor[] tensors)",
         lambda tensors: ops.cat.call(([at_least(each, 2) for each in tensors], 0), None),
         "Joined along dim 0, vectors as rows.", method=False, out=True, aliases=("row_stack",),
         samples=_pieces, reference=np.vstack)
compound("dstack(Tensor[] tensors)",
         lambda tensors: ops.cat.call(([at_least(each, 3) for each in tensors], 2), None),
         "Joined along dim 2.", method=False, out=True, samples=_pieces, reference=np.dstack)
compound("column_stack(Tensor[] tensors)", _columns, "Joined along dim 1, vectors as columns.",
         method=False, out=True, samples=_pieces, reference=np.column_stack)


def _unflatten(self: Any, dim: int, sizes: Any) -> Any:
    spec = self.spec
    dim = normalize_dim(dim, spec.ndim)
    given = list(ints(sizes))
    if not given:
        raise RuntimeError("unflatten: sizes must be non-empty")
    known = 1
    for size in given:
        known *= size if size != -1 else 1
    if -1 in given and known:
        given[given.index(-1)] = spec.shape[dim] // known
    total = 1
    for size in given:
        total *= size
    if total != spec.shape[dim]:
        raise RuntimeError(f"unflatten: Provided sizes {list(ints(sizes))} don't multiply up to "
                           f"the size of dim {dim} ({spec.shape[dim]}) in the input tensor: "
                           f"{spec!r}")
    return ops.view.call((self, (*spec.shape[:dim], *given, *spec.shape[dim + 1:])), None)


compound("unflatten(Tensor self, int dim, int[] sizes)", _unflatten,
         "A dim split into several.",
         samples=samples.with_arguments(((6, 2), (0, (2, 3))), ((2, 6), (-1, (3, -1)))),
         reference=lambda x, dim, sizes: x.reshape(
             *x.shape[:dim % x.ndim], *sizes, *x.shape[dim % x.ndim + 1:]))


def _rot90(self: Any, k: int, dims: Any) -> Any:
    first, second = [normalize_dim(dim, self.spec.ndim) for dim in ints(dims)]
    if first == second:
        raise RuntimeError("expected rotation dims to be different, but got dim0 = "
                           f"{first} and dim1 = {second}")
    turns = k % 4
    if turns in (1, 3):
        swapped = ops.transpose.call((self, first, second), None)
        return ops.flip.call((swapped, (first if turns == 1 else second,)), None)
    if turns == 2:
        return ops.flip.call((self, (first, second)), None)
    return ops.clone.call((self,), None)


compound("rot90(Tensor self, int k=1, int[] dims=(0, 1))", _rot90,
         "Two dims turned by so many right angles.", reference=np.rot90,
         samples=samples.with_arguments(((2, 3), ()), ((2, 3), (2,)), ((2, 3, 2), (3, (0, 2)))))

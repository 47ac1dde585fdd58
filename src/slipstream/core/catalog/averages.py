# cython: annotation_typing=False
"""Pooling by averages: windows of one size, and as many windows as are asked for."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from slipstream.core.catalog.table import define, ops
from slipstream.core.dispatch.entry import COMPOUND, Entry
from slipstream.core.vocab import dtypes


# -- adaptive ------------------------------------------------------------------------------------
def spans(size: int, count: int) -> list[tuple[int, int]]:
    """Where each of ``count`` windows over ``size`` places begins and ends."""
    return [(place * size // count, -((place + 1) * size // -count)) for place in range(count)]


def _averaged(self: Any, dim: int, count: int) -> Any:
    """The average of ``count`` windows along a dim, which stays where it is."""
    spec = self.spec
    size = spec.shape[dim]
    if count == size:
        return self
    if count and size and size % count == 0:
        shape = (*spec.shape[:dim], count, size // count, *spec.shape[dim + 1:])
        return ops.mean.call((ops.reshape.call((self, shape), None), dim + 1), None)
    parts = [ops.mean.call((ops.narrow.call((self, dim, first, last - first), None), dim, True),
                           None) for first, last in spans(size, count)]
    if not parts:
        return ops.narrow.call((self, dim, 0, 0), None)
    return ops.cat.call((parts, dim), None)


def _sizes(name: str, self: Any, output_size: Any, rank: int) -> tuple[int, ...]:
    """The wanted number of windows along each of the last dims; None for as many as places."""
    given = output_size if isinstance(output_size, (tuple, list)) else (output_size,) * rank
    if len(given) != rank:
        raise RuntimeError(f"{name}: output_size must be {rank}")
    sizes = tuple([size if each is None else int(each) for each, size in zip(
        given, self.spec.shape[-rank:], strict=True)])
    if any(size < 0 for size in sizes):
        raise RuntimeError(f"{name}: elements of output_size must be greater than or equal to 0 "
                           f"but received {list(sizes)}")
    return sizes


def _adaptive(name: str, rank: int) -> Any:
    def function(self: Any, output_size: Any) -> Any:
        spec = self.spec
        if spec.ndim not in (rank + 1, rank + 2):
            raise RuntimeError(f"{name}(): Expected {rank + 1}D or {rank + 2}D tensor, but got "
                               f"{spec!r}")
        if any(not size for size in spec.shape[-rank:]):
            raise RuntimeError(f"{name}(): Expected input to have non-zero size for non-batch "
                               f"dimensions, but input has sizes {list(spec.shape)}")
        if spec.dtype.kind != "float":
            raise NotImplementedError(f"\"{name}\" not implemented for '{spec.dtype.name}'")
        sizes = _sizes(name, self, output_size, rank)
        if spec.dtype.itemsize < 4:
            # Rounded once, where the op ends.
            wide = ops.to_dtype.call((self, dtypes.float32), None)
            return ops.to_dtype.call((function(wide, output_size), spec.dtype), None)
        if math.prod(sizes) == 1:
            return ops.mean.call((self, tuple(range(-rank, 0)), True), None)
        out = self
        for dim, count in enumerate(sizes, spec.ndim - rank):
            out = _averaged(out, dim, count)
        return ops.clone.call((self,), None) if out is self else out

    return function


def _adaptive_reference(rank: int) -> Any:
    def reference(x: Any, output_size: Any) -> Any:
        given = output_size if isinstance(output_size, tuple) else (output_size,) * rank
        for dim, count in enumerate(given, x.ndim - rank):
            wanted = x.shape[dim] if count is None else count
            x = np.stack([np.take(x, range(first, last), dim).mean(dim)
                          for first, last in spans(x.shape[dim], wanted)], dim)
        return x

    return reference


def _adaptive_samples(rank: int) -> Any:
    def samples() -> Any:
        random = np.random.RandomState(27)
        return [((random.randn(2, 3, *(7, 5, 4)[:rank]), count), {})
                for count in (1, 3, (2, None, 2)[:rank])]

    return samples


for _rank in (1, 2, 3):
    _name = f"adaptive_avg_pool{_rank}d"
    define(Entry(
        f"{_name}(Tensor self, any output_size)", COMPOUND, function=_adaptive(_name, _rank),
        path=f"nn.functional.{_name}", method=False, dtypes=("float",),
        samples=_adaptive_samples(_rank), reference=_adaptive_reference(_rank),
        doc=f"The average of output_size windows along each of the last {_rank} dims; None: as "
            "many as there are places.",
        autocast={"cpu": "float32", "cuda": "asleep"} if _rank == 3 else "asleep",
    ))

"""Sums of float16 and bfloat16 that an index gathers: added in float32, rounded once at the end.

A running sum that is kept in bfloat16 stands still at 256 ones.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from slipstream.core.kernels.cpu.gathering import GatherBinding, gathering
from slipstream.core.kernels.cpu.gathering_arrays import memory, offsets, read, resolve
from slipstream.core.vocab import dtypes

Array = Any
Ints = tuple[int, ...]
# So many times more elements than additions: then only what is added to is looked at.
SPARSE = 8


def is_narrow(dtype: Any) -> bool:
    """Whether a dtype's sums and products are taken in float32."""
    return dtype in (dtypes.float16, dtypes.bfloat16)


def widened(binding: GatherBinding) -> GatherBinding | None:
    """The walk of an addition over float32 copies of both sides; None where there is no need."""
    if binding.kind != "add" or not is_narrow(binding.dtype):
        return None
    return GatherBinding(dtypes.float32, binding.shape, binding.target_strides,
                         binding.source_strides, binding.indices, "add")


def add(narrow: GatherBinding, wide: GatherBinding, target: Any, source: int,
        places: Ints) -> None:
    """Add a narrow source into a tensor; the indices at ``places`` are good."""
    if narrow.numel == 0:
        return
    with np.errstate(over="ignore", invalid="ignore"):
        if SPARSE * narrow.numel < target.spec.numel:
            _add_few(narrow, target, source, places)
        else:
            _add_many(narrow, wide, target, source, places)


def _add_few(binding: GatherBinding, target: Any, source: int, places: Ints) -> None:
    address = target.storage.address + target.offset * target.spec.itemsize
    dtype = binding.dtype.numpy
    shift, _ = resolve(binding.shape, binding.indices, places)
    met, which = np.unique(offsets(binding.shape, binding.target_strides) + shift,
                           return_inverse=True)
    span, inside = memory(address, met, dtype)
    total = span[inside].astype(np.float32)
    values = read(source, offsets(binding.shape, binding.source_strides), dtype)
    np.add.at(total, which.reshape(-1), values.astype(np.float32))
    span[inside] = total.astype(dtype)


def _add_many(narrow: GatherBinding, wide: GatherBinding, target: Any, source: int,
              places: Ints) -> None:
    spec = target.spec
    address = target.storage.address + target.offset * spec.itemsize
    total, begin = _copied(address, spec.shape, spec.strides, narrow.dtype.numpy)
    values, first = _copied(source, narrow.shape, narrow.source_strides, narrow.dtype.numpy)
    gathering.run(wide, total.ctypes.data + 4 * begin, values.ctypes.data + 4 * first, places)
    if len(total) == spec.numel:
        # No element of another tensor lies in between.
        inside: Any = slice(None)
        span = _memory(address - begin * spec.itemsize, len(total), narrow.dtype.numpy)
    else:
        span, inside = memory(address, offsets(spec.shape, spec.strides), narrow.dtype.numpy)
    span[inside] = total[inside].astype(narrow.dtype.numpy)


def _copied(address: int, shape: Ints, strides: Ints, dtype: Any) -> tuple[Array, int]:
    """A float32 copy of the memory under strided elements, and the place of the first of them."""
    ways = [(size - 1) * stride for size, stride in zip(shape, strides, strict=True)]
    low, high = sum(min(way, 0) for way in ways), sum(max(way, 0) for way in ways)
    span = _memory(address + low * dtype.itemsize, high - low + 1, dtype)
    return span.astype(np.float32), -low


def _memory(address: int, count: int, dtype: Any) -> Array:
    span: Any = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
    return np.frombuffer(span, dtype)

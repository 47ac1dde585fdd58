"""Index loops as NumPy runs them: what the compiled loops must agree with.

Operands are raw addresses; the bindings of ``slipstream.core.kernels.cpu.gathering`` say how
memory is walked.  A position is the number of an element in row-major order of the binding's shape.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any, NamedTuple

import numpy as np

Array = Any
Ints = tuple[int, ...]


class IndexOperand(NamedTuple):
    """An index tensor: ``strides`` over the binding's shape (0 where it is broadcast).

    An index i moves the indexed side by ``step`` elements for each of its ``size`` places;
    ``itemsize`` is 8 (int64) or 4 (int32).  With ``wraps``, -size <= i < 0 counts from the end,
    else it is refused.  ``dim`` names the dimension in errors.
    """

    strides: Ints
    step: int
    size: int
    itemsize: int = 8
    wraps: bool = False
    dim: int = 0


def offsets(shape: Ints, strides: Ints) -> Array:
    """Return the offset, in elements, of every position of a strided walk."""
    total = np.zeros((1,) * len(shape), np.int64)
    for dim, (size, stride) in enumerate(zip(shape, strides, strict=True)):
        along = np.arange(size, dtype=np.int64) * stride
        total = total + along.reshape((size,) + (1,) * (len(shape) - dim - 1))
    return np.ascontiguousarray(np.broadcast_to(total, shape)).reshape(-1)


def memory(address: int, places: Array, dtype: np.dtype[Any]) -> tuple[Array, Array]:
    """Return the span of memory that holds ``places``, and the places as indices into it."""
    first, last = int(places.min()), int(places.max())
    nbytes = (last - first + 1) * dtype.itemsize
    span: Any = (ctypes.c_char * nbytes).from_address(address + first * dtype.itemsize)
    return np.frombuffer(span, dtype), places - first


def read(address: int, places: Array, dtype: np.dtype[Any]) -> Array:
    """Return the elements at some places."""
    if len(places) == 0:
        return np.empty(0, dtype)
    span, inside = memory(address, places, dtype)
    return span[inside]


def element(address: int, place: int, itemsize: int) -> int:
    """Return one signed integer of a tensor."""
    data = ctypes.string_at(address + place * itemsize, itemsize)
    return int.from_bytes(data, sys.byteorder, signed=True)


def opaque(itemsize: int) -> np.dtype[Any]:
    """Return a dtype whose elements are moved bit by bit."""
    return np.dtype(f"u{itemsize}" if itemsize <= 8 else f"V{itemsize}")


def resolve(shape: Ints, indices: tuple[IndexOperand, ...], addresses: Ints) -> tuple[Array, int]:
    """Return each position's shift of the indexed side, and the code of the first bad index.

    The code is position * len(indices) + number of the index; -1 where all are good.
    """
    shift = np.zeros(int(np.prod(shape, dtype=np.int64)), np.int64)
    bad = np.full(len(shift), -1, np.int64)
    for number, (index, address) in enumerate(zip(indices, addresses, strict=True)):
        dtype = np.dtype(f"i{index.itemsize}")
        values = read(address, offsets(shape, index.strides), dtype).astype(np.int64)
        if index.wraps:
            values = np.where(values < 0, values + index.size, values)
        faults = (values < 0) | (values >= index.size)
        bad[faults & (bad < 0)] = number
        shift += np.where(faults, 0, values) * index.step
    wrong = np.flatnonzero(bad >= 0)
    if len(wrong) == 0:
        return shift, -1
    return shift, int(wrong[0]) * len(indices) + int(bad[wrong[0]])


def run(binding: Any, target: int, source: int, addresses: Ints) -> int:
    """Move or accumulate elements up to the first bad index; return its code, else -1."""
    shift, code = resolve(binding.shape, binding.indices, addresses)
    count = len(shift) if code < 0 else code // len(addresses)
    if count == 0:
        return code
    target_places = offsets(binding.shape, binding.target_strides)
    source_places = offsets(binding.shape, binding.source_strides)
    if binding.kind == "read":
        source_places = source_places + shift
    else:
        target_places = target_places + shift
    adds = binding.kind == "add"
    dtype = binding.dtype.numpy if adds else opaque(binding.dtype.itemsize)
    values = read(source, source_places[:count], dtype)
    span, inside = memory(target, target_places[:count], dtype)
    if adds:
        with np.errstate(over="ignore", invalid="ignore"):
            np.add.at(span, inside, values)
    else:
        span[inside] = values
    return code


def chosen(binding: Any, mask: int) -> Array:
    """Return the positions where a mask is true."""
    return np.flatnonzero(read(mask, offsets(binding.shape, binding.mask_strides), opaque(1)))


def nonzero(binding: Any, target: int, mask: int, steps: tuple[int, int]) -> int:
    """Store the coordinates of the true elements; return their number."""
    found = chosen(binding, mask)
    if len(found) == 0 or len(binding.shape) == 0:
        return len(found)
    coordinates = np.stack(np.unravel_index(found, binding.shape), axis=1)
    span, inside = memory(target, offsets(coordinates.shape, steps), np.dtype(np.int64))
    span[inside] = coordinates.reshape(-1)
    return len(found)


def select(binding: Any, target: int, source: int, mask: int) -> int:
    """Store the elements where the mask is true one after another; return their number."""
    found = chosen(binding, mask)
    if len(found):
        dtype = opaque(binding.dtype.itemsize)
        places = offsets(binding.shape, binding.strides)[found]
        memory(target, np.arange(len(found)), dtype)[0][:] = read(source, places, dtype)
    return len(found)


def spread(binding: Any, target: int, source: int, mask: int) -> int:
    """Store the source's elements, one after another, where the mask is true; return how many."""
    found = chosen(binding, mask)
    if len(found):
        dtype = opaque(binding.dtype.itemsize)
        span, inside = memory(target, offsets(binding.shape, binding.strides)[found], dtype)
        span[inside] = read(source, np.arange(len(found)), dtype)
    return len(found)

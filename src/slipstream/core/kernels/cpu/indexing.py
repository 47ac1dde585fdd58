"""Index kernels on the CPU: the walks of `gathering` over the operands of a plan.

A write whose memory was given (in-place, out=) looks at every index before it touches the target,
so that a bad index leaves the target as it was.
"""

from __future__ import annotations

from typing import Any

import cython
import numpy as np

from slipstream.core.kernels.cpu import narrow_sums
from slipstream.core.kernels.cpu.arrays import tensor_array
from slipstream.core.kernels.cpu.gathering import (
    GatherBinding,
    Gathering,
    MaskBinding,
    gathering,
)
from slipstream.core.kernels.cpu.gathering_arrays import IndexOperand
from slipstream.core.vocab.records import Kernel, Plan, TensorBase

__all__ = ["CountKernel", "Gathering", "JoinKernel", "NonzeroKernel", "ReadKernel",
           "ScatterProductKernel", "SelectKernel", "SpreadKernel", "WriteKernel"]


def address(tensor: TensorBase) -> int:
    """Where the tensor's first element lies."""
    return tensor.storage.address + tensor.offset * tensor.spec.itemsize


def check_indices(indices: tuple[IndexOperand, ...], tensors: Any, kind: type[Exception]) -> None:
    """Raise ``kind`` for the first index that lies outside its dimension."""
    for index, tensor in zip(indices, tensors, strict=True):
        values = tensor_array(tensor)
        low = -index.size if index.wraps else 0
        if values.size and (values.min() < low or values.max() >= index.size):
            flat = values.reshape(-1)
            found = flat[np.flatnonzero((flat < low) | (flat >= index.size))[0]]
            raise kind(f"index {found} is out of bounds for dimension {index.dim} "
                       f"with size {index.size}")


def addresses(operands: tuple[Any, ...], first: int, last: int) -> tuple[int, ...]:
    """Where some of the operands lie."""
    found: list = []
    place: cython.Py_ssize_t
    for place in range(first, last):
        found.append(address(operands[place]))
    return tuple(found)


def checks_of(binding: GatherBinding) -> GatherBinding:
    """The walk that looks at every index of another once and moves nothing."""
    shape = tuple([size if any([index.strides[dim] for index in binding.indices]) else min(size, 1)
                   for dim, size in enumerate(binding.shape)])
    still = (0,) * len(shape)
    return GatherBinding(binding.dtype, shape, still, still, binding.indices, "read")


class ReadKernel(Kernel):
    """out[position] = source[position moved by the indices]; ``failure`` is the error raised."""

    def __init__(self, name: str, binding: GatherBinding, failure: type[Exception],
                 checked: bool = False) -> None:
        self.name = name
        self.binding = binding
        self.failure = failure
        self.checks = checks_of(binding) if checked else None

    def run(self, plan: Plan, operands: tuple[Any, ...], numbers: tuple[Any, ...]) -> None:
        """Operands: out, source, index tensors."""
        places: tuple = addresses(operands, 2, len(operands))
        code: cython.Py_ssize_t
        if self.checks is not None:
            code = gathering.check(self.checks, places)
            if code >= 0:
                raise self.failure(str(gathering.failure(self.checks, code, places)))
        code = gathering.run(self.binding, address(operands[0]), address(operands[1]), places)
        if code >= 0:
            raise self.failure(str(gathering.failure(self.binding, code, places)))


class WriteKernel(Kernel):
    """out = self, then out[position moved by the indices] = or += value."""

    def __init__(self, name: str, binding: GatherBinding, failure: type[Exception],
                 copy: GatherBinding | None) -> None:
        self.name = name
        self.binding = binding
        self.failure = failure
        self.copy = copy
        self.wide = narrow_sums.widened(binding)
        self.checks = checks_of(binding)
        self.last = 2 + len(binding.indices)

    def run(self, plan: Plan, operands: tuple[Any, ...], numbers: tuple[Any, ...]) -> None:
        """Operands: out, self, index tensors, the value unless it is a number."""
        places: tuple = addresses(operands, 2, self.last)
        code: cython.Py_ssize_t = gathering.check(self.checks, places)
        if code >= 0:
            raise self.failure(str(gathering.failure(self.checks, code, places)))
        if self.copy is not None:
            gathering.run(self.copy, address(operands[0]), address(operands[1]), ())
        if len(operands) > self.last:
            self._store(operands[0], address(operands[self.last]), places)
            return
        # A number is one element that every position reads: the strides of the value are 0.
        dtype = self.binding.dtype
        number = np.array(converted(numbers[0], dtype), dtype.numpy)
        self._store(operands[0], number.ctypes.data, places)

    def _store(self, out: TensorBase, source: cython.size_t, places: tuple[Any, ...]) -> None:
        """Write or add the values at ``source``."""
        if self.wide is None:
            gathering.run(self.binding, address(out), source, places)
        else:
            narrow_sums.add(self.binding, self.wide, out, source, places)


def converted(number: Any, dtype: Any) -> Any:
    """A Python number as a dtype stores it: integers wrap, fractions are cut off."""
    if dtype.category == 1:
        bits = 8 * dtype.itemsize
        whole = int(number) & ((1 << bits) - 1)
        return whole - (1 << bits) if dtype.is_signed and whole >> (bits - 1) else whole
    return bool(number) if dtype.category == 0 else number


class ScatterProductKernel(Kernel):
    """out = self, then out[index along dim] *= source, in index order."""

    def __init__(self, dim: int, size: int, copies: bool) -> None:
        self.name = "scatter product"
        self.dim = dim
        self.copies = copies
        self.size = size

    def run(self, plan: Plan, operands: tuple[Any, ...], numbers: tuple[Any, ...]) -> None:
        """Operands: out, self, index, the source unless it is a number."""
        dim = self.dim
        index = np.atleast_1d(tensor_array(operands[2]))
        check_indices((IndexOperand((), 1, self.size, dim=dim),), (operands[2],), RuntimeError)
        out = tensor_array(operands[0])
        if self.copies:
            out[...] = tensor_array(operands[1])
        target = out.reshape(1) if not out.ndim else out
        value: Any = numbers[0] if len(operands) < 4 else tensor_array(operands[3])
        if len(operands) > 3:
            value = np.atleast_1d(value)[tuple([slice(0, n) for n in index.shape])]
        places: list[Any] = list(np.indices(index.shape, sparse=True))
        places[dim] = index
        value = np.asarray(value).astype(target.dtype)
        with np.errstate(all="ignore"):
            if not narrow_sums.is_narrow(operands[0].spec.dtype):
                np.multiply.at(target, tuple(places), value)
                return
            product = target.astype(np.float32)
            np.multiply.at(product, tuple(places), value.astype(np.float32))
            target[...] = product.astype(target.dtype)


class JoinKernel(Kernel):
    """Copies pieces to their places in one target: cat and stack.

    ``places``: numbers of the pieces that have elements; ``parts``: where each goes, an index.
    """

    def __init__(self, bindings: list[Any], offsets: list[int], places: list[int],
                 parts: list[Any] | None) -> None:
        self.name = "join"
        self.bindings = tuple(bindings)
        self.offsets = tuple(offsets)
        self.places = places
        self.parts = parts

    def run(self, plan: Plan, operands: tuple[Any, ...], numbers: tuple[Any, ...]) -> None:
        """Operands: out, pieces."""
        if self.parts is None:
            number: cython.Py_ssize_t
            target: cython.size_t = address(operands[0])
            for number in range(len(self.bindings)):
                offset: cython.size_t = self.offsets[number]
                place: cython.Py_ssize_t = self.places[number]
                gathering.run(self.bindings[number], target + offset,
                              address(operands[1 + place]), ())
            return
        out = tensor_array(operands[0])
        with np.errstate(all="ignore"):
            for place, part in zip(self.places, self.parts, strict=True):
                piece = tensor_array(operands[1 + place])
                out[part] = piece.astype(out.dtype)


class CountKernel(Kernel):
    """How many elements of a mask are true."""

    def __init__(self, binding: MaskBinding) -> None:
        self.name = "count of a mask"
        self.binding = binding

    def run(self, plan: Plan, operands: tuple[Any, ...], numbers: tuple[Any, ...]) -> None:
        """Operands: out int64[], mask."""
        tensor_array(operands[0])[...] = gathering.count(self.binding, address(operands[1]))


class NonzeroKernel(Kernel):
    """The coordinates of a mask's true elements."""

    def __init__(self, binding: MaskBinding) -> None:
        self.name = "coordinates of a mask"
        self.binding = binding

    def run(self, plan: Plan, operands: tuple[Any, ...], numbers: tuple[Any, ...]) -> None:
        """Operands: out int64[count, ndim], mask."""
        out = operands[0]
        if out.spec.numel:
            gathering.nonzero(self.binding, address(out), address(operands[1]), out.spec.strides)


class SelectKernel(Kernel):
    """The elements where a mask is true, one after another."""

    def __init__(self, binding: MaskBinding) -> None:
        self.name = "elements of a mask"
        self.binding = binding

    def run(self, plan: Plan, operands: tuple[Any, ...], numbers: tuple[Any, ...]) -> None:
        """Operands: out, source, mask."""
        out, source, mask = operands
        if out.spec.numel:
            gathering.select(self.binding, address(out), address(source), address(mask))


class SpreadKernel(Kernel):
    """Zeros, with a contiguous source's elements in turn where a mask is true."""

    def __init__(self, binding: MaskBinding) -> None:
        self.name = "spread over a mask"
        self.binding = binding

    def run(self, plan: Plan, operands: tuple[Any, ...], numbers: tuple[Any, ...]) -> None:
        """Operands: out, source, mask."""
        out, source, mask = operands
        tensor_array(out)[...] = 0
        if source.spec.numel:
            gathering.spread(self.binding, address(out), address(source), address(mask))

"""Index kernels: reading and writing by tensors of indices, see `walks` and `writes`."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from slipstream.core.kernels.cpu.gathering import GatherBinding
from slipstream.core.kernels.cpu.gathering_arrays import IndexOperand
from slipstream.core.kernels.cpu.indexing import converted
from slipstream.core.kernels.cuda.walks import address, described, read_launch
from slipstream.core.kernels.cuda.writes import (
    LOOKED,
    MULTIPLY,
    SPARE,
    WRITE,
    Looking,
    Maker,
    Marking,
    Sorting,
    Target,
    value_of,
)
from slipstream.core.launch.cuda.launches import Launch, LaunchKernel
from slipstream.core.vocab.records import Kernel, Plan, TensorBase


def read(plan: Any, call: Any) -> LaunchKernel:
    """gather, index_select, embedding, indices in tensors."""
    kernel = described(plan, call)
    plan.binding = read_launch(plan, kernel.binding)
    return LaunchKernel(f"cuda {call.op.name}")


class WriteKernel(Kernel):
    """out = self, then values written, added or multiplied at indices.

    ``copy`` is the launch of the first part, None in place; ``way`` carries out the second one,
    None where no position is written.
    """

    def __init__(self, name: str, copy: Launch | None, way: Any) -> None:
        self.name = name
        self.copy = copy
        self.way = way
        # The dtype of the value, where it is a Python number that is only moved.
        self.moved: Any = None

    def run(self, plan: Plan, operands: tuple[Any, ...], numbers: tuple[Any, ...]) -> None:
        """Operands: out, self, index tensors, the value unless it is a number."""
        places = [address(tensor) for tensor in operands]
        backend: Any = plan.backend
        if self.copy is not None:
            backend.record(self.copy, (places[0], places[1]), ())
        if self.way is not None:
            given = numbers if self.moved is None else bits_of(numbers[0], self.moved)
            self.way.run(backend, places, given)


def bits_of(number: Any, dtype: Any) -> tuple[int, int]:
    """The bits of a number in a dtype, as two words."""
    data = np.array(converted(number, dtype), dtype.numpy).tobytes().ljust(16, b"\0")
    return int.from_bytes(data[:8], "little"), int.from_bytes(data[8:], "little")


def way_of(maker: Maker) -> Any:
    """How positions that meet find each other: by sizes only."""
    target = maker.target
    length = target.size(target.lines)
    if length <= LOOKED:
        return Looking(maker)
    positions = length * target.size(target.groups)
    table = target.keys() * target.size(target.groups)
    if maker.value.way == WRITE and table <= SPARE * positions:
        return Marking(maker)
    return Sorting(maker)


def write_kernel(plan: Any, name: str, binding: Any, copy: Any, number: Any = None) -> WriteKernel:
    """The kernel of a binding; ``number``: the value where it is one."""
    way = None
    if prod(binding.shape):
        value = value_of(binding.dtype, binding.kind, number)
        way = way_of(Maker(plan, Target.of(binding), value))
    kernel = WriteKernel(name, None if copy is None else read_launch(plan, copy), way)
    if number is not None and binding.kind == WRITE:
        kernel.moved = binding.dtype
    return kernel


def write(plan: Any, call: Any) -> WriteKernel:
    """scatter, index_copy, index_add, writing at indices in tensors."""
    kernel = described(plan, call)
    name = f"cuda {call.op.name}"
    value = next((call.arguments[each] for each in ("src", "source", "values")
                  if each in call.arguments), None)
    number = None if isinstance(value, TensorBase) else value
    if call.arguments.get("reduce") == "multiply":
        binding = _product_binding(plan.out_spec, call, kernel)
        copy = GatherBinding(binding.dtype, plan.out_spec.shape, plan.out_spec.strides,
                             call.spec("self").strides) if kernel.copies else None
        return write_kernel(plan, name, binding, copy, number)
    return write_kernel(plan, name, kernel.binding, kernel.copy, number)


class _Product:
    """The walk of a scatter that multiplies."""

    kind = MULTIPLY

    def __init__(self, dtype: Any, shape: tuple[int, ...], strides: Any,
                 indices: tuple[IndexOperand, ...]) -> None:
        self.dtype = dtype
        self.shape = shape
        self.target_strides, self.source_strides = strides
        self.indices = indices


def _product_binding(out: Any, call: Any, kernel: Any) -> _Product:
    index, source = call.spec("index"), call["src"]
    shape = index.shape or (1,)
    strides = out.strides or (0,)
    dim = kernel.dim
    own = (0,) * len(shape)
    if isinstance(source, TensorBase):
        own = source.spec.strides or (0,)
    operand = IndexOperand(index.strides or (0,), strides[dim], kernel.size, index.itemsize, False,
                           dim)
    moved = (*strides[:dim], 0, *strides[dim + 1:])
    return _Product(out.dtype, shape, (moved, own), (operand,))

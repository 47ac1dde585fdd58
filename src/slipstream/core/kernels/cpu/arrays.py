"""NumPy arrays over raw memory, and kernels written over them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from slipstream.core.vocab.records import Kernel, Plan, TensorBase


def array_of(address: int, shape: tuple[int, ...], steps: tuple[int, ...],
             dtype: np.dtype) -> np.ndarray:
    """An array over memory at ``address``; ``steps`` are strides in bytes, maybe negative."""
    low = high = 0
    for size, step in zip(shape, steps, strict=True):
        if size == 0:
            return np.empty(shape, dtype)
        if step < 0:
            low += (size - 1) * step
        else:
            high += (size - 1) * step
    span = high - low + dtype.itemsize
    buffer = (ctypes.c_char * span).from_address(address + low)
    return np.ndarray(shape, dtype, buffer, -low, steps)


def tensor_array(tensor: TensorBase) -> np.ndarray:
    """The tensor's elements as an array that shares its memory (no owner: keep the tensor)."""
    spec: Any = tensor.spec
    itemsize = spec.itemsize
    address = tensor.storage.address + tensor.offset * itemsize
    return array_of(address, spec.shape, tuple(s * itemsize for s in spec.strides),
                    spec.dtype.numpy)


class ArrayKernel(Kernel):
    """Runs ``function(outputs, inputs, numbers, plan)`` over NumPy arrays of the operands."""

    def __init__(self, name: str, function: Callable[..., None]) -> None:
        self.name = name
        self.function = function

    def run(self, plan: Plan, operands: tuple[Any, ...], numbers: tuple[Any, ...]) -> None:
        """Call the function."""
        arrays = [tensor_array(operand) for operand in operands]
        count = len(plan.out_specs)
        with np.errstate(all="ignore"):
            self.function(arrays[:count], arrays[count:], numbers, plan)


class NoKernel(Kernel):
    """Writes nothing: the result's memory stays as it is."""

    def __init__(self) -> None:
        self.name = "nothing"

    def run(self, plan: Plan, operands: tuple[Any, ...], numbers: tuple[Any, ...]) -> None:
        """Leave the memory as it is."""


no_kernel = NoKernel()

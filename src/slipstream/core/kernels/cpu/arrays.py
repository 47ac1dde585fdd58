"""NumPy arrays over raw memory, and kernels written over them."""

from __future__ import annotations

import contextvars
import ctypes
from collections.abc import Callable
from typing import Any

import cython
import numpy as np

from slipstream.core.vocab.records import Kernel, Plan, TensorBase

# PyBUF_WRITE of the C API.
WRITABLE = 0x200
# Arrays kept for each operand of a plan: addresses repeat, since the allocator is deterministic.
KEPT = 64


def _silent() -> contextvars.Context:
    """A context without floating-point warnings: entering it costs less than np.errstate."""
    context = contextvars.Context()
    context.run(np.seterr, all="ignore")
    return context


SILENT = _silent()


def array_of(address: Any, shape: tuple[int, ...], steps: tuple[int, ...],
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
    if cython.compiled:
        start: cython.size_t = address + low
        buffer = PyMemoryView_FromMemory(  # type: ignore[name-defined]  # noqa: F821
            cython.cast(cython.p_char, start), span, WRITABLE)
    else:
        buffer = (ctypes.c_char * span).from_address(address + low)
    return np.ndarray(shape, dtype, buffer, -low, steps)


def tensor_array(tensor: TensorBase) -> np.ndarray:
    """The tensor's elements as an array that shares its memory (no owner: keep the tensor)."""
    spec: Any = tensor.spec
    itemsize = spec.itemsize
    address = tensor.storage.address + tensor.offset * itemsize
    return array_of(address, spec.shape, tuple([s * itemsize for s in spec.strides]),
                    spec.dtype.numpy)


class ArrayKernel(Kernel):
    """Runs ``function(outputs, inputs, numbers, plan)`` over NumPy arrays of the operands."""

    def __init__(self, name: str, function: Callable[..., None]) -> None:
        self.name = name
        self.function = function

    def run(self, plan: Plan, operands: tuple[Any, ...], numbers: tuple[Any, ...]) -> None:
        """Call the function; operands in the same place always have the plan's geometry."""
        kept: list = plan.binding
        if kept is None or len(kept) != len(operands):
            kept = plan.binding = [{} for _ in operands]
        arrays: list = []
        place: cython.Py_ssize_t = 0
        tensor: TensorBase
        for operand in operands:
            tensor = operand
            views: dict = kept[place]
            place += 1
            address = tensor.storage.address + tensor.offset * tensor.spec.itemsize
            array = views.get(address)
            if array is None:
                if len(views) >= KEPT:
                    views.clear()
                array = views[address] = tensor_array(tensor)
            arrays.append(array)
        count: cython.Py_ssize_t = len(plan.out_specs)
        SILENT.copy().run(self.function, arrays[:count], arrays[count:], numbers, plan)


class NoKernel(Kernel):
    """Writes nothing: the result's memory stays as it is."""

    def __init__(self) -> None:
        self.name = "nothing"

    def run(self, plan: Plan, operands: tuple[Any, ...], numbers: tuple[Any, ...]) -> None:
        """Leave the memory as it is."""


no_kernel = NoKernel()

"""Numbers at equal distances on the CPU."""

# The C functions are declared in the .pxd.
# ruff: noqa: F821
# mypy: disable-error-code="name-defined"
from __future__ import annotations

from typing import Any

import cython
import numpy as np

from slipstream.core.kernels.cpu.arrays import tensor_array
from slipstream.core.vocab.records import Kernel, Plan, Spec, TensorBase

__all__ = ["RangeKernel", "Spec"]

# Codes of the dtypes that the C loops store.
STORED = (5, 8, 9)


class RangeKernel(Kernel):
    """out[i] = start + step * i: in int64 if both are whole, else in float64; then cast."""

    def __init__(self) -> None:
        self.name = "range"

    def run(self, plan: Plan, operands: tuple[Any, ...], numbers: tuple[Any, ...]) -> None:
        """Operands: a contiguous out; numbers: start, step."""
        out: TensorBase = operands[0]
        spec: Spec = out.spec
        start = numbers[0]
        step = numbers[1]
        if cython.compiled:
            code: cython.int = spec.dtype.code
            at: cython.size_t = out.storage.address + out.offset * spec.itemsize
            if code in STORED and type(start) is int and type(step) is int:
                slip_whole_range(code, at, spec.numel, start, step)
                return
            if code in STORED and code != STORED[0] and isinstance(start + step, float):
                slip_real_range(code, at, spec.numel, start, step)
                return
        # What is out of the dtype's range becomes infinite, without a word.
        with np.errstate(all="ignore"):
            values = start + step * np.arange(spec.numel)
            tensor_array(out)[...] = values.astype(spec.dtype.numpy)

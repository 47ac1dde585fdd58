"""The loss of classes and its transpose as compiled loops over contiguous operands."""

# The C functions are declared in the .pxd.
# ruff: noqa: F821
# mypy: disable-error-code="name-defined"
from __future__ import annotations

import struct
from typing import Any

import cython

from slipstream.core.kernels.cpu.losses import Terms
from slipstream.core.vocab.records import Kernel, Plan, TensorBase

__all__ = ["ClassLoss", "TensorBase", "refusal"]

WAYS = ("none", "mean", "sum")
# Below this many elements letting go of the GIL costs more than it gives.
SMALL = 16384


def refusal(specs: list[Any]) -> str:
    """Why the loops do not take tensors of these specs, scores or gradient first, or ""."""
    if not cython.compiled:
        return "the core is not compiled"
    if specs[0].dtype.name not in ("float32", "float64"):
        return f"no loops for {specs[0].dtype.name}"
    if not all(spec.contiguous for spec in specs):
        return "an operand is not contiguous"
    return ""


class ClassLoss(Kernel):
    """Forward, or with ``slope`` the transpose; ``shape``: rows, classes, positions."""

    def __init__(self, shape: tuple[int, int, int], terms: Terms, target: Any, wide: bool,
                 slope: bool) -> None:
        self.name = "cpu class loss"
        self.wide = wide
        self.slope = slope
        self.numel = shape[0] * shape[1] * shape[2]
        self.packed = struct.pack("=6qd", *shape, terms.ignore_index, int(target.itemsize == 8),
                                  WAYS.index(terms.reduction), terms.smoothing)

    def run(self, plan: Plan, operands: tuple[Any, ...], numbers: tuple[Any, ...]) -> None:
        """Operands: the result, scores or gradient, targets, weights; IndexError for no class."""
        if cython.compiled:
            at = cython.declare(cython.p_char[4])
            place: cython.Py_ssize_t = 0
            tensor: TensorBase
            at[3] = cython.NULL
            for operand in operands:
                tensor = operand
                at[place] = cython.cast(cython.p_char, tensor.storage.address
                                        + tensor.offset * tensor.spec.itemsize)
                place += 1
            packed: cython.p_char = self.packed
            wide: cython.bint = self.wide
            slope: cython.bint = self.slope
            bad: cython.int
            wrong: cython.longlong = 0
            if self.numel < SMALL:
                bad = slip_class_loss(packed, slope, wide, at[0], at[1], at[2], at[3],
                                      cython.address(wrong))
            else:
                with cython.nogil:
                    bad = slip_class_loss(packed, slope, wide, at[0], at[1], at[2], at[3],
                                          cython.address(wrong))
            if bad:
                raise IndexError(f"Target {wrong} is out of bounds.")

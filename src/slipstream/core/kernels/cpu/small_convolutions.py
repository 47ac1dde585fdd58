"""Convolutions of few pixels: plain loops, since columns and a call of BLAS cost more than they do.

out[n, o, i, j] = bias[o] + the sum over (c, y, x) of weight[o, c, y, x] * image[n, c', y', x'],
summed in float64 in that order; a pixel of the padding adds nothing.
"""

# The C functions are declared in the .pxd.
# ruff: noqa: F821
# mypy: disable-error-code="name-defined"
from __future__ import annotations

import struct
from typing import Any

import cython

from slipstream.core.shapes.windows import Windows
from slipstream.core.vocab import dtypes
from slipstream.core.vocab.records import Kernel, Plan, TensorBase

__all__ = ["LARGEST", "SmallConvolution", "TensorBase", "refusal"]

# Multiplications up to which the loops are faster than BLAS.
LARGEST = 4096


def refusal(images: Any, weight: Any, windows: Windows) -> str:
    """Why the loops do not take a convolution of these specs, or ""."""
    if not cython.compiled:
        return "the core is not compiled"
    if images.dtype not in (dtypes.float32, dtypes.float64):
        return f"no loops for {images.dtype.name}"
    batch = images.shape[0] if images.ndim == 4 else 1
    if batch * weight.numel * windows.count[0] * windows.count[1] > LARGEST:
        return "too large: BLAS is faster"
    return ""


def _four(values: tuple[int, ...], first: int) -> list[int]:
    """Sizes or strides of an image with a batch dim; ``first`` stands in for it."""
    return [*(values if len(values) == 4 else (first, *values))]


class SmallConvolution(Kernel):
    """The convolution of float32 or float64 images of any strides, with a bias if given.

    ``out``, ``images``, ``weight`` and ``bias`` (or None) are specs.
    """

    def __init__(self, out: Any, images: Any, weight: Any, bias: Any, windows: Windows,
                 groups: int) -> None:
        self.name = "cpu small convolution"
        self.wide = images.dtype is dtypes.float64
        words = [*_four(out.shape, 1), *_four(out.strides, 0), *_four(images.strides, 0),
                 *windows.size, *weight.shape[1:], *weight.strides, out.shape[-3] // groups,
                 *windows.stride, *windows.before, *windows.dilation,
                 bias.strides[0] if bias is not None else 0]
        self.packed = struct.pack(f"={len(words)}q", *words)

    def run(self, plan: Plan, operands: tuple[Any, ...], numbers: tuple[Any, ...]) -> None:
        """Operands: the result, images, the weight and, where there is one, the bias."""
        if cython.compiled:
            at: cython.size_t[4]
            at[3] = 0
            place: cython.Py_ssize_t = 0
            tensor: TensorBase
            for operand in operands:
                tensor = operand
                at[place] = tensor.storage.address + tensor.offset * tensor.spec.itemsize
                place += 1
            packed: cython.p_char = self.packed
            if self.wide:
                slip_convolve_double(packed, at[0], at[1], at[2], at[3])
            else:
                slip_convolve_float(packed, at[0], at[1], at[2], at[3])

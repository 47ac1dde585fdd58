"""Pooling as compiled loops: the largest of each window, and pixels moved by their places.

Any strides; one walk for values, for places, for picking pixels and for spreading them.
"""

# The C functions are declared in the .pxd.
# ruff: noqa: F821
# mypy: disable-error-code="name-defined"
from __future__ import annotations

import struct
from typing import Any

import cython

from slipstream.core.shapes.windows import Windows
from slipstream.core.vocab.records import Kernel, Plan, TensorBase

__all__ = ["PICK", "PLACES", "SPREAD", "VALUES", "TensorBase", "WindowKernel", "refusal"]

VALUES, PLACES, PICK, SPREAD = range(4)
# Below this many elements letting go of the GIL costs more than it gives.
SMALL = 16384


def refusal(dtype: Any, summed: bool = False) -> str:
    """Why the loops do not take a dtype, or ""; ``summed``: pixels may meet."""
    if not cython.compiled:
        return "the core is not compiled"
    if summed and dtype.name not in ("float32", "float64"):
        return f"no loops that add {dtype.name}"
    return ""


def _four(values: tuple[int, ...], first: int, unit: int = 1) -> list[int]:
    """Sizes or strides of an image with a batch dim; ``first`` stands in for it."""
    return [each * unit for each in (values if len(values) == 4 else (first, *values))]


class WindowKernel(Kernel):
    """One walk over images and the cells of their windows.

    ``images`` and ``cells`` are specs; ``index``, the spec of places, is for PICK and SPREAD.
    """

    def __init__(self, mode: int, images: Any, cells: Any, index: Any, windows: Windows | None,
                 disjoint: bool) -> None:
        self.name = "cpu windows"
        self.mode = mode
        self.numel = max(images.numel, cells.numel)
        item = images.itemsize
        words = [mode, images.dtype.code, item, int(disjoint), *_four(images.shape, 1),
                 *cells.shape[-2:], *_four(images.strides, 0, item),
                 *_four(cells.strides, 0, cells.itemsize)]
        words += _four(index.strides, 0, 8) if index is not None else [0] * 4
        if windows is not None:
            words += [*windows.kernel, *windows.stride, *windows.before, *windows.dilation]
        self.packed = struct.pack(f"={len(words)}q", *words)

    def run(self, plan: Plan, operands: tuple[Any, ...], numbers: tuple[Any, ...]) -> None:
        """Operands: the result, then images or cells, then places; IndexError for one outside."""
        if cython.compiled:
            at: cython.size_t[3]
            place: cython.Py_ssize_t = 0
            tensor: TensorBase
            for operand in operands:
                tensor = operand
                at[place] = tensor.storage.address + tensor.offset * tensor.spec.itemsize
                place += 1
            if place < 3:
                at[2] = at[1]
            # Only SPREAD writes the images.
            first: cython.Py_ssize_t = 0 if self.mode == SPREAD else 1
            images = cython.declare(cython.p_char, cython.cast(cython.p_char, at[first]))
            cells = cython.declare(cython.p_char, cython.cast(cython.p_char, at[1 - first]))
            index = cython.declare(cython.p_char, cython.cast(cython.p_char, at[2]))
            packed: cython.p_char = self.packed
            bad: cython.int
            if self.numel < SMALL:
                bad = slip_windows(packed, images, cells, index)
            else:
                with cython.nogil:
                    bad = slip_windows(packed, images, cells, index)
            if bad == 1:
                raise IndexError("the place of a pixel is outside its image")
            if bad:
                raise MemoryError

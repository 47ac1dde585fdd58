# cython: annotation_typing=False
"""Pooling: the largest pixel of each window."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from slipstream.core.catalog.convolution import laid_out
from slipstream.core.catalog.table import define, ops
from slipstream.core.dispatch.entry import COMPOUND, INDEX, Entry
from slipstream.core.dispatch.registry import Candidate
from slipstream.core.kernels.cpu import pooling, windowing
from slipstream.core.kernels.cpu.arrays import ArrayKernel
from slipstream.core.kernels.cpu.windowing import WindowKernel
from slipstream.core.shapes.windows import Windows, pooling_windows
from slipstream.core.vocab import dtypes

REAL = ("int", "float")


def windows_of(call: Any) -> Windows:
    """The windows of a call; raises RuntimeError where there are none."""
    shape = call.spec("self").shape
    try:
        windows = pooling_windows(shape[-2:], call["kernel_size"], call["stride"], call["padding"],
                                  call["dilation"], call["ceil_mode"])
    except RuntimeError as failure:
        raise call.error(RuntimeError, str(failure)) from None
    if min(windows.count) < 1:
        given = "x".join(str(n) for n in shape[-3:])
        found = "x".join(str(n) for n in (shape[-3], *windows.count))
        raise call.error(RuntimeError, f"Given input size: ({given}). Calculated output size: "
                                       f"({found}). Output size is too small")
    return windows


def check_images(call: Any) -> None:
    """Three or four dims, none empty but that of the batch; real numbers."""
    spec = call.spec("self")
    if spec.ndim not in (3, 4):
        raise call.error(RuntimeError, "non-empty 3D or 4D (batch mode) tensor expected for input")
    if not math.prod(spec.shape[-3:]):
        raise call.error(RuntimeError, "Expected 3D or 4D (batch mode) tensor with optional 0 dim "
                                       f"batch size for input, but got:{list(spec.shape)}")
    if spec.dtype.kind in ("bool", "complex"):
        raise call.error(NotImplementedError,
                         f"\"max_pool2d\" not implemented for '{spec.dtype.name}'")


def _over_arrays(function: Any) -> Candidate:
    """The largest of each window cell by cell, all windows at a time."""
    shared = ArrayKernel("numpy, cell by cell", function)

    def make(plan: Any, call: Any) -> ArrayKernel:
        plan.statics = (windows_of(call),)
        return shared

    return Candidate(shared.name, make)


def _loops(mode: int) -> Candidate:
    """The compiled loops that find the largest of each window: its value or its place."""
    def make(plan: Any, call: Any) -> WindowKernel:
        return WindowKernel(mode, call.spec("self"), plan.out_spec, None, windows_of(call), False)

    return Candidate("loops", make, lambda call: windowing.refusal(call.spec("self").dtype))


def _pick_loops(plan: Any, call: Any) -> WindowKernel:
    return WindowKernel(windowing.PICK, call.spec("self"), plan.out_spec, call.spec("indices"),
                        None, False)


def _spread_loops(plan: Any, call: Any) -> WindowKernel:
    return WindowKernel(windowing.SPREAD, plan.out_spec, call.spec("self"), call.spec("indices"),
                        None, call["disjoint"])


def _spread_refusal(call: Any) -> str:
    return windowing.refusal(call.spec("self").dtype, not call["disjoint"])


def _spread(plan: Any, call: Any) -> ArrayKernel:
    plan.statics = (call["disjoint"],)
    return _SPREAD


_PICK = ArrayKernel("numpy", pooling.pick)
_SPREAD = ArrayKernel("numpy", pooling.spread)

_WINDOW = ("any kernel_size, any stride=None, any padding=0, any dilation=1, "
           "bool ceil_mode=False")


def _slope(g: Any, self: Any, window: tuple[Any, ...]) -> Any:
    """The gradient at the places of the largest pixels, which are looked for only now."""
    kernel_size, stride, _, dilation, _ = window
    indices = ops.max_pool2d_indices.call((self, *window), None)
    return ops.spread_pixels.call(
        (g, indices, self.spec.shape, disjoint(kernel_size, stride, dilation)), None)


define(Entry(
    f"max_pool2d_values(Tensor self, {_WINDOW})", INDEX,
    shape=lambda call: [laid_out(
        call.spec("self").dtype, (*call.spec("self").shape[:-2], *windows_of(call).count),
        call.spec("self"))],
    gradient={"self": lambda g, self, kernel_size, stride, padding, dilation, ceil_mode: _slope(
        g, self, (kernel_size, stride, padding, dilation, ceil_mode))},
    check=check_images, path="", method=False, dtypes=REAL,
    doc="The largest pixel of each window; nan wins.",
), cpu=(_loops(windowing.VALUES), _over_arrays(pooling.values)), cuda="pooling.values")

define(Entry(
    f"max_pool2d_indices(Tensor self, {_WINDOW})", INDEX,
    shape=lambda call: [laid_out(
        dtypes.int64, (*call.spec("self").shape[:-2], *windows_of(call).count),
        call.spec("self"))],
    check=check_images, path="", method=False, dtypes=REAL,
    doc="For each window the place of its largest pixel in the image, counted over H and W; nan "
        "wins, the first of equals.",
), cpu=(_loops(windowing.PLACES), _over_arrays(pooling.largest)), cuda="pooling.indices")

define(Entry(
    "pick_pixels(Tensor self, Tensor indices, bool disjoint=False)", INDEX,
    shape=lambda call: [laid_out(call.spec("self").dtype, call.spec("indices").shape,
                                 call.spec("indices"))],
    gradient={"self": lambda g, indices, self_spec, disjoint: ops.spread_pixels.call(
        (g, indices, self_spec.shape, disjoint), None)},
    path="", method=False,
    doc="The pixels at indices [..., h, w], counted over H and W of self [..., H, W].",
), cpu=(Candidate("loops", _pick_loops,
                  lambda call: windowing.refusal(call.spec("self").dtype)),
        Candidate("numpy", lambda plan, call: _PICK)), cuda="pooling.pick")

define(Entry(
    "spread_pixels(Tensor self, Tensor indices, any size, bool disjoint=False)", INDEX,
    shape=lambda call: [laid_out(call.spec("self").dtype, tuple(call["size"]),
                                 call.spec("self"))],
    gradient={"self": lambda g, indices, disjoint: ops.pick_pixels.call(
        (g, indices, disjoint), None)},
    path="", method=False,
    doc="Zeros of shape size with self's pixels added at indices; disjoint: no index occurs twice.",
), cpu=(Candidate("loops", _spread_loops, _spread_refusal), Candidate("numpy", _spread)),
   cuda="pooling.spread")


def disjoint(kernel_size: Any, stride: Any, dilation: Any) -> bool:
    """Whether no pixel is in two windows."""
    if dilation == 1 and (stride is None or stride == kernel_size):
        return True
    return bool(pooling_windows((1 << 30, 1 << 30), kernel_size, stride, 0, dilation,
                                False).disjoint)


def _max_pool2d(self: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any,
                ceil_mode: bool, return_indices: bool) -> Any:
    args = (self, kernel_size, stride, padding, dilation, ceil_mode)
    values = ops.max_pool2d_values.call(args, None)
    return (values, ops.max_pool2d_indices.call(args, None)) if return_indices else values


def _samples() -> Any:
    random = np.random.RandomState(6)
    return [((random.randn(2, 3, 6, 5), 2), {}), ((random.randn(3, 7, 7), 3), {
        "stride": 2, "padding": 1}), ((random.randn(1, 2, 8, 7), (3, 2)), {
            "stride": (2, 1), "dilation": (1, 2), "ceil_mode": True})]


def reference(input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0,
              dilation: Any = 1, ceil_mode: bool = False) -> Any:
    """The largest of all cells, by NumPy."""
    windows = pooling_windows(input.shape[-2:], kernel_size, stride, padding, dilation, ceil_mode)
    around = list(zip(windows.before, windows.after, strict=True))
    padded = np.pad(input * 1.0, [(0, 0)] * (input.ndim - 2) + around, constant_values=-np.inf)
    cells = [padded[(..., *windows.cell(row, column))] for row in range(windows.kernel[0])
             for column in range(windows.kernel[1])]
    return np.max(cells, axis=0)


define(Entry(
    "max_pool2d(Tensor self, any kernel_size, any stride=None, any padding=0, any dilation=1, "
    "bool ceil_mode=False, bool return_indices=False)", COMPOUND, function=_max_pool2d,
    path="nn.functional.max_pool2d", method=False, dtypes=REAL, samples=_samples,
    reference=reference,
    doc="The largest pixel of each window of images [N, C, H, W] or [C, H, W]; nan wins. stride is "
        "kernel_size by default; return_indices gives the places too, counted over H and W. "
        "RuntimeError for sizes that do not fit.",
))

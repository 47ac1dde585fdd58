"""Convolutions, and their gradients, which are convolutions again.

All three ops are linear in both operands: with conv(x, w) the convolution, <a, b> the inner
product, <conv(x, w), g> = <x, input_grad(g, w)> = <w, weight_grad(g, x)>.  Their gradients follow
from that.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from slipstream.core.catalog import samples
from slipstream.core.catalog.checks import conj
from slipstream.core.catalog.table import define, ops
from slipstream.core.dispatch.entry import COMPOUND, LIBRARY, Entry
from slipstream.core.dispatch.registry import Candidate
from slipstream.core.kernels.cpu import convolution, row_convolutions, small_convolutions
from slipstream.core.kernels.cpu.arrays import ArrayKernel
from slipstream.core.shapes import formats
from slipstream.core.shapes.windows import Windows, convolution_windows

BOTH = ("int", "float", "complex")


def windows_of(call: Any, image: tuple[int, ...], kernel: tuple[int, ...]) -> Windows:
    """The windows of a call; raises RuntimeError where they do not fit the image."""
    try:
        return convolution_windows(image[-2:], kernel[-2:], call["stride"], call["padding"],
                                   call["dilation"])
    except RuntimeError as failure:
        raise call.error(RuntimeError, str(failure)) from None


def candidate(name: str, function: Any, image: Any, kernel: Any) -> Candidate:
    """A kernel over NumPy arrays that knows its windows."""
    shared = ArrayKernel(name, function)

    def make(plan: Any, call: Any) -> ArrayKernel:
        shape = image(call)
        windows = windows_of(call, shape, kernel(call))
        plan.statics = (convolution.Layout(windows, call["groups"], len(shape) == 4),)
        return shared

    return Candidate(name, make)


def either(rows: Any, name: str, function: Any, image: Any, kernel: Any) -> tuple[Candidate, ...]:
    """The kernel for images of one long row, and the one for all others."""
    own = candidate("rows and matrix product", rows, image, kernel)
    taken = Candidate(own.name, own.make, lambda call: row_convolutions.refusal(
        windows_of(call, image(call), kernel(call))))
    return taken, candidate(name, function, image, kernel)


def _small_refusal(call: Any) -> str:
    x, w = call.spec("self"), call.spec("weight")
    return small_convolutions.refusal(x, w, windows_of(call, x.shape, w.shape))


def _small(plan: Any, call: Any) -> small_convolutions.SmallConvolution:
    x, w, bias = call.spec("self"), call.spec("weight"), call["bias"]
    return small_convolutions.SmallConvolution(
        plan.out_spec, x, w, None if bias is None else bias.spec,
        windows_of(call, x.shape, w.shape), call["groups"])


def check_operands(call: Any) -> None:
    """Ranks, channels, groups, bias and dtypes, as PyTorch words it."""
    x, w = call.spec("self"), call.spec("weight")
    groups = call["groups"]
    if x.ndim not in (3, 4):
        raise call.error(RuntimeError, "Expected 3D (unbatched) or 4D (batched) input to conv2d, "
                                       f"but got input of size: {list(x.shape)}")
    if w.ndim != 4:
        raise call.error(RuntimeError, "expected a 4-dimensional weight of shape (out channels, "
                                       "in channels / groups, height, width), but got "
                                       f"{list(w.shape)}")
    if groups <= 0:
        raise call.error(RuntimeError, "non-positive groups is not supported")
    head = f"Given groups={groups}, "
    shape = list(w.shape)
    if w.shape[0] < groups:
        raise call.error(RuntimeError, f"{head}expected weight to be at least {groups} at "
                                       f"dimension 0, but got weight of size {shape} instead")
    if w.shape[0] % groups:
        raise call.error(RuntimeError, f"{head}expected weight to be divisible by {groups} at "
                                       f"dimension 0, but got weight of size {shape} instead")
    channels = x.shape[-3]
    if channels != w.shape[1] * groups:
        given = list(x.shape) if x.ndim == 4 else [1, *x.shape]
        raise call.error(
            RuntimeError, f"{head}weight of size {shape}, expected input{given} to have "
                          f"{w.shape[1] * groups} channels, but got {channels} channels instead")
    _check_dtypes(call, x, w)


def _check_dtypes(call: Any, x: Any, w: Any) -> None:
    if x.dtype.kind == "bool":
        raise call.error(NotImplementedError, "\"conv2d\" not implemented for 'Bool'")
    if x.dtype is not w.dtype:
        raise call.error(RuntimeError, f"Input type ({x.dtype.name}) and weight type "
                                       f"({w.dtype.name}) should be the same")
    bias = call["bias"]
    if bias is None:
        return
    if bias.spec.shape != w.shape[:1]:
        raise call.error(
            RuntimeError, f"Given weight of size {list(w.shape)}, expected bias to be "
                          f"1-dimensional with {w.shape[0]} elements, but got bias of size "
                          f"{list(bias.spec.shape)} instead")
    if bias.spec.dtype is not x.dtype:
        raise call.error(RuntimeError, f"Input type ({x.dtype.name}) and bias type "
                                       f"({bias.spec.dtype.name}) should be the same")


def is_channels_last(spec: Any) -> bool:
    """Whether images lie channel by channel within each pixel, and in no other order."""
    return spec.ndim == 4 and not spec.contiguous and formats.is_in_format(
        formats.channels_last, spec.shape, spec.strides)


def laid_out(dtype: Any, shape: tuple[int, ...], *models: Any) -> Any:
    """A result in channels_last where an operand is."""
    if len(shape) == 4 and any(is_channels_last(spec) for spec in models):
        return (dtype, shape, formats.strides_for(formats.channels_last, shape))
    return (dtype, shape)


def _shape(call: Any) -> Any:
    x, w = call.spec("self"), call.spec("weight")
    count = windows_of(call, x.shape, w.shape).count
    return [laid_out(x.dtype, (*x.shape[:-3], w.shape[0], *count), x, w)]


def convolved(images: Any, weight: Any, *window: Any) -> Any:
    """The convolution without bias; ``window``: stride, padding, dilation, groups."""
    return ops.conv2d.call((images, weight, None, *window), None)


def to_input(g: Any, weight: Any, size: Any, *window: Any) -> Any:
    """The gradient of the convolution by its input, of shape ``size``."""
    return ops.conv2d_input_grad.call((g, weight, size, *window), None)


def to_weight(g: Any, images: Any, size: Any, *window: Any) -> Any:
    """The gradient of the convolution by its weight, of shape ``size``."""
    return ops.conv2d_weight_grad.call((g, images, size, *window), None)


def _samples() -> Any:
    random = np.random.RandomState(5)
    cases: tuple[Any, ...] = (((2, 3, 6, 5), (4, 3, 3, 2), {}), ((2, 4, 7, 7), (6, 2, 3, 3), {
        "stride": 2, "padding": (1, 2), "groups": 2}), ((3, 5, 5), (2, 3, 3, 3), {
            "padding": "same", "dilation": (1, 2)}))
    return [((random.randn(*x), random.randn(*w), random.randn(w[0])), facts)
            for x, w, facts in cases]


def reference(images: Any, weight: Any, bias: Any = None, groups: int = 1, **window: Any) -> Any:
    """A convolution by the definition, cell by cell."""
    windows = convolution_windows(images.shape[-2:], weight.shape[-2:], window.get("stride", 1),
                                  window.get("padding", 0), window.get("dilation", 1))
    around = list(zip(windows.before, windows.after, strict=True))
    padded = np.pad(images, [(0, 0)] * (images.ndim - 2) + around)
    parts = []
    own = weight.shape[1]
    for place, kernel in enumerate(weight):
        group = place // (len(weight) // groups)
        total = 0 if bias is None else bias[place]
        for row in range(windows.kernel[0]):
            for column in range(windows.kernel[1]):
                cell = padded[(..., *windows.cell(row, column))]
                used = cell[..., group * own:(group + 1) * own, :, :]
                total = total + (used * kernel[:, row, column][:, None, None]).sum(-3)
        parts.append(total)
    return np.stack(parts, -3)


WINDOW = "any stride=1, any padding=0, any dilation=1, int groups=1"

define(Entry(
    f"conv2d(Tensor self, Tensor weight, Tensor? bias=None, {WINDOW})", LIBRARY,
    shape=_shape, check=check_operands,
    gradient={
        "self": lambda g, self_spec, weight, stride, padding, dilation, groups: to_input(
            g, conj(weight), self_spec.shape, stride, padding, dilation, groups),
        "weight": lambda g, weight_spec, self, stride, padding, dilation, groups: to_weight(
            g, conj(self), weight_spec.shape, stride, padding, dilation, groups),
        "bias": lambda g: g.sum((0, 2, 3) if g.spec.ndim == 4 else (1, 2)),
    },
    path="nn.functional.conv2d", method=False, dtypes=BOTH, samples=_samples, reference=reference,
    doc="Cross-correlation of images [N, C, H, W] or [C, H, W] with weight [O, C / groups, kH, "
        "kW]; stride and dilation are ints or pairs; padding too, or 'same' or 'valid'. "
        "RuntimeError where channels, groups, bias or sizes do not fit.",
    autocast="lower",
), cpu=(
    Candidate("small convolution", _small, _small_refusal),
    *either(row_convolutions.forward, "columns and matrix product", convolution.forward,
            lambda call: call.spec("self").shape, lambda call: call.spec("weight").shape),
), cuda="convolution.forward")

define(Entry(
    f"conv2d_input_grad(Tensor grad, Tensor weight, any size, {WINDOW})", LIBRARY,
    shape=lambda call: [laid_out(call.spec("grad").dtype, tuple(call["size"]),
                                 call.spec("grad"), call.spec("weight"))],
    gradient={
        "grad": lambda g, weight, stride, padding, dilation, groups: convolved(
            g, conj(weight), stride, padding, dilation, groups),
        "weight": lambda g, grad, weight_spec, stride, padding, dilation, groups: to_weight(
            conj(grad), g, weight_spec.shape, stride, padding, dilation, groups),
    },
    path="", method=False, dtypes=BOTH,
    doc="The adjoint of conv2d in its input: the input of shape size that <conv2d(., weight), "
        "grad> is the inner product with.",
), cpu=either(row_convolutions.input_grad, "matrix products, cell by cell",
              convolution.input_grad, lambda call: tuple(call["size"]),
              lambda call: call.spec("weight").shape),
   cuda="convolution.input_grad")

define(Entry(
    f"conv2d_weight_grad(Tensor grad, Tensor images, any size, {WINDOW})", LIBRARY,
    shape=lambda call: [(call.spec("grad").dtype, tuple(call["size"]))],
    gradient={
        "grad": lambda g, images, stride, padding, dilation, groups: convolved(
            conj(images), g, stride, padding, dilation, groups),
        "images": lambda g, grad, images_spec, stride, padding, dilation, groups: to_input(
            conj(grad), g, images_spec.shape, stride, padding, dilation, groups),
    },
    path="", method=False, dtypes=BOTH,
    doc="The adjoint of conv2d in its weight: the weight of shape size that <conv2d(images, .), "
        "grad> is the inner product with.",
), cpu=either(row_convolutions.weight_grad, "columns and matrix product",
              convolution.weight_grad, lambda call: call.spec("images").shape,
              lambda call: tuple(call["size"])),
   cuda="convolution.weight_grad")


def _single(value: Any, name: str, filler: int) -> Any:
    """A size of one dim, as that of an image of one row."""
    if isinstance(value, str):
        return value
    if isinstance(value, (tuple, list)):
        if len(value) != 1:
            raise RuntimeError(f"expected {name} to be a single integer value or a list of 1 "
                               f"values to match the convolution dimensions, but got {name}="
                               f"{list(value)}")
        value = value[0]
    return filler, value


def _conv1d(self: Any, weight: Any, bias: Any, *window: Any) -> Any:
    if self.spec.ndim not in (2, 3):
        raise RuntimeError("Expected 2D (unbatched) or 3D (batched) input to conv1d, but got "
                           f"input of size: {list(self.spec.shape)}")
    if weight.spec.ndim != 3:
        raise RuntimeError("expected a 3-dimensional weight of shape (out channels, in channels / "
                           f"groups, length), but got {list(weight.spec.shape)}")
    if bias is not None and bias.spec.shape != weight.spec.shape[:1]:
        raise RuntimeError(f"Given weight of size {list(weight.spec.shape)}, expected bias to be "
                           f"1-dimensional with {weight.spec.shape[0]} elements, but got bias of "
                           f"size {list(bias.spec.shape)} instead")
    stride, padding, dilation, groups = window
    out = ops.conv2d.call((self.unsqueeze(-2), weight.unsqueeze(-2), bias,
                           _single(stride, "stride", 1), _single(padding, "padding", 0),
                           _single(dilation, "dilation", 1), groups), None)
    return out.squeeze(-2)


def _conv1d_reference(x: Any, weight: Any, bias: Any = None) -> Any:
    windows = np.lib.stride_tricks.sliding_window_view(x, weight.shape[2], -1)
    out = np.einsum("...clk,ock->...ol", windows, weight)
    return out if bias is None else out + bias[:, None]


define(Entry(f"conv1d(Tensor self, Tensor weight, Tensor? bias=None, {WINDOW})", COMPOUND,
             function=_conv1d, path="nn.functional.conv1d", method=False, dtypes=BOTH,
             samples=samples.products(((2, 3, 7), (4, 3, 2)), ((3, 7), (4, 3, 3), (4,))),
             reference=_conv1d_reference,
             doc="Cross-correlation of rows [N, C, L] or [C, L] with weight [O, C / groups, k]; "
                 "see conv2d.", autocast="lower"))

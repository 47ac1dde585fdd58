"""Pooling on the device: the largest pixel of each window, and pixels moved by their places."""

from __future__ import annotations

from typing import Any

from slipstream.core.kernels.cpu.gathering import GatherBinding
from slipstream.core.kernels.cpu.gathering_arrays import IndexOperand
from slipstream.core.kernels.cuda import elements
from slipstream.core.kernels.cuda.indexing import WriteKernel, way_of
from slipstream.core.kernels.cuda.walks import described, divider, launch, place_type
from slipstream.core.kernels.cuda.writes import ADD, WRITE, Looking, Maker, Target, value_of
from slipstream.core.launch.cuda.launches import KernelCode, LaunchKernel

# What is smaller than any element, by dtype; narrow floats compare as float32.
_LOWEST = {"uint8": "0", "int8": "-128", "int16": "-32768", "int32": "(-2147483647 - 1)",
           "int64": "INT64_MIN"}

_SIZES = """
struct slip_walk {
    int64_t numel, height, width;
    int64_t shape[4], divider[4], images[4], cells[4];
"""
_LOCATE = """
    const int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= walk.numel) return;
    place_t left = (place_t)at;
    const int64_t x = slip_take(left, walk.shape[3], walk.divider[3]);
    const int64_t y = slip_take(left, walk.shape[2], walk.divider[2]);
    const int64_t c = slip_take(left, walk.shape[1], walk.divider[1]);
    const int64_t n = left;
    const int64_t image = n * walk.images[0] + c * walk.images[1];
    const int64_t cell = n * walk.cells[0] + c * walk.cells[1] + y * walk.cells[2]
                         + x * walk.cells[3];
"""
# Nan wins, the first of equals; padding never does.
_WINDOWS = _SIZES + """
    int64_t kernel[2], stride[2], before[2], dilation[2];
};
extern "C" __global__ void slip_pool(result_t* out, const item_t* images, const slip_walk walk) {
""" + _LOCATE + """
    int64_t top = y * walk.stride[0] - walk.before[0], beside = x * walk.stride[1] - walk.before[1];
    const int64_t bottom = slip_least(top + walk.kernel[0] * walk.dilation[0], walk.height);
    const int64_t end = slip_least(beside + walk.kernel[1] * walk.dilation[1], walk.width);
    if (top < 0) top += (-top + walk.dilation[0] - 1) / walk.dilation[0] * walk.dilation[0];
    if (beside < 0) {
        beside += (-beside + walk.dilation[1] - 1) / walk.dilation[1] * walk.dilation[1];
    }
    compared_t best = LOWEST;
    item_t pixel = NARROWED(best);
    int64_t place = top * walk.width + beside;
    for (int64_t i = top; i < bottom; i += walk.dilation[0]) {
        for (int64_t j = beside; j < end; j += walk.dilation[1]) {
            const item_t item = images[image + i * walk.images[2] + j * walk.images[3]];
            const compared_t value = WIDENED(item);
            if (value > best || value != value) {
                best = value;
                pixel = item;
                place = i * walk.width + j;
            }
        }
    }
    out[cell] = RESULT;
}
"""
_PICK = _SIZES + """
    int64_t indices[4], slot, tag;
};
extern "C" __global__ void slip_pick_pixels(item_t* out, const item_t* images,
                                            const int64_t* indices, const slip_walk walk) {
""" + _LOCATE + """
    const int64_t from = n * walk.indices[0] + c * walk.indices[1] + y * walk.indices[2]
                         + x * walk.indices[3];
    const int64_t place = indices[from], pixels = walk.height * walk.width;
    item_t item = {};
    if (place < 0 || place >= pixels) {
        slip_index_error(walk.slot, walk.tag, from, place, pixels);
    } else {
        item = images[image + place / walk.width * walk.images[2]
                      + place % walk.width * walk.images[3]];
    }
    out[cell] = item;
}
"""
_ZEROS = """
struct slip_span { int64_t numel; };
extern "C" __global__ void slip_zeros(item_t* out, const item_t* unread, const slip_span span) {
    const int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    const item_t zero = {};
    if (at < span.numel) out[at] = zero;
}
"""


def _four(values: tuple[int, ...], first: int) -> list[int]:
    """Sizes or strides of images with a batch dim; ``first`` stands in for it."""
    return list(values) if len(values) == 4 else [first, *values]


def _sizes(images: Any, cells: Any) -> list[int]:
    """The tail's common part, for one thread a cell."""
    shape = _four(cells.shape, 1)
    return [cells.numel, *images.shape[-2:], *shape, *map(divider, shape),
            *_four(images.strides, 0), *_four(cells.strides, 0)]


def _windows(plan: Any, call: Any, places: bool) -> LaunchKernel:
    """The largest pixel of each window: it, or its place."""
    described(plan, call)
    windows = plan.statics[0]
    images, dtype = call.spec("self"), call.spec("self").dtype
    item = elements.STORED[dtype.name]
    whole = dtype.kind == "int"
    compared = item if whole else elements.COMPUTED[dtype.compute]
    narrowed = "best" if whole else elements.stored(dtype, dtype.compute, "best")
    widened = "item" if whole else elements.widened(dtype, "item")
    head = (f"typedef {item} item_t;\ntypedef {compared} compared_t;\n"
            f"typedef {'int64_t' if places else 'item_t'} result_t;\n"
            f"#define LOWEST {_LOWEST.get(dtype.name, '(compared_t)-INFINITY')}\n"
            f"#define NARROWED(best) ({narrowed})\n#define WIDENED(item) ({widened})\n"
            f"#define RESULT {'place' if places else 'pixel'}\n{place_type(plan.out_spec.numel)}")
    if plan.out_spec.numel:
        tail = [*_sizes(images, plan.out_spec), *windows.kernel, *windows.stride, *windows.before,
                *windows.dilation]
        plan.binding = launch(KernelCode("slip_pool", head + _WINDOWS), plan.out_spec.device,
                              plan.out_spec.numel, tail)
    return LaunchKernel("cuda largest pixels")


def values(plan: Any, call: Any) -> LaunchKernel:
    """The largest pixel of each window."""
    return _windows(plan, call, False)


def indices(plan: Any, call: Any) -> LaunchKernel:
    """The place of the largest pixel of each window."""
    return _windows(plan, call, True)


def pick(plan: Any, call: Any) -> LaunchKernel:
    """The pixels at indices."""
    out, index = plan.out_spec, call.spec("indices")
    if out.numel:
        code = KernelCode("slip_pick_pixels", elements.moved(out.itemsize)
                          + place_type(out.numel) + _PICK)
        tail = [*_sizes(call.spec("self"), out), *_four(index.strides, 0),
                plan.backend.error_slot(), code.mark]
        plan.binding = launch(code, out.device, out.numel, tail)
    return LaunchKernel("cuda pixels at places")


def spread(plan: Any, call: Any) -> Any:
    """Zeros with each pixel added at its index, in the order of the indices."""
    out, index, source = plan.out_spec, call.spec("indices"), call.spec("self")
    if not out.numel:
        return LaunchKernel("cuda pixels spread")
    # A fresh result is contiguous or in channels_last: its pixels lie at equal distances.
    height, width = out.shape[-2:]
    step = out.strides[-1] if width > 1 or height == 1 else out.strides[-2]
    lead = out.strides[:-2]
    operand = IndexOperand(index.strides, step, height * width, index.itemsize)
    way = WRITE if call["disjoint"] else ADD
    binding = GatherBinding(out.dtype, index.shape, (*lead, 0, 0), source.strides, (operand,), way)
    # Every element, whatever the order: the memory of a fresh result has no gaps.
    zeros = launch(KernelCode("slip_zeros", elements.moved(out.itemsize) + _ZEROS), out.device,
                   out.numel, [out.numel])
    if not binding.numel:
        return WriteKernel("cuda pixels spread", zeros, None)
    maker = Maker(plan, Target.of(binding), value_of(out.dtype, way))
    # Places that occur once need no look at the others.
    found = Looking(maker, alone=True) if call["disjoint"] else way_of(maker)
    return _SpreadKernel("cuda pixels spread", zeros, found)


class _SpreadKernel(WriteKernel):
    """Zeros, then pixels written or added at their places."""

    def run(self, plan: Any, operands: tuple[Any, ...], numbers: tuple[Any, ...]) -> None:
        """Operands: out, the pixels, their places."""
        out, pixels, places = operands
        super().run(plan, (out, pixels, places, pixels), numbers)

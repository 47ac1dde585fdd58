"""Convolutions and their gradients on the device: tiles of products whose sides are found by place.

Nothing is copied: an element of a window is looked up in the image where the sum needs it.  With
groups the product of each group is one of a batch.
"""

from __future__ import annotations

from math import prod
from typing import Any

from slipstream.core.kernels.cuda import elements
from slipstream.core.kernels.cuda.tiles import SIZES, Product, Sizes, tiled
from slipstream.core.kernels.cuda.walks import described, divider, place_type
from slipstream.core.vocab.records import Kernel

# Images of `size` pixels, `count` windows of `cells`; `inner` and `outer` are the channels of a
# group, of images and of results.
_WALK = f"""
struct slip_walk {{
    {SIZES}
    int64_t inner, outer, size[2], size_divider[2], count[2], count_divider[2];
    int64_t cells[2], cells_divider[2], stride[2], stride_divider[2], before[2], dilation[2];
    int64_t images[4], weight[4], results[4], bias;
}};
// A number of (channel, row, column) or (image, row, column).
struct slip_spot {{ int64_t lead, y, x; }};
SLIP_DEVICE slip_spot slip_split(place_t number, const int64_t* sizes, const int64_t* dividers) {{
    slip_spot spot;
    spot.x = slip_take(number, sizes[1], dividers[1]);
    spot.y = slip_take(number, sizes[0], dividers[0]);
    spot.lead = number;
    return spot;
}}
// Whether a cell of a window lies in its image, and where.
SLIP_DEVICE bool slip_pixel(const slip_walk& walk, const slip_spot& window, const slip_spot& cell,
                            int64_t& pixel) {{
    const int64_t y = window.y * walk.stride[0] + cell.y * walk.dilation[0] - walk.before[0];
    const int64_t x = window.x * walk.stride[1] + cell.x * walk.dilation[1] - walk.before[1];
    if (y < 0 || x < 0 || y >= walk.size[0] || x >= walk.size[1]) return false;
    pixel = y * walk.images[2] + x * walk.images[3];
    return true;
}}
"""
_WINDOW = "slip_split({0}, walk.count, walk.count_divider)"
_CELL = "slip_split({0}, walk.cells, walk.cells_divider)"
_IMAGE_CHANNEL = "(batch * walk.inner + {0})"
_RESULT_CHANNEL = "(batch * walk.outer + {0})"

_FORWARD_LEFT = f"""const slip_spot cell = {_CELL.format("k")};
                const item_t item = weight[{_RESULT_CHANNEL.format("row")} * walk.weight[0]
                    + cell.lead * walk.weight[1] + cell.y * walk.weight[2]
                    + cell.x * walk.weight[3]];
                value = WIDEN(item);"""
_PIXEL = f"""int64_t pixel = 0;
                if (slip_pixel(walk, window, cell, pixel)) {{
                    const item_t item = images[window.lead * walk.images[0]
                        + {_IMAGE_CHANNEL.format("cell.lead")} * walk.images[1] + pixel];
                    value = WIDEN(item);
                }}"""
_FORWARD_RIGHT = f"""const slip_spot window = {_WINDOW.format("column")};
                const slip_spot cell = {_CELL.format("k")};
                {_PIXEL}"""
_FORWARD_STORE = f"""const slip_spot window = {_WINDOW.format("column")};
            const int64_t channel = {_RESULT_CHANNEL.format("row")};
            wide_t result = total;
            BIAS
            out[window.lead * walk.results[0] + channel * walk.results[1]
                + window.y * walk.results[2] + window.x * walk.results[3]] = NARROW(result);"""
_BIAS = """const item_t addend = bias[channel * walk.bias];
            result = PLUS(result, WIDEN(addend));"""

_WEIGHT_LEFT = f"""const slip_spot window = {_WINDOW.format("k")};
                const item_t item = grad[window.lead * walk.results[0]
                    + {_RESULT_CHANNEL.format("row")} * walk.results[1]
                    + window.y * walk.results[2] + window.x * walk.results[3]];
                value = WIDEN(item);"""
_WEIGHT_RIGHT = f"""const slip_spot window = {_WINDOW.format("k")};
                const slip_spot cell = {_CELL.format("column")};
                {_PIXEL}"""
_WEIGHT_STORE = f"""const slip_spot cell = {_CELL.format("column")};
            out[{_RESULT_CHANNEL.format("row")} * walk.weight[0] + cell.lead * walk.weight[1]
                + cell.y * walk.weight[2] + cell.x * walk.weight[3]] = NARROW(total);"""

_INPUT_LEFT = f"""const slip_spot cell = {_CELL.format("k")};
                const item_t item = weight[{_RESULT_CHANNEL.format("cell.lead")} * walk.weight[0]
                    + row * walk.weight[1] + cell.y * walk.weight[2] + cell.x * walk.weight[3]];
                value = WIDEN(item);"""
# The window whose cell lies on a pixel, if there is one.
_INPUT_RIGHT = f"""const slip_spot pixel = slip_split(column, walk.size, walk.size_divider);
                const slip_spot cell = {_CELL.format("k")};
                const int64_t down = pixel.y + walk.before[0] - cell.y * walk.dilation[0];
                const int64_t right = pixel.x + walk.before[1] - cell.x * walk.dilation[1];
                if (down >= 0 && right >= 0) {{
                    place_t y = (place_t)down, x = (place_t)right;
                    const bool meets = slip_take(y, walk.stride[0], walk.stride_divider[0]) == 0
                        && slip_take(x, walk.stride[1], walk.stride_divider[1]) == 0;
                    if (meets && y < walk.count[0] && x < walk.count[1]) {{
                        const item_t item = grad[pixel.lead * walk.results[0]
                            + {_RESULT_CHANNEL.format("cell.lead")} * walk.results[1]
                            + y * walk.results[2] + x * walk.results[3]];
                        value = WIDEN(item);
                    }}
                }}"""
_INPUT_STORE = f"""const slip_spot pixel = slip_split(column, walk.size, walk.size_divider);
            out[pixel.lead * walk.images[0] + {_IMAGE_CHANNEL.format("row")} * walk.images[1]
                + pixel.y * walk.images[2] + pixel.x * walk.images[3]] = NARROW(total);"""


class Convolution:
    """Sizes and strides of one call, from the specs of images, weight and results."""

    def __init__(self, plan: Any, call: Any, images: Any, weight: Any, results: Any) -> None:
        described(plan, call)
        layout = plan.statics[0]
        self.windows = layout.windows
        self.groups = layout.groups
        self.batch = images.shape[0] if images.ndim == 4 else 1
        self.outer, self.inner = weight.shape[0] // self.groups, weight.shape[1]
        self.strides = [self._four(images), [*weight.strides], self._four(results)]
        count = self.batch * max(prod(self.windows.size), prod(self.windows.count))
        self.most = max(count * max(self.outer, self.inner) * self.groups,
                        weight.numel, *(2 * n for n in self.windows.padded))
        self.cells = prod(self.windows.kernel)
        self.head = f"{elements.typed(images.dtype)}{place_type(self.most)}{_WALK}"

    @staticmethod
    def _four(spec: Any) -> list[int]:
        """Strides with those of a batch of one where there is no batch."""
        return list(spec.strides) if spec.ndim == 4 else [0, *spec.strides]

    def words(self, bias: int = 0) -> list[int]:
        """The tail after the sizes."""
        w = self.windows
        words = [self.inner, self.outer, *w.size, *map(divider, w.size), *w.count,
                 *map(divider, w.count), *w.kernel, *map(divider, w.kernel), *w.stride,
                 *map(divider, w.stride), *w.before, *w.dilation]
        return words + [step for four in self.strides for step in four] + [bias]


def forward(plan: Any, call: Any) -> Kernel:
    """The convolution; operands: out, images, weight, bias."""
    bias = call["bias"]
    found = Convolution(plan, call, call.spec("self"), call.spec("weight"), plan.out_spec)
    product = Product(
        name="convolution", head=found.head, out="item_t* out",
        sides="const item_t* images, const item_t* weight", left=_FORWARD_LEFT,
        right=_FORWARD_RIGHT, store=_FORWARD_STORE.replace("BIAS", "" if bias is None else _BIAS),
        extra="" if bias is None else ", const item_t* bias")
    sizes = Sizes(found.outer, found.batch * prod(found.windows.count), found.inner * found.cells,
                  found.groups)
    return tiled(plan, product, sizes, found.words(0 if bias is None else bias.spec.strides[0]))


def weight_grad(plan: Any, call: Any) -> Kernel:
    """The gradient by the weight; operands: out, grad, images."""
    found = Convolution(plan, call, call.spec("images"), plan.out_spec, call.spec("grad"))
    product = Product(
        name="convolution_weight_grad", head=found.head, out="item_t* out",
        sides="const item_t* grad, const item_t* images", left=_WEIGHT_LEFT, right=_WEIGHT_RIGHT,
        store=_WEIGHT_STORE, right_along_k=True)
    sizes = Sizes(found.outer, found.inner * found.cells,
                  found.batch * prod(found.windows.count), found.groups)
    return tiled(plan, product, sizes, found.words())


def input_grad(plan: Any, call: Any) -> Kernel:
    """The gradient by the images; operands: out, grad, weight."""
    found = Convolution(plan, call, plan.out_spec, call.spec("weight"), call.spec("grad"))
    product = Product(
        name="convolution_input_grad", head=found.head, out="item_t* out",
        sides="const item_t* grad, const item_t* weight", left=_INPUT_LEFT, right=_INPUT_RIGHT,
        store=_INPUT_STORE)
    sizes = Sizes(found.inner, found.batch * prod(found.windows.size), found.outer * found.cells,
                  found.groups)
    return tiled(plan, product, sizes, found.words())

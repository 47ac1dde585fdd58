"""New tensors on the device: memory that is not filled, numbers at equal distances."""

from __future__ import annotations

from typing import Any

from slipstream.core.kernels.cuda import elements
from slipstream.core.kernels.cuda.walks import launch
from slipstream.core.launch.cuda.launches import KernelCode, LaunchKernel

_RANGE = """
struct slip_span {{ int64_t numel; }};
extern "C" __global__ void slip_range({item}* out, {start}, {step}, const slip_span span) {{
    const int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= span.numel) return;
    const {wide} value = {first} + {apart} * ({wide})at;
    out[at] = {value};
}}
"""


def nothing(plan: Any, call: Any) -> LaunchKernel:
    """The memory stays as it is."""
    return LaunchKernel("cuda nothing")


def arange(plan: Any, call: Any) -> LaunchKernel:
    """out[i] = start + step * i: modulo 2**64 if both are whole, else in float64; then cast."""
    out = plan.out_spec
    classes = tuple(elements.number_class(call[each]) for each in ("start", "step"))
    cls = "f64" if "f64" in classes else "i64"
    start, first = elements.number("start", classes[0], cls)
    step, apart = elements.number("step", classes[1], cls)
    code = KernelCode("slip_range", _RANGE.format(
        item=elements.STORED[out.dtype.name], start=start, step=step,
        wide=elements.COMPUTED[cls], first=first, apart=apart,
        value=elements.stored(out.dtype, cls, "value")))
    if out.numel:
        plan.binding = launch(code, out.device, out.numel, [out.numel], numbers=classes)
    return LaunchKernel("cuda range")

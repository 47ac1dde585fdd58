"""Figures of the device's side: bandwidth of generated kernels, products, custom kernels."""

from __future__ import annotations

import time
from typing import Any

import slipstream as ss
from gpu import peers
from gpu.timing import (
    Row,
    device_time,
    enqueue,
    loop,
    ours_wait,
    peer_time,
    peer_wait,
    ratio,
)

LARGE = 64 << 20


def bandwidth() -> list[Row]:
    """Pointwise and row kernels of 64 M elements: share of a device copy's GB/s."""
    x = ss.rand(LARGE, device="cuda")
    y = ss.empty_like(x)
    torch = peers.torch()
    source, target = torch.rand(LARGE, device="cuda"), torch.empty(LARGE, device="cuda")
    copy = 8 * LARGE / peer_time(lambda: target.copy_(source)) / 1e3
    rows = x.reshape(-1, 4096)
    flat = torch.rand(LARGE, device="cuda")
    peer_rows = flat.reshape(-1, 4096)
    functional = torch.nn.functional
    cases: list[tuple[str, Any, Any, int]] = [
        ("a copy", lambda: y.copy_(x), lambda: target.copy_(flat), 8),
        ("x + 1", lambda: x + 1, lambda: flat + 1, 8),
        ("x + y", lambda: x + y, lambda: flat + target, 12),
        ("gelu", lambda: ss.nn.functional.gelu(x), lambda: functional.gelu(flat), 8),
        ("softmax of rows of 4096", lambda: rows.softmax(1), lambda: peer_rows.softmax(1), 8),
        ("sum of rows of 4096", lambda: rows.sum(1), lambda: peer_rows.sum(1), 4),
        ("sum of columns", lambda: rows.sum(0), lambda: peer_rows.sum(0), 4),
        ("sum of all", x.sum, flat.sum, 4),
        ("layer_norm of rows", lambda: ss.nn.functional.layer_norm(rows, (4096,)),
         lambda: functional.layer_norm(peer_rows, (4096,)), 8),
    ]
    found = []
    for name, ours, peer, nbytes in cases:
        speed = nbytes * LARGE / device_time(ours) / 1e3
        theirs = nbytes * LARGE / peer_time(peer) / 1e3
        found.append(Row(f"{name}, 64 M float32: share of a copy's {copy:.0f} GB/s", speed,
                         theirs, speed / copy, -0.90, "GB/s"))
    return found


# Rows, columns and steps of gelu(x @ w^T + b), as shared figures have them.
SHAPES = ((4096, 4096, 4096), (8192, 3072, 768), (16, 4096, 4096), (1, 4096, 4096))


def epilogues() -> list[Row]:
    """gelu(x @ wt + b) in bfloat16 by one launch / PyTorch's linear then gelu."""
    found = []
    for tuned in (False, True):
        ss.cuda.tunable.enable(tuned)
        for shape in SHAPES:
            found += epilogue(shape, ", tuned" if tuned else "")
    ss.cuda.tunable.enable(False)
    return found


def epilogue(shape: tuple[int, int, int], how: str) -> list[Row]:
    """One shape: the time of a call, its launches, and its difference from float32."""
    m, n, k = shape
    torch = peers.torch()
    x, w, b = [torch.randn(size, device="cuda", dtype=torch.bfloat16) / 8
               for size in ((m, k), (n, k), (n,))]
    ours = [ss.from_numpy(each.float().cpu().numpy()).to("cuda", ss.bfloat16)
            for each in (b, x, w)]
    wt = ours[2].t()
    functional = torch.nn.functional

    def call() -> Any:
        return ss.addmm_activation(ours[0], ours[1], wt, use_gelu=True)

    def peer() -> Any:
        return functional.gelu(functional.linear(x, w, b))

    call()
    ours_wait()
    before = ss.cuda.launch_stats()["launches"]
    result = call()
    launches = ss.cuda.launch_stats()["launches"] - before
    exact = functional.gelu(functional.linear(x.float(), w.float(), b.float()),
                            approximate="tanh")
    theirs = torch.from_numpy(result.float().cpu().numpy()).to("cuda")
    worst = ((theirs - exact).abs() / (exact.abs() + 1)).max().item()
    name = f"addmm_activation, gelu, {m} x {n} x {k} bf16{how}"
    # As a user sees it, and the kernels by themselves: small shapes are bound by their calls.
    ours_wall, peer_wall = loop(call, ours_wait)[1], loop(peer, peer_wait)[1]
    return [ratio(f"{name} / PyTorch linear then gelu", ours_wall, peer_wall,
                  None if how else 0.85),
            ratio(f"{name}, on the device / PyTorch linear then gelu", device_time(call),
                  peer_time(peer), None),
            Row(f"{name}: launches", launches, None, launches, 1, ""),
            Row(f"{name}: largest difference from float32, of 1 + |y|", worst, None, worst, 0.01,
                "")]


def overlap() -> list[Row]:
    """A pinned copy on a side stream beside a product: the overlapped share of the shorter."""
    ours = overlapped(ss, ss.zeros(LARGE).pin_memory())
    torch = peers.torch()
    peer = overlapped(torch, torch.zeros(LARGE).pin_memory())
    return [Row("pinned copy beside products: overlapped share of the shorter", ours, peer, ours,
                -0.9, "")]


def overlapped(library: Any, host: Any) -> float:
    """The share with a library of PyTorch's names; ``host`` is pinned."""
    a = library.rand(4096, 4096, device="cuda")
    side = library.cuda.Stream()

    def copy() -> Any:
        with library.cuda.stream(side):
            return host.to("cuda", non_blocking=True)

    def product() -> Any:
        return (a @ a) @ a

    def wall(*steps: Any) -> float:
        times = []
        for _ in range(8):
            library.cuda.synchronize()
            start = time.perf_counter()
            held = [step() for step in steps]
            library.cuda.synchronize()
            times.append(time.perf_counter() - start)
            del held
        return sorted(times)[3] * 1e3

    alone, products, both = wall(copy), wall(product), wall(copy, product)
    return (alone + products - both) / min(alone, products)


SOURCE = """
extern "C" __global__ void scaled(const float* x, float* y, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i];
}
"""


def custom() -> list[Row]:
    """A kernel from a string: source to first result, and what a call costs."""
    x, y = ss.rand(64, device="cuda"), ss.empty(64, device="cuda")
    ours_wait()

    def first(source: str) -> float:
        start = time.perf_counter()
        ss.cuda.kernel(source, "scaled")[1, 64](x, y, 2.0, 64)
        ours_wait()
        return (time.perf_counter() - start) * 1e3

    fresh = SOURCE.replace("a * x[i]", f"a * x[i] + {time.time_ns() % 100000}.0f")
    cold = first(fresh)
    warm = first(fresh.replace("scaled", "scaled"))
    kernel = ss.cuda.kernel(SOURCE, "scaled")[1, 64]
    call = enqueue(lambda: kernel(x, y, 2.0, 64), ours_wait)
    built_in = enqueue(lambda: ss.mul(x, 2.0, out=y), ours_wait)
    return [Row("custom kernel: source to first result, cold", cold, None, cold, 150, "ms"),
            Row("custom kernel: the same, known", warm, None, warm, 5, "ms"),
            ratio("custom kernel: enqueue / a built-in op's", call, built_in, 1.2)]

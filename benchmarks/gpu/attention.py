"""Figures of attention: ours beside the backend that PyTorch takes, and beside cuDNN's."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

import slipstream as ss
from gpu.timing import Row, device_time, peer_time, ratio

# Batch, heads, queries and keys, width of a head; whether it is causal.
SHAPES = (((16, 12, 1024, 64), False), ((16, 12, 1024, 64), True), ((4, 16, 4096, 128), True))
BAR = 1.3
BACKENDS = {"PyTorch": None, "cuDNN": SDPBackend.CUDNN_ATTENTION}


def attention() -> list[Row]:
    """scaled_dot_product_attention in bfloat16, forward and backward / PyTorch's."""
    found = []
    for shape, causal in SHAPES:
        found += one_shape(shape, causal)
    return found


def operands(shape: tuple[int, ...]) -> list[Any]:
    """Queries, keys, values and a gradient, laid out as projections of rows leave them."""
    batch, heads, length, width = shape
    return [torch.randn(batch, length, heads, width, device="cuda", dtype=torch.bfloat16)
            .transpose(1, 2) for _ in range(4)]


def ours_of(given: Any) -> Any:
    """The same tensor as ours."""
    rows = given.transpose(1, 2).float().cpu().numpy()
    return ss.from_numpy(rows).to("cuda", ss.bfloat16).transpose(1, 2)


def one_shape(shape: tuple[int, ...], causal: bool) -> list[Row]:
    """Time of the device for both directions, launches, and the difference from float32."""
    theirs = operands(shape)
    ours = [ours_of(each) for each in theirs]
    name = f"SDPA {' x '.join(map(str, shape))} {'causal ' if causal else ''}bf16"
    forward, backward, result = directions(ss, ours, causal)
    times = device_time(forward), device_time(backward)
    rows = []
    for peer, backend in BACKENDS.items():
        for way, own, other in zip(("forward", "backward"), times, peers(theirs, causal, backend),
                                   strict=True):
            rows.append(ratio(f"{name}, {way} / {peer}", own, other,
                              BAR if backend is None else None))
    return rows + [differing(name, theirs, causal, result)]


def directions(library: Any, given: list[Any], causal: bool) -> tuple[Any, Any, Any]:
    """Calls of both directions with a library of PyTorch's names, and one result."""
    leaves = [each.detach().requires_grad_() for each in given[:3]]
    call = library.nn.functional.scaled_dot_product_attention
    out = call(*leaves, is_causal=causal)

    def forward() -> Any:
        with library.no_grad():
            return call(*leaves, is_causal=causal)

    def backward() -> Any:
        return library.autograd.grad(out, leaves, given[3], retain_graph=True)

    return forward, backward, out


def peers(given: list[Any], causal: bool, backend: Any) -> tuple[float, float]:
    """The peer's times with a backend, or with the one that it takes by itself."""
    if backend is None:
        forward, backward, _ = directions(torch, given, causal)
        return peer_time(forward), peer_time(backward)
    with sdpa_kernel(backend):
        forward, backward, _ = directions(torch, given, causal)
        return peer_time(forward), peer_time(backward)


def differing(name: str, given: list[Any], causal: bool, result: Any) -> Row:
    """The largest difference of our result from one in float32, of one batch and two heads."""
    q, k, v = [each[:1, :2].float() for each in given[:3]]
    exact = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    own = torch.from_numpy(result.detach()[:1, :2].float().cpu().numpy()).to("cuda")
    worst = ((own - exact).abs() / (exact.abs() + 1)).max().item()
    return Row(f"{name}: largest difference from float32, of 1 + |y|", worst, None, worst, 0.02, "")

"""Figures of lists of tensors: optimizers and clipping over many parameters."""

from __future__ import annotations

from typing import Any

from bursts import copy_speed

import slipstream as ss
from gpu import peers
from gpu.models import Step
from gpu.timing import (
    Row,
    device_time,
    enqueue,
    launches,
    ours_wait,
    peer_time,
    peer_wait,
    ratio,
)

LARGE = 128 << 20
MANY, EACH = 3000, 3500
STEPS = 10_000
# Reads of parameter, gradient and two averages, writes of all but the gradient; float32.
BYTES = 28


def parameters(lib: Any, count: int, size: int) -> list[Any]:
    """Parameters with gradients."""
    made = [lib.nn.Parameter(lib.rand(size, device="cuda")) for _ in range(count)]
    for each in made:
        each.grad = lib.rand(size, device="cuda")
    return made


def adamw(lib: Any, count: int, size: int) -> Any:
    """Fused AdamW of so many parameters of one size, its state made."""
    optimizer = lib.optim.AdamW(parameters(lib, count, size), fused=True)
    optimizer.step()
    return optimizer


def whole() -> Row:
    """AdamW of 134 M parameters: share of a copy."""
    ours = BYTES * LARGE / device_time(adamw(ss, 1, LARGE).step) / 1e3
    ss.cuda.empty_cache()
    torch = peers.torch()
    copy = copy_speed(torch, LARGE)
    peer = BYTES * LARGE / peer_time(adamw(torch, 1, LARGE).step) / 1e3
    return Row(f"AdamW, 134 M float32 parameters: share of a copy's {copy:.0f} GB/s", ours, peer,
               ours / copy, -0.95, "GB/s")


def many() -> list[Row]:
    """AdamW and clipping of 3,000 tensors: launches, and the host's side."""
    ours, name = adamw(ss, MANY, EACH), f"AdamW, {MANY:,} tensors of {EACH:,}"
    host, device = enqueue(ours.step, ours_wait, 10, 20), device_time(ours.step)
    count = launches(ours.step)
    clip = clipping(ss, ours)
    clip_host, clip_count = enqueue(clip, ours_wait, 10, 20), launches(clip)
    peer = adamw(peers.torch(), MANY, EACH)
    theirs = enqueue(peer.step, peer_wait, 10, 20)
    peer_clip = enqueue(clipping(peers.torch(), peer), peer_wait, 10, 20)
    clipped = f"clip_grad_norm_, {MANY:,} tensors"
    return [Row(f"{name}: launches", count, None, count, 2, ""),
            ratio(f"{name}: CPU side / PyTorch fused", host, theirs, 0.1),
            ratio(f"{name}: device time / PyTorch fused", device, peer_time(peer.step), None),
            Row(f"{clipped}: launches", clip_count, None, clip_count, 3, ""),
            ratio(f"{clipped}: CPU side / PyTorch", clip_host, peer_clip, None)]


def clipping(lib: Any, optimizer: Any) -> Step:
    """clip_grad_norm_ of an optimizer's parameters."""
    params = optimizer.param_groups[0]["params"]
    return lambda: lib.nn.utils.clip_grad_norm_(params, 1.0)


def changing(steps: int = STEPS) -> Row:
    """SGD whose learning rate and momentum change at every step: compilations."""
    optimizer = ss.optim.SGD(parameters(ss, 20, 64), lr=0.1, momentum=0.9)
    before = ss.cuda.driver_stats()["compilations"]
    for number in range(steps):
        group = optimizer.param_groups[0]
        group["lr"], group["momentum"] = 0.1 / (number + 2), 0.9 - 0.5 * number / steps
        optimizer.step()
    ours_wait()
    count = float(ss.cuda.driver_stats()["compilations"] - before)
    return Row(f"{steps:,} steps with a new learning rate and momentum each: compilations", count,
               None, count, 2, "")


def lists() -> list[Row]:
    """AdamW of one large and of many small tensors, clipping, and changing numbers."""
    return [changing(), *many(), whole()]

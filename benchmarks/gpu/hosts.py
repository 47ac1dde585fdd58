"""Figures of the host's side: what an op costs, training of small nets, replay.

In each part ours is measured before the peer is imported.
"""

from __future__ import annotations

import random
from typing import Any

import slipstream as ss
from gpu import peers
from gpu.models import Step, convolutions, digits_step, mlp_step, unseen
from gpu.timing import Row, device_time, enqueue, loop, ours_wait, peer_time, peer_wait, ratio

SMALL = 64
# Sequences before a growing cache is measured: by then the addresses that take turns have come
# back, and each window that they make has its graph.
WARM_SEQUENCES = 8
# What makes a step at a new length slow.
COUNTED = ("compilations", "library_questions", "captures",
           "graph_launches", "kernel_launches", "node_updates")


def adds() -> list[Row]:
    """a + b of 64 elements: enqueue with and without the memo."""
    a, b = ss.rand(SMALL, device="cuda"), ss.rand(SMALL, device="cuda")
    on = enqueue(lambda: a + b, ours_wait)
    with ss.cuda.immediate():
        off = enqueue(lambda: a + b, ours_wait)
    torch = peers.torch()
    x, y = torch.rand(SMALL, device="cuda"), torch.rand(SMALL, device="cuda")
    with torch.no_grad():
        peer = enqueue(lambda: x + y, peer_wait)
    return [ratio("a + b, 64 float32: enqueue, memo on / PyTorch", on, peer, 0.12),
            ratio("a + b, 64 float32: enqueue, memo off / PyTorch", off, peer, 0.55)]


def small_backward(lib: Any) -> Step:
    """mul, sum, backward of 64 elements."""
    p = lib.rand(SMALL, device="cuda").requires_grad_()
    q = lib.rand(SMALL, device="cuda")

    def step() -> None:
        (p * q).sum().backward()
        p.grad = None

    return step


def backwards() -> list[Row]:
    """mul, sum, backward of 64 elements: wall time."""
    ours = loop(small_backward(ss), ours_wait, 2000, 1000)[1]
    peer = loop(small_backward(peers.torch()), peer_wait, 1000, 200)[1]
    return [ratio("mul, sum, backward of 64 elements / PyTorch", ours, peer, 0.10)]


def training() -> list[Row]:
    """The MLP and the digits net: one eager step."""
    step = mlp_step(ss)
    wall = loop(step, ours_wait)[1]
    host = enqueue(step, ours_wait, calls=20, bursts=20)
    digits = loop(digits_step(ss), ours_wait)[1]
    ours_convolutions = device_time(convolutions(ss))
    torch = peers.torch()
    peer = loop(mlp_step(torch), peer_wait)[1]
    fused = loop(mlp_step(torch, fused=True), peer_wait)[1]
    peer_digits = loop(digits_step(torch), peer_wait)[1]
    peer_convolutions = peer_time(convolutions(torch))
    return [ratio("MLP 8 x 256, batch 64, Adam: one step / PyTorch eager", wall, peer, 0.12),
            ratio("the same / PyTorch with fused Adam", wall, fused, None),
            Row("MLP step, CPU side, in bursts of 20 steps", host, None, host, 150, "µs"),
            ratio("digits net step / PyTorch eager", digits, peer_digits, 0.15),
            ratio("digits net's convolutions, device time / PyTorch", ours_convolutions,
                  peer_convolutions, 2.0)]


def shares(name: str, step: Step) -> list[Row]:
    """The share of launches replayed over 200 steps after 200 of warm-up."""
    for _ in range(200):
        step()
    before, driver = ss.cuda.launch_stats(), ss.cuda.driver_stats()
    for _ in range(200):
        step()
    after, now = ss.cuda.launch_stats(), ss.cuda.driver_stats()
    launches = after["launches"] - before["launches"]
    share = (after["replayed"] - before["replayed"]) / launches
    captured = after["captured"] - before["captured"]
    allocations = now["allocations"] - driver["allocations"]
    return [Row(f"replayed in the steady state: {name}", share, None, share, -0.99, ""),
            Row(f"captured in the steady state: {name}", captured, None, captured, 0.5, ""),
            Row(f"driver allocations in the steady state: {name}", allocations, None,
                allocations, 0.5, "")]


def scheduled() -> Step:
    """The MLP with a learning rate that changes every step."""
    step = mlp_step(ss)
    optimizer = step.optimizer  # type: ignore[attr-defined]

    def scheduled_step() -> None:
        optimizer.param_groups[0]["lr"] *= 0.9999
        step()

    return scheduled_step


def lengths() -> Step:
    """Batches of eight lengths in a seeded random order."""
    model = ss.nn.Sequential(ss.nn.Linear(64, 64), ss.nn.ReLU(), ss.nn.Linear(64, 8)).to("cuda")
    batches = [ss.randn(length, 64).to("cuda") for length in range(16, 144, 16)]
    order = random.Random(0)

    def step() -> None:
        model.zero_grad()
        model(order.choice(batches)).square().mean().backward()

    return step


def accumulated() -> Step:
    """Gradients of four batches summed before an update."""
    step = mlp_step(ss)

    def several() -> None:
        step.optimizer.zero_grad()  # type: ignore[attr-defined]
        for _ in range(4):
            step()

    return several


def kept() -> Step:
    """Loss tensors kept in a list."""
    step, losses = mlp_step(ss), []

    def keeping() -> None:
        losses.append(step().detach())

    return keeping


def replay() -> list[Row]:
    """Replay in the steady state, for programs of ordinary kinds."""
    rows = shares("MLP", mlp_step(ss)) + shares("digits net", digits_step(ss))
    rows += shares("a learning-rate schedule", scheduled()) + shares("8 lengths", lengths())
    return rows + shares("accumulation over 4", accumulated()) + shares("losses kept", kept())


def changing() -> list[Row]:
    """Windows whose addresses all change; lengths never seen; a growing cache."""
    pool = [ss.rand(SMALL, device="cuda") for _ in range(160)]
    order = random.Random(1)

    def changed() -> None:
        order.shuffle(pool)
        for place in range(0, 128, 2):
            pool[place] + pool[place + 1]

    on = loop(changed, ours_wait, 100, 50)[0]
    with ss.cuda.immediate():
        off = loop(changed, ours_wait, 100, 50)[0]
    new, counted = counted_unseen()
    cache = growing(ss, ours_wait)
    torch = peers.torch()
    rows = [ratio("64 launches, every address changed: CPU side / memo off", on, off, 0.6),
            ratio("a step at a length never seen / PyTorch eager", new,
                  loop(unseen(torch), peer_wait, 200, 101, 1)[1], 1.0)]
    rows += [Row(f"a step at a length never seen: {name}", count, None, count, None, "")
             for name, count in counted.items()]
    return [*rows, ratio("a growing cache k[:, :t], a step / PyTorch eager", cache,
                         growing(torch, peer_wait), 0.5)]


def counted_unseen() -> tuple[float, dict[str, float]]:
    """Its time on ours, and what the driver and the library were asked in one."""
    step = unseen(ss)
    loop(step, ours_wait, 1, 100, 1)
    before = ss.cuda.driver_stats()
    wall = loop(step, ours_wait, 200, 0, 1)[1]
    after = ss.cuda.driver_stats()
    return wall, {name: (after[name] - before[name]) / 200 for name in COUNTED}


def growing(lib: Any, wait: Step) -> float:
    """A cache that grows: softmax(q @ k[:, :t].T) @ v[:, :t] over 256 steps."""
    q = lib.rand(8, 1, 64, device="cuda")
    k, v = lib.rand(8, 300, 64, device="cuda"), lib.rand(8, 300, 64, device="cuda")

    def steps() -> None:
        for t in range(1, 257):
            scores = (q @ k[:, :t].transpose(1, 2)).softmax(-1)
            scores @ v[:, :t]

    with lib.no_grad():
        return loop(steps, wait, 5, WARM_SEQUENCES, 5)[1] / 256

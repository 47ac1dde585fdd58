"""Figures of language models: a small GPT bound by its launches, and GPT-2 small."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import slipstream as ss
from gpu import gpt, hosts, peers
from gpu.models import Step
from gpu.timing import Row, enqueue, launches, loop, ours_wait, peer_wait, ratio

GIB = 1 << 30


def fresh(lib: Any) -> None:
    """Give back what a library held."""
    gc.collect()
    lib.cuda.synchronize()
    lib.cuda.empty_cache()


def graphed(step: Step) -> Step:
    """A whole step of the peer captured by hand, after steps on a side stream."""
    torch = peers.torch()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(5):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def language() -> list[Row]:
    """GPT 256 wide, 6 layers, batch 8 x 128, bf16 autocast, fused AdamW: one plain eager step."""
    step = gpt.eager(ss, gpt.SMALL)
    ours = loop(step, ours_wait)[1]
    host = enqueue(step, ours_wait, calls=10, bursts=20)
    counts = [counted("GPT 256 wide, one step", step), *hosts.shares("GPT 256 wide", step)]
    rows = [ratio(f"GPT 256 wide, bf16 autocast, AdamW: one eager step / {name}", ours, peer, bar)
            for name, peer, bar in theirs()]
    return [*rows, Row("GPT 256 wide, one step, CPU side in bursts of 10 steps", host, None, host,
                       None, "µs"), *counts]


def theirs() -> list[tuple[str, float, float | None]]:
    """The peer's step in the four ways that it has: (name, microseconds, our bar)."""
    torch = peers.torch()
    torch.set_float32_matmul_precision("high")
    tokens, found = gpt.batch_of(torch, gpt.SMALL), []
    for way, bar, graph_bar in (("eager", 0.10, None), ("compiled", 0.22, 1.1)):
        model = gpt.make(torch, gpt.SMALL)
        run = torch.compile(model) if way == "compiled" else model

        def alone(run: Any = run) -> float:
            return loop(gpt.training(torch, run, tokens), peer_wait, 100, 20)[1]

        def in_graph(run: Any = run) -> float:
            replay = graphed(gpt.training(torch, run, tokens, capturable=True))
            return loop(replay, peer_wait, 200, 20)[1]

        found += [(f"PyTorch {way}", measured(alone), bar),
                  (f"PyTorch {way}, whole step in a hand-made graph", measured(in_graph),
                   graph_bar)]
    return [(name, time, bar) for name, time, bar in found if time is not None]


def measured(peer: Callable[[], float]) -> float | None:
    """The peer's time; None where it fails, as our own figures stand without it."""
    try:
        return peer()
    except Exception as failure:
        print(f"PyTorch: {type(failure).__name__}: {str(failure).splitlines()[:1]}")
        return None


def counted(name: str, step: Step) -> Row:
    """How many launches a step makes."""
    count = launches(step, 0)
    return Row(f"{name}: launches", count, None, count, None, "")


def gpt2() -> list[Row]:
    """GPT-2 small: a training step of 16 x 1024 tokens, its memory, and one token forward."""
    ours, peak = trained(ss, ours_wait)
    fresh(ss)
    call = forward(ss)
    token, count = loop(call, ours_wait, 200, 100)[1], counted("GPT-2 small, one token", call)
    torch = peers.torch()
    torch.set_float32_matmul_precision("high")
    peer, theirs = trained(torch, peer_wait)
    fresh(torch)
    return [ratio("GPT-2 small, 16 x 1024, bf16 autocast: one eager step / PyTorch eager", ours,
                  peer, 0.85),
            ratio("GPT-2 small, 16 x 1024: peak memory / PyTorch eager", peak, theirs, 1.0, "GiB"),
            *tokens(token), count]


def trained(lib: Any, wait: Step) -> tuple[float, float]:
    """Microseconds a step and the peak of memory in GiB."""
    step = gpt.eager(lib, gpt.GPT2)
    wall = loop(step, wait, 20, 8, 4)[1]
    return wall, lib.cuda.max_memory_allocated() / GIB


def tokens(ours: float) -> list[Row]:
    """Our forward of one token beside the peer's, eager and compiled."""
    rows = []
    for mode, bar in ((None, None), ("reduce-overhead", 0.6)):
        def call(mode: str | None = mode) -> float:
            return loop(forward(peers.torch(), mode), peer_wait, 200, 20)[1]

        peer = measured(call)
        if peer is not None:
            rows.append(ratio(f"GPT-2 small, bf16, one token forward / PyTorch {mode or 'eager'}",
                              ours, peer, bar))
    return rows


def forward(lib: Any, mode: str | None = None) -> Step:
    """A call of the model on one token; ``mode`` is one of torch.compile's."""
    model = gpt.make(lib, gpt.GPT2).to(lib.bfloat16).eval()
    run = lib.compile(model, mode=mode) if mode else model
    token = lib.randint(0, gpt.GPT2.vocabulary, (1, 1)).to("cuda")

    def call() -> Any:
        with lib.no_grad():
            return run(token)

    return call

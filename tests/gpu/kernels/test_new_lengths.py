"""Lengths never seen ask for few kernels: a kernel's text holds classes of sizes, not sizes."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

import slipstream as ss
from gpu import simulation
from slipstream.core.native.drivers import drivers
from slipstream.core.native.recording import RecordingDriver
from slipstream.core.vocab.settings import settings

functional = ss.nn.functional
# Lengths of the warm-up, in or beside every doubling.
WARM = (24, 100, 400, 1600, 31, 33, 222, 111, 900, 60, 401, 777)
LONGEST = 4096
Step = Callable[[int], Any]


def cuda(*shape: int, **more: Any) -> ss.Tensor:
    return ss.zeros(*shape, device="cuda", **more)


def leaf(*shape: int, **more: Any) -> ss.Tensor:
    return cuda(*shape, **more).requires_grad_()


def trained() -> Step:
    """The step that the benchmark of lengths never seen takes."""
    model = ss.nn.Sequential(ss.nn.Linear(64, 64), ss.nn.ReLU(), ss.nn.Linear(64, 8)).to("cuda")

    def step(length: int) -> None:
        model.zero_grad()
        model(cuda(length, 64)).square().mean().backward()

    return step


def normalized() -> Step:
    layer = ss.nn.LayerNorm(256).to("cuda")
    return lambda length: layer(leaf(length, 256)).sum().backward()


def cached(length: int) -> None:
    """A token's look at keys and values of a length."""
    query, key, value = cuda(8, 1, 64), cuda(8, 300, 64), cuda(8, 300, 64)
    length = length % 300 + 1
    scores = (query @ key[:, :length].transpose(1, 2)).softmax(-1)
    scores @ value[:, :length]


STEPS: dict[str, Callable[[], Step]] = {
    "a training step": trained,
    "sum of rows": lambda: lambda n: cuda(64, n).sum(1),
    "sum of columns": lambda: lambda n: cuda(n, 64).sum(0),
    "sum of wide columns": lambda: lambda n: cuda(64, n).sum(0),
    "sum in the middle": lambda: lambda n: cuda(8, n, 64, dtype=ss.bfloat16).sum(1),
    "argmax": lambda: lambda n: cuda(64, n).argmax(1),
    "softmax": lambda: lambda n: cuda(64, n, dtype=ss.bfloat16).softmax(-1),
    "softmax of squares": lambda: lambda n: cuda(2, n // 4 + 4, n // 4 + 4).softmax(-1),
    "softmax, gradient": lambda: lambda n: leaf(64, n).softmax(-1).square().sum().backward(),
    "layer_norm, gradient": normalized,
    "pointwise": lambda: lambda n: (leaf(64, n) * leaf(n) + leaf(64, 1)).relu().sum().backward(),
    "turned": lambda: lambda n: cuda(n, 64).t().contiguous(),
    "joined": lambda: lambda n: ss.cat([cuda(64, n), cuda(64, 8)], 1),
    "products": lambda: lambda n: cuda(n, 64) @ cuda(64, n // 2),
    "products of 16 bits": lambda: lambda n: cuda(n, 64, dtype=ss.bfloat16) @ cuda(
        64, 128, dtype=ss.bfloat16),
    "a growing cache": lambda: cached,
    "attention": lambda: lambda n: functional.scaled_dot_product_attention(
        *[cuda(1, 2, n, 32) for _ in range(3)], is_causal=True),
}
# The most kernels that 200 lengths never seen may ask for.
MOST = {"a training step": 1, "sum of rows": 7, "sum of columns": 0, "sum of wide columns": 0,
        "sum in the middle": 0, "argmax": 7, "softmax": 10, "softmax of squares": 7,
        "softmax, gradient": 14, "layer_norm, gradient": 2, "pointwise": 7, "turned": 0,
        "joined": 0, "products": 0, "products of 16 bits": 1, "a growing cache": 4, "attention": 0}


@pytest.fixture
def recording(restart: Callable[..., Any]) -> RecordingDriver:
    """A driver that compiles and launches nothing, and counts what it would compile."""
    simulation.forget()
    driver = RecordingDriver(("sm_90",))
    settings.memo = False
    drivers.use(driver)
    return driver


@pytest.mark.parametrize("name", STEPS)
def test_lengths_never_seen_compile_little(name: str, recording: RecordingDriver) -> None:
    step = STEPS[name]()
    for length in WARM:
        step(length)
    before = recording.statistics()["compilations"]
    lengths = [length for length in range(16, LONGEST) if length not in WARM]
    for length in random.Random(5).sample(lengths, 200):
        step(length)
    found = recording.statistics()["compilations"] - before
    assert found <= MOST[name]

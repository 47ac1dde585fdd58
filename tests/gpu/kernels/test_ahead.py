"""Lengths never seen compile nothing that a call waits for: what they need was compiled ahead."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import slipstream as ss
from gpu import simulation
from slipstream.core.kernels.cuda.foresight import FIXED, around, nearby, restrided
from slipstream.core.launch.cuda.modules import modules
from slipstream.core.native.drivers import drivers
from slipstream.core.native.recording import RecordingDriver
from slipstream.core.vocab.settings import settings

functional = ss.nn.functional
# Lengths of the warm-up: more than programs of fixed sizes have, in or beside every doubling.
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
# Programs of so many classes that they would compile more than this if nothing were made ahead.
MANY = {"a training step": 3, "sum of rows": 8, "argmax": 8, "softmax": 10, "softmax, gradient": 8,
        "softmax of squares": 4}


@pytest.fixture
def recording(restart: Callable[..., Any], monkeypatch: pytest.MonkeyPatch,
              ) -> Iterator[RecordingDriver]:
    """A driver that compiles and launches nothing, and counts what it would compile."""
    simulation.forget()
    driver = RecordingDriver(("sm_90",))
    settings.memo = False
    drivers.use(driver)
    monkeypatch.setattr(settings, "ahead", 1)
    yield driver
    modules.ahead.forget()


def waited(driver: Any) -> int:
    """Compilations that a call began, and waited for."""
    counts = driver.statistics()
    return int(counts["compilations"] - counts["compilations_ahead"])


def unseen(step: Step, driver: Any) -> tuple[int, int]:
    """What 200 lengths never seen wait for, and what is made ahead until their end."""
    for length in WARM:
        step(length)
        modules.ahead.settle()
    before = waited(driver)
    lengths = [length for length in range(16, LONGEST) if length not in WARM]
    for length in random.Random(5).sample(lengths, 200):
        step(length)
        modules.ahead.settle()
    return waited(driver) - before, driver.statistics()["compilations_ahead"]


@pytest.mark.parametrize("name", STEPS)
def test_lengths_never_seen_wait_for_no_compiler(name: str, recording: RecordingDriver) -> None:
    found, ahead = unseen(STEPS[name](), recording)
    assert found <= 1
    assert ahead < 60


@pytest.mark.parametrize("name", MANY)
def test_without_threads_each_class_is_waited_for(
        name: str, recording: RecordingDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "ahead", 0)
    found, ahead = unseen(STEPS[name](), recording)
    assert found >= MANY[name]
    assert not ahead


def test_lengths_that_grow_meet_their_next_class_made(recording: RecordingDriver) -> None:
    step = trained()
    for length in range(100, 160):
        step(length)
        modules.ahead.settle()
    before = waited(recording)
    for length in range(160, 1100):
        step(length)
        modules.ahead.settle()
    assert waited(recording) == before


def test_a_few_fixed_sizes_ask_for_nothing_ahead(recording: RecordingDriver) -> None:
    widths = [64 * n for n in range(1, FIXED + 1)]
    for _ in range(3):
        for width in widths:
            leaf(32, width).softmax(-1).sum(0).square().sum().backward()
    modules.ahead.settle()
    assert recording.statistics()["compilations_ahead"] == 0


def test_the_kernels_are_the_same_whatever_was_made_ahead(
        recording: RecordingDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which one a length takes depends on nothing but the length."""
    asked: list[list[Any]] = []
    for threads in (1, 0):
        simulation.forget()
        monkeypatch.setattr(settings, "ahead", threads)
        step, found = STEPS["softmax, gradient"](), []
        for length in (*WARM, 1537, 258, 2050, 132):
            modules.functions.clear()
            step(length)
            found.append(sorted((key[1], key[2]) for key in modules.functions))
        asked.append(found)
    assert asked[0] == asked[1]


def test_results_are_those_that_no_thread_had_a_part_in(
        restart: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = (*range(20, 20 + 4 * (FIXED + 1), 4), 90)
    found = []
    for threads in (1, 0):
        monkeypatch.setattr(settings, "ahead", threads)
        restart(devices=1)
        results = []
        for length in lengths:
            values = ss.arange(3 * length).reshape(3, length).div(7).to("cuda")
            results.append(values.sum(1).cpu().numpy().tobytes())
        modules.ahead.settle()
        assert bool(modules.ahead.images) == bool(threads)
        found.append(results)
    assert found[0] == found[1]


def test_products_that_a_library_takes_are_not_thought_of(
        restart: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "ahead", 1)
    counts = []
    for library in (True, False):
        restart(devices=1, library=library, zero_cost=True)
        asked: list[Any] = []
        monkeypatch.setattr(modules.ahead, "make", lambda code, arch, asked=asked: asked.append(
            code))
        for length in range(260, 260 + FIXED + 2):
            cuda(64, length) @ cuda(length, 64)
        modules.ahead.settle()
        counts.append(len([code for code in asked if code.name.startswith("slip_product")]))
    assert counts[0] == 0
    assert counts[1] > 1


# -- the sizes that are looked at --

@pytest.mark.parametrize("size", [1, 2, 7, 100, 257, 4095, 1 << 20])
def test_sizes_around_one_lie_in_its_doubling_and_beside(size: int) -> None:
    found = around(size)
    doublings = {each.bit_length() for each in found}
    assert set(range(max(size.bit_length() - 1, 1), size.bit_length() + 2)) <= doublings
    assert any(each % 2 for each in found)


def test_the_nearest_come_first_and_equal_ones_change_alike() -> None:
    found = list(nearby((3, 100, 100), (1, 2)))
    assert all(each[0] == 3 and each[1] == each[2] for each in found)
    apart = [max(each[1] / 100, 100 / each[1]) for each in found]
    assert apart == sorted(apart)
    assert {each[1:] for each in nearby((3, 100, 7), (1, 2))} >= {(96, 7), (100, 8)}


@pytest.mark.parametrize(("sizes", "steps", "others", "wanted"), [
    ((4, 6), (6, 1), (4, 9), (9, 1)),
    ((4, 6), (1, 4), (9, 6), (1, 9)),
    ((4, 6), (0, 1), (4, 9), (0, 1)),
    ((4, 1), (1, 1), (9, 1), (1, 1)),
    ((2, 3, 3), (9, 3, 1), (2, 5, 5), (25, 5, 1)),
    # A part of something larger keeps its strides.
    ((4, 6), (10, 1), (4, 9), (10, 1)),
    ((4, 6), (12, 2), (4, 9), (12, 2)),
])
def test_strides_of_other_sizes(sizes: Any, steps: Any, others: Any, wanted: Any) -> None:
    assert restrided(sizes, steps, others) == wanted

"""Pointwise launches around a row kernel that become part of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import slipstream as ss
from gpu.launch.joins import (
    ALWAYS,
    NEVER,
    PAYS,
    bits,
    chains,
    counted,
    joined_at_once,
    launched,
)
from slipstream.core.kernels.cuda.epilogues import LEADING
from slipstream.core.vocab.settings import settings

functional = ss.nn.functional
FLOATS = (ss.float32, ss.bfloat16, ss.float16, ss.float64)
# Rows of a part of a warp, of one, of several; of no whole vectors; one row; short ones by many.
SIZES = [(7, 8), (33, 256), (5, 1000), (9, 33), (1, 64), (3, 2048), (4096, 4)]


@pytest.fixture(autouse=True)
def at_once(request: pytest.FixtureRequest) -> Iterator[None]:
    """Chains are joined at first sight."""
    with joined_at_once(request):
        yield


def some(*shape: int, dtype: Any = ss.float32) -> Any:
    """Random elements."""
    return (ss.rand(*shape, device="cuda") - 0.5).to(dtype)


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda each: each.name)
@pytest.mark.parametrize("size", SIZES)
def test_what_stands_around_a_row_kernel(size: tuple[int, int], dtype: Any) -> None:
    rows, length = size
    x, y = some(rows, length, dtype=dtype), some(rows, length, dtype=dtype)
    weight, bias = some(length, dtype=dtype), some(length, dtype=dtype)
    half = dtype if dtype.itemsize == 2 else ss.bfloat16
    one, low = some(1, dtype=dtype), some(rows, length, dtype=half)

    def norm(a: Any) -> Any:
        return functional.layer_norm(a, (length,), weight, bias, 1e-5)

    counted(lambda: (norm(x).to(half) * 2,), 1)
    counted(lambda: ((kept := norm(x)), kept * y), 1, 2)
    counted(lambda: ((total := x + y), norm(total)), 1, 2)
    counted(lambda: (norm(x + low).to(half),), 1)
    counted(lambda: (functional.softmax(x * 0.5 + y, -1) * one,), 1, 4)
    counted(lambda: ((x * y).amax(-1), (x - y).sum(-1)), 2, 4)
    counted(lambda: (functional.log_softmax(x, -1).exp() * 2 - y,), 1, 4)


@pytest.mark.parametrize("size", [(1, 58), (4, 58), (16, 256)])
def test_a_fill_before_a_row_kernel_is_written_whole(size: tuple[int, ...]) -> None:
    counted(lambda: ((kept := ss.full(size, 3.0, device="cuda")), kept.sum(-1)), 2)
    counted(lambda: (functional.softmax(ss.ones(size, device="cuda"), -1),), 2)
    # What nobody keeps is no more than a number.
    counted(lambda: (ss.full(size, 3.0, device="cuda").sum(-1),), 1, 2)
    for dtype in (ss.float32, ss.int64, ss.bfloat16):
        counted(lambda dtype=dtype: (
            ss.full(size, 3, dtype=dtype, device="cuda").argmax(-1),), 1, 2)
        counted(lambda dtype=dtype: tuple(
            ss.full(size, 3, dtype=dtype, device="cuda").max(-1)), 1, 2)


def test_two_row_kernels_are_two() -> None:
    x, weight = some(16, 64), some(64)

    def call() -> Any:
        first = functional.layer_norm(x * 2, (64,), weight)
        return functional.rms_norm(first + 1, (64,), weight).relu(), first

    counted(call, 2, 5)


def test_what_lies_otherwise_stays_apart() -> None:
    x, turned, row = some(16, 64), some(64, 16).t(), some(64)
    wide = some(16, 128)[:, ::2]
    counted(lambda: (functional.softmax(x, -1) * turned,), 2, 2)
    counted(lambda: (functional.softmax(x, -1) + row,), 2, 2)
    counted(lambda: (functional.softmax(wide, -1) + 1,), 1, 2)
    # What all rows share and what one row has are no one operand, though they begin at one place.
    square = some(64, 64)
    counted(lambda: (functional.layer_norm(square + 1, (64,), square[0], square[0]),), 1, 2)
    counted(lambda: (functional.layer_norm(square, (64,), square[0]) * square,), 1, 2)
    # A thread takes eight numbers of 2 bytes at once, and not of 8; what is before goes with it.
    low = x.bfloat16()
    counted(lambda: (functional.softmax(low * 2, -1).double() * 2,), 2, 4)


def test_in_place() -> None:
    x, y, weight = some(24, 96), some(24, 96), some(96)

    def call() -> Any:
        held = x.clone()
        held.add_(y)
        found = functional.layer_norm(held, (96,), weight)
        held.mul_(found)
        ss.softmax(held, -1, out=held)
        held.sub_(1)
        weight_too = weight.clone()
        rows = functional.rms_norm(held, (96,), weight_too)
        rows.add_(held)
        return held, found, rows

    found = chains()
    found.mode = NEVER
    wanted = [bits(each) for each in call()]
    found.mode = ALWAYS
    for _ in range(4):
        assert [bits(each) for each in call()] == wanted
    assert found.joined


def test_a_follower_that_writes_what_rows_share_stays_apart() -> None:
    x = some(64, 64)

    def call() -> Any:
        # Every row reads the first one, which the follower writes.
        held = x.clone()
        found = functional.layer_norm(held, (64,), held[0])
        ss.mul(found, 2, out=held)
        return held, found

    found = chains()
    found.mode = NEVER
    wanted = [bits(each) for each in call()]
    found.mode = ALWAYS
    for _ in range(3):
        assert [bits(each) for each in call()] == wanted


def test_what_nobody_reads_is_not_written() -> None:
    x, weight = some(128, 256), some(256)
    for _ in range(3):
        functional.layer_norm(x + 1, (256,), weight).to(ss.bfloat16)
        ss.cuda.synchronize()
    found = [dead for parts, _, dead in chains().families if any(part.reduces for part in parts)]
    # Of the sum and of the norm.
    assert any(dead.bit_count() == 2 for dead in found)


@pytest.mark.parametrize("numbers", [(2.0, -1.5), (0.25, 3.0)])
def test_numbers_of_the_parts_are_their_own(numbers: tuple[float, float]) -> None:
    x, (first, second) = some(16, 40), numbers

    def call() -> Any:
        near = functional.layer_norm(x * first, (40,), None, None, 0.125)
        return (near * second).clamp(-1, 1),

    counted(call, 1, 4)


def test_gradients_of_blocks() -> None:
    norm = ss.nn.LayerNorm(32).cuda()
    linear = ss.nn.Linear(32, 32).cuda()
    x = some(8, 6, 32)

    def step() -> list[bytes]:
        norm.zero_grad()
        linear.zero_grad()
        given = x.clone().requires_grad_(True)
        with ss.autocast("cuda", dtype=ss.bfloat16):
            h = given + linear(norm(given))
            h = h + functional.gelu(linear(norm(h)), approximate="tanh")
        h.float().square().mean().backward()
        return [bits(each) for each in (h, given.grad, *[p.grad for p in norm.parameters()],
                                        *[p.grad for p in linear.parameters()])]

    found = chains()
    found.mode = NEVER
    wanted = step()
    found.mode = ALWAYS
    before = found.joined
    for _ in range(5):
        assert step() == wanted
    assert found.joined > before


def test_joined_where_it_comes_back() -> None:
    x, weight = some(64, 128), some(128)
    found = chains()
    found.mode = PAYS

    def call() -> Any:
        return functional.layer_norm(x, (128,), weight).to(ss.bfloat16)

    counts = []
    for _ in range(40):
        counts.append(launched(call)[0])
    assert counts[:20] == [2] * 20
    assert counts[-5:] == [1] * 5


@pytest.mark.skipif(settings.driver == "real", reason="other tests' sizes are counted on a card")
def test_a_program_that_meets_ever_new_sizes_looks_for_no_neighbours() -> None:
    x = some(LEADING + 20, 24)

    def call(rows: int) -> Any:
        return functional.log_softmax(x[:rows] * 1.5, -1).to(ss.bfloat16)

    counts = [launched(lambda rows=rows: call(rows))[0]  # type: ignore[misc]
              for rows in range(1, LEADING + 20)]
    # The product and the cast are part of it at first, and the cast of all that were met in time.
    assert counts[0] < counts[-1]
    assert counts[-10:] == [3] * 10


def test_a_profile_gives_the_row_kernel_s_line_the_time() -> None:
    x, weight = some(64, 256), some(256)

    def call() -> Any:
        total = x + 1
        normal = functional.layer_norm(total, (256,), weight)
        return normal.to(ss.bfloat16)

    call()
    ss.cuda.synchronize()
    with ss.profiler.profile() as profile:
        for _ in range(3):
            call()
            ss.cuda.synchronize()
    events = list(profile.recorded().of("kernel"))
    assert [event.op for event in events] == ["layer_norm"] * 3
    assert all("_then_" in event.name for event in events)
    line = call.__code__.co_firstlineno + 2
    assert {event.line for event in events} == {line}

def test_readers_of_an_operand_in_other_classes_take_what_is_stored() -> None:
    whole = ss.full((64, 64), 2 ** 24 + 1, dtype=ss.int32, device="cuda")
    whole[0] = 2 ** 31 - 1

    def ratio() -> tuple[ss.Tensor, ...]:
        shares = (whole / 10).softmax(-1)
        return shares, ss.where(shares > -1, whole, 0)

    scale = ss.tensor(0.1, dtype=ss.float64, device="cuda")
    x = some(64, 64)

    def scaled() -> tuple[ss.Tensor, ...]:
        return ((x * scale).double().softmax(-1) * scale,)

    counted(ratio, 1, 4)
    counted(scaled, 1, 4)

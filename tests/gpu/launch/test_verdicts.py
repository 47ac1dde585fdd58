"""What a verdict says of programs with one fault each: the line, and a mend that can be done."""

from __future__ import annotations

import re
from typing import Any

import pytest

import slipstream as ss
from gpu.conftest import REAL
from slipstream import profiler
from slipstream.profiler.html import roofline
from slipstream.profiler.page import card_limits, kernel_rows, page

pytestmark = pytest.mark.skipif(REAL, reason="a card's times are measured: which bound is the "
                                             "larger one depends on the machine")


@pytest.fixture(autouse=True)
def driver_of_its_own(request: pytest.FixtureRequest) -> None:
    """Virtual times do not depend on earlier tests."""
    request.getfixturevalue("restart")(race=False)
    ss.sync_report(reset=True)


def seen(step: Any, count: int) -> Any:
    """The recording of some calls, and what it says."""
    with profiler.profile() as watched:
        for _ in range(count):
            step()
        ss.cuda.synchronize()
    recording = watched.recorded()
    return recording, profiler.summary(recording)


def test_tiny_copies_are_named_with_their_mend() -> None:
    total = ss.zeros(4, device="cuda")

    def step() -> None:
        total.add_(ss.tensor([1.0, 2.0, 3.0, 4.0]).to("cuda"))

    recording, found = seen(step, 100)
    assert found["bound"] == "launch"
    assert "100 of 16 bytes at test_verdicts.py:" in found["verdict"]
    assert "(`total.add_(" in found["verdict"]
    assert "make one tensor of them and copy it once" in found["verdict"]
    assert "at most about" in found["verdict"]
    assert "also seen\n  test_verdicts.py:" in page(recording)
    assert "100 tiny copies to cuda:0" in page(recording)


def test_waits_that_end_windows_are_named() -> None:
    x = ss.rand(32, 16, device="cuda")
    mask = x > 0.5

    def step() -> None:
        kept = mask.cpu().numpy()
        (x * ss.tensor(kept, device="cuda")).sum()

    verdict = seen(step, 100)[1]["verdict"]
    assert "waits" in verdict
    assert "100 times at test_verdicts.py:" in verdict
    assert "(`kept = mask.cpu()" in verdict
    assert "non_blocking=True" in verdict


def test_one_wait_at_the_end_is_not_too_many() -> None:
    x = ss.rand(8, 8, device="cuda")

    def step() -> None:
        y = x
        for _ in range(20):
            y = y * 2
        y.sum().item()

    verdict = seen(step, 1)[1]["verdict"]
    # It may as well say that plans were made meanwhile.
    assert verdict.startswith("launch-bound: 21 launches")
    assert "waits" not in verdict
    assert "times as fast" not in verdict


@pytest.mark.parametrize(("looks", "mend"), [
    (lambda x: x if x.sum() > 1e9 else None, "where(condition, a, b)"),
    (lambda x: x[x > 0.5], "masked_select(mask, size=n)"),
    (lambda x: x.sum().item(), "keep the value on the card and read it once, at the end")])
def test_a_wait_has_the_mend_of_its_kind(looks: Any, mend: str) -> None:
    x = ss.rand(64, device="cuda")

    def step() -> None:
        looks(x * 1.01)

    found = seen(step, 60)[1]
    assert found["bound"] == "wait"
    assert mend in found["verdict"]
    # What takes the place of a branch or a count has a price of its own.
    assert ("at most about" in found["verdict"]) != mend.startswith("keep")


def test_float64_by_accident_is_told() -> None:
    x = ss.rand(64, 64, device="cuda")
    scale = ss.ones(64, dtype=ss.float64, device="cuda")
    recording, _ = seen(lambda: x * scale, 20)
    assert "a float64 operand makes the result float64" in page(recording)


def test_a_card_that_idles_for_launches_is_not_told_to_work_less() -> None:
    x, w = ss.rand(256, 256, device="cuda"), ss.rand(256, 256, device="cuda")

    def step() -> None:
        (x @ w).softmax(-1)

    # None of these is replayed: kernels take most of the time, and the host is slower still.
    with ss.cuda.immediate():
        recording, found = seen(step, 40)
    parts = found["parts"]
    assert parts["GPU"] > parts["launch"] > 0.5 * parts["GPU"]
    assert "CPU-bound by" in page(recording)
    assert found["bound"] == "launch"
    assert found["verdict"].startswith("launch-bound: ")


def test_no_launch_of_sizes_that_never_come_again_is_promised_to_be_replayed() -> None:
    gains = []
    for grows in (False, True):
        rows = [ss.ones(1, 16, device="cuda")]

        def step(rows: list[ss.Tensor] = rows, grows: bool = grows) -> None:
            x = ss.cat(rows)
            for _ in range(4):
                x = (x * 2).softmax(-1)
            x.sum().item()
            if grows:
                rows.append(rows[0])

        found = seen(step, 40)[1]
        assert found["bound"] == "wait"
        gains.append(found["gain"])
    assert gains[1] < gains[0]


def test_a_program_without_the_profile_is_not_said_to_take_longer() -> None:
    # Waits that fetch nothing are cheaper than the item() that waits are counted as.
    x = ss.rand(64, device="cuda")

    def step(ends: bool = True) -> None:
        x.mul(2).sum()
        if ends:
            ss.cuda.synchronize()

    for ends in (True, False):
        for _ in range(200):
            step(ends)
    found = seen(step, 200)[1]
    after = seen(lambda: step(False), 200)[1]
    (instead,) = re.findall(r"instead of ([\d,]+)\)", found["verdict"])
    assert "at most about" in found["verdict"]
    assert float(instead.replace(",", "")) <= found["span"] / 1000 + 1
    assert 0.8 <= found["gain"] / (found["span"] / after["span"]) <= 1.25


def test_what_is_said_of_new_windows_is_what_the_page_counts() -> None:
    held = [ss.ones(1, 16, device="cuda")]

    def step() -> None:
        held[0] = ss.cat([held[0], held[0][:1]])
        ((held[0] * 2).softmax(-1) + 1).exp()

    recording, found = seen(step, 100)
    first = found["alone"]["first sight"]
    assert first > found["launches"] / 2
    assert f"{first:,} were seen for the first time: the mend is shapes" in found["verdict"]
    text = page(recording)
    assert f"{first:,} alone: first sight" in text
    # Shapes that repeat are replayed, and that is a gain.
    (gain,) = re.findall(r"windows replayed .* in all, ([\d.]+) times faster", text)
    assert float(gain) > 1.1


def test_no_share_of_a_limit_is_beyond_it() -> None:
    x, w = ss.rand(1024, 1024, device="cuda"), ss.rand(1024, 1024, device="cuda")
    recording, _ = seen(lambda: (x @ w).softmax(-1), 1)
    (row,) = [row for row in kernel_rows(recording) if row.op == "matmul"]
    limits = card_limits()
    assert limits is not None
    assert limits.share(row.nbytes, row.operations, row.dtype, row.spent) > 1
    assert row.limit_share(limits) is None
    assert "of the limit" in page(recording)
    assert all(int(share) <= 100 for share in re.findall(r"(\d+) % of the limit", page(recording)))
    assert not [point for point in roofline(recording)["points"] if point[0] == "matmul"]


def test_every_line_that_copies_as_much_is_named() -> None:
    batch = ss.rand(512, 512)

    def step() -> None:
        batch.to("cuda").sum()
        batch.to("cuda").mean()

    first = step.__code__.co_firstlineno + 1
    found = seen(step, 20)[1]
    assert found["bound"] == "copy"
    named = re.findall(r"test_verdicts\.py:(\d+)", found["verdict"])
    assert sorted(map(int, named)) == [first, first + 1]
    assert " and as much at " in found["verdict"]
    # Without both the data is on the card.
    assert found["gain"] > 4

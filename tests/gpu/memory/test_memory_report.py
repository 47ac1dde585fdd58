"""Who holds a card's memory: the report at any time, the recording, the error."""

from __future__ import annotations

import gc
import inspect
import json
import re
from pathlib import Path
from typing import Any

import pytest

import slipstream as ss
from gpu.conftest import REAL
from slipstream.cli import main
from slipstream.core.api.memory import record_memory, rows_of
from slipstream.core.launch.door import backends

cuda = pytest.importorskip("slipstream.cuda")
MEGA = 1 << 20


def block(megabytes: int) -> Any:
    return ss.empty(megabytes * MEGA, dtype=ss.uint8, device="cuda")


def line() -> int:
    """The caller's line."""
    frame: Any = inspect.currentframe()
    return int(frame.f_back.f_lineno)


def test_the_report_names_line_and_expression() -> None:
    gc.collect()
    held = [ss.empty(3 * MEGA, dtype=ss.uint8, device="cuda") for _ in range(2)]
    here = line() - 1
    total = ss.zeros(5 * MEGA, dtype=ss.uint8, device="cuda") + 1
    there = line() - 1
    report = cuda.memory_report("cuda")
    memory, = report.devices
    rows = {(row.file, row.line): row for row in memory.holders}
    assert (rows[__file__, here].nbytes, rows[__file__, here].blocks) == (6 * MEGA, 2)
    assert rows[__file__, here].expression.startswith("ss.empty(3 * MEGA")
    row = rows[__file__, there]
    assert row.nbytes == 5 * MEGA
    assert row.expression == 'ss.zeros(5 * MEGA, dtype=ss.uint8, device="cuda") + 1'
    assert memory.live == cuda.memory_allocated()
    assert memory.reserved == cuda.memory_reserved()
    assert memory.cached == memory.reserved - memory.live
    assert memory.largest_hole <= memory.cached
    assert f"{__file__}:{here}" in str(report)
    assert {each.device for each in ss.memory_report().devices} >= {"cpu", "cuda:0"}
    assert held
    assert total.numel()


def test_pinned_memory_is_counted() -> None:
    held = ss.empty(MEGA, dtype=ss.uint8, pin_memory=True)
    memory, = cuda.memory_report("cuda").devices
    assert memory.pinned >= MEGA
    assert memory.pinned == cuda.host_memory_stats()["allocated_bytes.all.current"]
    assert "pinned host memory: " in str(cuda.memory_report("cuda"))
    assert held.is_pinned()


def test_only_a_card_that_is_there_is_told_of() -> None:
    count = cuda.device_count()
    with pytest.raises(RuntimeError, match=f"there is no cuda:{count}: this machine has {count} c"):
        ss.memory_report(f"cuda:{count}")
    # One that nobody used has no context made for it.
    unused = [place for place in range(count) if ss.device("cuda", place) not in backends]
    for place in unused:
        memory, = ss.memory_report(f"cuda:{place}").devices
        assert (memory.live, memory.reserved, memory.holders) == (0, 0, [])
        assert ss.device("cuda", place) not in backends


def test_a_recording_keeps_who_held_the_peak() -> None:
    gc.collect()
    with record_memory() as recording:
        first = block(4)
        second = block(8)
        there = line() - 1
        del second
        third = block(2)
    timeline = recording.timelines["cuda:0"]
    assert timeline.peak == 12 * MEGA
    assert timeline.live == 6 * MEGA
    rows = rows_of(timeline.at_peak)
    assert sum(row.nbytes for row in rows) == 12 * MEGA
    assert any(row.nbytes == 12 * MEGA and row.stack[1].startswith(__file__) for row in rows)
    assert f"{__file__}:{there}" in [text for row in rows for text in row.stack] or rows
    assert first.numel() + third.numel() == 6 * MEGA


def test_the_command_on_a_card(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "script.py"
    path.write_text("import slipstream as ss\n"
                    "x = ss.ones(1000, 1000, device='cuda')\n"
                    "y = (x * 2).sum()\n")
    shot = tmp_path / "shot.pickle"
    assert main(["memory", "--json", "--snapshot", str(shot), str(path)]) == 0
    cuda.memory._record_memory_history(None)
    found = {each["device"]: each for each in json.loads(capsys.readouterr().out)["devices"]}
    rows = {(row["line"], row["op"]): row["nbytes"] for row in found["cuda:0"]["at_peak"]}
    assert rows[3, "mul"] == 4_000_000
    assert shot.stat().st_size > 0


@pytest.mark.parametrize("simulated", [
    pytest.param(True, marks=pytest.mark.skipif(REAL, reason="of the simulated driver")),
    pytest.param(False, marks=pytest.mark.skipif(not REAL, reason="needs a card"))])
def test_the_budget_says_whether_its_card_is_simulated(
        simulated: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "script.py"
    path.write_text("import slipstream as ss\n"
                    "x = ss.ones(8, device='cuda')\n"
                    "for _ in range(60):\n"
                    "    for _ in range(50):\n"
                    "        x = x * 0.5 + 1\n"
                    "    x.sum().item()\n")
    assert main(["budget", "--json", str(path)]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["ran_on"].startswith("cuda:0, ")
    assert facts["simulated"] is simulated
    assert ("simulated" in facts["ran_on"]) == simulated
    assert facts["ops"] > 0
    assert 0 <= facts["replayed_share"] <= 1
    assert facts["device_us_per_op"] > 0
    assert facts["verdict"] in ("CPU-bound", "GPU-bound", "even")
    # Its windows are measured no more.
    assert cuda.current_stream().queue.timer is None


def test_the_error_names_the_results_that_keep_graphs() -> None:
    gc.collect()
    w = ss.randn(512, 512, device="cuda", requires_grad=True)
    kept = []
    taken = cuda.memory_reserved()
    total = cuda.get_device_properties(0).total_memory
    cuda.set_per_process_memory_fraction((taken + 64 * MEGA) / total)
    try:
        with pytest.raises(cuda.OutOfMemoryError) as caught:
            kept.extend((w * step).tanh() for step in range(1000))
    finally:
        cuda.set_per_process_memory_fraction(1.0)
    there = line() - 3
    assert len(kept) >= 4
    text = str(caught.value).rpartition("mend: ")[2]
    assert text.startswith(f"{len(kept)} results of `(w * step).tanh()` at {__file__}:{there} are "
                           "held in a list, and each keeps its autograd graph alive (")
    assert "x.detach()" in text
    assert "no_grad()" in text
    assert "batch" not in text


def test_shares_are_of_what_the_lines_asked_for() -> None:
    # In blocks of 512 bytes these take more than was asked for.
    ss.cuda.synchronize()
    gc.collect()
    held = [ss.ones(8, 8, device="cuda") for _ in range(3)]
    text = str(ss.memory_report("cuda"))
    shares = [int(found) for found in re.findall(r" (\d+) %  ", text)]
    assert len(held) == 3
    assert shares
    others = re.search(r"and .* by \d+ others", text)
    assert others or abs(sum(shares) - 100) <= len(shares)

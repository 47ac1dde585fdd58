"""`slipstream memory`: who held a script's memory at the peak."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import slipstream as ss
from slipstream.cli.charts import HEIGHT, chart, squeezed
from slipstream.core.memory.timeline import POINTS, Curve, Timeline
from slipstream.core.vocab.sites import expression_of

SCRIPT = """\
import sys
import slipstream as ss

def large():
    return ss.ones(1000, 1000)

kept = [ss.zeros(10) for _ in range(150)]
small = ss.ones(100, 100) + 1
peak = large() * 2
del peak
print("arguments", sys.argv[1:])
sys.exit(int(sys.argv[1]))
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command."""
    return subprocess.run([sys.executable, "-m", "slipstream", "memory", *arguments],
                          capture_output=True, text=True, check=False)


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    return str(path)


def test_the_report_names_the_lines_that_held_the_peak(script: str) -> None:
    done = run("--json", script, "3", "--flag")
    assert done.returncode == 3, done.stderr
    assert "arguments ['3', '--flag']" in done.stderr
    facts, = json.loads(done.stdout)["devices"]
    assert facts["device"] == "cpu"
    rows = {(row["line"], row["op"]): row for row in facts["at_peak"]}
    made = [row for row in facts["at_peak"] if row["line"] == 5]
    assert [(row["nbytes"], row["blocks"], row["expression"]) for row in made] == [
        (4_000_000, 1, "ss.ones(1000, 1000)")]
    assert made[0]["stack"] == [f"{script}:5", f"{script}:9"]
    assert rows[9, "mul"]["nbytes"] == 4_000_000
    assert rows[9, "mul"]["expression"] == "large() * 2"
    assert rows[8, "add"]["nbytes"] == 40_000
    assert facts["peak"] == sum(row["nbytes"] for row in facts["at_peak"])
    left = {row["line"]: row for row in facts["at_end"]}
    assert 9 not in left
    assert (left[7]["blocks"], left[7]["nbytes"]) == (150, 150 * 40)
    assert facts["live_at_end"] == sum(row["nbytes"] for row in facts["at_end"])
    assert max(facts["curve"]["bytes"]) == facts["peak"]
    assert any(f"{script}:7: 150 blocks" in line for line in facts["advice"])


def test_the_text_shows_the_timeline(script: str) -> None:
    done = run(script, "0")
    assert done.returncode == 0, done.stderr
    assert "arguments ['0']" in done.stdout
    assert "held at the peak" in done.stdout
    assert f"{script}:9" in done.stdout
    assert "█" in done.stdout
    assert "largest hole" in done.stdout


def test_what_cannot_be_run(tmp_path: Path) -> None:
    missing = run(str(tmp_path / "none.py"))
    assert missing.returncode == 2
    assert "slipstream memory: can't open file" in missing.stderr
    path = tmp_path / "fails.py"
    path.write_text("import slipstream as ss\nx = ss.ones(3)\nraise ValueError('no')\n")
    failed = run(str(path))
    assert failed.returncode == 1
    assert "ValueError: no" in failed.stderr
    assert "held at the peak" in failed.stdout


class Pieces:
    """What a timeline asks of an allocator's pieces."""

    def held(self) -> int:
        """Nothing is reserved."""
        return 0


class FakeAllocator:
    """An allocator that a test tells what happens."""

    pieces = Pieces()

    def listen(self, listener: Any) -> None:
        """Keep who listens."""
        self.listener = listener

    def settled(self) -> None:
        """Nothing is pending."""


def test_who_held_the_peak_is_kept_though_it_falls() -> None:
    allocator = FakeAllocator()
    timeline = Timeline(allocator, "cpu", lambda: "op")
    timeline.attach()
    for address, nbytes in ((1, 100), (2, 50)):
        allocator.listener("allocate", address, nbytes)
    allocator.listener("free", 1, 100)
    allocator.listener("allocate", 3, 20)
    allocator.listener("free", 99, 5)
    timeline.detach()
    assert (timeline.peak, timeline.live) == (150, 70)
    assert sum(entry[0] for entry in timeline.at_peak.values()) == 150
    assert sum(entry[0] for entry in timeline.held.values()) == 70
    assert allocator.listener is None


def test_a_curve_keeps_the_largest_value_of_each_stretch() -> None:
    curve = Curve(0)
    for place in range(4 * POINTS):
        curve.add(place * 1000, place if place != 700 else 10**6)
    assert len(curve.values) <= POINTS
    assert curve.width == 4000
    assert curve.values[700 // 4] == 10**6
    assert curve.values[-1] == 4 * POINTS - 1
    quiet = Curve(0)
    quiet.add(0, 5)
    quiet.add(10_000, 7)
    assert quiet.values == [5] * 10 + [7]


def test_charts() -> None:
    assert squeezed([1, 5, 2, 3], 2) == [5, 3]
    assert squeezed([], 4) == []
    text = chart([0, 4, 8], "3 ms", str).splitlines()
    assert len(text) == HEIGHT + 2
    assert text[0].endswith("│  █")
    assert text[HEIGHT - 1].endswith("│ ██")


def test_expressions_are_read_from_the_source() -> None:
    with pytest.raises(RuntimeError) as caught:
        ss.ones(2) + ss.ones(3)
    trace = caught.value.__traceback__
    assert trace is not None
    assert expression_of(trace.tb_frame.f_code, trace.tb_lasti) == "ss.ones(2) + ss.ones(3)"
    assert expression_of(None, 0) == ""


def test_memory_now() -> None:
    before = ss.memory_report("cpu").devices[0].live
    held = ss.ones(1 << 20)
    report = ss.memory_report("cpu")
    memory, = report.devices
    assert memory.live - before == 4 << 20
    assert memory.cached == memory.reserved - memory.live
    assert memory.peak >= memory.live
    assert "cpu: " in str(report)
    assert report.to_dict()["devices"][0]["device"] == "cpu"
    assert held.sum() == 1 << 20
    with pytest.raises(RuntimeError, match="no memory of its own"):
        ss.memory_report("meta")
    with pytest.raises(RuntimeError, match=r"there is no cuda:77: this machine has \d+ card"):
        ss.memory_report("cuda:77")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no full disk to offer")
def test_a_snapshot_that_cannot_be_written_leaves_the_report(script: str) -> None:
    done = run("--snapshot", "/dev/full", script, "0")
    assert done.returncode == 1
    assert done.stderr.startswith("slipstream memory: --snapshot /dev/full: cannot be written: No ")
    assert "Traceback" not in done.stderr
    assert "held at the peak, by line and op" in done.stdout

"""`slipstream budget`: the dispatch budget by hand, and of programs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from slipstream.cli import main
from slipstream.cli.budget import Budget, budget_of, cpu_verdict, facts_of, measured_text
from slipstream.core.api.budget import Look, Measured, fill

BUSY = """\
import sys
import time
import slipstream as ss
end = time.perf_counter() + 0.6
size = int(sys.argv[1])
x = ss.ones(size, size)
while time.perf_counter() < end:
    # The small program spends its time in Python, whatever the machine.
    y = x @ x if size > 8 else x + sum(range(500))
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command."""
    return subprocess.run([sys.executable, "-m", "slipstream", "budget", *arguments],
                          capture_output=True, text=True, check=False)


def test_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    hand = ["budget", "--ops", "120", "--dispatch-us", "10", "--gpu-us", "4"]
    assert main(hand) == 0
    text = capsys.readouterr().out
    assert "CPU-bound by 2.5 times" in text
    assert "idle 60 % of the time" in text
    assert "1,200.0 µs" in text
    assert "480.0 µs, 2.5 times faster" in text
    assert main([hand[0], "--json", *hand[1:]]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["step_us"] == 1200.0
    assert facts["one_graph_step_us"] == 480.0
    assert facts["device_idle_share"] == pytest.approx(0.6)


@pytest.mark.parametrize(("host", "device", "verdict", "factor"), [
    (10, 4, "CPU-bound", 2.5), (2, 40, "GPU-bound", 20.0), (10, 10.5, "even", 1.05),
    (1.2, 0.4, "CPU-bound", 3.0)])
def test_verdicts(host: float, device: float, verdict: str, factor: float) -> None:
    budget = Budget(100, host, device)
    assert budget.verdict == verdict
    assert budget.factor == pytest.approx(factor)
    assert budget.step == 100 * max(host, device)
    assert budget.captured() <= budget.gathered() <= budget.step


def test_replay_cannot_be_faster_than_the_device_or_the_gathering() -> None:
    assert Budget(100, 10, 0.1).gathered() == pytest.approx(150.0)
    assert Budget(10, 10, 0.01).captured() == pytest.approx(2.7)
    # Measured: what is replayed already gains nothing.
    assert Budget(100, 10, 1, saved=0.0).gathered() == 1000.0
    assert Budget(100, 10, 1, saved=3.0).gathered() == pytest.approx(700.0)


def test_a_measured_card() -> None:
    found = Measured("cuda:0, a card", False, ops=1000, elapsed=12_000.0, waited=2_000.0,
                     launches=2000, replayed=1500, timed=100, device=150.0)
    budget = budget_of(found)
    assert budget is not None
    # 10 ms of the host for 1000 ops; 1.5 µs a launch, two launches an op.
    assert (budget.host, budget.device) == (10.0, 3.0)
    assert budget.saved == pytest.approx(0.5 * 3.9)
    facts = facts_of(found)
    assert facts["replayed_share"] == 0.75
    assert facts["verdict"] == "CPU-bound"
    text = measured_text(found)
    assert "75 % of them replayed" in text
    assert "25 % went out one by one" in text
    assert "simulated" not in text


def test_the_cpu_has_two_verdicts() -> None:
    found = Measured(ops=100, elapsed=1000.0, listened=10, kernels=80.0)
    assert cpu_verdict(found) == "kernel-bound"
    assert "80 % of the time is kernels'" in measured_text(found)
    found.kernels = 10.0
    assert cpu_verdict(found) == "dispatch-bound"
    found.listened = 0
    assert cpu_verdict(found) == "too short to tell"
    assert measured_text(Measured()) == "no op ran: there is nothing to measure"


def test_a_card_that_worked_too_little_is_not_the_cpu() -> None:
    found = Measured("cuda:0, a card", True, ops=20, elapsed=4000.0)
    text = measured_text(found)
    assert "too short to tell" in text
    assert "CPU" not in text
    assert facts_of(found)["verdict"] == "too short to tell"


@pytest.mark.parametrize(("size", "verdict"), [("2", "dispatch-bound"), ("200", "kernel-bound")])
def test_programs_on_the_cpu(tmp_path: Path, size: str, verdict: str) -> None:
    path = tmp_path / "busy.py"
    path.write_text(BUSY)
    done = run("--json", str(path), size)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["ran_on"] == "cpu"
    assert facts["ops"] > 0
    assert facts["verdict"] == verdict


@pytest.mark.parametrize("wrong", [
    [], ["--ops", "3"], ["--ops", "3", "--dispatch-us", "1", "--gpu-us", "1", "x.py"]])
def test_wrong_command_lines(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["budget", *wrong]) == 2
    assert "slipstream budget:" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", [["--ops", "0"], ["--gpu-us", "-1"], ["--gpu-us", "inf"],
                                   ["--dispatch-us", "nan"]])
def test_wrong_numbers(wrong: list[str]) -> None:
    with pytest.raises(SystemExit):
        main(["budget", *wrong])


def test_a_wait_longer_than_a_stretch_is_part_of_the_time() -> None:
    # Ten milliseconds in which a wait of 50 ended, and ten without a wait.
    spans = [(Look(0, 0, 0, 0, 0), Look(10_000_000, 4, 4, 0, 50_000_000)),
             (Look(10_000_000, 4, 4, 0, 50_000_000), Look(20_000_000, 8, 8, 0, 50_000_000))]
    found = Measured()
    fill(found, SimpleNamespace(listened=0, kernels=0.0, timers={}, failure=None), spans)
    assert (found.ops, found.elapsed, found.waited) == (8, 60_000.0, 50_000.0)

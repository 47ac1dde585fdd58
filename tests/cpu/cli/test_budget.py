"""`slipstream budget`: the dispatch budget by hand, and of programs."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest

import slipstream as ss
from slipstream.cli import main
from slipstream.cli.budget import Budget, budget_of, cpu_verdict, facts_of, measured_text
from slipstream.core.api.budget import Look, Measured, fill
from slipstream.core.launch.waiting import host_waits, watching

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


def test_of_a_wait_longer_than_a_stretch_only_what_lies_in_it_counts() -> None:
    # Stretches of ten milliseconds: nine of a wait that goes on behind it, one of a wait that began
    # before it, none; and twelve of two threads that waited at a time.
    waited = [0, 9_000_000, 19_000_000, 20_000_000, 20_000_000, 32_000_000]
    looks = [Look(10_000_000 * number, 4 * number, 4 * number, 0, spent)
             for number, spent in enumerate(waited)]
    spans = [pair for number, pair in enumerate(pairwise(looks)) if number != 1]
    found = Measured()
    fill(found, SimpleNamespace(listened=0, kernels=0.0, timers={}, failure=None), spans)
    assert (found.ops, found.elapsed, found.waited) == (16, 40_000.0, 20_000.0)


def test_a_wait_under_way_is_seen_by_other_threads() -> None:
    seen = []

    def look(pause: float) -> None:
        before = watching.waited()
        time.sleep(pause)
        seen.append(watching.waited() - before)

    def inner() -> None:
        host_waits(ss.device("cpu"), "inner", lambda: None)
        # The wait that holds the other goes on.
        other = threading.Thread(target=look, args=(0.02,))
        other.start()
        other.join()

    host_waits(ss.device("cpu"), "outer", inner)
    look(0.0)
    assert seen[0] >= 20_000_000
    assert seen[1] == 0
    assert not watching.under_way

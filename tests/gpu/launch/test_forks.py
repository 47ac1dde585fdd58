"""A fork after CUDA was used: the child is told so, with the line that made the context."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import slipstream as ss
from slipstream.core.vocab.settings import settings

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here"),
    pytest.mark.skipif(settings.driver == "real", reason="starts processes of its own"),
]

HEAD = """
import os, sys, warnings
import slipstream as ss

warnings.simplefilter("ignore")


def child(work):
    sys.stdout.flush()
    number = os.fork()
    if number:
        os.waitpid(number, 0)
        return
    try:
        print("child:", work())
    except RuntimeError as error:
        print("child:", error)
    sys.stdout.flush()
    os._exit(0)

"""


def run(text: str, folder: Path) -> str:
    """What a script prints that runs on the simulated driver."""
    script = folder / "script.py"
    script.write_text(HEAD + textwrap.dedent(text))
    environment = {**os.environ, "SLIPSTREAM_DRIVER": "sim", "SLIPSTREAM_CACHE": settings.cache,
                   "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True,
                          env=environment, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def line_of(text: str) -> int:
    """The line of the script that holds some text."""
    return next(number for number, line in enumerate(text.splitlines(), 1) if "# here" in line)


@pytest.mark.parametrize("first", [
    "x = ss.ones(4, device='cuda')  # here", "ss.cuda.synchronize()  # here",
    "stream = ss.cuda.Stream()  # here", "ss.ones(4) + 1; ss.cuda.init()  # here"])
@pytest.mark.parametrize("use", [
    "ss.ones(3, device='cuda')", "ss.cuda.synchronize()", "ss.cuda.Stream()",
    "(ss.ones(2).to('cuda') + 1).tolist()"])
def test_cuda_in_a_forked_child_is_refused(tmp_path: Path, first: str, use: str) -> None:
    text = (f"{first}\nchild(lambda: {use})\n"
            "print('parent:', (ss.ones(2, device='cuda') * 3).tolist())\n")
    out = run(text, tmp_path).splitlines()
    assert "CUDA cannot be used in a forked process" in out[0]
    assert f"made at {tmp_path / 'script.py'}:{line_of(HEAD + text)}" in out[0]
    assert "spawn" in out[0]
    assert out[1] == "parent: [3.0, 3.0]"


def test_tensors_of_the_parent_are_refused_too(tmp_path: Path) -> None:
    out = run("""
        x = ss.arange(4.0, device="cuda")
        y = x * 2
        child(lambda: y.tolist())
        child(lambda: x + 1)
        child(lambda: x.add_(1))
        print("parent:", (y + 1).tolist())
    """, tmp_path).splitlines()
    # An error of an op also names its operands.
    out = [line for line in out if not line.startswith("  in ")]
    assert [line.partition(" in a forked")[0] for line in out[:3]] == [
        "child: CUDA cannot be used"] * 3
    assert out[3] == "parent: [1.0, 3.0, 5.0, 7.0]"


def test_what_was_recorded_is_sent_before_the_fork(tmp_path: Path) -> None:
    out = run("""
        x = ss.ones(4, device="cuda")
        x.add_(1)
        queue = ss.cuda.current_stream().queue
        before = len(queue.window.launches) - queue.window.drained
        child(lambda: "nothing of CUDA")
        print("parent:", before > 0, len(queue.window.launches) - queue.window.drained, x.tolist())
    """, tmp_path).splitlines()
    assert out == ["child: nothing of CUDA", "parent: True 0 [2.0, 2.0, 2.0, 2.0]"]


def test_a_child_profiles_and_trains_on_the_cpu(tmp_path: Path) -> None:
    out = run("""
        def train():
            with ss.profiler.profile() as seen:
                w = ss.ones(2, requires_grad=True)
                (w * 3).sum().backward()
                ss.optim.SGD([w], lr=0.5).step()
            return w.tolist(), len(seen.recorded().of("op")) > 2

        def given():
            # A profile that the parent began.
            outer.stop()
            return len(outer.recorded().of("op")) > 0

        def grandchild():
            child(lambda: x + 1)
            return "done"

        x = ss.ones(4, device="cuda") + 1
        child(train)
        outer = ss.profiler.profile()
        outer.start()
        y = x * 2
        child(given)
        y = y + 1
        outer.stop()
        print("parent:", y.tolist(), len(outer.recorded().of("kernel")))
        child(grandchild)
    """, tmp_path).splitlines()
    assert out[:3] == ["child: ([-0.5, -0.5], True)", "child: True",
                       "parent: [5.0, 5.0, 5.0, 5.0] 2"]
    assert "cannot be used in a forked process" in out[3]
    assert out[-1] == "child: done"


def test_before_a_context_a_fork_is_free(tmp_path: Path) -> None:
    out = run("""
        print("known:", ss.cuda.is_available(), ss.cuda.device_count())
        ss.manual_seed(1)
        child(lambda: (ss.ones(3, device="cuda") + 1).tolist())
        print("parent:", (ss.ones(3, device="cuda") + 2).tolist())
    """, tmp_path).splitlines()
    assert out == ["known: True 2", "child: [2.0, 2.0, 2.0]", "parent: [3.0, 3.0, 3.0]"]


def test_asking_makes_no_context(tmp_path: Path) -> None:
    out = run("""
        ss.cuda.is_available(), ss.cuda.device_count(), ss.cuda.get_device_name()
        ss.cuda.manual_seed_all(3)
        ss.manual_seed(4)
        ss.cuda.is_current_stream_capturing()
        ss.cuda.get_rng_state()
        print(ss.cuda.is_initialized())
        ss.cuda.current_stream()
        print(ss.cuda.is_initialized())
    """, tmp_path).split()
    assert out == ["False", "True"]
    assert ss.cuda.is_available()

"""What a script does to its process does not cost the report: its folder, itself, its output."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from slipstream.core.vocab import settings

ROOT = Path(settings.__file__).parents[3]
# A command with a report, and what the report says.
REPORTS = {"profile": "host-bound: ", "explain": "calls of ops at script.py", "memory": "cpu: peak",
           "budget": "ran on cpu"}
OUTPUTS = [("profile", "--html"), ("profile", "--trace"), ("profile", "--stacks"),
           ("memory", "--snapshot")]


def command(folder: Path, *words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder."""
    around = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run([sys.executable, "-m", "slipstream", *map(str, words)], cwd=folder,
                          capture_output=True, text=True, timeout=300, env=around)


def write(folder: Path, text: str, name: str = "script.py") -> Path:
    """Write a script."""
    path = folder / name
    path.write_text(textwrap.dedent(text).lstrip())
    return path


@pytest.mark.parametrize("name", REPORTS)
@pytest.mark.parametrize("text", [
    "import os, torch\nos.mkdir('out')\nos.chdir('out')\nx = torch.ones(3) + 1\n",
    "import os, torch\nx = torch.ones(3) + 1\nos.rename('script.py', 'moved.py')\n",
], ids=["other folder", "other name"])
def test_a_script_that_moves_is_told_of(tmp_path, name, text):
    write(tmp_path, text)
    seen = command(tmp_path, name, "script.py")
    assert (seen.returncode, seen.stderr) == (0, "")
    assert REPORTS[name] in seen.stdout


@pytest.mark.parametrize(("name", "option"), OUTPUTS)
def test_files_go_where_the_command_was_called(tmp_path, name, option):
    write(tmp_path, "import os, torch\nos.mkdir('out')\nos.chdir('out')\nx = torch.ones(3) + 1\n")
    seen = command(tmp_path, name, option, "file.out", "script.py")
    assert (seen.returncode, seen.stderr) == (0, "")
    assert (tmp_path / "file.out").stat().st_size
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize(("name", "option"), OUTPUTS)
@pytest.mark.parametrize("file", [".", "no/such", "script.py/x"])
def test_what_cannot_be_written_is_said_before_the_script_runs(tmp_path, name, option, file):
    write(tmp_path, "print('ran')\n")
    seen = command(tmp_path, name, option, file, "script.py")
    assert (seen.returncode, seen.stdout, seen.stderr.count("\n")) == (2, "", 1)
    assert f"{option} {file}: cannot be written: " in seen.stderr


def test_asking_leaves_no_file_and_keeps_one(tmp_path):
    write(tmp_path, "import os\nprint(os.path.exists('new'), open('old').read())\n")
    (tmp_path / "old").write_text("kept")
    seen = command(tmp_path, "profile", "--html", "new", "--trace", "old", "script.py")
    assert seen.stdout.startswith("False kept\n")


@pytest.mark.parametrize("name", [*REPORTS, "run"])
@pytest.mark.parametrize("file", [".", "none.py"])
def test_what_cannot_be_run_has_no_report(tmp_path, name, file):
    seen = command(tmp_path, name, file)
    assert (seen.returncode, seen.stdout, seen.stderr.count("\n")) == (2, "", 1)
    assert f"slipstream {name}: can't open file" in seen.stderr


LOGGER = """
    import sys, torch
    class Logger:
        def __init__(self, path):
            self.terminal, self.log = sys.stdout, open(path, "w")
        def write(self, text):
            self.terminal.write(text)
            self.log.write(text)
        def flush(self):
            self.terminal.flush()
    sys.stdout = Logger("log.txt")
    """
LEFT = {
    "logger": LOGGER,
    "memory": "import io, sys, torch\nsys.stdout = io.StringIO()\n",
    "detached": "import io, sys, torch\nsys.stdout = io.TextIOWrapper(sys.stdout.detach())\n",
    "wrapped": "import io, sys, torch\nsys.stdout = io.TextIOWrapper(sys.stdout.buffer)\n",
    "neither": "import sys, torch\nsys.stdout = object()\nprint = lambda text: None\n",
}


@pytest.mark.parametrize("left", LEFT)
@pytest.mark.parametrize("name", REPORTS)
def test_what_a_script_leaves_for_an_output_does_not_matter(tmp_path, name, left):
    write(tmp_path, textwrap.dedent(LEFT[left]).lstrip() + "x = torch.ones(3) + 1\nprint('mine')\n")
    seen = command(tmp_path, name, "script.py")
    assert (seen.returncode, seen.stderr) == (0, "")
    assert REPORTS[name] in seen.stdout
    # What the script wrote there comes first, and once.
    at = seen.stdout.find("mine\n")
    assert at == (-1 if left in ("memory", "neither") else 0)
    if left == "logger":
        assert (tmp_path / "log.txt").read_text() == "mine\n"


def test_run_leaves_the_output_as_it_is(tmp_path):
    write(tmp_path, textwrap.dedent(LOGGER).lstrip()
          + "import atexit\natexit.register(lambda: print('bye'))\nprint('mine')\n")
    seen = command(tmp_path, "run", "script.py")
    assert (seen.returncode, seen.stdout, seen.stderr) == (0, "mine\nbye\n", "")
    assert (tmp_path / "log.txt").read_text() == "mine\nbye\n"


def test_json_stands_alone_whatever_the_script_leaves(tmp_path):
    write(tmp_path, textwrap.dedent(LOGGER).lstrip() + "x = torch.ones(3) + 1\nprint('mine')\n")
    seen = command(tmp_path, "explain", "--json", "script.py")
    assert (seen.returncode, seen.stderr) == (0, "mine\n")
    assert json.loads(seen.stdout)["counted"] == 2


OUTSIDE = """
    import slipstream as ss
    k = ss.cuda.kernel("__global__ void f(float* y, int n) { y[threadIdx.x] = n; }")
    y = ss.zeros(10, device="cuda")
    k[1, 32](y, 10)
    z = y * 2
    """


@pytest.mark.parametrize("name", REPORTS)
def test_an_error_that_nobody_waited_for_is_named(tmp_path, name):
    write(tmp_path, OUTSIDE)
    seen = command(tmp_path, name, "script.py", SLIPSTREAM_DRIVER="sim")
    assert seen.returncode == 1
    (error,) = seen.stderr.splitlines()
    assert "kernel f at" in error
    assert "script.py:4 writes 4 bytes at" in error
    assert "script.py failed: SimulatedFault" in seen.stdout


PROFILED = """
    import slipstream as ss
    x = ss.ones(3, device="cuda") + 1
    with ss.profiler.profile() as seen:
        x * 2
        try:
            ss.profiler.profile().start()
        except RuntimeError as error:
            print(error)
    print(len(seen.recorded().of("kernel")), "kernel")
    """


def test_a_script_may_make_a_profile_of_its_own(tmp_path):
    write(tmp_path, PROFILED)
    seen = command(tmp_path, "profile", "--html", "page.html", "script.py",
                   SLIPSTREAM_DRIVER="sim")
    assert seen.returncode == 0, seen.stderr
    # The script's own two profiles are told as ever; the command prints no page.
    assert seen.stdout == "a profile is already on: stop() it first\n1 kernel\n"
    assert seen.stderr.count("\n") == 1
    assert "script.py makes a profile of its own" in seen.stderr
    assert not (tmp_path / "page.html").exists()


def test_an_error_of_a_kernel_comes_up_where_it_was_launched_where_that_is_asked(tmp_path):
    script = write(tmp_path, OUTSIDE)
    for name in ("SLIPSTREAM_LAUNCH_BLOCKING", "CUDA_LAUNCH_BLOCKING"):
        seen = command(tmp_path, "run", script.name, SLIPSTREAM_DRIVER="sim", **{name: "1"})
        assert seen.returncode == 1
        assert f'File "{script}", line 4, in <module>' in seen.stderr


@pytest.mark.parametrize("name", ["memory", "explain"])
def test_the_wait_at_the_end_leaves_other_cards_alone(tmp_path, name):
    write(tmp_path, """
        import atexit
        import slipstream as ss
        from slipstream.core.launch.door import backends
        atexit.register(lambda: print([str(each) for each in backends if each.type == "cuda"]))
        x = ss.ones(3, device="cuda") + 1
        """)
    seen = command(tmp_path, name, "script.py", SLIPSTREAM_DRIVER="sim")
    assert seen.stdout.splitlines()[-1] == "['cuda:0']"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize("name", REPORTS)
def test_a_child_that_a_script_forks_has_no_report(tmp_path, name):
    write(tmp_path, """
        import os, sys, torch
        x = torch.ones(3) + 1
        child = os.fork()
        if not child:
            y = x * 2
            sys.exit(7)
        print("child:", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    """)
    seen = command(tmp_path, name, "script.py")
    assert (seen.returncode, seen.stderr) == (0, "")
    assert seen.stdout.count(REPORTS[name]) == 1
    assert "exit status" not in seen.stdout
    assert seen.stdout.startswith("child: 7\n")

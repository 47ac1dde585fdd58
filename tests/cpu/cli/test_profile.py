"""`slipstream profile` and `slipstream explain`: scripts that are run and told of."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from slipstream.cli.explain import split
from slipstream.core.api.tracking import MOST_CALLS, LineExplainer
from slipstream.core.vocab import settings

SCRIPT = """
    import sys
    import torch
    x = torch.ones(3, 4)
    for _ in range(40):
        y = x * 2.0
    print("sum", float(y.sum()), sys.argv[1:])
    sys.exit(int(sys.argv[1]) if sys.argv[1:] else 0)
    """


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(SCRIPT).lstrip())
    return path


def command(*words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    root = str(Path(settings.__file__).parents[3])
    code = (f"import sys, os\nsys.path[0] = {root!r}\nos.environ.update({environment!r})\n"
            "from slipstream.cli import main\nsys.exit(main())")
    return subprocess.run([sys.executable, "-c", code, *map(str, words)], capture_output=True,
                          text=True, timeout=300)


def test_profile_prints_a_page_behind_the_scripts_output(script, tmp_path):
    trace, stacks = tmp_path / "trace.json", tmp_path / "stacks.txt"
    page = tmp_path / "page.html"
    seen = command("profile", "--table", "count", "--trace", trace, "--stacks", stacks, "--html",
                   page, script, 3, "--flag")
    assert seen.returncode == 3, seen.stderr
    lines = seen.stdout.splitlines()
    assert lines[0] == "sum 24.0 ['3', '--flag']"
    assert lines[2].startswith("host-bound: ")
    assert "script.py:5" in seen.stdout
    rows = json.loads(trace.read_text())["traceEvents"]
    assert [row["name"] for row in rows].count("mul") == 40
    assert stacks.exists()
    assert "host-bound" in page.read_text()
    (mul,) = [line for line in lines if line.startswith("mul ")]
    assert mul.split()[-1] == "40"


def test_profile_says_what_was_dropped(script):
    seen = command("profile", "--records", 10, script)
    assert seen.returncode == 0
    assert "the ring dropped the oldest" in seen.stdout


def test_profile_of_a_script_that_fails(tmp_path):
    path = tmp_path / "script.py"
    path.write_text("import torch\ntorch.ones(2) + 1\nraise KeyError('mine')\n")
    seen = command("profile", path)
    assert seen.returncode == 1
    assert "KeyError: 'mine'" in seen.stderr
    assert "host-bound" in seen.stdout
    assert command("profile", tmp_path / "none.py").returncode == 2


def test_explain_tells_of_a_line(script):
    seen = command("explain", f"{script}:5")
    assert seen.returncode == 0, seen.stderr
    assert f"40 calls of ops at {script}:5" in seen.stdout
    assert seen.stdout.count("mul  at") == MOST_CALLS
    assert f"and {40 - MOST_CALLS} more calls" in seen.stdout
    for text in ("self: float32[3, 4]@cpu", "plan of mul (made)", "plan of mul (found)",
                 "allocation", "time "):
        assert text in seen.stdout


def test_explain_gives_json(script):
    seen = command("explain", "--json", f"{script}:6", 0, "x")
    found = json.loads(seen.stdout.splitlines()[-1])
    assert found["counted"] == len(found["calls"])
    assert {call["line"] for call in found["calls"]} == {6}
    assert "sum" in [call["op"] for call in found["calls"]]
    assert all(each["bytes"] >= 0 for call in found["calls"] for each in call["kernels"])


def test_a_line_is_split_off():
    assert split("a/b.py:12") == ("a/b.py", 12)
    assert split("a/b.py") == ("a/b.py", 0)
    assert split("C:odd.py") == ("C:odd.py", 0)


def test_the_explainer_lets_go_of_what_is_not_wanted():
    ss = pytest.importorskip("slipstream")
    x = ss.ones(3)
    with LineExplainer(__file__, 1) as seen:
        for _ in range(1500):
            x + 1.0
            assert len(seen.pending) <= 4096
    assert seen.counted == 0
    with LineExplainer(__file__) as seen:
        x + 1.0
    assert seen.explanation().calls[0].op == "add"


@pytest.mark.parametrize(("level", "said", "unsaid"), [
    (1, ["mul(self=float32[3, 4]@cpu, other=2.0)  at"], ["kernel ", "plan "]),
    (2, ["kernel ", "µs of the host"], ["def program", "plan "]),
    (3, ["def program"], ["plan ", "block of"]),
    (4, ["plan made in", "block of"], ["considered"]),
    (5, ["considered", "plan found in"], []),
])
def test_the_ladder(script, level, said, unsaid):
    seen = command("run", script, SLIPSTREAM_DEBUG=str(level))
    assert seen.returncode == 0
    mine = [line for line in seen.stderr.splitlines() if line.startswith("slipstream: ")]
    text = "\n".join(mine)
    for each in said:
        assert each in text
    for each in unsaid:
        assert each not in text
    assert seen.stdout.startswith("sum 24.0")


def test_a_source_is_told_once(script):
    seen = command("run", script, SLIPSTREAM_DEBUG="3")
    assert seen.stderr.count("return v") == seen.stderr.count("def program(")
    assert seen.stderr.count("self * other") <= 1

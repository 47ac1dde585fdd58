"""`slipstream profile` and `slipstream explain`: scripts that are run and told of."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from slipstream.cli.explain import split
from slipstream.cli.profile import prepared
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


def command(*words: object, output: Any = subprocess.PIPE, shell: str = "",
            **environment: str) -> subprocess.CompletedProcess[str]:
    root = str(Path(settings.__file__).parents[3])
    code = (f"import sys, os\nsys.path[0] = {root!r}\nos.environ.update({environment!r})\n"
            "from slipstream.cli import main\nsys.exit(main())")
    through = ["sh", "-c", shell] if shell else []
    return subprocess.run([*through, sys.executable, "-c", code, *map(str, words)], stdout=output,
                          stderr=subprocess.PIPE, text=True, timeout=300)


def test_profile_prints_a_page_behind_the_scripts_output(script, tmp_path):
    trace, stacks = tmp_path / "trace.json", tmp_path / "stacks.txt"
    page = tmp_path / "page.html"
    seen = command("profile", "--table", "count", "--trace", trace, "--stacks", stacks, "--html",
                   page, script, 3, "--flag")
    assert seen.returncode == 3, seen.stderr
    lines = seen.stdout.splitlines()
    assert lines[0] == "sum 24.0 ['3', '--flag']"
    ends = len(script.read_text().splitlines())
    assert lines[2] == f"{script} ended at line {ends} with exit status 3"
    assert lines[3] == "The figures cover only what ran until then."
    assert lines[4].startswith("host-bound: ")
    assert "script.py:5" in seen.stdout
    rows = json.loads(trace.read_text())["traceEvents"]
    assert [row["name"] for row in rows].count("mul") == 40
    assert stacks.exists()
    assert "host-bound" in page.read_text()
    assert "with exit status 3; The figures" in page.read_text()
    (mul,) = [line for line in lines if line.startswith("mul ")]
    assert mul.split()[-1] == "40"


def test_a_table_does_not_take_the_script_for_its_column(script):
    seen = command("profile", "--table", script, 0)
    assert seen.returncode == 0, seen.stderr
    lines = seen.stdout.splitlines()
    assert lines[2].startswith("host-bound: ")
    assert any(line.startswith("Name ") for line in lines)
    assert "in all, no steps are marked" in seen.stdout
    # What stands behind the script is its own.
    kept = ["--records", "5", "a.py", "--table", "b.py"]
    assert prepared(kept) == kept
    assert prepared(["--table", "none.py"]) == ["--table=cpu_time_total", "none.py"]
    assert prepared(["--table", "count", "a.py"]) == ["--table", "count", "a.py"]
    assert prepared(["--table", "bogus", "a.py"]) == ["--table", "bogus", "a.py"]


def test_profile_says_what_was_dropped(script):
    seen = command("profile", "--records", 10, script)
    assert seen.returncode == 0
    assert "the ring dropped the oldest" in seen.stdout
    # Most of it: then the verdict begins with that.
    verdict = seen.stdout.splitlines()[2]
    assert re.match(r"of the last 10 of \d+ records alone \(the ring dropped the others; .*: host-",
                    verdict)
    seen = command("profile", "--records", 1000, script)
    assert seen.stdout.splitlines()[2].startswith("host-bound: ")


def test_profile_of_a_script_that_fails(tmp_path):
    path = tmp_path / "script.py"
    path.write_text("import torch\ntorch.ones(2) + 1\nraise KeyError('mine')\n")
    seen = command("profile", path)
    assert seen.returncode == 1
    assert "KeyError: 'mine'" in seen.stderr
    first, second, verdict, *_ = seen.stdout.strip().splitlines()
    assert first == f"{path} failed at line 3: KeyError: 'mine'"
    assert second == "The figures cover only what ran until then."
    assert verdict.startswith("until then no card worked; ")
    assert "host-bound" not in seen.stdout
    assert command("profile", tmp_path / "none.py").returncode == 2


@pytest.mark.parametrize("words", [("--table", "bogus"), ("--records", 0), ("--records", -5),
                                   ("--records", 1 << 40), ("--records", 1 << 70)])
def test_what_cannot_be_done_is_refused_before_the_script_runs(script, words):
    seen = command("profile", *words, script)
    assert seen.returncode == 2
    assert seen.stdout == ""
    assert words[0] in seen.stderr
    assert "Traceback" not in seen.stderr
    assert ("cuda_time_total" if words[0] == "--table" else "from 1 to 67,108,864") in seen.stderr


@pytest.mark.parametrize("option", ["--html", "--trace", "--stacks"])
@pytest.mark.parametrize("name", ["script.py", "script"])
def test_a_script_in_the_place_of_an_outputs_name_is_kept(tmp_path, option, name):
    # The name of the page was left out, so that the script's first argument is run.
    path, other = tmp_path / name, tmp_path / "data"
    for each in (path, other):
        each.write_text("import torch\nprint(torch.ones(2) + 1)\n")
    words = (option, path, other) if path.suffix else (option, path, path)
    seen = command("profile", *words)
    assert (seen.returncode, seen.stdout) == (2, "")
    assert "it is a script; the file to write stands before the script" in seen.stderr
    assert path.read_text().startswith("import torch")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no full disk to offer")
def test_a_file_that_cannot_be_written_any_more_leaves_the_others(script, tmp_path):
    page, stacks = tmp_path / "page.html", tmp_path / "stacks.txt"
    seen = command("profile", "--trace", "/dev/full", "--html", page, "--stacks", stacks, script)
    assert seen.returncode == 1
    assert "profile: --trace /dev/full: cannot be written: No space left" in seen.stderr
    assert "Traceback" not in seen.stderr
    assert seen.stdout.splitlines()[-2:] == [f"stacks: {stacks}", f"page: {page}"]
    assert page.exists()
    assert stacks.exists()


def test_the_words_of_an_exit_are_no_status(tmp_path):
    path = tmp_path / "script.py"
    path.write_text("import sys, torch\ntorch.ones(2) + 1\nsys.exit('no such\\nfile')\n")
    seen = command("profile", path)
    assert seen.returncode == 1
    assert seen.stderr == "no such\nfile\n"
    assert seen.stdout.splitlines()[1] == f"{path} ended at line 3 with exit status 1: no such"


@pytest.mark.parametrize("name", ["profile", "explain", "memory", "budget"])
@pytest.mark.parametrize("closing", ["sys.stdout.close()", "sys.stdout = None"])
def test_a_script_that_closes_its_output_is_told_of(tmp_path, name, closing):
    path = tmp_path / "script.py"
    path.write_text(f"import sys\nimport torch\ntorch.ones(2) + 1\n{closing}\n")
    seen = command(name, path)
    assert (seen.returncode, seen.stderr) == (0, "")
    assert seen.stdout


@pytest.mark.parametrize("name", ["profile", "explain", "memory", "budget", "doctor"])
def test_nobody_reads_the_output(script, name):
    script.write_text("import torch\ntorch.ones(2) + 1\n")
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as output:
        seen = command(name, *([] if name == "doctor" else [script]), output=output)
    assert seen.returncode == 1
    assert "Traceback" not in seen.stderr
    assert "Exception" not in seen.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no shell that closes a descriptor here")
@pytest.mark.parametrize("name", ["profile", "explain"])
def test_there_is_no_output(script, name):
    seen = command(name, script, shell='exec "$0" "$@" >&-')
    assert "Traceback" not in seen.stderr
    assert seen.returncode == 0


@pytest.mark.parametrize("line", ["0", "abc", "99", "-1", ""])
def test_what_is_no_line_is_refused(script, line):
    seen = command("explain", f"{script}:{line}")
    assert seen.returncode == 2
    assert f"`{line}` is no line of {script}, which has lines 1 to 7" in seen.stderr
    assert seen.stdout == ""


def test_explain_tells_of_a_line(script):
    seen = command("explain", f"{script}:5")
    assert seen.returncode == 0, seen.stderr
    assert f"40 calls of ops at {script}:5" in seen.stdout
    assert seen.stdout.count("mul  at") == MOST_CALLS
    assert f"and {40 - MOST_CALLS} more calls" in seen.stdout
    for text in ("self: float32[3, 4]@cpu", "plan of mul (made)", "plan of mul (found)",
                 "allocation", "time "):
        assert text in seen.stdout


def test_explain_of_a_line_without_ops_names_lines_with_them(script):
    seen = command("explain", f"{script}:2")
    assert seen.returncode == 0
    assert "0 calls of ops at" in seen.stdout
    assert "no op was called\nlines that call ops: 3, 5, 6\n" in seen.stdout
    assert "lines that call ops" not in command("explain", f"{script}:5").stdout


@pytest.fixture
def split_script(script):
    """A script whose third line calls into another file."""
    script.write_text("import torch, net\nx = torch.ones(4, 4)\nx = net.forward(x)\ny = x + 1\n")
    (script.parent / "net.py").write_text(
        "def inner(x):\n    return (x @ x).relu()\n\n\ndef forward(x):\n    return inner(x * 2)\n")
    return script


def test_what_a_line_calls_in_other_files_is_the_lines(split_script):
    seen = command("explain", f"{split_script}:3")
    assert seen.returncode == 0, seen.stderr
    assert f"3 calls of ops at {split_script}:3, 3 of them in what it calls\n" in seen.stdout
    net = split_script.parent / "net.py"
    for op, line in (("mul", 6), ("matmul", 2), ("relu", 2)):
        assert f"\n{op}  at {net}:{line}\n" in seen.stdout
    seen = command("explain", f"{split_script}:4")
    assert f"1 calls of ops at {split_script}:4\n" in seen.stdout
    assert "lines that call ops: 2, 3, 4\n" in command("explain", f"{split_script}:1").stdout


def test_a_line_of_an_imported_file(split_script):
    seen = command("explain", "--line", "net.py:6", split_script)
    assert f"3 calls of ops at {split_script.parent / 'net.py'}:6, 2 of them in" in seen.stdout
    seen = command("explain", "--line", "net.py:2", split_script)
    assert f"2 calls of ops at {split_script.parent / 'net.py'}:2\n" in seen.stdout
    assert "\nmul  at" not in seen.stdout


@pytest.mark.parametrize(("line", "after", "said"), [
    ("net.py:99", "", "`99` is no line of"), ("none.py:3", "", "there is no file 'none.py'"),
    ("net.py", "", "it is FILE:LINE"), ("net.py:2", ":3", "name one of them")])
def test_what_is_no_line_of_an_imported_file_is_refused(split_script, line, after, said):
    seen = command("explain", "--line", line, f"{split_script}{after}")
    assert (seen.returncode, seen.stdout, seen.stderr.count("\n")) == (2, "", 1)
    assert said in seen.stderr


HOST = {
    # The loader's line; the line behind a pause; the line whose kernels take most.
    "loader": ("""
        import time, torch
        from torch.utils.data import DataLoader
        class Slow(list):
            def __getitem__(self, place):
                time.sleep(0.03)
                return place
        for batch in DataLoader(Slow(range(12)), batch_size=4):
            batch + 1
        """, "% of the time the DataLoader makes batches, 3 times ", "script.py:7: give the "),
    "pause": ("""
        import time, torch
        x = torch.ones(4)
        for step in range(4):
            y = x + step
        time.sleep(0.2)
        z = y * 2
        y + z
        """, "% of the time is Python; the time is the program's own work between ops, ",
        "before script.py:6 (`z = y * 2`)"),
    "work in every step": ("""
        import torch
        x = torch.ones(4)
        for step in range(20):
            known = sorted(range(60_000), key=lambda each: -each)
            y = x + 1
            z = y * known[0]
        """, "% of the time is Python; the time is the program's own work between ops, ",
        "% of it before script.py:5 (`y = x + 1`)"),
    "behind the last op": ("""
        import time, torch
        x = torch.ones(4)
        for step in range(100):
            x = x * 0.5
        time.sleep(0.3)
        """, "% of the time is Python; the time is the program's own work between ops, ",
        "% of it behind the last op, script.py:4 (`x = x * 0.5`): "),
    "behind many ops of one line": ("""
        import time, torch
        x = torch.ones(4)
        for step in range(20):
            for number in range(100):
                x = x * 0.5
            time.sleep(0.01)
        """, "% of the time is Python; the time is the program's own work between ops, ",
        "% of it between two runs of script.py:5 (`x = x * 0.5`): "),
    "before the first op": ("""
        import time, torch
        time.sleep(0.3)
        x = torch.ones(4)
        y = x + 1
        """, "% of the time is Python; ", "% of that before the first op, as imports and reading"),
    "kernels": ("""
        import torch
        x = torch.ones(400, 400)
        for step in range(20):
            x = (x @ x).tanh()
        """, "% of the time is host kernels; the work is in the kernels, ",
        "at script.py:4 (`x = (x @ x).tanh()`): larger steps gain nothing"),
}


@pytest.mark.parametrize("name", HOST)
def test_a_verdict_on_the_cpu_names_the_line(name, tmp_path):
    source, what, where = HOST[name]
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(source).lstrip())
    seen = command("profile", path)
    verdict = seen.stdout.strip().splitlines()[0]
    assert verdict.startswith("host-bound: ")
    assert what in verdict
    assert where in verdict
    # On the CPU nothing is launched: the table of lines has no column for it.
    assert "\nlines       ops, host time\n" in seen.stdout


def test_lines_of_views_are_lines_too(tmp_path):
    path = tmp_path / "script.py"
    path.write_text("import torch\nx = torch.ones(100)\nfor s in range(60):\n    a = x[s]\n"
                    "    b = x.view(10, 10)\n    c = x[2:5] + 1\n")
    seen = command("profile", path)
    rows = dict(re.findall(r"^  script\.py:(\d+) +(\d+) +[\d,.]+ µs$", seen.stdout, re.MULTILINE))
    assert rows == {"2": "1", "4": "60", "5": "60", "6": "120"}


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

"""`slipstream run`: what a script finds, what it returns, and what missing names say."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import slipstream
from slipstream import torch_names
from slipstream.cli import main

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "torch_scripts"


def launch(*command: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, *map(str, command)]
    return subprocess.run(words, capture_output=True, text=True, timeout=300, cwd=cwd)


def run(script: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return launch("-c", f"import sys\nsys.path[0] = {str(torch_names.FOLDER.parents[1])!r}\n"
                  "from slipstream.cli import main\nsys.exit(main())", "run", script, *arguments)


@pytest.fixture
def write(tmp_path):
    def write(text: str, name: str = "script.py") -> Path:
        path = tmp_path / name
        path.write_text(textwrap.dedent(text))
        return path

    return write


def test_the_process_is_as_python_makes_it(write, tmp_path):
    script = write("""
        import sys, helper, __main__
        print(sys.argv, sys.path[0], __name__, __file__, __spec__, __package__, __doc__)
        print(__main__.__dict__ is globals(), helper.VALUE, __builtins__.__name__)
        """)
    write("VALUE = 5", "helper.py")
    words = ["a", "--steps", "3", "-h", "--", "x y"]
    ours, theirs = run(script, *words), launch(script, *words)
    assert (ours.stdout, ours.returncode) == (theirs.stdout, 0)
    assert str(tmp_path) in ours.stdout


def test_names_are_the_same_objects(write):
    script = write("""
        import torch, torch.nn as nn, torch.nn.functional as F, slipstream
        import torch.autograd, torch.cuda, torch.linalg, torch.special, torch.testing, torch.amp
        import torch.random, torch.optim.lr_scheduler, torch.version
        from torch import optim, Tensor
        from torch.optim.adam import Adam
        from torch.nn.utils import clip_grad_norm_
        assert torch.nn is nn and nn.functional is F and torch.optim is optim
        assert nn.Linear is slipstream.nn.Linear and Adam is optim.Adam is slipstream.optim.Adam
        assert isinstance(torch.ones(2), Tensor) and torch.float32 is slipstream.float32
        assert slipstream.nn.__name__ == "slipstream.nn" and nn.__name__ == "torch.nn"
        assert slipstream.nn.__spec__.name == "slipstream.nn"
        assert "softmax" in dir(torch) and torch.inf > 0 and torch.__version__ >= "2.0"
        assert torch.version.__version__ == torch.__version__ != slipstream.version.__version__
        assert (torch.version.cuda is None) == (not torch.cuda.is_available())
        assert torch.version.hip is None
        assert not hasattr(torch, "cli") and not hasattr(torch, "wibble")
        """)
    done = run(script)
    assert (done.stderr, done.returncode) == ("", 0)


@pytest.mark.parametrize(("line", "missing", "kind"), [
    ("import torch.wibble", "torch.wibble", "ModuleNotFoundError"),
    ("from torch import wibble", "torch.wibble", "ModuleNotFoundError"),
    ("from torch.nn.functional import wibble", "torch.nn.functional.wibble", "ImportError"),
    ("import torch.core", "torch.core", "ModuleNotFoundError"),
    ("import torch\ntorch.nn.Wibble(3)", "torch.nn.Wibble", "AttributeError"),
    ("import torch\ntorch.ones(2).wibble()", "wibble", "AttributeError"),
])
def test_missing_names_say_so(write, line, missing, kind):
    script = write(f"try:\n    import torch.wobble\nexcept {kind}:\n    pass\n"
                   if kind == "ImportError" else "")
    script.write_text(script.read_text() + line + "\n")
    done = run(script)
    assert done.returncode == 1
    assert "docs/differences.md" in done.stderr
    assert missing in done.stderr
    assert (kind if kind == "AttributeError" else "ModuleNotFoundError") in done.stderr


@pytest.mark.parametrize("text", [
    "import sys\nsys.exit(7)",
    "raise SystemExit('no')",
    "def f():\n    raise ValueError('wrong')\nf()",
    "x = = 1",
    "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise KeyError('k') from e",
    "import sys\nsys.excepthook = lambda *error: print('mine', error[0])\n1 / 0",
    "import atexit\natexit.register(print, 'bye')\n1 / 0",
])
def test_status_and_traceback_are_as_python_gives_them(write, text):
    script = write(text)
    ours, theirs = run(script), launch(script)
    assert (ours.returncode, ours.stdout, ours.stderr) == (
        theirs.returncode, theirs.stdout, theirs.stderr)


def test_an_interrupt(write):
    done = run(write("raise KeyboardInterrupt"))
    assert (done.returncode, done.stderr.splitlines()[-1]) == (130, "KeyboardInterrupt")


def test_a_script_that_is_not_there(tmp_path):
    for path in (tmp_path / "none.py", tmp_path):
        done = run(path)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert str(path) in done.stderr


def test_spawned_processes_have_it_too(write):
    script = write("""
        import multiprocessing, torch
        from torch import nn

        def work(n):
            return torch.ones(n).sum().item() + nn.Identity()(1)

        if __name__ == "__main__":
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(pool.map(work, [1, 2]), torch.__name__)
        """)
    done = run(script)
    assert (done.stdout, done.returncode) == ("[2.0, 3.0] torch\n", 0), done.stderr


def test_pytorch_itself_is_not_replaced(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", type(sys)("torch"))
    with pytest.raises(ImportError, match="imported before"):
        torch_names.install()


def test_the_finder_leaves_others_alone():
    assert torch_names.finder.find_spec("torchvision") is None
    spec = torch_names.finder.find_spec("torch.nn")
    assert spec.loader_state is slipstream.nn


@pytest.mark.skipif(not EXAMPLES.exists(), reason="the examples are not beside the tests")
@pytest.mark.parametrize(("name", "line"), [
    ("logistic_by_hand", "right 103 of 120"),
    ("custom_function", "swish True True"),
    ("lbfgs", "round 0: 79.70000"),
])
def test_scripts_for_pytorch(name, line):
    done = run(EXAMPLES / f"{name}.py")
    assert (done.returncode, done.stderr) == (0, "")
    assert line in done.stdout


def test_autocast_under_its_names(write):
    script = write("""
        import torch
        from torch.amp import autocast, GradScaler, custom_fwd, custom_bwd
        from torch.cuda.amp import autocast as old, GradScaler as older
        assert torch.autocast is autocast and issubclass(old, autocast)
        assert issubclass(older, GradScaler)
        model = torch.nn.Linear(3, 2)
        with torch.autocast(device_type="cpu", dtype=torch.bfloat16):
            assert torch.is_autocast_enabled("cpu")
            y = model(torch.ones(4, 3))
        y.sum().backward()
        print(y.dtype, model.weight.grad.dtype, torch.get_autocast_dtype("cuda"))
        """)
    done = run(script)
    assert done.stdout.split() == ["slipstream.bfloat16", "slipstream.float32",
                                   "slipstream.float16"], done.stderr


@pytest.mark.parametrize("command", ["profile", "explain", "memory", "budget"])
def test_reports_of_scripts_that_are_not_there(tmp_path, capsys, command):
    assert main([command, str(tmp_path / "missing.py")]) == 2
    found = capsys.readouterr()
    assert f"slipstream {command}: can't open file" in found.err


@pytest.mark.parametrize(("command", "option"), [
    ("profile", "--html"), ("profile", "--trace"), ("profile", "--stacks"),
    ("memory", "--snapshot")])
def test_a_file_in_no_folder_is_refused_before_the_script_runs(tmp_path, capsys, command, option):
    script = tmp_path / "script.py"
    script.write_text("print('ran')\n")
    assert main([command, option, str(tmp_path / "no" / "such"), str(script)]) == 2
    found = capsys.readouterr()
    assert "there is no such folder" in found.err
    assert "ran" not in found.out

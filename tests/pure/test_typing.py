"""What a type checker sees of the package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import slipstream as ss

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import slipstream as ss

x: ss.Tensor = ss.ones(2, 3)
reveal_type(x.relu().sum(-1, keepdim=True))
reveal_type(ss.softmax(x, -1))
reveal_type(2.0 - x ** 2 @ x)
reveal_type(x.topk(2).indices)
reveal_type(ss.tensor([1.0]))
reveal_type(ss.nn.functional.cross_entropy)
reveal_type(ss.float32)
y: ss.device = ss.device("cpu")
ss.sofmax(x, -1)
x.sofmax(-1)
ss.softmax(x, "a")
"""
REVEALED = ["Tensor", "Tensor", "Tensor", "Tensor", "Tensor", "", "DType"]


def checked(folder: Path, text: str) -> list[str]:
    """What mypy says of a program."""
    path = folder / "program.py"
    path.write_text(text)
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--strict",
               "--config-file", str(ROOT / "pyproject.toml"),
               "--cache-dir", str(ROOT / ".mypy_cache"), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert not done.stderr, done.stderr
    return [line for line in done.stdout.splitlines() if "program.py" in line]


def test_mypy_knows_tensors_and_functions_and_misses_what_is_not_there(tmp_path: Path) -> None:
    lines = checked(tmp_path, PROGRAM)
    notes = [line.split('"')[1] for line in lines if "Revealed type" in line]
    assert len(notes) == len(REVEALED)
    assert all(want in note for note, want in zip(notes, REVEALED, strict=True))
    errors = [line for line in lines if "error:" in line]
    assert len(errors) == 3, errors
    assert 'Module has no attribute "sofmax"' in errors[0]
    assert '"Tensor" has no attribute "sofmax"' in errors[1]
    assert "softmax" in errors[2]
    assert "incompatible type" in errors[2]


def test_the_stub_has_every_public_name(tmp_path: Path) -> None:
    names = "\n".join(f"ss.{name}" for name in ss.__all__)
    assert checked(tmp_path, f"import slipstream as ss\n{names}\n") == []

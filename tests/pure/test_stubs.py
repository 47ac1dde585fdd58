"""The stub of the methods says what the catalogue says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_stub_is_fresh() -> None:
    command = [sys.executable, str(ROOT / "tools" / "stubs.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

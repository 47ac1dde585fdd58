"""Runs ruff, mypy and the test of the sources' structure; counts how many failed.

Usage: python tools/check.py
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHON = sys.executable
CHECKS = {
    "ruff": [PYTHON, "-m", "ruff", "check", "--quiet", "."],
    "mypy": [PYTHON, "-m", "mypy", "--no-error-summary"],
    "structure": [PYTHON, "-m", "pytest", "-q", "--no-header", "tests/pure/test_structure.py"],
}


def main() -> int:
    """Run every check, also after one failed; return how many failed."""
    failed = []
    for name, command in CHECKS.items():
        started = time.monotonic()
        done = subprocess.run(command, cwd=ROOT)
        word = "failed" if done.returncode else "ok"
        print(f"{name}: {word}, {time.monotonic() - started:.1f} s", flush=True)
        failed += [name] if done.returncode else []
    print(f"{len(CHECKS) - len(failed)} passed, {len(failed)} failed")
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())

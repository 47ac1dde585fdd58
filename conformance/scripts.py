"""Runs the scripts of examples/torch_scripts on PyTorch and on slipstream; compares the output.

Run by tools/conformance.py; by hand: python conformance/scripts.py --peer PYTHON_WITH_PYTORCH.
Words have to be equal, numbers close: |a - b| <= ABSOLUTE + RELATIVE * |b|.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = ROOT / "examples" / "torch_scripts"
NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|nan|inf")
# Sums are taken in another order than PyTorch's; training carries that along, printing rounds.
RELATIVE, ABSOLUTE = 5e-3, 2e-3
SECONDS = 120


def environment() -> dict[str, str]:
    """Return an environment in which slipstream is imported from the sources of the checkout."""
    paths = [str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}


def output_of(command: Sequence[str | Path]) -> tuple[str, str]:
    """Return what a script prints, and the last line of its error ("": none)."""
    try:
        done = subprocess.run([str(word) for word in command], env=environment(),
                              capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return "", f"not done after {SECONDS} s"
    told = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
    return done.stdout, told if done.returncode else ""


def is_close(ours: str, theirs: str) -> bool:
    """Compare two printed numbers."""
    a, b = float(ours), float(theirs)
    if not (math.isfinite(a) and math.isfinite(b)):
        return ours == theirs
    return abs(a - b) <= ABSOLUTE + RELATIVE * abs(b)


def same_line(ours: str, theirs: str) -> bool:
    """Compare two lines: the text between the numbers, then the numbers."""
    numbers, expected = NUMBER.findall(ours), NUMBER.findall(theirs)
    if len(numbers) != len(expected) or NUMBER.sub("#", ours) != NUMBER.sub("#", theirs):
        return False
    return all(map(is_close, numbers, expected))


def difference(ours: str, theirs: str) -> str:
    """Return the first line that differs, ours and theirs, or "" where none does."""
    if not theirs:
        return "PyTorch printed nothing"
    for mine, wanted in zip_longest(ours.splitlines(), theirs.splitlines(), fillvalue=""):
        if not same_line(mine, wanted):
            return f"{mine!r}, PyTorch {wanted!r}"
    return ""


def compare(script: Path, python: Path | str, peer: Path | str) -> str:
    """Run one script on both; return what is wrong, or ""."""
    theirs, fault = output_of([peer, script])
    if fault:
        return f"PyTorch's run: {fault}"
    ours, fault = output_of([python, "-m", "slipstream", "run", script])
    return fault or difference(ours, theirs)


def run_all(python: Path | str, peer: Path | str, pattern: str = "") -> tuple[int, int]:
    """Run the scripts whose names hold ``pattern``; return how many agree and how many do not."""
    counts = [0, 0]
    for script in sorted(SCRIPTS.glob("*.py")):
        if pattern not in script.name:
            continue
        fault = compare(script, python, peer)
        print(f"{script.name:34} {fault or 'ok'}", flush=True)
        counts[bool(fault)] += 1
    return counts[0], counts[1]


def main() -> int:
    """Run them by hand."""
    parser = argparse.ArgumentParser(description="Compares scripts on PyTorch and slipstream.")
    parser.add_argument("--peer", type=Path, required=True, help="a Python that has PyTorch")
    parser.add_argument("--only", default="", help="text that the scripts' names have to hold")
    options = parser.parse_args()
    passed, failed = run_all(sys.executable, options.peer, options.only)
    print(f"{passed} passed, {failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())

"""The page of conformance agrees with the lists and the catalogue, and the check of it can fail."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "conformance.md"


def test_page_is_fresh() -> None:
    command = [sys.executable, str(ROOT / "tools" / "conformance_page.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def page():
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        import conformance_page  # noqa: PLC0415
    finally:
        sys.path.pop(0)
    return conformance_page


@pytest.mark.parametrize(("pattern", "becomes", "told"), [
    (r"\| `abs` .*\n", "", "abs is in the lists"),
    (r"(\| `abs` \| )(\d+)", r"\g<1>1 of \2", "`abs`: forward: 1 of"),
    (r"(\| topk \| `bfloat16` \| \d+ \| ).* \|", r"\1because |", "exception bfloat16 of topk"),
    (r"\| topk \| `bfloat16` .*\n", "", "the exception bfloat16 of topk"),
    (r"(\| all \| \d+ \| \d+ \| \d+ \| )0", r"\g<1>3", "3 checks fail"),
    (r"(\| modules \| \d+ \| )(\d+)", r"\g<1>1", "not their sum"),
    (r"(\| topk \| `bfloat16` \| )(\d+)", r"\g<1>99999", "do not add up"),
    (r"\| `equal` \| .*\n", "", "left out of our own tests"),
])
def test_a_stale_page_is_noticed(page, pattern, becomes, told) -> None:
    text = PAGE.read_text()
    changed = re.sub(pattern, becomes, text, count=1)
    assert changed != text
    assert any(told in each for each in page.disagreements(changed))


def test_too_many_exceptions_are_noticed(page) -> None:
    text = PAGE.read_text()
    numbers = [int(n) for n in re.search(r"\| all \| (\d+) \| (\d+) \| (\d+) \|", text).groups()]
    fewer = text.replace(f"| all | {numbers[0]} |", f"| all | {numbers[2]} |")
    assert any("more than 2 %" in each for each in page.disagreements(fewer))

"""The measured parts of docs/from_python_to_the_gpu.md are those that the tool would write."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def tool() -> Any:
    """tools/walk.py as a module."""
    spec = importlib.util.spec_from_file_location("walk", ROOT / "tools" / "walk.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules["walk"] = made
    spec.loader.exec_module(made)
    yield made
    del sys.modules["walk"]


@pytest.fixture(scope="module")
def parts(tool: Any) -> dict[str, str]:
    """The page's parts."""
    return dict(tool.PART.findall(tool.PAGE.read_text(encoding="utf-8")))


@pytest.fixture(scope="module")
def written(tool: Any) -> dict[str, str]:
    """What the tool writes now."""
    tool.SIZES = dict.fromkeys(tool.SIZES, (8, 32, 16, 40, 2))
    walk = tool.Walk()
    return {name: make(walk) for name, make in tool.PARTS.items()}


@pytest.mark.parametrize("name", ["first", "layers", "launches", "card", "reading"])
def test_tables_have_the_rows_that_the_tool_writes(tool: Any, parts: Any, written: Any,
                                                   name: str) -> None:
    assert tool.shape(parts[name]) == tool.shape(written[name])
    for text in (parts[name], written[name]):
        values = [line.split(" | ")[1].split()[0].strip("|") for line in text.splitlines()[2:]]
        assert all(float(value.replace(",", "")) >= 0 for value in values)
        assert any(float(value.replace(",", "")) > 0 for value in values)


def test_what_explain_says_is_in_the_page(parts: Any, written: Any) -> None:
    heads = [[line.split()[0] for line in text.splitlines()[1:-1] if line.startswith("  ")]
             for text in (parts["explained"], written["explained"])]
    # Which kernels are considered, and how many launches one has, is the card's affair.
    kept = [[head for head in each if head not in ("considered", "launch")] for each in heads]
    assert kept[0] == kept[1]
    assert kept[0] == ["self:", "other:", "plan", "results", "kernel", "kernel", "allocation",
                       "tape", "wait", "time"]
    assert "considered" in heads[0]
    assert "grid" in parts["explained"]


def test_the_page_says_where_it_was_measured(parts: Any, written: Any) -> None:
    for text in (parts["where"], written["where"]):
        assert re.match(r"Measured by `tools/walk.py` on .+, Python 3\.\d+\.\d+, \w+ core", text)
        assert ("(simulated)" in text) == ("There was no card" in text)


def test_every_launch_of_the_loop_is_told_of(written: Any, tool: Any) -> None:
    calls, launches, replayed = (
        int(line.split(" | ")[1].rstrip(" |")) for line in written["launches"].splitlines()[2:])
    assert calls == 40
    assert launches % calls == 0
    assert 0 <= replayed <= launches


def test_the_check_finds_what_is_missing(tool: Any, tmp_path: Path, monkeypatch: Any,
                                         capsys: Any) -> None:
    assert tool.main(["--check"]) == 0
    page = tool.PAGE.read_text(encoding="utf-8")
    monkeypatch.setattr(tool, "PAGE", tmp_path / "page.md")
    tool.PAGE.write_text(tool.PART.sub(r"<!-- measured: \1 -->\n<!-- end -->", page))
    assert tool.main(["--check"]) == 1
    tool.PAGE.write_text(page.replace("measured: card", "measured: cards"))
    assert tool.main(["--check"]) == 1

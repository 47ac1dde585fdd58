"""The three commands lead from a slow program to its line; docs/commands.md is what they print."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest

import commands
from gpu.conftest import REAL

pytestmark = pytest.mark.skipif(REAL, reason="for the simulated driver only")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("commands").resolve()


@pytest.fixture(scope="module")
def printed(folder: Path) -> dict[str, str]:
    return commands.outputs(folder)


def test_the_page_is_what_the_commands_print(printed: dict[str, str], folder: Path) -> None:
    page = commands.PAGE.read_text(encoding="utf-8")
    texts = commands.page(printed, commands.verdict(folder))
    assert commands.shape(page) == commands.shape(texts)


def test_the_picture_is_one() -> None:
    data = commands.PICTURE.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", data[16:24]) == (1000, 760)
    assert len(data) < 300_000


def test_profile_leads_to_the_line_and_its_mend(printed: dict[str, str], folder: Path) -> None:
    """From no idea where the time goes to the line, and to a program that is replayed."""
    verdict = printed["profile"].splitlines()[0]
    (number,) = re.findall(r"at train\.py:(\d+)", verdict)
    lines = commands.SCRIPT.splitlines()
    assert commands.PLANTED in lines[int(number) - 1]
    replayed = re.compile(r"([\d,]+) launches, ([\d,]+) of them replayed")
    launches, before = (int(each.replace(",", "")) for each in replayed.findall(
        printed["profile"])[0])
    assert (launches > 600, before) == (True, 0)
    lines[int(number) - 1] = lines[int(number) - 1].replace(commands.PLANTED, commands.MENDED)
    after = commands.outputs(folder, "\n".join(lines) + "\n")["profile"]
    launches, now = (int(each.replace(",", "")) for each in replayed.findall(after)[0])
    assert now > 0.5 * launches
    assert f"train.py:{number}" not in after.splitlines()[0]


def test_explain_and_memory_name_the_line_of_the_product(printed: dict[str, str]) -> None:
    number = 1 + next(place for place, line in enumerate(commands.SCRIPT.splitlines())
                      if "y * mask" in line)
    assert f"600 calls of ops at train.py:{number}" in printed["explain"]
    assert f"mul  at train.py:{number}\n" in printed["explain"]
    for text in ("grid", "registers", "µs", "allocation", "considered"):
        assert text in printed["explain"]
    (row,) = [line for line in printed["memory"].splitlines()
              if f"train.py:{number}  y * mask" in line][:1]
    assert row.split()[2:4] == ["50", "%"]

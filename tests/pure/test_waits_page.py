"""The list of ops that wait in docs/waits.md is the catalogue's."""

from __future__ import annotations

import re
from pathlib import Path

from slipstream.core.catalog.table import table

PAGE = Path(__file__).resolve().parents[2] / "docs" / "waits.md"


def listed(title: str) -> set[str]:
    """The names of one paragraph of the list."""
    part = PAGE.read_text().split("<!-- waits begins -->")[1].split("<!-- waits ends -->")[0]
    line = next(each for each in part.splitlines() if each.startswith(title))
    return set(re.findall(r"`([^`]+)`", line))


def declared(kind: str) -> set[str]:
    """What users call the ops whose entries have this value of ``waits``."""
    entries = [op.entry for op in table.values() if op.entry.waits == kind]
    return {entry.path or entry.name for entry in entries if entry.path != "" or entry.method}


def test_the_page_lists_what_the_entries_say() -> None:
    assert listed("Always") == declared("always")
    assert listed("By data") == declared("data")
    assert {each.entry.waits for each in table.values()} == {"never", "always", "data"}

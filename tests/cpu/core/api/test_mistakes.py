"""What sixty mistakes are told on the CPU, by the golden file."""

from __future__ import annotations

import pytest

from mistakes import FILE, MISTAKES, golden, read, text_of

GOLDEN = read()


def test_the_file_holds_every_mistake_once() -> None:
    assert list(GOLDEN) == list(MISTAKES)
    assert len(MISTAKES) >= 60
    assert FILE.read_text() == golden(GOLDEN)


@pytest.mark.parametrize("name", MISTAKES)
def test_the_text_is_that_of_the_file(name: str) -> None:
    assert text_of(name, "cpu") == GOLDEN[name]
    assert "nothing was raised" not in GOLDEN[name]

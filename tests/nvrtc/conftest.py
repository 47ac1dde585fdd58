"""Options of the tests that compile the catalogue's sources with NVRTC."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare how much is compiled."""
    parser.addoption("--every-source", action="store_true",
                     help="compile each source for each architecture, the rare ones too")

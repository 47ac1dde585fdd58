"""Options of the tests that compile the catalogue's sources with NVRTC."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare how much is compiled."""
    parser.addoption("--every-source", action="store_true",
                     help="compile each source for each architecture, the rare ones too")
    parser.addoption("--nvrtc-seconds", type=float, default=math.inf,
                     help="begin to compile nothing after so many seconds, and say what was left")


@pytest.fixture(scope="session")
def tell(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """A function that shows a line at once, whatever is captured."""
    plugins = request.config.pluginmanager
    reporter, capture = plugins.getplugin("terminalreporter"), plugins.getplugin("capturemanager")

    def show(line: str) -> None:
        with capture.global_and_fixture_disabled():
            reporter.write_line(f"nvrtc: {line}", flush=True)

    return show

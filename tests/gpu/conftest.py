"""The CUDA road runs on the simulated driver, or on the real one with SLIPSTREAM_DRIVER=real.

Kernels are kept in pytest's cache folder: they are compiled once, whatever the number of processes.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpu import simulation
from slipstream.core.native.driver import CompileError
from slipstream.core.native.drivers import drivers
from slipstream.core.native.simulated import SimulatedDriver
from slipstream.core.vocab.settings import settings

HERE = Path(__file__).parent
REAL = settings.driver == "real"


class Ground:
    """The driver and the settings of these tests; other folders find theirs as they were."""

    def __init__(self) -> None:
        self.before = (settings.driver, settings.cache, settings.memo, settings.blocking,
                       settings.join)
        self.cache = settings.cache
        self.driver: SimulatedDriver | None = None
        self.missing = ""
        self.entered = False

    def prepare(self, config: pytest.Config) -> None:
        """Find the folder of kernels and make the driver, where a compiler is here."""
        if not self.cache:
            kept = getattr(config, "cache", None)
            folder = kept.mkdir("slipstream-kernels") if kept else tempfile.mkdtemp()
            self.cache = settings.cache = str(folder)
        try:
            self.driver = SimulatedDriver()
        except (CompileError, OSError, RuntimeError) as error:
            self.missing = str(error)

    def enter(self) -> None:
        """Put the driver under everything."""
        self.entered = True
        # What a process has met decides which launches are joined: tests of that turn it on.
        settings.join = 0
        if self.driver is not None:
            settings.driver, settings.cache = "sim", self.cache
            settings.memo, settings.blocking = True, False
            drivers.use(self.driver)

    def leave(self) -> None:
        """Take it away."""
        self.entered = False
        (settings.driver, settings.cache, settings.memo, settings.blocking,
         settings.join) = self.before
        drivers.use(None)


ground = Ground()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare how long the tests of random programs run, and until when all do."""
    parser.addoption("--programs", type=int, help="how many random programs run")
    parser.addoption("--schedules", type=int, help="how many schedules each of them runs under")
    parser.addoption("--until", type=float, default=math.inf,
                     help="when no more tests are begun, in seconds since 1970")
    parser.addoption("--last-first", action="store_true", help="begin with the last module")


def pytest_configure(config: pytest.Config) -> None:
    """Tests are collected with the driver that they run on."""
    if REAL:
        settings.join = 0
        return
    ground.prepare(config)
    ground.enter()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Begin no test when time is up."""
    if HERE in item.path.parents and time.time() > item.config.getoption("--until", math.inf):
        pytest.skip("no time is left")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without a driver there is nothing to run on."""
    if config.getoption("--last-first", False):
        places = {path: -place for place, path in enumerate(dict.fromkeys(
            item.path for item in items))}
        items.sort(key=lambda item: places[item.path])
    if ground.missing:
        for item in items:
            if HERE in item.path.parents:
                item.add_marker(pytest.mark.skip(reason=f"no CUDA driver: {ground.missing}"))


def pytest_collection_finish() -> None:
    """Other folders run as if these tests were not there."""
    ground.leave()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Any:
    """These tests stand on the driver; it is taken away before another folder's test."""
    if HERE not in item.path.parents:
        return (yield)
    if not ground.entered:
        ground.enter()
    try:
        return (yield)
    finally:
        if nextitem is None or HERE not in nextitem.path.parents:
            ground.leave()


@pytest.fixture
def restart() -> Iterator[Callable[..., Any]]:
    """A function that starts the CUDA road anew over a simulated driver with its options."""
    if REAL:
        pytest.skip("for the simulated driver only")
    with simulation.settled():
        yield simulation.restart
        # What a test left in its driver's memory goes with it.
        ground.driver = simulation.restart()
    ground.enter()

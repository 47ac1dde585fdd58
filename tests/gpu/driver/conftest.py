"""A simulated card with what tests do all the time: building, uploading, launching, fetching."""

from __future__ import annotations

import functools
import shutil
import struct
from typing import Any

import numpy as np
import pytest

from slipstream.core.native.simulated import SimulatedDriver
from slipstream.core.native.simulated.toolchain import CANDIDATES
from slipstream.core.vocab.settings import SimulatedCard


@functools.cache
def image_of(source: str, name: str, options: tuple[str, ...]) -> bytes:
    driver = SimulatedDriver(SimulatedCard())
    return driver.compile(source, name, options, "sm_90")


class Card:
    """A simulated driver with device 0 in use and one stream, ``stream``."""

    def __init__(self, **options: Any) -> None:
        self.driver = SimulatedDriver(SimulatedCard(**options))
        self.driver.use(self.driver.context(0))
        self.stream = self.driver.create_stream()

    def kernel(self, source: str, name: str = "kernel", options: tuple[str, ...] = ()) -> int:
        module = self.driver.load_module(image_of(source, name, options))
        return self.driver.function(module, name)

    def put(self, values: Any, stream: int = 0) -> int:
        """The address of a copy of an array on the card."""
        values = np.ascontiguousarray(values)
        address = self.driver.allocate(max(values.nbytes, 1))
        self.driver.copy(address, values.ctypes.data, values.nbytes, "to_device",
                         stream or self.stream)
        return address

    def room(self, count: int, dtype: Any = np.float32) -> int:
        """Memory for some elements."""
        return self.driver.allocate(count * np.dtype(dtype).itemsize)

    def fetch(self, address: int, count: int, dtype: Any = np.float32, stream: int = 0) -> Any:
        """An array of what lies at an address."""
        values = np.zeros(count, dtype)
        self.driver.copy(values.ctypes.data, address, values.nbytes, "to_host",
                         stream or self.stream)
        return values

    def launch(self, function: int, grid: Any, block: Any, form: str, *values: Any,
               stream: int = 0, shared: int = 0) -> None:
        """Launch with a parameter block made by `struct.pack` (natural alignment)."""
        grid, block = ((each, 1, 1) if isinstance(each, int) else each for each in (grid, block))
        self.driver.launch(function, grid, block, shared, stream or self.stream,
                           struct.pack(form, *values))

    def wait(self) -> None:
        self.driver.synchronize()


@pytest.fixture(scope="session", autouse=True)
def _needs_compiler() -> None:
    if not any(shutil.which(name) for name in CANDIDATES):
        pytest.skip("no C++ compiler")


@pytest.fixture
def make_card() -> type[Card]:
    return Card


@pytest.fixture
def card() -> Card:
    return Card(seed=1)

"""The kernels of formulas run on whatever CUDA driver there is, real or simulated."""

from __future__ import annotations

import pytest

from slipstream.core.native.drivers import drivers


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without a driver there is nothing to run on; SLIPSTREAM_DRIVER=sim brings the simulated."""
    if not drivers.available():
        skip = pytest.mark.skip(reason=f"no CUDA driver: {drivers.missing}")
        for item in items:
            if "kernels" in item.path.parts and "gpu" in item.path.parts:
                item.add_marker(skip)

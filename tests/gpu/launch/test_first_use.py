"""The first use of CUDA by several threads at once: one driver, one backend a card."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import slipstream as ss
from slipstream.core.launch.door import backend_of, backends, door
from slipstream.core.native.drivers import Drivers
from slipstream.core.vocab.devices import Device

THREADS = 8


def together(call: Any) -> list[Any]:
    """What every thread finds that starts at the same moment."""
    barrier, found = threading.Barrier(THREADS), []

    def run() -> None:
        barrier.wait()
        found.append(call())

    threads = [threading.Thread(target=run) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_a_card_has_one_backend(restart: Any) -> None:
    restart()
    device = Device("cuda", 0)
    backends.pop(device, None)
    windowed = len(door.windowed)
    found = together(lambda: backend_of(device))
    assert len(found) == THREADS
    assert len({id(each) for each in found}) == 1
    assert len(door.windowed) == windowed + 1


def test_there_is_one_driver() -> None:
    drivers = Drivers()
    found = together(drivers.current)
    assert len(found) == THREADS
    assert len({id(each) for each in found}) == 1


def test_assigning_under_a_mask_refuses_what_the_cpu_refuses() -> None:
    mask = ss.tensor([True, False, True], device="cuda")
    x = ss.zeros(3, 4, dtype=ss.int64, device="cuda")
    with pytest.raises(RuntimeError, match="dtypes match"):
        x[mask] = ss.tensor([0.5, 1.5, 2.5, 3.5], device="cuda")
    x[mask] = ss.tensor([7.0], device="cuda")
    assert x.sum(1).tolist() == [28, 0, 28]

"""Copies of pageable memory go through a ring of pinned pieces, several at a time."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import slipstream as ss
from slipstream.core.launch.cuda import staging

PIECE = 1 << 16


@pytest.fixture
def driver(restart: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A driver over which pieces are small."""
    monkeypatch.setattr(staging, "PIECE", PIECE)
    return restart()


def logged(driver: Any, *names: str) -> list[str]:
    """The names of some calls of a driver, from here on."""
    calls: list[str] = []

    def note(name: str, call: Any) -> Any:
        def noted(*arguments: Any) -> Any:
            calls.append(name)
            return call(*arguments)
        return noted

    for name in names:
        setattr(driver, name, note(name, getattr(driver, name)))
    return calls


@pytest.mark.parametrize("nbytes", [4, PIECE - 4, PIECE, PIECE + 4, 3 * PIECE, 11 * PIECE + 40])
def test_there_and_back(driver: Any, nbytes: int) -> None:
    values = np.random.default_rng(nbytes).integers(-1000, 1000, nbytes // 4, np.int32)
    for _ in range(2):
        there = ss.from_numpy(values).to("cuda")
        assert (there.cpu().numpy() == values).all()
        assert (there.numpy(force=True) == values).all()
        assert there.tolist() == values.tolist()
    assert driver.name == "simulated"


def test_a_read_keeps_the_copy_engine_busy(driver: Any) -> None:
    x = ss.arange(9 * PIECE // 8, device="cuda")
    ss.cuda.synchronize()
    calls = logged(driver, "copy", "wait_event")
    assert x.cpu()[-1].item() == 9 * PIECE // 8 - 1
    # As many copies as there are pieces before the first wait, and one more after each.
    assert calls[:9] == ["copy"] * 4 + ["wait_event", "copy"] * 2 + ["wait_event"]
    assert calls.count("copy") == 9


def test_a_write_waits_for_no_copy_but_a_full_rings(driver: Any) -> None:
    values = np.zeros(3 * PIECE, np.uint8)
    ss.from_numpy(values).to("cuda")
    calls = logged(driver, "copy", "wait_event", "wait_stream", "synchronize")
    there = ss.from_numpy(values).to("cuda")
    assert calls.count("copy") == 3
    assert calls.count("wait_event") <= 3
    assert {"wait_stream", "synchronize"}.isdisjoint(calls)
    assert there.numel() == 3 * PIECE


def test_threads_share_the_ring(driver: Any) -> None:
    wrong: list[int] = []

    def run(number: int) -> None:
        for _ in range(5):
            values = np.full(PIECE, number, np.int32)
            if not (ss.from_numpy(values).to("cuda").cpu().numpy() == values).all():
                wrong.append(number)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong

"""``"cuda"`` without a number is the thread's current card at each call, plans and all."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import slipstream as ss

MAKERS: dict[str, Callable[[], Any]] = {
    "ones": lambda: ss.ones(4, device="cuda"),
    "full": lambda: ss.full((2, 2), 2.5, device="cuda"),
    "arange": lambda: ss.arange(4, device="cuda"),
    "linspace": lambda: ss.linspace(0, 1, 3, device="cuda"),
    "eye": lambda: ss.eye(2, device="cuda"),
    "tensor": lambda: ss.tensor([1.0, 2.0], device="cuda"),
    "filled": lambda: ss.empty(3, device="cuda").fill_(3),
    "rand": lambda: ss.rand(4, device="cuda") >= 0,
    "randperm": lambda: ss.randperm(4, device="cuda").sort()[0],
    "new_ones": lambda: ss.ones(2).new_ones(3, device="cuda"),
    "zeros_like": lambda: ss.zeros_like(ss.ones(3), device="cuda"),
    "to": lambda: ss.ones(3).to("cuda"),
    "cuda": lambda: ss.ones(3).cuda(),
    "module": lambda: ss.nn.Linear(2, 2, device="cuda").weight.isfinite(),
}

pytestmark = pytest.mark.skipif(ss.cuda.device_count() < 2, reason="there is one card")


@pytest.mark.parametrize("name", MAKERS)
def test_makers_follow_the_current_card(name: str) -> None:
    make = MAKERS[name]
    expected = make().tolist()
    for _ in range(2):
        for index in (1, 0):
            with ss.cuda.device(index):
                made = make()
            assert made.device == ss.device("cuda", index)
            assert made.tolist() == expected


def test_a_stream_of_another_card_makes_it_current() -> None:
    ss.ones(4, device="cuda")
    with ss.cuda.stream(ss.cuda.Stream(device="cuda:1")):
        made = ss.ones(4, device="cuda") * 2
        assert made.device.index == 1
        assert made.tolist() == [2, 2, 2, 2]


def test_a_thread_has_a_current_card_of_its_own() -> None:
    found = []

    def work() -> None:
        ss.cuda.set_device(1)
        found.append((ss.ones(4, device="cuda") + 1).sum())

    ss.ones(4, device="cuda")
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert (found[0].device.index, found[0].item()) == (1, 8)
    assert ss.ones(4, device="cuda").device.index == 0

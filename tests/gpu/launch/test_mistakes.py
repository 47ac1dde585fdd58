"""What mistakes are told on a card: the same as on the CPU, but for the device."""

from __future__ import annotations

from typing import Any

import pytest

import slipstream as ss
from mistakes import MISTAKES, read, text_of

GOLDEN = read()
# A kernel meets these values, after the call has returned: the error knows the value, the bound,
# the place in the index and the line, and not the operands.
LATE = {"index: values": 7, "gather: values": 5, "embedding: values": 9,
        "cross_entropy: target": 9}


@pytest.mark.parametrize("name", [name for name in MISTAKES if name not in LATE])
def test_the_text_is_that_of_the_cpu(name: str) -> None:
    ss.cuda.synchronize()
    assert text_of(name, "cuda") == GOLDEN[name]


@pytest.mark.parametrize("name", LATE)
def test_what_a_kernel_reports_has_value_bound_place_and_line(name: str) -> None:
    ss.cuda.synchronize()
    rule, where = text_of(name, "cuda").split("\n")
    assert rule.startswith(f"IndexError: index {LATE[name]} is out of bounds for dimension with "
                           "size 3, at position ")
    assert where == "  called at PLACE"
    # The device lives on.
    assert ss.ones(3, device="cuda").sum().item() == 3


READS = {"item": lambda x: x.sum().item(), "cpu": lambda x: x.cpu(), "print": lambda x: str(x),
         "tolist": lambda x: x.tolist(), "if": lambda x: bool(x.sum() > 0)}


@pytest.mark.parametrize("read", READS)
def test_what_only_waited_is_not_named_with_an_earlier_mistake(read: str) -> None:
    ss.cuda.synchronize()
    rows = ss.ones(3, 2, device="cuda")[ss.tensor([0, 7], device="cuda")]
    with pytest.raises(IndexError) as failure:
        READS[read](rows)
    rule, where = str(failure.value).split("\n")
    assert rule == "index 7 is out of bounds for dimension with size 3, at position 1 of the index"
    assert where.startswith("  called at ")
    assert "test_mistakes.py:" in where

@pytest.mark.parametrize("mistake", [
    lambda x: x + 2 ** 70, lambda x: x == 2 ** 64, lambda x: x.clamp(0, -2 ** 63 - 1),
    lambda x: x.float() + 10 ** 400,
    lambda x: ss.full((2,), float("inf"), dtype=ss.int64, device="cuda"),
    lambda x: ss.full((2,), float("nan"), dtype=ss.int64, device="cuda")])
def test_a_number_that_no_kernel_takes_leaves_the_next_launch_alone(mistake: Any) -> None:
    x = ss.tensor([1, 2], device="cuda")
    ss.cuda.synchronize()
    for _ in range(3):
        with pytest.raises((OverflowError, ValueError, RuntimeError)):
            mistake(x)
        assert (x + 1).tolist() == [2, 3]
        y = x * 3
        with pytest.raises((OverflowError, ValueError, RuntimeError)):
            mistake(x)
        assert (y - x).tolist() == [2, 4]


@pytest.mark.parametrize("value", [0.5, -0.25, 0.0, float("nan"), float("inf"), 2])
def test_a_number_as_a_bool_is_its_truth(value: Any) -> None:
    wanted = ss.full((2,), value, dtype=ss.bool).tolist()
    assert wanted == [bool(value)] * 2
    assert ss.full((2,), value, dtype=ss.bool, device="cuda").tolist() == wanted
    assert ss.zeros(2, dtype=ss.bool, device="cuda").fill_(value).tolist() == wanted

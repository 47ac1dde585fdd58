"""What mistakes are told on a card: the same as on the CPU, but for the device."""

from __future__ import annotations

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

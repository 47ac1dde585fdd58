"""Makers write into a card's tensors without naming the card."""

from __future__ import annotations

import slipstream as ss


def test_makers_write_into_tensors_of_a_card() -> None:
    out = ss.empty(5, device="cuda")
    assert ss.arange(5, out=out).tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert ss.ones(5, out=out).tolist() == [1.0] * 5
    assert ss.full((5,), 2, out=out).tolist() == [2.0] * 5
    ss.manual_seed(3)
    wanted = ss.rand(5, device="cuda").tolist()
    ss.manual_seed(3)
    assert ss.rand(5, out=out).tolist() == wanted

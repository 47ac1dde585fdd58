"""A program near the limit of recursion: an error of Python's, and a driver that is whole."""

from __future__ import annotations

import sys

import pytest

import slipstream as ss


def computed(depth: int) -> float:
    """A sum on the device, so many frames down."""
    if depth:
        return computed(depth - 1)
    x = ss.ones(4, device="cuda")
    return (x * x + x).sum().item()


def test_no_room_for_a_call_is_a_recursion_error() -> None:
    assert computed(0) == 8
    refused = 0
    for depth in range(sys.getrecursionlimit() - 350, sys.getrecursionlimit() - 20):
        try:
            assert computed(depth) == 8
        except RecursionError:
            refused += 1
    assert refused > 10
    assert computed(0) == 8
    with pytest.raises(RecursionError):
        computed(sys.getrecursionlimit())

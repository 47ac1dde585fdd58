"""Where the time of a block went: dispatch, kernels, waits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

PARTS = ("dispatch", "kernels", "waits")


@contextmanager
def time_shares() -> Iterator[dict[str, float]]:
    """Fill the dict that the block gets, at its end, with each part's share of the time."""
    shares: dict[str, float] = {}
    yield shares

# cython: nonecheck=False
"""A counted quantity: how much came, how much went, the most there ever was at once."""

from __future__ import annotations

import cython


class Flow:
    """``taken`` and ``given`` back so far; ``peak`` of what was out at once."""

    def __init__(self) -> None:
        self.taken = 0
        self.given = 0
        self.peak = 0

    def add(self, amount: cython.Py_ssize_t) -> None:
        """Count what is taken."""
        self.taken += amount
        current: cython.longlong = self.taken - self.given
        self.peak = max(self.peak, current)

    def remove(self, amount: cython.Py_ssize_t) -> None:
        """Count what is given back."""
        self.given += amount

    def counts(self) -> dict[str, int]:
        """The four figures of PyTorch's statistics."""
        return {
            "current": self.taken - self.given,
            "peak": self.peak,
            "allocated": self.taken,
            "freed": self.given,
        }

    def reset_peak(self) -> None:
        """Let the peak begin again at what is out now."""
        self.peak = self.taken - self.given

    def reset_totals(self) -> None:
        """Forget what was taken and given back."""
        self.taken -= self.given
        self.given = 0

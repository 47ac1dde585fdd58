"""A slow program: it asks the card for a number after every third op.

`slipstream profile examples/slow/waiting.py` names the line; the mend stands behind it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import slipstream as ss


def make() -> Callable[[], None]:
    """The step of a loop."""
    x, total = ss.ones(256, device="cuda"), ss.zeros((), device="cuda")
    sums: list[Any] = [total]

    def step() -> None:
        for _ in range(16):
            y = (x * 2.0 + 1.0).sum()
            sums[0] = total + y.item()  # instead: sums[0] = total + y

    return step


if __name__ == "__main__":
    run = make()
    for _ in range(100):
        run()

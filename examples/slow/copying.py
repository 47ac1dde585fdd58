"""A slow program: it takes the same table to the card in every step.

`slipstream profile examples/slow/copying.py` names the line; the mend stands behind it.
"""

from __future__ import annotations

from collections.abc import Callable

import slipstream as ss


def make() -> Callable[[], None]:
    """The step of a loop."""
    x, table = ss.ones(1 << 18, device="cuda"), ss.ones(1 << 18)
    there = table.to("cuda")

    def step() -> None:
        y = x
        for _ in range(16):
            y = y * 0.5
        y = y * table.to("cuda")  # instead: y = y * there
        y.add_(there)

    return step


if __name__ == "__main__":
    run = make()
    for _ in range(100):
        run()

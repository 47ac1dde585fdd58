"""A slow program: nothing of it is replayed, since other code may write what its launches read.

`slipstream profile examples/slow/handed_out.py` names the line; the mend stands behind it.
"""

from __future__ import annotations

from collections.abc import Callable

import slipstream as ss


def make() -> Callable[[], None]:
    """The step of a loop."""
    x, mask = ss.ones(256, device="cuda"), ss.ones(256, device="cuda")
    address = mask.data_ptr()  # instead: address = mask.clone().data_ptr()
    assert address

    def step() -> None:
        y = x
        for _ in range(40):
            y = y * mask

    return step


if __name__ == "__main__":
    run = make()
    for _ in range(100):
        run()

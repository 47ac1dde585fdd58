"""Keys are sorted stably within their lines, whichever way is taken."""

from __future__ import annotations

import numpy as np
import pytest

import slipstream as ss
from slipstream.core.kernels.cuda import orders
from slipstream.core.kernels.cuda.walks import address
from slipstream.core.launch.door import backend_of
from slipstream.core.vocab.devices import Device

# Lines, keys of each, and the kernel that is to rank them, or none where digits are sorted.
SIZES = ((1, 1, "slip_rank"), (300, 7, "slip_rank"), (2, 127, "slip_rank"),
         (1, 128, "slip_rank_shared"), (3, 129, "slip_rank_shared"),
         (5, 333, "slip_rank_shared"), (2, 1024, "slip_rank_shared"),
         (1, 4096, "slip_rank_shared"), (1, 4097, None))


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize(("lines", "line", "kernel"), SIZES)
def test_keys_are_ranked(lines: int, line: int, kernel: str | None, wide: bool) -> None:
    device = Device("cuda", 0)
    count = lines * line
    draw = np.random.RandomState(line).randint(0, max(line // 3, 2), count)
    # Keys of different lines are in the order of their lines.
    keys = draw + np.repeat(np.arange(lines), line) * line
    given = ss.tensor(keys, device="cuda")
    order = ss.empty(count, dtype=ss.int64 if wide else ss.int32, device="cuda")
    ordered = ss.empty(count, dtype=ss.int64, device="cuda")
    ordering = orders.Ordering(device, count, int(keys.max()).bit_length(), line, wide)
    assert (ordering.ranking.name if ordering.ranking else None) == kernel
    ordering.run(backend_of(device), address(order), address(ordered), address(given))
    wanted = np.argsort(keys, kind="stable")
    np.testing.assert_array_equal(order.cpu().numpy(), wanted)
    np.testing.assert_array_equal(ordered.cpu().numpy(), keys[wanted])

"""Where the time of a block went: dispatch, kernels, waits."""

from __future__ import annotations

import slipstream as ss

PARTS = ("dispatch", "kernels", "waits")
time_shares = ss.time_shares

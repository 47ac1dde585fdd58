"""Spans of memory: whether something that is written lies where something else does."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def overlap(addresses: bytes, nbytes: Sequence[int], written: int) -> bool:
    """Whether one of the first ``written`` spans shares a byte with any other span.

    ``addresses``: 8 bytes for each span; ``nbytes``: their sizes.
    """
    starts = np.frombuffer(addresses, np.uint64).astype(np.int64)
    sizes = np.asarray(nbytes, np.int64)
    target = np.arange(sizes.size) < written
    some = sizes > 0
    starts, sizes, target = starts[some], sizes[some], target[some]
    order = np.argsort(starts, kind="stable")
    starts, target = starts[order], target[order]
    ends = starts + sizes[order]
    # How far what begins earlier reaches: all of it, and what is written of it.
    reach = np.maximum.accumulate(ends)[:-1]
    written_reach = np.maximum.accumulate(np.where(target, ends, 0))[:-1]
    later = starts[1:]
    return bool(np.any(later < written_reach) or np.any(target[1:] & (later < reach)))

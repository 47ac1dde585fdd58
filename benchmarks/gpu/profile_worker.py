"""What PyTorch's profiler adds to an op's host time, in a process of its own; prints JSON.

    python benchmarks/gpu/profile_worker.py cpu|cuda

Two libraries in one process do not share CUPTI.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from typing import Any

OPS, ROUNDS = 2000, 40


def small_ops(x: Any) -> float:
    """Microseconds of the host for one of many ops in place."""
    begun = time.perf_counter_ns()
    for _ in range(OPS // 4):
        x.add_(1.0)
        x.mul_(0.5)
        x.add_(0.25)
        x.mul_(0.5)
    return (time.perf_counter_ns() - begun) / OPS / 1e3


def main() -> None:
    """The least of rounds with a profile off and on, by turns."""
    torch = importlib.import_module("torch")
    x = torch.ones(64, device=sys.argv[1])
    wait = torch.cuda.synchronize if x.is_cuda else int
    best = {False: 1e9, True: 1e9}
    for _ in range(5):
        small_ops(x)
    for _ in range(ROUNDS):
        wait()
        best[False] = min(best[False], small_ops(x))
        wait()
        # CPU and, where there is a card, CUDA: what it records by itself.
        with torch.profiler.profile():
            small_ops(x)
            wait()
            best[True] = min(best[True], small_ops(x))
            wait()
    print(json.dumps({"off": best[False], "on": best[True]}))


if __name__ == "__main__":
    main()

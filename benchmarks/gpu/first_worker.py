"""The first training step of the 256-wide GPT in this process; prints its times as JSON, seconds.

    python benchmarks/gpu/first_worker.py slipstream|torch [compiled] [--tiny]
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from gpu import gpt


def main() -> None:
    """Import, make the model on the device, and take two steps, each waited for."""
    name, *options = sys.argv[1:]
    size = gpt.TINY if "--tiny" in options else gpt.SMALL
    begun = time.perf_counter()
    lib = importlib.import_module(name)
    imported = time.perf_counter()
    model, tokens = gpt.make(lib, size), gpt.batch_of(lib, size)
    lib.cuda.synchronize()
    made = time.perf_counter()
    run = lib.compile(model) if "compiled" in options else model
    step = gpt.training(lib, run, tokens)
    losses, ends = [], []
    for _ in range(2):
        losses.append(step().item())
        lib.cuda.synchronize()
        ends.append(time.perf_counter())
    stats = lib.cuda.driver_stats() if name == "slipstream" else {}
    print(json.dumps({
        "import": imported - begun, "model": made - imported, "first": ends[0] - made,
        "second": ends[1] - ends[0], "after import": ends[0] - imported, "losses": losses,
        "compilations": stats.get("compilations", 0)}))


if __name__ == "__main__":
    main()

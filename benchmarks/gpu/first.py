"""Figures of a new process: its first training step, with nothing kept and with everything."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from gpu.timing import Row

WORKER = Path(__file__).resolve().parent / "first_worker.py"
EMPTY_BAR, FULL_BAR = 8.0, 1.0
# Where each library keeps what it compiled.
FOLDERS = {"slipstream": ("SLIPSTREAM_CACHE",),
           "torch": ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")}


def worker(name: str, folder: Path, *options: str) -> dict[str, float]:
    """Times of a process whose kernels are kept in a folder."""
    environment = {**os.environ, "CUDA_CACHE_PATH": str(folder / "driver"),
                   **{each: str(folder / each) for each in FOLDERS[name]}}
    done = subprocess.run([sys.executable, str(WORKER), name, *options], env=environment,
                          capture_output=True, text=True, timeout=240)
    if done.returncode:
        raise RuntimeError(f"{name}'s first step: {done.stderr.strip().splitlines()[-1:]}")
    found: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def rows_of(name: str, ours: dict[str, float], peer: dict[str, float] | None,
            bar: float) -> list[Row]:
    """The step alone, which has the bar, and from the end of import with context and model."""
    rows = []
    for what, key, bound in (("the step alone", "first", bar),
                             ("from the end of import, with context and model", "after import",
                              None), ("compilations", "compilations", None)):
        unit = "" if key == "compilations" else "s"
        theirs = peer[key] if peer and unit else None
        rows.append(Row(f"GPT 256 wide, first step in a new process, {name} cache: {what}",
                        ours[key], theirs, ours[key], bound, unit))
    return rows


def first(*options: str, peers: bool = True) -> list[Row]:
    """The first step of a new process with an empty cache and with a full one.

    PyTorch's column is torch.compile under the same conditions, eager in the last row.
    """
    rows = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for name, bar in (("empty", EMPTY_BAR), ("full", FULL_BAR)):
            ours = worker("slipstream", folder, *options)
            peer = worker("torch", folder, "compiled", *options) if peers else None
            rows += rows_of(name, ours, peer, bar)
        eager = worker("torch", folder, *options)["first"] if peers else None
    return [*rows, Row("GPT 256 wide, second step of that process", ours["second"], None,
                       ours["second"], None, "s"),
            Row("GPT 256 wide, first step, full cache / PyTorch eager", ours["first"], eager,
                ours["first"] / eager if eager else 0.0, None, "s")]

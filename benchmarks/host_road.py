"""What the host does for CUDA, by itself: a driver whose calls return at once stands under it.

    python benchmarks/host_road.py

Needs no card and no CUDA, a C compiler only.  A time is the least of many calls: what is left is
record, look-up, site, allocation and release, without what a launch costs in a real driver.
Products go to our own kernels, as there is no library.  PyTorch cannot be measured so; its figures
stand in the table of the card.
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpu.models import digits_step, mlp_step, unseen
from rich.console import Console
from rich.table import Table

import slipstream as ss
from gpu import gpt, language
from slipstream.core.native.drivers import drivers
from slipstream.core.native.recording import RecordingDriver

CALLS = """
int launch(void *f, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned g,
           unsigned h, void *stream, void **parameters, void **extra) { return 0; }
int launch_graph(void *executable, void *stream) { return 0; }
int set_node(void *executable, void *node, const void *parameters) { return 0; }
"""
# Microseconds that record, look-up, site and release may take.
RECORD_BAR = 0.6


class SilentDriver(RecordingDriver):
    """Does nothing, through function pointers as a real one has them; graphs too."""

    keeps = False
    # Allocations are not told of.
    told = False

    def __init__(self, library: ctypes.CDLL) -> None:
        super().__init__(("sm_90",))
        self.library = library
        self.launcher, self.graph_launcher, self.node_setter = (
            ctypes.cast(getattr(library, name), ctypes.c_void_p).value
            for name in ("launch", "launch_graph", "set_node"))

    def create_graph(self) -> int:
        """A graph."""
        return self.handle()

    def add_kernel_node(self, *node: Any) -> int:
        """A node."""
        return self.handle()

    def instantiate(self, graph: int) -> int:
        """An executable graph."""
        return self.handle()

    def destroy_graph(self, graph: int) -> None:
        """Nothing."""

    def destroy_executable(self, executable: int) -> None:
        """Nothing."""


def silent_calls(folder: Path) -> ctypes.CDLL:
    """The driver's hot calls, compiled."""
    source, target = folder / "silent.c", folder / "silent.so"
    source.write_text(CALLS)
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", target, source], check=True)
    return ctypes.CDLL(str(target))


def least(step: Callable[[], Any], warm: int, rounds: int, calls: int = 1) -> float:
    """Microseconds of a call: the least of so many rounds."""
    for _ in range(warm):
        step()
    times = []
    for _ in range(rounds):
        start = time.perf_counter_ns()
        for _ in range(calls):
            step()
        times.append(time.perf_counter_ns() - start)
    return min(times) / calls / 1000


def rows() -> list[tuple[str, float, int]]:
    """(what, microseconds, launches) of each program."""
    a, b = ss.rand(64, device="cuda"), ss.rand(64, device="cuda")
    w = ss.rand(64, device="cuda", requires_grad=True)
    programs: list[tuple[str, Callable[[], Any], int, int]] = [
        ("a + b, 64 float32", lambda: a + b, 200, 1000),
        ("mul, sum, backward of 64 elements", lambda: (w * a).sum().backward(), 1, 300),
        ("MLP 8 x 256, batch 64, Adam: one step", mlp_step(ss), 1, 100),
        ("digits net, AdamW: one step", digits_step(ss), 1, 100),
        ("GPT 256 wide, bf16 autocast, AdamW: one step", gpt.eager(ss, gpt.SMALL), 1, 60),
        ("GPT-2 small, bf16, one token: one forward", language.forward(ss), 1, 200),
        ("a step at a length never seen", unseen(ss), 1, 300),
    ]
    found = []
    for name, step, calls, rounds in programs:
        taken = least(step, 100, rounds, calls)
        before = ss.cuda.launch_stats()["launches"]
        step()
        ss.cuda.synchronize()
        found.append((name, taken, ss.cuda.launch_stats()["launches"] - before))
    return found


def main() -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as folder:
        drivers.use(SilentDriver(silent_calls(Path(folder))))
        table = Table("what", "µs", "launches", "µs a launch", title="the host's side alone")
        for place, (name, taken, launches) in enumerate(rows()):
            bar = f" (bar {RECORD_BAR})" if place == 0 else ""
            table.add_row(name, f"{taken:.2f}", str(launches), f"{taken / launches:.2f}{bar}")
        Console().print(table)


if __name__ == "__main__":
    main()

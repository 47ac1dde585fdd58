"""Run the figures of the CUDA road in parts, and merge them into one file by commit.

``python benchmarks/gpu/run.py [PART ...]``; without parts all of them run.  Each part runs in a
process of its own and is written when it is done, so a run that was cut goes on with ``--resume``.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rich.console import Console
from rich.table import Table

from gpu import peers, tables
from gpu.timing import Row

RESULTS = Path(__file__).resolve().parent.parent / "results"
# Each part and its module in the package gpu, imported in the part's own process alone.
PARTS = {
    "adds": "hosts", "backwards": "hosts", "training": "hosts", "replay": "hosts",
    "changing": "hosts", "bandwidth": "devices", "epilogues": "devices", "overlap": "devices",
    "custom": "devices", "attention": "attention", "language": "language", "gpt2": "language",
    "first": "first", "lists": "lists", "curves": "curve_rows", "composites": "kernels",
    "entropy": "kernels", "lengths": "kernels", "formulas": "kernels", "profiles": "profiles",
    "jax": "jax_peer",
}
PEERLESS = ("make gpu measures beside PyTorch on a card, and this Python has no PyTorch: install "
            "one built for CUDA, .venv/bin/pip install torch, and run it again.  Without a card "
            "there is make bench, on the CPU.")


def commit() -> str:
    """The commit that is measured."""
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def show(rows: list[Row]) -> None:
    """Print a part's rows."""
    table = Table(box=None)
    for title in ("", "ours", "peer", "value", "bar", ""):
        table.add_column(title)
    for row in rows:
        bar = "-" if row.bar is None else f"≤ {row.bar:g}" if row.bar > 0 else f"≥ {-row.bar:g}"
        ours, peer = (tables.quantity(value, row.unit) for value in (row.ours, row.peer))
        table.add_row(row.what, ours, peer, f"{row.value:.3g}", bar,
                      "ok" if row.met else "missed")
    Console(width=150).print(table)


def measure(name: str) -> list[Row]:
    """Run a part in this process."""
    rows: list[Row] = getattr(importlib.import_module(f"gpu.{PARTS[name]}"), name)()
    return rows


def apart(name: str, path: Path) -> None:
    """Run a part in a process of its own, which adds its rows to a file."""
    subprocess.run([sys.executable, __file__, name, "--here", "--out", str(path)], check=False)


def keep(path: Path, name: str, rows: list[Row]) -> None:
    """Add a part's rows to the file of results."""
    known, torch = known_in(path), peers.torch()
    known[name] = {"time": time.strftime("%Y-%m-%d %H:%M"), "commit": commit(),
                   "card": torch.cuda.get_device_name(), "peer": f"PyTorch {torch.__version__}",
                   "rows": [{**row._asdict(), "met": row.met} for row in rows]}
    path.write_text(json.dumps(known, indent=1, ensure_ascii=False))


def known_in(path: Path) -> dict[str, Any]:
    """What a file of results holds."""
    known: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return known


def main() -> int:
    """Run the parts asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []])
    parser.add_argument("--resume", action="store_true", help="leave out parts that are done")
    parser.add_argument("--here", action="store_true", help="run the parts in this process")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--readme", action="store_true",
                        help="write the file's figures to the README and benchmarks/README.md")
    parser.add_argument("--tables", action="store_true",
                        help="run nothing: write those of the file")
    options = parser.parse_args()
    path = options.out or RESULTS / f"gpu-{commit()}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    known = known_in(path)
    wanted = [] if options.tables else [name for name in options.parts or PARTS
                                        if not (options.resume and name in known)]
    if wanted and importlib.util.find_spec("torch") is None:
        sys.exit(PEERLESS)
    for name in wanted:
        if options.here:
            rows = measure(name)
            keep(path, name, rows)
            show(rows)
        else:
            apart(name, path)
    if options.readme or options.tables:
        tables.write(known_in(path))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Run the figures of the CUDA road in parts, and merge them into one file by commit.

``python benchmarks/gpu/run.py [PART ...]``; without parts all of them run.  Each part is written
when it is done, so a run that was cut goes on with ``--resume``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

try:
    import torch
except ModuleNotFoundError:
    sys.exit("make gpu measures beside PyTorch on a card, and this Python has no PyTorch: install "
             "one built for CUDA, .venv/bin/pip install torch, and run it again.  Without a card "
             "there is make bench, on the CPU.")
from rich.console import Console
from rich.table import Table

from gpu import attention, curve_rows, devices, first, hosts, language, lists, tables
from gpu.timing import Row

RESULTS = Path(__file__).resolve().parent.parent / "results"
PARTS = {
    "adds": hosts.adds, "backwards": hosts.backwards, "training": hosts.training,
    "replay": hosts.replay, "changing": hosts.changing, "bandwidth": devices.bandwidth,
    "epilogues": devices.epilogues, "overlap": devices.overlap, "custom": devices.custom,
    "attention": attention.attention, "language": language.language, "gpt2": language.gpt2,
    "first": first.first, "lists": lists.lists, "curves": curve_rows.curves_part,
}


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


def main() -> int:
    """Run the parts asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []])
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--readme", action="store_true",
                        help="write the figures to the README and benchmarks/README.md")
    options = parser.parse_args()
    path = options.out or RESULTS / f"gpu-{commit()}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    known = json.loads(path.read_text()) if path.exists() else {}
    for name in options.parts or PARTS:
        if options.resume and name in known:
            continue
        try:
            rows = PARTS[name]()
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {error}")
            continue
        known[name] = {"time": time.strftime("%Y-%m-%d %H:%M"),
                       "rows": [{**row._asdict(), "met": row.met} for row in rows]}
        path.write_text(json.dumps(known, indent=1, ensure_ascii=False))
        show(rows)
    if options.readme:
        card = torch.cuda.get_device_name()
        tables.write(known, f"Measured {time.strftime('%Y-%m-%d')} on {card}; PyTorch "
                            f"{torch.__version__} in the same run.")
    return 0


if __name__ == "__main__":
    sys.exit(main())

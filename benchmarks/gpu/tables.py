"""The figures of a card as markdown: headline rows for the README, all rows for benchmarks/."""

from __future__ import annotations

from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
README, WHOLE = ROOT / "README.md", ROOT / "benchmarks" / "README.md"
BEGINS, ENDS = "<!-- gpu begins -->", "<!-- gpu ends -->"
HEAD = ["| | ours | PyTorch | value | bar | |", "|---|---|---|---|---|---|"]
# Beginnings of the rows on the front page, of which the first is taken: what a user meets, losses
# among them.
HEADLINES = (
    "a + b, 64 float32: enqueue, memo on", "mul, sum, backward",
    "MLP 8 x 256, batch 64, Adam: one step", "digits net step",
    "GPT 256 wide, bf16 autocast, AdamW: one eager step / PyTorch eager",
    "GPT 256 wide, bf16 autocast, AdamW: one eager step / PyTorch compiled, whole",
    "GPT-2 small, 16 x 1024, bf16", "GPT-2 small, bf16, one token forward / PyTorch reduce",
    "SDPA 16 x 12 x 1024 x 64 causal bf16, forward", "addmm_activation, gelu, 1 x",
    "a step at a length never seen", "a growing cache", "AdamW, 3,000 tensors of 3,500: CPU",
    "AdamW, 134 M", "x + 1, 64 M", "softmax of rows of 4096", "softmax of rows of 1000000 float32",
    "sum of columns", "pinned copy beside products", "custom kernel: source to first result, cold",
    "GPT 256 wide, first step in a new process, empty cache: the step",
    "GPT 256 wide, first step in a new process, full cache: the step",
)
SECONDS = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0}


def quantity(value: float | None, unit: str) -> str:
    """A value with three digits and, for a time, the unit that suits it."""
    if value is None:
        return "-"
    if unit in SECONDS:
        value *= SECONDS[unit]
        unit = next((name for name in ("s", "ms", "µs") if value >= SECONDS[name]), "ns")
        value /= SECONDS[unit]
    digits = f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{digits} {unit}".strip()


def verdict(row: dict[str, Any]) -> str:
    """Whether a row meets its bar, where it has one."""
    return "-" if row["bar"] is None else "ok" if row["met"] else "missed"


def line_of(row: dict[str, Any]) -> str:
    """One row of a table."""
    bar = row["bar"]
    bound = "-" if bar is None else f"≤ {bar:g}" if bar > 0 else f"≥ {-bar:g}"
    cells = (row["what"], quantity(row["ours"], row["unit"]), quantity(row["peer"], row["unit"]),
             f"{row['value']:.3g}", bound, verdict(row))
    return f"| {' | '.join(cells)} |"


def rows_of(known: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of all parts of a results file."""
    return [row for part in known.values() for row in part["rows"]]


def headlines(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of the front page, in its order."""
    found = [next((row for row in rows if row["what"].startswith(start)), None)
             for start in HEADLINES]
    return [row for row in found if row is not None]


def put(path: Path, lines: list[str]) -> None:
    """Replace what stands between the marks of a file."""
    head, _, rest = path.read_text().partition(BEGINS)
    _, _, tail = rest.partition(ENDS)
    path.write_text(head + BEGINS + "\n".join(["", *lines, "", ""]) + ENDS + tail)


def measured(known: dict[str, Any]) -> str:
    """When and on what the parts were measured; parts of another card or day are named."""
    found: dict[str, list[str]] = {}
    for name, part in known.items():
        where = f"{part['time'][:10]} on {part['card']} beside {part['peer']}"
        found.setdefault(where, []).append(name)
    most = max(found, key=lambda where: len(found[where]))
    others = [f"{', '.join(names)}: {where}" for where, names in found.items() if where != most]
    return f"Measured {most} in the same run{''.join(f'; {each}' for each in others)}."


def write(known: dict[str, Any]) -> None:
    """Put the figures into both files."""
    rows = rows_of(known)
    for path, chosen in ((README, headlines(rows)), (WHOLE, rows)):
        put(path, [measured(known), "", *HEAD, *map(line_of, chosen)])

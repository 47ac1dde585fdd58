"""Pictures for the terminal."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

BLOCKS = " ▁▂▃▄▅▆▇█"
WIDTH, HEIGHT = 72, 8


def chart(values: Sequence[float], end: str, show: Callable[[int], str]) -> str:
    """A curve as filled columns, its scale at the left and its ``end`` below.

    Each column is the largest of the values that fall into it.
    """
    columns = squeezed(values, WIDTH)
    top = max(columns, default=0) or 1
    levels = [round(value / top * HEIGHT * (len(BLOCKS) - 1)) for value in columns]
    labels = {HEIGHT - 1: show(int(top)), 0: "0"}
    width = max(len(label) for label in labels.values())
    lines = []
    for row in range(HEIGHT - 1, -1, -1):
        filled = [min(max(level - row * (len(BLOCKS) - 1), 0), len(BLOCKS) - 1) for level in levels]
        lines.append(f"  {labels.get(row, ''):>{width}} │" + "".join(BLOCKS[n] for n in filled))
    lines.append(f"  {'':>{width}} └" + "─" * len(columns))
    lines.append(f"  {'':>{width}}  0{end:>{max(len(columns) - 1, len(end))}}")
    return "\n".join(lines)


def squeezed(values: Sequence[float], width: int) -> list[float]:
    """At most ``width`` values, each the largest of a stretch."""
    count = min(width, len(values))
    edges = [place * len(values) // count for place in range(count + 1)] if count else [0]
    return [max(values[first:last]) for first, last in itertools.pairwise(edges)]

"""Fills the measured parts of docs/from_python_to_the_gpu.md.

Usage: SLIPSTREAM_DRIVER=real python tools/walk.py     on a machine with a card
       SLIPSTREAM_DRIVER=sim python tools/walk.py      elsewhere; the page says so
       python tools/walk.py --check                    whether the page has every part
"""

from __future__ import annotations

import platform
import re
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import slipstream as ss
from slipstream.core.api.profiling import Session
from slipstream.core.native.drivers import drivers
from slipstream.core.vocab import ring

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "from_python_to_the_gpu.md"
PART = re.compile(r"<!-- measured: (\w+) -->\n(.*?)<!-- end -->", re.DOTALL)
# Rows, what is summed over, columns; calls of a loop; rounds.  Simulated kernels are slow to run.
SIZES = {"real": (512, 1024, 256, 400, 9), "simulated": (8, 32, 16, 100, 4)}
# Layers of a call in the order in which it meets them, and what each is for.
ROAD = (
    ("Python", "the line itself: look up `x`, `w` and `@`, call, let go of the last `y`"),
    ("dispatch", "bind, look up the plan by the operands' specs"),
    ("allocation", "a block for `y`"),
    ("tape", "the node that backward will walk, and what it saves"),
    ("launch", "write the launch into the stream's window"),
    ("driver", "hand windows to the driver, as graphs where they repeat"),
)


class Walk:
    """`y = x @ w` on a card, and what is measured of it."""

    def __init__(self) -> None:
        rows, inner, columns, self.calls, self.rounds = SIZES[drivers.current().name]
        self.x = ss.randn(rows, inner, device="cuda")
        self.w = ss.randn(inner, columns, device="cuda", requires_grad=True)
        self.first = self.first_call()
        self.repeat(3 * self.calls)

    def product(self) -> Any:
        """The line."""
        x, w = self.x, self.w
        return x @ w

    def first_call(self) -> tuple[float, float]:
        """Microseconds of the first call and of the second."""
        spent = []
        for _ in range(2):
            begun = time.perf_counter()
            self.product()
            spent.append(1e6 * (time.perf_counter() - begun))
        return spent[0], spent[1]

    def repeat(self, count: int) -> float:
        """Microseconds of the host for each of so many calls, and nothing waits inside."""
        ss.cuda.synchronize()
        x, w = self.x, self.w
        begun = time.perf_counter()
        for _ in range(count):
            y = x @ w
        spent = time.perf_counter() - begun
        del y
        ss.cuda.synchronize()
        return 1e6 * spent / count

    def least(self, measure: Callable[[], float]) -> float:
        """The least of some rounds: the rest is noise."""
        return min(measure() for _ in range(self.rounds))

    def recorded(self, **options: Any) -> Any:
        """A profile of a round of calls."""
        ss.cuda.synchronize()
        session = Session(**options)
        session.start()
        x, w = self.x, self.w
        for _ in range(self.calls):
            y = x @ w
        recording = session.stop()
        del y
        return recording


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A table of Markdown."""
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def where(walk: Walk) -> str:
    """On what the page was made."""
    driver = drivers.current()
    name = ss.cuda.get_device_name()
    core = "uncompiled" if ring.__file__.endswith(".py") else "compiled"
    text = (f"Measured by `tools/walk.py` on {name}, Python {platform.python_version()}, "
            f"{core} core, {platform.machine()}.")
    if driver.name == "simulated":
        text += (" There was no card: the simulated driver stood under it, so the layers above the "
                 "driver are this machine's, the driver's layer is the simulation's cost, and "
                 "times of kernels are virtual.")
    return text + "\n"


def explained(walk: Walk) -> str:
    """What `ss.explain` says of a call."""
    text = str(ss.explain(walk.product)).replace(f"{Path(__file__)}", "example.py")
    return f"```\n{text}\n```\n"


def first(walk: Walk) -> str:
    """First call, second call, a later call."""
    later = walk.least(lambda: walk.repeat(walk.calls))
    rows = [("the first call: plan made, kernel compiled or read from the cache, and loaded",
             f"{walk.first[0]:,.0f} µs"),
            ("the second call: plan found", f"{walk.first[1]:,.1f} µs"),
            ("one of many, in a loop, windows replayed", f"{later:,.2f} µs")]
    return table(("`y = x @ w`", "host time"), rows)


def layers(walk: Walk) -> str:
    """Microseconds a layer of one call in a loop."""
    best: dict[str, float] = {}
    for _ in range(walk.rounds):
        recording = walk.recorded(cuda=False)
        for name, spent in recording.layers.items():
            best[name] = min(best.get(name, spent), spent)
    rows = [(name, f"{best[name] / 1000 / walk.calls:.2f} µs", what) for name, what in ROAD]
    total = sum(best[name] for name, _ in ROAD) / 1000 / walk.calls
    rows.append(("together", f"{total:.2f} µs", "the profile's own cost of about 0.4 µs included"))
    return table(("layer", "host time a call", "what it does"), rows)


def launches(walk: Walk) -> str:
    """How the launches of a round went out."""
    before = ss.cuda.launch_stats()
    walk.repeat(walk.calls)
    after = ss.cuda.launch_stats()
    counts = {name: after[name] - before[name] for name in ("launches", "replayed")}
    return table(("of a loop of calls", ""), [
        ("calls", f"{walk.calls}"), ("launches", f"{counts['launches']}"),
        ("of these replayed in graphs", f"{counts['replayed']}")])


def card(walk: Walk) -> str:
    """What the card does for a call."""
    recording = walk.recorded(by_events=True)
    kernels = recording.of("kernel")
    spent = sum(event.end - event.start for event in kernels) / walk.calls
    facts = ss.explain(walk.product).calls[0].kernels[0]
    rows = [("kernels", f"{len(kernels) / walk.calls:.0f}"), ("time", f"{spent / 1000:.2f} µs"),
            ("bytes of the operands", f"{facts['bytes']:,}"),
            ("operations (2 m n k)", f"{facts['operations']:,}"),
            ("which is", f"{facts['operations'] / spent / 1000:.2f} TFLOP/s, "
                         f"{facts['bytes'] / spent:,.0f} GB/s")]
    return table(("the card, a call", ""), rows)


def reading(walk: Walk) -> str:
    """What it costs to look at the result."""
    def wait() -> float:
        y = walk.product()
        ss.cuda.synchronize()
        begun = time.perf_counter()
        y[0, 0].item()
        return 1e6 * (time.perf_counter() - begun)

    return table(("reading one number of `y`, all work done before", "host time"), [
        ("`y[0, 0].item()`: a copy of 4 bytes, and the wait for it",
         f"{walk.least(wait):,.1f} µs")])


PARTS: dict[str, Callable[[Walk], str]] = {
    "where": where, "explained": explained, "first": first, "layers": layers,
    "launches": launches, "card": card, "reading": reading}


def shape(text: str) -> str:
    """A part without its numbers: what has to be there whatever was measured."""
    return re.sub(r"\d[\d,.]*", "0", text)


def main(words: list[str]) -> int:
    """Fill the page, or check it."""
    page = PAGE.read_text(encoding="utf-8")
    found = dict(PART.findall(page))
    if set(found) != set(PARTS):
        print(f"{PAGE}: parts {sorted(found)}, not {sorted(PARTS)}", file=sys.stderr)
        return 1
    if "--check" in words:
        empty = [name for name, text in found.items() if not text.strip()]
        print(f"{PAGE}: not filled: {empty}" if empty else f"{PAGE}: all parts are there")
        return int(bool(empty))
    walk = Walk()
    texts = {name: make(walk) for name, make in PARTS.items()}
    filled = PART.sub(
        lambda part: f"<!-- measured: {part[1]} -->\n{texts[part[1]]}<!-- end -->", page)
    PAGE.write_text(filled, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Figures of generated kernels: how many there are, and their share of a device copy's speed.

Bytes are those that the call moves, given for each row as streams: passes over the elements of a
dtype.  A share is of the speed of a device copy of as many elements of that dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from bench_schedules import SIZES, Case
from bench_schedules import moves as move_cases
from bench_schedules import rows as row_cases
from bench_schedules import sums as sum_cases
from bursts import copy_speed, milliseconds

import slipstream as ss
from gpu import peers
from gpu.formulas import FORMULAS, RowFormula
from gpu.models import Step
from gpu.timing import Row, device_time, launches, peer_time, ratio

COUNT, WIDTH = 64 << 20, 4096
TEXT = (16384, 50304)
FORWARD_BAR, BACKWARD_BAR, FORMULA_BAR = 0.92, 0.85, 0.90


class Composite(NamedTuple):
    """A composite, its operands, and for each direction its streams and kernels by the bar."""

    name: str
    call: Callable[..., Any]
    # Of each operand: rows of the width, or one row.
    operands: tuple[bool, ...]
    streams: tuple[int, int]
    kernels: tuple[int, int]
    # Bytes an element beside the streams: a mask.  One kernel forward keeps it to itself.
    mask: tuple[int, int] = (0, 0)


COMPOSITES = (
    Composite("softmax", lambda f, x: f.softmax(x, -1), (True,), (2, 3), (1, 1)),
    Composite("log_softmax", lambda f, x: f.log_softmax(x, -1), (True,), (2, 3), (1, 1)),
    # The gradients by the weights are a second kernel, which reads both tables again.
    Composite("layer_norm", lambda f, x, w, b: f.layer_norm(x, tuple(w.shape), w, b),
              (True, False, False), (2, 5), (1, 2)),
    Composite("rms_norm", lambda f, x, w: f.rms_norm(x, tuple(w.shape), w), (True, False), (2, 5),
              (1, 2)),
    Composite("gelu", lambda f, x: f.gelu(x), (True,), (2, 3), (1, 1)),
    # Backward reads silu(x) too, which the product keeps for y's gradient.
    Composite("silu, mul", lambda f, x, y: f.silu(x) * y, (True, True), (3, 6), (1, 1)),
    Composite("dropout, add", lambda f, x, y: f.dropout(x, 0.1) + y, (True, True), (3, 2), (1, 1),
              mask=(0, 1)),
)


def directions(lib: Any, composite: Composite, dtype: str) -> tuple[Step, Step]:
    """Calls of both directions on new operands."""
    rows = COUNT // WIDTH
    leaves = [lib.rand(*((rows, WIDTH) if full else (WIDTH,)), device="cuda")
              .to(getattr(lib, dtype)).requires_grad_() for full in composite.operands]
    out = composite.call(lib.nn.functional, *leaves)
    upstream = lib.rand(rows, WIDTH, device="cuda").to(out.dtype)

    def forward() -> Any:
        with lib.no_grad():
            return composite.call(lib.nn.functional, *leaves)

    def backward() -> Any:
        return lib.autograd.grad(out, leaves, upstream, retain_graph=True)

    return forward, backward


def counted(call: Step) -> tuple[float, float]:
    """Kernels of a call and microseconds of the device, in the steady state."""
    time = device_time(call)
    return launches(call), time


def composites() -> list[Row]:
    """Kernels and share of a copy of the composites, both directions, both dtypes."""
    found = []
    for composite in COMPOSITES:
        for dtype in SIZES:
            calls = directions(ss, composite, dtype)
            found.append((composite, dtype, [counted(each) for each in calls]))
            del calls
            ss.cuda.empty_cache()
    copies = copy_speeds()
    rows = []
    for composite, dtype, ours in found:
        theirs = [peer_time(each) for each in directions(peers.torch(), composite, dtype)]
        for place, way in enumerate(("forward", "backward")):
            rows += of_direction(composite, dtype, way, ours[place], theirs[place],
                                 copies[dtype])
    return rows


def copy_speeds() -> dict[str, float]:
    """GB/s of the peer's device copy of 64 M elements by dtype."""
    return {dtype: copy_speed(peers.torch(), COUNT, dtype) for dtype in SIZES}


def of_direction(composite: Composite, dtype: str, way: str, ours: tuple[float, float],
                 peer: float, copy: float) -> list[Row]:
    """The two rows of a direction."""
    place = ("forward", "backward").index(way)
    streams, bar = composite.streams[place], (FORWARD_BAR, BACKWARD_BAR)[place]
    nbytes = (streams * SIZES[dtype] + composite.mask[place]) * COUNT
    beside = " and a mask" if composite.mask[place] else ""
    name = f"{composite.name} {dtype}, 64 M, {way}"
    count, time = ours
    return [Row(f"{name}: kernels", count, None, count, composite.kernels[place], ""),
            share(f"{name}, {streams} streams{beside}", nbytes, time, peer, copy, bar)]


def share(name: str, nbytes: float, ours: float, peer: float | None, copy: float,
          bar: float | None) -> Row:
    """A row of GB/s; times are in microseconds."""
    speed = nbytes / ours / 1e3
    return Row(f"{name}: share of a copy's {copy:.0f} GB/s", speed,
               nbytes / peer / 1e3 if peer else None, speed / copy, -bar if bar else None, "GB/s")


def crossing(lib: Any) -> tuple[Step, Step]:
    """Both directions of cross entropy of bfloat16 scores over a vocabulary."""
    scores = lib.rand(*TEXT, device="cuda").to(lib.bfloat16).requires_grad_()
    targets = lib.randint(0, TEXT[1], (TEXT[0],)).to("cuda")
    loss = lib.nn.functional.cross_entropy(scores, targets)
    upstream = lib.ones_like(loss)

    def forward() -> Any:
        with lib.no_grad():
            return lib.nn.functional.cross_entropy(scores, targets)

    return forward, lambda: lib.autograd.grad(loss, scores, upstream, retain_graph=True)


def entropy() -> list[Row]:
    """Cross entropy of 16,384 rows of 50,304 in bfloat16: kernels, and time / PyTorch."""
    ours = [counted(each) for each in crossing(ss)]
    ss.cuda.empty_cache()
    copy = copy_speed(peers.torch(), COUNT, "bfloat16")
    theirs = [peer_time(each) for each in crossing(peers.torch())]
    rows = []
    name, size = f"cross entropy {TEXT[0]:,} x {TEXT[1]:,} bf16", 2 * TEXT[0] * TEXT[1]
    for way, streams, bar, own, peer in zip(("forward", "backward"), (1, 2), (2, 1), ours, theirs,
                                            strict=True):
        rows += [Row(f"{name}, {way}: kernels", own[0], None, own[0], bar, ""),
                 ratio(f"{name}, {way} / PyTorch", own[1], peer, None),
                 share(f"{name}, {way}, {streams} streams", streams * size, own[1], peer, copy,
                       None)]
    return rows


def bar_of(name: str) -> float:
    """The bar of a reduction or a row kernel by its name."""
    whole = ("sum of rows of 4096", "sum of columns", "sum of all", "var", "argmax")
    return 0.90 if name.startswith(whole) else 0.80


def lengths(only: str = "") -> list[Row]:
    """Reductions and row kernels of rows of 64 to 1,000,000 elements and over each axis."""
    cases = [case for make in (sum_cases, row_cases, move_cases) for dtype in SIZES
             for case in make(COUNT, dtype) if only in case.name]
    ours = times(ss, cases)
    torch = peers.torch()
    copies = copy_speeds()
    theirs = times(torch, cases)
    return [share(f"{case.name} {case.dtype}, 64 M", case.nbytes, own, peer, copies[case.dtype],
                  bar_of(case.name))
            for case, own, peer in zip(cases, ours, theirs, strict=True)]


def times(lib: Any, cases: Iterable[Case]) -> list[float]:
    """Microseconds of the device for each case."""
    found = []
    for case in cases:
        operands = [lib.rand(*shape, device="cuda").to(getattr(lib, case.dtype))
                    for shape in case.shapes]

        def call(case: Case = case, operands: Any = operands) -> Any:
            return case.call(lib, *operands)

        found.append(milliseconds(lib, call) * 1e3)
    return found


def formulas() -> list[Row]:
    """Row formulas that no op of the catalogue has: kernels, and share of a copy."""
    found = []
    for name, formula in FORMULAS.items():
        x = ss.rand(COUNT // WIDTH, WIDTH, device="cuda")
        run = RowFormula(formula, x, ss.rand(WIDTH, device="cuda"))
        found.append((name, float(run.kernels()), device_time(run)))
    torch = peers.torch()
    copy = copy_speed(torch, COUNT)
    rows = []
    for name, count, own in found:
        x, w = torch.rand(COUNT // WIDTH, WIDTH, device="cuda"), torch.rand(WIDTH, device="cuda")
        formula = FORMULAS[name]
        peer = peer_time(lambda formula=formula, x=x, w=w: formula(x, w))
        rows += [Row(f"formula {name}: kernels", count, None, count, 1, ""),
                 share(f"formula {name}, 64 M float32, 2 streams / PyTorch eager", 8 * COUNT, own,
                       peer, copy, FORMULA_BAR)]
    return rows

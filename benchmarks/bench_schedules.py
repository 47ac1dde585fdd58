"""What share of a device copy's GB/s each schedule of the generated kernels reaches.

    python benchmarks/bench_schedules.py [--million 64] [--only sum] [--blocks 2112] [--batch 128]

Bytes are those that must move: every operand once.  A time is the median of bursts of calls between
two events, so that the host's side is hidden for both libraries; windows and graphs are off.
``--blocks`` and ``--batch`` try other numbers of blocks of a reduction that reads once and other
bytes that a thread asks for at once.  Forward kernels only, but for the rows called gradient.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, NamedTuple

from bursts import copy_speed, milliseconds, peer

import slipstream as ss
from slipstream.core.kernels.cuda import layouts
from slipstream.core.vocab.settings import settings

LENGTHS = (64, 1000, 4096, 50304, 1000000)
SIZES = {"float32": 4, "bfloat16": 2}


class Case(NamedTuple):
    """A name, the bytes that must move, what makes the operands, and the call on them."""

    name: str
    nbytes: float
    shapes: tuple[tuple[int, ...], ...]
    dtype: str
    call: Callable[..., Any]


def speed(module: ModuleType, case: Case) -> float | None:
    """GB/s of a case; None where the module cannot run it."""
    try:
        dtype = getattr(module, case.dtype)
        operands = [module.rand(*shape, device="cuda", dtype=module.float32).to(dtype)
                    for shape in case.shapes]
        return case.nbytes / milliseconds(module, lambda: case.call(module, *operands)) / 1e6
    except (RuntimeError, NotImplementedError, TypeError, AttributeError) as failure:
        print(f"  {module.__name__}: {case.name}: {str(failure).splitlines()[0][:120]}")
        return None


def sums(count: int, dtype: str) -> Iterator[Case]:
    """Reductions that only read."""
    size = SIZES[dtype]
    for length in LENGTHS:
        shape = (count // length, length)
        yield Case(f"sum of rows of {length}", size * shape[0] * length, (shape,), dtype,
                   lambda m, x: x.sum(-1))
    for width in (64, 768, 4096):
        shape = (count // width, width)
        yield Case(f"sum of columns, {width} wide", size * shape[0] * width, (shape,), dtype,
                   lambda m, x: x.sum(0))
    yield Case("sum of all", size * count, ((count,),), dtype, lambda m, x: x.sum())
    yield Case("mean of all", size * count, ((count,),), dtype, lambda m, x: x.mean())
    cube = (count // (256 * 512), 256, 512)
    for dim in range(3):
        yield Case(f"sum over axis {dim} of three", size * cube[0] * 256 * 512, (cube,), dtype,
                   lambda m, x, dim=dim: x.sum(dim))
    table = (count // 4096, 4096)
    yield Case("var of rows of 4096", size * count, (table,), dtype, lambda m, x: x.var(-1))
    yield Case("var of columns, 4096 wide", size * count, (table,), dtype, lambda m, x: x.var(0))
    yield Case("argmax of rows of 4096", size * count, (table,), dtype, lambda m, x: x.argmax(-1))
    yield Case("argmax of columns", size * count, (table,), dtype, lambda m, x: x.argmax(0))
    yield Case("argmax of all", size * count, ((count,),), dtype, lambda m, x: x.argmax())


def rows(count: int, dtype: str) -> Iterator[Case]:
    """Row kernels with full results, forward and backward."""
    size = SIZES[dtype]
    for length in LENGTHS:
        shape = (count // length, length)
        full = size * shape[0] * length
        yield Case(f"softmax of rows of {length}", 2 * full, (shape,), dtype,
                   lambda m, x: x.softmax(-1))
        if length in (4096, 50304):
            yield Case(f"log_softmax of rows of {length}", 2 * full, (shape,), dtype,
                       lambda m, x: x.log_softmax(-1))
            yield Case(f"layer_norm of rows of {length}", 2 * full, (shape, shape[1:], shape[1:]),
                       dtype, lambda m, x, w, b: m.nn.functional.layer_norm(
                           x, tuple(w.shape), w, b))
            yield Case(f"rms_norm of rows of {length}", 2 * full, (shape, shape[1:]), dtype,
                       lambda m, x, w: m.nn.functional.rms_norm(x, tuple(w.shape), w))


def moves(count: int, dtype: str) -> Iterator[Case]:
    """Pieces put together: three beside each other in every row, of a whole vector's width or not.
    """
    size = SIZES[dtype]
    for width in (256, 100):
        shape = (count // (3 * width), width)
        yield Case(f"cat of three, {width} wide, in rows", 6 * size * shape[0] * width,
                   (shape,) * 3, dtype, lambda m, *pieces: m.cat(pieces, 1))


def gradients(count: int, dtype: str) -> Iterator[Case]:
    """Backward alone: the graph is kept and walked again; weights' gradients are not asked for."""
    size = SIZES[dtype]
    for name, forward in (
            ("softmax", lambda m, x: x.softmax(-1)),
            ("log_softmax", lambda m, x: x.log_softmax(-1)),
            ("layer_norm", lambda m, x: m.nn.functional.layer_norm(x, tuple(x.shape[1:]))),
            ("gelu", lambda m, x: m.nn.functional.gelu(x))):
        for length in (4096, 50304):
            shape = (count // length, length)
            yield Case(f"gradient of {name}, rows of {length}", 3 * size * shape[0] * length,
                       (shape, shape), dtype, _gradient(forward))


def _gradient(forward: Callable[..., Any]) -> Callable[..., Any]:
    graphs: dict[int, Any] = {}

    def call(module: ModuleType, x: Any, g: Any) -> Any:
        if id(x) not in graphs:
            graphs.clear()
            leaf = x.detach().requires_grad_()
            graphs[id(x)] = leaf, forward(module, leaf)
        leaf, out = graphs[id(x)]
        return module.autograd.grad(out, leaf, g, retain_graph=True)

    return call


def maps(count: int, dtype: str) -> Iterator[Case]:
    """Pointwise kernels and transposes."""
    size, table = SIZES[dtype], (count // 4096, 4096)
    odd = (count // 4097, 4097)
    yield Case("x + 1", 2 * size * count, ((count,),), dtype, lambda m, x: x + 1)
    yield Case("x + row", 2 * size * count, (table, (4096,)), dtype, lambda m, x, y: x + y)
    yield Case("x + column", 2 * size * count, (table, (table[0], 1)), dtype,
               lambda m, x, y: x + y)
    yield Case("x.t().contiguous()", 2 * size * count, (table,), dtype,
               lambda m, x: x.t().contiguous())
    yield Case("the same, odd sizes", 2 * size * odd[0] * odd[1], (odd,), dtype,
               lambda m, x: x.t().contiguous())
    yield Case("x.t() + y", 3 * size * count, (table, table[::-1]), dtype,
               lambda m, x, y: x.t() + y)
    heads = (count // (256 * 16 * 64), 256, 16, 64)
    yield Case("permute of heads", 2 * size * count, (heads,), dtype,
               lambda m, x: x.permute(0, 2, 1, 3).contiguous())
    yield Case("permute to the last", 2 * size * count, (heads,), dtype,
               lambda m, x: x.permute(0, 2, 3, 1).contiguous())


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--million", type=float, default=64, help="elements, in 2**20")
    parser.add_argument("--only", default="", help="only rows whose name has this text")
    parser.add_argument("--blocks", type=int, default=layouts.SINGLE_BLOCKS)
    parser.add_argument("--batch", type=int, default=layouts.BATCH_BYTES)
    parser.add_argument("--seconds", type=float, default=85, help="stop after so long")
    options = parser.parse_args()
    layouts.SINGLE_BLOCKS, layouts.BATCH_BYTES = options.blocks, options.batch
    settings.memo = False
    begun, count, torch = time.perf_counter(), int(options.million * 2**20), peer()
    # The peer's copy is the driver's, whatever became of ours.
    copy = copy_speed(torch or ss, count)
    print(f"a device copy of {count} float32: {copy:.0f} GB/s; shares of it, ours and PyTorch's")
    cases = [case for family in (sums, rows, gradients, maps) for dtype in SIZES
             for case in family(count, dtype) if options.only in case.name]
    for case in cases:
        if time.perf_counter() - begun > options.seconds:
            print(f"no time for {case.dtype} {case.name}")
            continue
        found = [speed(ss, case), None if torch is None else speed(torch, case)]
        shown = ["   -" if each is None else f"{each / copy:4.2f}" for each in found]
        low = " <" if found[0] is not None and found[0] / copy < 0.92 else ""
        print(f"{case.dtype:9s} {case.name:40s} {shown[0]} {shown[1]}{low}", flush=True)
    print(f"{time.perf_counter() - begun:.0f} s")


if __name__ == "__main__":
    main()

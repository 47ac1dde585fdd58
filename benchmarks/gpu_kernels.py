"""The generated kernels' bandwidth: GB/s of the bytes that must move, beside a device copy's.

    python benchmarks/gpu_kernels.py [--million 64] [--only softmax] [--json file]

Every row counts each operand's bytes once; ``share`` is ours over a copy of the same card in the
same run.  PyTorch's column is filled where torch can be imported and has a card.  Times are medians
of bursts of calls between two events.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from bursts import Call, copy_speed, milliseconds, peer

import slipstream as ss


class Case(NamedTuple):
    """A name, the bytes that must move, and what makes the call for a torch-like module."""

    name: str
    nbytes: float
    make: Callable[[ModuleType], Call]


def tensor(module: ModuleType, dtype: str, *shape: int) -> Any:
    """Random numbers of a dtype on the device."""
    made = module.rand(*shape, device="cuda", dtype=module.float32)
    return made.to(getattr(module, dtype))


def unary(name: str, function: str, **arguments: Any) -> Callable[[ModuleType, Any], Call]:
    """A call of a function or method of one tensor, by name."""
    def bind(module: ModuleType, x: Any) -> Call:
        place = module.nn.functional if function == "functional" else module
        called = getattr(place, name)
        return lambda: called(x, **arguments)
    return bind


def maps(count: int) -> Iterator[Case]:
    """Pointwise kernels."""
    for dtype, size in (("float32", 4), ("bfloat16", 2)):
        def flat(module: ModuleType, dtype: str = dtype) -> tuple[Any, Any, Any]:
            x = tensor(module, dtype, count)
            return x, x + 1, tensor(module, dtype, 4096)

        yield Case(f"copy_ {dtype}", 2 * size * count,
                   lambda m, flat=flat: _copy(*flat(m)[:2]))
        yield Case(f"x + 1 {dtype}", 2 * size * count, lambda m, flat=flat: _plus(flat(m)[0], 1))
        yield Case(f"x + y {dtype}", 3 * size * count, lambda m, flat=flat: _plus(*flat(m)[:2]))
        yield Case(f"x + row {dtype}", 2 * size * count,
                   lambda m, flat=flat: _row_plus(*flat(m)))
        yield Case(f"gelu {dtype}", 2 * size * count,
                   lambda m, flat=flat: unary("gelu", "functional")(m, flat(m)[0]))
        yield Case(f"x > 0.5 {dtype}", (size + 1) * count,
                   lambda m, flat=flat: _greater(flat(m)[0]))
    yield Case("bfloat16 + float32", 10 * count, lambda m: _plus(
        tensor(m, "bfloat16", count), tensor(m, "float32", count)))
    yield Case("float32 to bfloat16", 6 * count, lambda m: _to(m, tensor(m, "float32", count)))
    yield Case("copy of a transpose float32", 8 * count, lambda m: _transposed(
        tensor(m, "float32", count // 4096, 4096)))
    yield Case("x + column of 49 float32", 8 * (count // 1568 * 1568), lambda m: _plus(
        tensor(m, "float32", count // 1568, 32, 49), tensor(m, "float32", 32, 1)))


def _copy(x: Any, y: Any) -> Call:
    return lambda: y.copy_(x)


def _plus(x: Any, y: Any) -> Call:
    return lambda: x + y


def _row_plus(x: Any, y: Any, row: Any) -> Call:
    table = x.reshape(-1, 4096)
    return lambda: table + row


def _greater(x: Any) -> Call:
    return lambda: x > 0.5


def _to(module: ModuleType, x: Any) -> Call:
    return lambda: x.to(module.bfloat16)


def _transposed(x: Any) -> Call:
    return lambda: x.transpose(0, 1).contiguous()


def rows(count: int) -> Iterator[Case]:
    """Row kernels, for rows of many lengths."""
    for dtype, size in (("float32", 4), ("bfloat16", 2)):
        for length in (64, 1000, 4096, 16384, 50304, 1000000):
            high = max(count // length, 1)

            def wide(module: ModuleType, shape: tuple[int, int] = (high, length),
                     dtype: str = dtype) -> Any:
                return tensor(module, dtype, *shape)

            moved = size * high * length
            for name, times in (("sum", 1), ("softmax", 2), ("log_softmax", 2), ("argmax", 1)):
                yield Case(f"{name} of rows of {length} {dtype}", times * moved,
                           lambda m, name=name, wide=wide: unary(name, "", dim=-1)(m, wide(m)))
            yield Case(f"layer_norm of rows of {length} {dtype}", 2 * moved,
                       lambda m, wide=wide, length=length: unary(
                           "layer_norm", "functional", normalized_shape=(length,))(m, wide(m)))


def columns(count: int) -> Iterator[Case]:
    """Reductions down, of all, and over each axis of three."""
    for dtype, size in (("float32", 4), ("bfloat16", 2)):
        for length in (64, 768, 4096):
            shape = (count // length, length)
            yield Case(f"sum of columns, {length} wide {dtype}", size * shape[0] * shape[1],
                       lambda m, shape=shape, dtype=dtype: unary("sum", "", dim=0)(
                           m, tensor(m, dtype, *shape)))
        yield Case(f"sum of all {dtype}", size * count, lambda m, dtype=dtype: unary("sum", "")(
            m, tensor(m, dtype, count)))
        for dim in range(3):
            shape3 = (count // (256 * 512), 256, 512)
            yield Case(f"sum over axis {dim} of three {dtype}",
                       size * shape3[0] * shape3[1] * shape3[2],
                       lambda m, shape=shape3, dim=dim, dtype=dtype: unary("sum", "", dim=dim)(
                           m, tensor(m, dtype, *shape)))
    yield Case("softmax of columns, 4096 wide float32", 8 * (count // 4096 * 4096),
               lambda m: unary("softmax", "", dim=0)(
                   m, tensor(m, "float32", count // 4096, 4096)))


def speed(module: ModuleType, case: Case) -> float | None:
    """GB/s of a case; None where the module cannot run it."""
    try:
        call = case.make(module)
        return case.nbytes / milliseconds(module, call) / 1e6
    except (RuntimeError, NotImplementedError, TypeError, AttributeError) as failure:
        print(f"  {module.__name__}: {case.name}: {type(failure).__name__}: "
              f"{str(failure).splitlines()[0]}")
        return None


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--million", type=float, default=64, help="elements, in 2**20")
    parser.add_argument("--only", default="", help="only rows whose name has this text")
    parser.add_argument("--json", default="", help="write the rows to this file as well")
    options = parser.parse_args()
    count = int(options.million * 2**20)
    torch = peer()
    # The peer's copy is the driver's, whatever became of ours.
    copy = copy_speed(torch or ss, count)
    print(f"a device copy of {count} float32: {copy:.0f} GB/s")
    found = []
    for case in (*maps(count), *rows(count), *columns(count)):
        if options.only not in case.name:
            continue
        ours = speed(ss, case)
        theirs = None if torch is None else speed(torch, case)
        found.append({"name": case.name, "ours": ours, "peer": theirs, "copy": copy})
        shown = ["      -" if each is None else f"{each:7.0f}" for each in (ours, theirs)]
        print(f"{case.name:44s} {shown[0]} {shown[1]}  share {(ours or 0) / copy:.2f}", flush=True)
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()

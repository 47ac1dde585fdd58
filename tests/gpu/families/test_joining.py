"""cat and stack: many pieces, several dtypes, any strides."""

from __future__ import annotations

from typing import Any

import pytest

import slipstream as ss
from gpu.families.sides import DTYPES, check, numbers, shifted, tensor
from slipstream.core.kernels.cuda.joining import Piece, together


@pytest.mark.parametrize("count", [1, 2, 16, 17, 40])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_many_pieces(count: int, dim: int) -> None:
    def call(device: str) -> Any:
        pieces = []
        for place in range(count):
            shape = [2, 3, 4]
            shape[dim] = place % 4
            pieces.append(tensor(numbers(place, shape), device))
        alike = [tensor(numbers(place, (2, 3)), device) for place in range(count)]
        return ss.cat(pieces, dim), ss.stack(alike, dim)

    check(call)


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes_that_differ(dtype: Any) -> None:
    def call(device: str) -> Any:
        own = tensor(numbers(1, (2, 3), dtype), device)
        others = [tensor(numbers(2, (2, 3), other), device)
                  for other in (ss.bool, ss.int16, ss.float32, ss.complex128)]
        return [ss.cat([own, other]) for other in others] + [ss.stack([other, own], 1)
                                                             for other in others]

    check(call)


def test_strides_offsets_and_what_is_empty() -> None:
    def call(device: str) -> Any:
        a, b = shifted(numbers(3, (4, 3)), device), shifted(numbers(4, (3, 4)), device)
        none = ss.zeros(0, device=device)
        out = ss.zeros(3, 8, device=device).t()
        ss.cat([a, b.t()], out=out)
        images = tensor(numbers(5, (2, 3, 4, 4)), device).contiguous(
            memory_format=ss.channels_last)
        return (ss.cat([a, none, b.t(), a.flip(0)]), ss.cat([none, none]), out,
                ss.cat([images, images], 1), ss.stack([a, b.t()[:, ::1]], 2))

    check(call)


def test_gradients() -> None:
    def call(device: str) -> Any:
        leaves = [tensor(numbers(place, (2, 3)), device).requires_grad_(True)
                  for place in range(3)]
        out = ss.cat([*leaves, leaves[0]], 1)
        out.backward(tensor(numbers(9, out.shape), device))
        return out, *[leaf.grad for leaf in leaves]

    check(call)


@pytest.mark.parametrize("dtype", [ss.uint8, ss.bfloat16, ss.float32, ss.complex128])
@pytest.mark.parametrize("widths", [(64, 32), (64, 3, 40), (17, 33), (1, 48, 1)])
def test_lines_are_moved_in_vectors(dtype: Any, widths: tuple[int, ...]) -> None:
    def call(device: str) -> Any:
        pieces = [tensor(numbers(place, (3, 5, width)), device).to(dtype)
                  for place, width in enumerate(widths)]
        # From an address that no vector begins at, and into lines that are longer.
        odd = [shifted(numbers(place, (3, 5, width)), device).to(dtype)
               for place, width in enumerate(widths)]
        whole = ss.zeros(3, 5, sum(widths) + 1, device=device, dtype=dtype)
        ss.cat(pieces, 2, out=whole[..., 1:])
        return (ss.cat(pieces, -1), ss.cat(odd, 2), whole, ss.cat([p.transpose(0, 1)
                for p in pieces], 2), ss.cat([p[:, 1:] for p in odd], 2), ss.stack([pieces[0],
                odd[0]], 0))

    check(call)


@pytest.mark.parametrize(("dtypes", "widths", "each"), [
    ((ss.bfloat16, ss.bfloat16), (256, 64), 8), ((ss.bfloat16, ss.bfloat16), (100, 60), 4),
    ((ss.float32, ss.float32), (256, 3), 1), ((ss.uint8, ss.uint8), (6, 10), 2),
    ((ss.float32, ss.bfloat16), (64, 64), 1)])
def test_what_a_thread_takes(dtypes: Any, widths: Any, each: int) -> None:
    out = ss.empty(8, sum(widths), dtype=dtypes[0])
    found, start = [], 0
    for number, (dtype, width) in enumerate(zip(dtypes, widths, strict=True)):
        found.append(Piece(number, ss.empty(8, width, dtype=dtype).spec, start, out.spec.strides))
        start += width
    assert together(out.spec, found) == each
    # Columns of a transposed result lie apart.
    columns = [Piece(0, ss.empty(8, 64).spec, 0, (1, 8))]
    assert together(out.spec, columns) == 1


@pytest.mark.parametrize("wide", [ss.float32, ss.float64, ss.bfloat16])
def test_targets_of_another_dtype(wide: Any) -> None:
    def call(device: str) -> Any:
        pieces = [tensor(numbers(place, (3, 40)), device).to(ss.float16) for place in range(2)]
        out, piled = (ss.zeros(shape, device=device, dtype=wide) for shape in ((3, 80), (2, 3, 40)))
        return ss.cat(pieces, 1, out=out), ss.stack(pieces, out=piled), out, piled

    check(call)
    with pytest.raises(RuntimeError, match="Expected out tensor to have dtype float32"):
        ss.cat([ss.ones(2), ss.ones(2)], out=ss.zeros(4, dtype=ss.int32))

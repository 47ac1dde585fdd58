"""cat and stack: many pieces, several dtypes, any strides."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import slipstream as ss
from gpu.families.sides import DTYPES, check, numbers, shifted, tensor
from slipstream.core.kernels.cuda import beside
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


# Lines of no whole vectors, of one element, and more than a block takes at once.
LINES = [(70, (100, 100, 100)), (33, (1, 2, 3)), (700, (1, 1)), (129, (5, 64, 8, 3)), (9, (129, 7))]


@pytest.mark.parametrize("dtype", [ss.int8, ss.bfloat16, ss.float32, ss.complex64, ss.complex128],
                         ids=lambda each: each.name)
@pytest.mark.parametrize(("lines", "widths"), LINES)
def test_lines_are_written_in_their_order(dtype: Any, lines: int, widths: tuple[int, ...]) -> None:
    def call(device: str) -> Any:
        given = [numbers(place, (lines, width), ss.float32)
                 for place, width in enumerate(widths)]
        pieces = [tensor(each, device).to(dtype) for each in given]
        # Beginning at an odd address; each second line; the same line again and again; a part.
        odd = [shifted(each, device).to(dtype) for each in given]
        halves = [tensor(np.repeat(each, 2, 0), device).to(dtype)[::2] for each in given]
        same = [piece[:1].expand(lines, -1) for piece in pieces]
        cut = [tensor(np.pad(each, ((0, 0), (1, 2))), device).to(dtype)[:, 1:-2] for each in given]
        whole = ss.zeros(lines, sum(widths) + 3, device=device, dtype=dtype)
        ss.cat(pieces, 1, out=whole[:, 1:-2])
        mixed = [odd[0], *cut[1:]]
        return [whole, *[ss.cat(each, 1) for each in (pieces, odd, halves, same, cut, mixed)]]

    check(call)


@pytest.mark.parametrize("count", [2, 3, 16, 21])
def test_many_pieces_beside_each_other(count: int) -> None:
    def call(device: str) -> Any:
        columns = [tensor(numbers(place, (50,)), device) for place in range(count)]
        pieces = [tensor(numbers(place, (20, 1 + place % 3)), device) for place in range(count)]
        return ss.stack(columns, 1), ss.stack(columns, -1).to(ss.int16), ss.cat(pieces, 1)

    check(call)


def in_lines(shapes: Any, dim: int, *, step: int = 0, dtype: Any = ss.float32) -> Any:
    """The launch of contiguous pieces along a dim, into lines that are ``step`` longer."""
    whole = list(shapes[0])
    whole[dim] = sum(shape[dim] for shape in shapes)
    out = ss.empty(*whole[:-1], whole[-1] + step, dtype=dtype)[..., :whole[-1]].spec
    found, start = [], 0
    for number, shape in enumerate(shapes):
        spec = ss.empty(*shape, dtype=dtype).spec
        found.append(Piece(number, spec, start * out.strides[dim], out.strides))
        start += shape[dim]
    return beside.parts_of(found)


def test_which_pieces_lie_in_lines() -> None:
    units = [beside.unit(size, in_lines(shapes, 1, step=step)) for size, shapes, step in (
        (4, [(6, 100), (6, 60)], 0), (2, [(6, 100), (6, 60)], 0), (4, [(6, 100), (6, 60)], 2),
        (2, [(6, 101), (6, 60)], 0), (4, [(6, 3, 8), (6, 5, 8)], 0), (4, [(6, 1), (6, 1)], 0))]
    assert units == [4, 4, 2, 1, 4, 1]
    parts = in_lines([(4, 6, 10), (4, 2, 10)], 1)
    assert [(part.start, part.width, part.own) for part in parts] == [(0, 60, 60), (60, 20, 20)]
    assert {(part.lines, part.step) for part in parts} == {(4, 80)}
    # One behind the other, and lines that lie at no one distance from each other.
    assert not in_lines([(6, 100), (5, 100)], 0)
    turned = ss.empty(6, 4, 10).transpose(0, 1).spec
    assert not beside.parts_of([Piece(0, turned, 0, (60, 10, 1))])


@pytest.mark.parametrize("wide", [ss.float32, ss.float64, ss.bfloat16])
def test_targets_of_another_dtype(wide: Any) -> None:
    def call(device: str) -> Any:
        pieces = [tensor(numbers(place, (3, 40)), device).to(ss.float16) for place in range(2)]
        out, piled = (ss.zeros(shape, device=device, dtype=wide) for shape in ((3, 80), (2, 3, 40)))
        return ss.cat(pieces, 1, out=out), ss.stack(pieces, out=piled), out, piled

    check(call)
    with pytest.raises(RuntimeError, match="Expected out tensor to have dtype float32"):
        ss.cat([ss.ones(2), ss.ones(2)], out=ss.zeros(4, dtype=ss.int32))

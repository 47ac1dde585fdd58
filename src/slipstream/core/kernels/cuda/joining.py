"""cat and stack on the device: one launch for up to sixteen pieces."""

from __future__ import annotations

from math import prod
from typing import Any

from slipstream.core.kernels.cuda import beside, elements
from slipstream.core.kernels.cuda.walks import (
    Ints,
    address,
    described,
    divider,
    launch,
    merged,
    place_type,
)
from slipstream.core.launch.cuda.launches import KernelCode, Launch, LaunchKernel
from slipstream.core.vocab.records import Kernel, Plan

# Pieces of one launch: their geometry is in the launch's parameters.
TOGETHER = 16

_JOIN = """
struct slip_piece {
    int64_t first, start, shape[RANK], divider[RANK], target[RANK], source[RANK];
};
struct slip_walk { int64_t numel; slip_piece pieces[COUNT]; };
extern "C" __global__ void slip_join(item_t* out PARAMETERS, const slip_walk walk) {
    const int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= walk.numel) return;
    int number = 0;
#pragma unroll
    for (int k = 1; k < COUNT; k++) number += at >= walk.pieces[k].first;
    const slip_piece& piece = walk.pieces[number];
    place_t left = (place_t)(at - piece.first);
    int64_t to = piece.start, from = 0;
#pragma unroll
    for (int d = RANK - 1; d >= 0; d--) {
        int64_t c = slip_take(left, piece.shape[d], piece.divider[d]);
        if (d == RANK - 1) c *= EACH;
        to += c * piece.target[d];
        from += c * piece.source[d];
    }
    switch (number) {
CASES
    }
}
"""
_CASE = "    case {0}: {{ const {1} item = p{0}[from]; out[to] = {2}; break; }}"
# Several neighbours at once, in one access where the addresses let it.
_TOGETHER = """    case {0}: {{
        const bool fits = slip_aligned<item_t>(out + to, EACH * sizeof(item_t))
                          && slip_aligned<item_t>(p{0} + from, EACH * sizeof(item_t));
        slip_write<item_t, EACH>(out + to, slip_read<item_t, EACH>(p{0} + from, EACH, fits), EACH,
                                 fits);
        break;
    }}"""


class Piece:
    """A piece with elements: its number among the operands, where it begins, its walk."""

    def __init__(self, number: int, spec: Any, start: int, strides: tuple[int, ...]) -> None:
        self.number = number
        self.spec = spec
        self.start = start
        self.shape, both = merged(spec.shape, [strides, spec.strides], True)
        self.target, self.source = both

    @property
    def lines(self) -> bool:
        """Whether neighbours of the last dim are neighbours in memory, on both sides."""
        return self.shape[-1] == 1 or self.target[-1] == self.source[-1] == 1

    def places(self) -> Ints:
        """Where its lines begin and how long they are, in elements."""
        return (self.start, self.shape[-1], *self.target[:-1], *self.source[:-1])

    def count(self, each: int) -> int:
        """Threads, where one takes so many neighbours."""
        return prod(self.shape[:-1]) * (self.shape[-1] // each)

    def words(self, rank: int, first: int, each: int) -> list[int]:
        """Its part of the tail, in ``rank`` dims."""
        more = rank - len(self.shape)
        shape = (*(1,) * more, *self.shape[:-1], self.shape[-1] // each)
        none = (0,) * more
        return [first, self.start, *shape, *map(divider, shape), *none,
                *self.target, *none, *self.source]


class JoinKernel(Kernel):
    """The launches of all pieces, each with the numbers of its pieces."""

    def __init__(self, name: str, parts: list[tuple[Launch, list[int]]]) -> None:
        self.name = name
        self.parts = parts

    def run(self, plan: Plan, operands: tuple[Any, ...], numbers: tuple[Any, ...]) -> None:
        """Operands: out, pieces."""
        backend: Any = plan.backend
        out = address(operands[0])
        for each, pieces in self.parts:
            sources = [address(operands[1 + number]) for number in pieces]
            backend.record(each, (out, *sources), ())


def together(out: Any, pieces: list[Piece]) -> int:
    """How many neighbours a thread takes: up to 16 bytes of whole lines that begin at such places.

    Where lines are cut elsewhere, threads that take one element each read whole sectors together.
    """
    each = 16 // out.itemsize
    if not all(piece.lines and piece.spec.dtype is out.dtype for piece in pieces):
        return 1
    places = [place for piece in pieces for place in piece.places()]
    while any(place % each for place in places):
        each //= 2
    return each


def _code(out: Any, pieces: list[Piece], rank: int, each: int) -> KernelCode:
    """The kernel of some pieces: elements are moved where all have the result's dtype."""
    same = all(piece.spec.dtype is out.dtype for piece in pieces)
    types = elements.moved(out.itemsize) if same else elements.typed(out.dtype)
    parameters, cases = "", []
    for place, piece in enumerate(pieces):
        dtype = piece.spec.dtype
        kind = "item_t" if same else elements.STORED[dtype.name]
        value = "item" if same else elements.stored(
            out.dtype, dtype.compute, elements.widened(dtype, "item"))
        parameters += f", const {kind}* p{place}"
        cases.append((_TOGETHER if each > 1 else _CASE).format(place, kind, value))
    text = _JOIN.replace(" PARAMETERS", parameters).replace("CASES", "\n".join(cases))
    count = sum(piece.count(each) for piece in pieces)
    head = (f"{types}{place_type(count)}#define RANK {rank}\n#define COUNT {len(pieces)}\n"
            f"#define EACH {each}\n")
    return KernelCode("slip_join", head + text)


def _one_by_one(out: Any, group: list[Piece]) -> Launch:
    """The launch that moves one piece after the other."""
    rank = max(len(piece.shape) for piece in group)
    each = together(out, group)
    count = sum(piece.count(each) for piece in group)
    tail = [count]
    first = 0
    for piece in group:
        tail += piece.words(rank, first, each)
        first += piece.count(each)
    return launch(_code(out, group, rank, each), out.device, count, tail)


def _join(plan: Any, call: Any, pieces: list[Piece]) -> Kernel:
    """One launch a group of pieces."""
    name = f"cuda {call.op.name}"
    parts = []
    for start in range(0, len(pieces), TOGETHER):
        group = pieces[start:start + TOGETHER]
        made = beside.launch(plan.out_spec, group) or _one_by_one(plan.out_spec, group)
        parts.append((made, [piece.number for piece in group]))
    if len(parts) == 1 and parts[0][1] == list(range(len(call["tensors"]))):
        plan.binding = parts[0][0]
        return LaunchKernel(name)
    return JoinKernel(name, parts)


def cat(plan: Any, call: Any) -> Kernel:
    """Pieces joined along a dim."""
    out, kernel = plan.out_spec, described(plan, call)
    dim = call["dim"] % out.ndim
    found = []
    start = 0
    for number, tensor in enumerate(call["tensors"]):
        if number in kernel.places:
            found.append(Piece(number, tensor.spec, start * out.strides[dim], out.strides))
            start += tensor.spec.shape[dim]
    return _join(plan, call, found)


def stack(plan: Any, call: Any) -> Kernel:
    """Pieces joined along a new dim."""
    out, kernel = plan.out_spec, described(plan, call)
    dim = call["dim"] % out.ndim
    strides = (*out.strides[:dim], *out.strides[dim + 1:])
    return _join(plan, call, [
        Piece(number, call["tensors"][number].spec, number * out.strides[dim], strides)
        for number in kernel.places])

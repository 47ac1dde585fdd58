"""cat and stack of pieces that lie beside each other in every line of the result.

The result is written in the order of its lines, whatever the pieces' widths: neighbouring threads
write neighbours, so that hardly a sector of memory is written by halves.  A thread moves a few
units of at most 16 bytes; which piece and which of its lines a unit comes from follows from the
unit's number.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from slipstream.core.kernels.cuda import elements
from slipstream.core.kernels.cuda.access import NARROW, WIDEST
from slipstream.core.kernels.cuda.walks import Ints, blocks, divider, place_type
from slipstream.core.launch.cuda.launches import KernelCode, Launch, make_launch

THREADS = 256

_BESIDE = """
struct slip_walk {
    int64_t numel, line, divider, start, step, begins[COUNT], steps[COUNT];
};
#if EACH > 1
typedef slip_vector<item_t, EACH> unit_t;
#define READ(p) slip_read<item_t, EACH>(p, EACH, fits)
#define WRITE(p, unit) slip_write<item_t, EACH>(p, unit, EACH, fits)
#else
typedef item_t unit_t;
#define READ(p) (p)[0]
#define WRITE(p, unit) (p)[0] = unit
#endif
extern "C" __global__ void __launch_bounds__(THREADS)
slip_join_lines(item_t* out PARAMETERS, const slip_walk walk) {
    const place_t first = (place_t)blockIdx.x * (THREADS * TURNS) + threadIdx.x;
    const place_t numel = (place_t)walk.numel, last = numel - 1;
    const bool fits = FITS;
STARTS
    unit_t held[TURNS];
    place_t to[TURNS];
#pragma unroll
    for (int t = 0; t < TURNS; t++) {
        // Past the end the last unit is read once more: cheaper than asking.
        place_t row = first + t * THREADS;
        row = row < last ? row : last;
        const place_t column = slip_take(row, walk.line, walk.divider);
        to[t] = row * (place_t)walk.step + column * EACH;
        const item_t* from = p0;
        place_t step = (place_t)walk.steps[0];
CASES
        held[t] = READ(from + (row * step + column * EACH));
    }
#pragma unroll
    for (int t = 0; t < TURNS; t++) {
        const place_t at = first + t * THREADS;
        if (at < numel) {
            WRITE(out + walk.start + (WHOLE ? at * EACH : to[t]), held[t]);
        }
    }
}
"""
# A piece's first column, and where its lines would begin if they had all columns.
_START = """    const place_t begin{0} = (place_t)walk.begins[{0}];
    const place_t step{0} = (place_t)walk.steps[{0}];
    const item_t* const line{0} = p{0} - walk.begins[{0}] * EACH;"""
_CASE = """        from = column >= begin{0} ? line{0} : from;
        step = column >= begin{0} ? step{0} : step;"""


class Part(NamedTuple):
    """A piece's part of every line, in elements: where it begins, and its width.

    ``own``: how far its own lines lie apart; ``lines``: how many there are, ``step``: how far apart
    in the result.
    """

    start: int
    width: int
    own: int
    lines: int
    step: int


def part_of(start: int, shape: Ints, target: Ints, source: Ints) -> Part | None:
    """The part of a piece that is walked in this shape, if it has one in every line."""
    if len(shape) == 2 and target[1] == source[1] == 1:
        return Part(start, shape[1], source[0], shape[0], target[0])
    if len(shape) == 1 and target[0] > 1:
        return Part(start, 1, source[0], shape[0], target[0])
    return None


def parts_of(pieces: list[Any]) -> list[Part]:
    """The parts of pieces that fill a piece of every line between them; none if they do not."""
    found = [part_of(piece.start, piece.shape, piece.target, piece.source) for piece in pieces]
    parts = [part for part in found if part is not None]
    if len(parts) < len(pieces):
        return []
    end = parts[0].start
    for part in parts:
        if part.start != end or (part.lines, part.step) != (parts[0].lines, parts[0].step):
            return []
        end += part.width
    return parts


def unit(itemsize: int, parts: list[Part]) -> int:
    """Elements of a unit: as many as 16 bytes hold and every line of every piece is made of."""
    each = WIDEST // itemsize
    while any(place % each for part in parts for place in (*part[:3], part.step)):
        each //= 2
    return each


def launch(out: Any, pieces: list[Any]) -> Launch | None:
    """The launch that writes the pieces' part of every line; None where they have no such part."""
    if any(piece.spec.dtype is not out.dtype for piece in pieces):
        return None
    parts = parts_of(pieces)
    if not parts:
        return None
    each = unit(out.itemsize, parts)
    start = parts[0].start
    line = sum(part.width for part in parts) // each
    count = line * parts[0].lines
    tail = [count, line, divider(line), start, parts[0].step,
            *[(part.start - start) // each for part in parts], *[part.own for part in parts]]
    # Of small units a thread moves several, which are all on their way before one is written.
    turns = WIDEST // (each * out.itemsize)
    code = _code(out.itemsize, parts, count, (each, turns))
    return make_launch(code, out.device, blocks(count, THREADS * turns), THREADS, tail=tail)


def _code(itemsize: int, parts: list[Part], count: int, units: tuple[int, int]) -> KernelCode:
    """The kernel for so many pieces; ``units``: elements of one, and how many a thread moves."""
    each, turns = units
    names = [f"p{place}" for place in range(len(parts))]
    fits = " && ".join(f"slip_aligned<item_t>({name}, EACH * sizeof(item_t))"
                       for name in ("out + walk.start", *names)) if each > 1 else "true"
    starts, cases = ["\n".join(text.format(place) for place in range(1, len(parts)))
                     for text in (_START, _CASE)]
    text = _BESIDE.replace(" PARAMETERS", "".join(f", const item_t* {name}" for name in names))
    # Whether the result's lines follow each other without a gap, and all places fit 32 bits.
    whole = count * each == parts[0].lines * parts[0].step
    farthest = max(each * count, *[part.lines * abs(step) for part in parts
                                   for step in (part.own, part.step)])
    near = min(part.own for part in parts) >= 0 and farthest < NARROW
    head = (f"{elements.moved(itemsize)}{place_type(0 if near else NARROW)}"
            f"#define COUNT {len(parts)}\n#define EACH {each}\n#define THREADS {THREADS}\n"
            f"#define TURNS {turns}\n#define WHOLE {int(whole)}\n")
    text = text.replace("STARTS", starts).replace("CASES", cases).replace("FITS", fits)
    return KernelCode("slip_join_lines", head + text)

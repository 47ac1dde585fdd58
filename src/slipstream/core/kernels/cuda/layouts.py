# cython: annotation_typing=False
"""From shapes and strides to the plan of a row or column kernel, its launches and its words.

Everything here follows from shapes, strides and dtypes alone, never from addresses or the card:
so does the order of every reduction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from slipstream.core.kernels.cuda import access
from slipstream.core.kernels.cuda.access import (
    FLAT,
    ONCE,
    REPEAT,
    STEP,
    VECTOR,
    WIDEST,
    Ints,
    Words,
    power_of_two,
    rounded_up,
)
from slipstream.core.kernels.cuda.stages import EACH, PLACES, Stages
from slipstream.core.kernels.cuda.turns import ReducePlan
from slipstream.core.kernels.cuda.writing import SIZES, Formula
from slipstream.core.shapes.collapse import collapse

WARP = 32
BLOCK = 256
# Threads of a row that is too long for registers, and most threads of one that is not.
LONG_BLOCK = 512
MOST_THREADS = 1024
# Bytes that a thread may keep in registers, and in how many vectors; fewer in the largest blocks.
KEPT_BYTES = 256
KEPT_BYTES_LARGE = 128
KEPT_VECTORS = 8
# How many values a thread computes in unrolled code, about: more take long to compile.
UNROLLED = 640
# Rows are spread over more threads while there are fewer in all than this; while there are more
# than this many threads, the same ones take several short rows at once.
BUSY_THREADS = 65536
MANY_THREADS = 1 << 18
MOST_TURNS = 4
# Rows that blocks of half the most threads keep in shared memory: two such blocks go together on
# the larger cards.  Shared memory that a kernel needs beside its rows.
HALF_SHARED = 108 << 10
STATIC_BYTES = 4096
# Vectors that a thread takes at once from there.
SHELF_BATCH = 2
# What is read again for its results is split between blocks only where rows are few and long; a
# few more where no block can keep a row.
FEW_ROWS = 64
FEW_ENDLESS_ROWS = 264
LONG_ROW = 65536
LARGEST_KEPT = 216 << 10
# Blocks of a split kernel, about: while the last ones end, others idle.  Rows that are never split;
# bytes of each block at least; how far a thread walks down columns.
BLOCKS = 4224
# The same where a kernel reads once only: each block pays for its start, its joining and its ticket
# while it asks for nothing, and this many are one round of 132 processors that hold four.
SINGLE_BLOCKS = 528
MANY_ROWS = 2112
CHUNK_BYTES = 32768
WALK = 8
# Bytes of parts that the last block of a column kernel joins, at most where others are busy too.
JOINED_BYTES = 65536
FEW_BLOCKS = 264
# Blocks that run at once where a processor holds four.
WAVE = 528
# Threads of a block where there are no more blocks than that.
TALL_BLOCK = 512
# Bytes that a thread asks for at once; the blocks of such kernels that a processor should hold, if
# so few bytes of a thread's registers are in use.
BATCH_BYTES = 128
LARGE_BATCH = 4
RESIDENT = 4
# The same where more addresses are in registers, down columns or of many operands; with places.
RESIDENT_FAR = 3
RESIDENT_PLACES = 2
RESIDENT_BYTES = 150
MANY_OPERANDS = 3
# Accumulators of a thread in a column kernel: shared memory holds them for a whole block.
COLUMN_BYTES = 64
MOST_COLUMNS = 8


class Space(NamedTuple):
    """A domain cut into rows: dims that stay and dims that are reduced, collapsed.

    ``outer_steps`` and ``inner_steps`` have a tuple for each operand, outputs first.
    """

    outer: Ints
    inner: Ints
    outer_steps: tuple[Ints, ...]
    inner_steps: tuple[Ints, ...]

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return access.count_of(self.outer)

    @property
    def length(self) -> int:
        """How many elements a row has."""
        return access.count_of(self.inner)


class Cut(NamedTuple):
    """A plan with what its launch needs: sizes of a block, blocks for rows, chunks of a row.

    ``shared``: bytes of dynamic shared memory.
    """

    plan: ReducePlan
    words: Words
    block: tuple[int, int]
    blocks: int
    chunks: int
    shared: int = 0


class Reduction:
    """What the schedules must know of a program, whatever the shapes."""

    def __init__(self, formula: Formula) -> None:
        stages = formula.stages
        self.stages: Stages = stages
        self.itemsizes = [dtype.itemsize for dtype in formula.dtypes]
        levels = [stages.level[output.value] for output in formula.program.outputs]
        self.levels = levels + stages.level[:len(formula.program.inputs)]
        self.outputs = formula.outputs
        self.places = any(stages.step(value).primitive in PLACES for value in stages.fold_values)
        # As registers hold them: truths too, of which a kernel has more than predicates.
        self.part_bytes = sum([max(SIZES[stages.step(value).cls], 4) + 4 * (
            stages.step(value).primitive in PLACES) for value in stages.fold_values])
        self.fold_bytes = max([formula.fold_bytes(value) for value in stages.fold_values],
                              default=1)
        self.kept_bytes = sum(SIZES[formula.program.class_of(value)] for value in stages.kept())
        self.work = sum([len(stages.full_values(stage)) for stage in range(stages.last + 1)])
        self.full = [place for place, level in enumerate(self.levels) if level == EACH]
        self.itemsize = max([self.itemsizes[place] for place in self.full], default=1)
        # Whether operands are read once only, for one round of reductions.
        self.single = stages.last == 1 and not stages.full_outputs
        self.steps = [f"step{place}s" for place in range(len(self.levels))]
        self.row_inputs = min(stages.level[:len(formula.program.inputs)], default=EACH) < EACH


def space_of(reduction: Reduction, domain: Ints, reduced: Ints, strides: Sequence[Ints]) -> Space:
    """Cut a domain; the order of the dims that stay follows the largest operands."""
    places = [*[place for place in reduction.full if place >= reduction.outputs],
              *[place for place in reduction.full if place < reduction.outputs]]
    places += [place for place in range(len(strides)) if place not in places]
    kept = [dim for dim in range(len(domain)) if dim not in reduced]

    def part(dims: Sequence[int], sort: bool) -> tuple[Ints, tuple[Ints, ...]]:
        if len(dims) == 1 and domain[dims[0]] > 1:
            # The usual case, quickly: there is nothing to collapse.
            return (domain[dims[0]],), tuple([(own[dims[0]],) for own in strides])
        sizes = [domain[dim] for dim in dims]
        steps = [[strides[place][dim] for dim in dims] for place in places]
        found, columns = collapse(sizes, steps, sort=sort)
        back = dict(zip(places, columns, strict=True))
        return found, tuple([back[place] for place in range(len(strides))])

    outer, outer_steps = part(kept, True)
    inner, inner_steps = part(reduced, not reduction.stages.ordered)
    return Space(outer, inner, outer_steps, inner_steps)


def goes_down(reduction: Reduction, space: Space) -> bool:
    """Whether neighbours in memory belong to different rows: then a column kernel runs."""
    if not space.outer or space.length == 0:
        return False
    for place in reduction.full:
        inner, outer = space.inner_steps[place], space.outer_steps[place]
        if place < reduction.outputs or not (any(inner) or not space.inner):
            continue
        near = abs(outer[-1])
        return near > 0 and (not inner or abs(inner[-1]) > near)
    return False


def cut(reduction: Reduction, space: Space, card: tuple[int, int] = (0, 1)) -> list[Cut]:
    """The launches of a reduction over a space: one, or one for each stage.

    ``card``: bytes of shared memory that a block may have, and how many processors there are.  They
    decide where a row is kept and how many blocks take row after row, and so how fast the kernel
    is; the order of reductions is the same.
    """
    if goes_down(reduction, space):
        return _cut_columns(reduction, space)
    cuts = _cut_rows(reduction, space)
    if cuts[0].plan.again and cuts[0].plan.stage < 0:
        return [_shelved(reduction, space, cuts[0], card)]
    return cuts


def _shelved(reduction: Reduction, space: Space, cut: Cut, card: tuple[int, int]) -> Cut:
    """A cut whose rows are kept in shared memory, if they fit."""
    plan, words, end = cut.plan, dict(cut.words), 0
    limit, processors = card
    for value in reduction.stages.reread():
        place = reduction.outputs + value
        if plan.kinds[place] != ONCE and not plan.shared[place]:
            words[f"shelf{value}"] = [end]
            end += -(-space.length * reduction.itemsizes[place] // WIDEST) * WIDEST
    if not 0 < end <= limit - STATIC_BYTES:
        return cut
    least = 2 if cut.block[0] < MOST_THREADS else 1
    resident = min(least, max(limit // (end + STATIC_BYTES), 1))
    plan = plan._replace(shelf=True, least=least, batch=min(plan.batch, SHELF_BATCH))
    return cut._replace(plan=plan, words=words, shared=end,
                        blocks=min(space.rows, processors * resident))


# ---- rows ----


def _row_kinds(reduction: Reduction, space: Space) -> list[str]:
    kinds = []
    for place, level in enumerate(reduction.levels):
        steps = space.inner_steps[place]
        if level != EACH or not any(steps):
            # A full output has one element where all rows have.
            full_output = level == EACH and place < reduction.outputs
            kinds.append(FLAT if full_output else ONCE)
        elif access.is_flat(space.inner, steps):
            kinds.append(FLAT)
        else:
            kinds.append({1: VECTOR, 0: REPEAT}.get(steps[-1], STEP))
    return kinds


def _row_vector(reduction: Reduction, space: Space, kinds: Sequence[str]) -> int:
    """Elements of a vector: no vector crosses the end of a row or of its innermost dim."""
    whole = [place for place, kind in enumerate(kinds) if kind in (FLAT, VECTOR)]
    if not whole:
        return 1
    vector = access.elements_of([reduction.itemsizes[place] for place in reduction.full
                                 if kinds[place] != ONCE])
    vector = power_of_two(space.length, vector)
    if any(kind in (VECTOR, REPEAT, STEP) for kind in kinds):
        vector = power_of_two(space.inner[-1], vector)
    for place in whole:
        for step in (*space.outer_steps[place], *space.inner_steps[place][:-1]):
            vector = power_of_two(step, vector)
    return vector


def _read_bytes(reduction: Reduction, kinds: Sequence[str], shared: Sequence[bool]) -> int:
    """Bytes of an element's operands that are not the same for all rows."""
    return sum([reduction.itemsizes[place] for place in reduction.full
                if place >= reduction.outputs and kinds[place] != ONCE and not shared[place]])


def _batch(reduction: Reduction, bytes_read: int, vector: int) -> int:
    """How many vectors of each operand a thread asks for at once in a long loop."""
    fitting = min(BATCH_BYTES // (vector * bytes_read), UNROLLED // (vector * reduction.work or 1))
    return min(rounded_up(fitting + 1) // 2, KEPT_VECTORS) or 1


def _least(reduction: Reduction, bytes_read: int, vector: int, batch: int, columns: bool) -> int:
    """How many blocks the registers of a processor should hold at least."""
    used = vector * (batch * bytes_read + reduction.part_bytes)
    if not reduction.single or used > RESIDENT_BYTES:
        return 1
    if columns:
        return RESIDENT_PLACES if reduction.places else RESIDENT_FAR
    return RESIDENT if len(reduction.full) < MANY_OPERANDS else RESIDENT_FAR


def _keep(reduction: Reduction, bytes_kept: int, vector: int) -> int:
    """How many vectors of a row a thread may keep."""
    fitting = min(KEPT_BYTES // (vector * bytes_kept), UNROLLED // (vector * reduction.work or 1))
    return min(rounded_up(fitting + 1) // 2, KEPT_VECTORS) or 1


def _lanes(vectors: int, most: int, rows: int, large: bool) -> tuple[int, int]:
    """(threads of a row, vectors that each keeps, or 0); ``large``: more threads may be taken."""
    if vectors <= WARP:
        return rounded_up(vectors), 1
    keep = min(most, rounded_up(-(-vectors // WARP)))
    lanes = WARP * -(-vectors // (WARP * keep))
    while keep > 1 and rows * lanes < BUSY_THREADS and 2 * lanes <= LONG_BLOCK:
        keep //= 2
        lanes = WARP * -(-vectors // (WARP * keep))
    fits = lanes <= (MOST_THREADS if large else LONG_BLOCK)
    return (lanes, keep) if fits else (LONG_BLOCK, 0)


def _block_class(lanes: int) -> int:
    """Most threads of a block, as the kernel's text states them."""
    return next(threads for threads in (BLOCK, LONG_BLOCK, MOST_THREADS) if lanes <= threads)


def _cut_rows(reduction: Reduction, space: Space) -> list[Cut]:
    kinds = _row_kinds(reduction, space)
    vector = _row_vector(reduction, space, kinds)
    outer = space.outer or (1,)
    outer_steps = space.outer_steps if space.outer else ((0,),) * len(kinds)
    rows, vectors = space.rows, space.length // vector
    shared = [rows > 1 and not any(steps) for steps in space.outer_steps]
    taken = any(kind in (VECTOR, REPEAT, STEP) for kind in kinds)
    stored = _read_bytes(reduction, kinds, shared)
    kept = max(stored + reduction.kept_bytes, 1)
    most = _keep(reduction, kept, vector)
    # What is read once only needs no more threads to be kept.
    large = most * vector * kept <= KEPT_BYTES_LARGE and not reduction.single
    lanes, keep = _lanes(vectors, most, rows, large)
    if not keep and space.length * stored > HALF_SHARED and not reduction.single:
        lanes = MOST_THREADS
    batch = keep or _batch(reduction, max(stored, 1), vector)
    if not keep and lanes > LONG_BLOCK:
        # Such a block has half the registers.
        batch = min(max(batch // 2, 1), LARGE_BATCH)
    words: Words = {"rows": [rows], "vectors": [vectors], "span": [vectors], "chunks": [1],
                    **access.space_words(outer, "row")}
    if taken:
        words |= access.space_words(space.inner, "at")
    for place in range(len(kinds)):
        inner = space.inner_steps[place] if taken else ()
        words[reduction.steps[place]] = [*outer_steps[place], *inner]
    plan = ReducePlan(False, tuple(kinds), tuple(shared), vector, batch, len(outer),
                      len(space.inner) if taken else 0, _block_class(lanes), _wide(space),
                      again=keep == 0)
    chunks = _row_chunks(reduction, rows, space.length, stored)
    if chunks > 1:
        batch = _batch(reduction, max(stored, 1), vector)
        plan = plan._replace(batch=batch, again=True, threads=BLOCK, warps=BLOCK // WARP,
                             least=_least(reduction, stored, vector, batch, False))
        return _split_rows(reduction, plan, words, chunks)
    # A row of several warps has a block of its own.
    several = BLOCK // 2 // lanes if lanes <= WARP else 1
    # A kernel that asks for no ends pays where there is much to read; small sizes share one.
    large = rows * space.length >= LONG_ROW
    turns = _turns(reduction, plan, lanes, rows) if lanes <= WARP else 1
    exact = (large and vectors > 0 == vectors % (batch * lanes) and rows % (several * turns) == 0
             and (plan.again or vectors == batch * lanes))
    warps = lanes // WARP if lanes <= WARP else plan.threads // WARP
    if (warps, turns, exact) != (0, 1, False):
        plan = plan._replace(warps=warps, turns=turns, exact=exact)
    return [Cut(plan, words, (lanes, several), -(-rows // (several * turns)), 1)]


def _turns(reduction: Reduction, plan: ReducePlan, lanes: int, rows: int) -> int:
    """How many short rows the same threads take at once."""
    turns = 1
    work = plan.vector * plan.batch * max(reduction.work, 1)
    while (turns < MOST_TURNS and 2 * turns * plan.batch <= KEPT_VECTORS
           and 2 * turns * work <= UNROLLED and rows * lanes >= 2 * turns * MANY_THREADS
           and not reduction.row_inputs):
        turns *= 2
    return turns


def _row_chunks(reduction: Reduction, rows: int, length: int, stored: int) -> int:
    """Between how many blocks a row is split; ``stored``: bytes of an element's operands."""
    few = FEW_ENDLESS_ROWS if length * stored > LARGEST_KEPT else FEW_ROWS
    if not reduction.single and (rows >= few or length < LONG_ROW):
        return 1
    blocks = SINGLE_BLOCKS if reduction.single else BLOCKS
    chunks = min(length * reduction.itemsize // CHUNK_BYTES, max(blocks // max(rows, 1), 1))
    return chunks if rows < MANY_ROWS else 1


def _wide(space: Space) -> bool:
    length = space.length
    farthest = max([abs(step) for steps in space.inner_steps for step in steps], default=0)
    # Loops look a few batches ahead.
    if max(space.rows, length) * max(farthest, 1) < access.NARROW // 2:
        return False
    return max(space.rows, 2 * length,
               *[access.reach(space.inner, steps) for steps in space.inner_steps]) >= access.NARROW


def _split_rows(reduction: Reduction, plan: ReducePlan, words: Words, chunks: int) -> list[Cut]:
    vectors, turn = words["vectors"][0], BLOCK * plan.batch
    span = -(-vectors // chunks)
    # Whole batches where all can be whole, else whole turns of the threads.
    unit = turn if vectors % turn == 0 else BLOCK
    if span > unit:
        span = -(-span // unit) * unit
    chunks = -(-vectors // span)
    words = {**words, "span": [span], "chunks": [chunks]}
    plan = plan._replace(exact=vectors % turn == 0 == span % turn)
    return _staged(reduction, Cut(plan, words, (BLOCK, 1), words["rows"][0], chunks))


def _staged(reduction: Reduction, cut: Cut) -> list[Cut]:
    """A launch for each stage that reduces, and one for full outputs."""
    stages = reduction.stages
    count = stages.last + 1 if stages.full_outputs else max(stages.last, 1)
    return [cut._replace(plan=cut.plan._replace(stage=stage)) for stage in range(count)]


# ---- columns ----


def _column_vector(reduction: Reduction, space: Space) -> int:
    """Columns of a thread."""
    whole = [place for place, steps in enumerate(space.outer_steps) if steps[-1] == 1]
    walked = [place for place in whole if reduction.levels[place] == EACH] or whole
    vector = min(access.elements_of([reduction.itemsizes[place] for place in walked]),
                 MOST_COLUMNS, max(COLUMN_BYTES // reduction.fold_bytes, 1))
    vector = power_of_two(space.outer[-1], vector)
    for place in whole:
        inner = space.inner_steps[place] if reduction.levels[place] == EACH else ()
        for step in (*space.outer_steps[place][:-1], *inner):
            vector = power_of_two(step, vector)
    return vector


def _cut_columns(reduction: Reduction, space: Space) -> list[Cut]:
    vector = _column_vector(reduction, space)
    inner = space.inner or (1,)
    inner_steps = space.inner_steps if space.inner else ((0,),) * len(space.outer_steps)
    batches, columns = space.outer[:-1], space.outer[-1]
    kinds = []
    for place, level in enumerate(reduction.levels):
        near = {1: VECTOR, 0: REPEAT}.get(space.outer_steps[place][-1], STEP)
        if near == VECTOR and reduction.itemsizes[place] * vector > WIDEST:
            near = STEP
        kinds.append(STEP if level != EACH and near == REPEAT else near)
    wide, high = _column_block(columns // vector, space.length)
    tiles = -(-columns // (wide * vector))
    words: Words = {"rows": [access.count_of(batches)], "columns": [columns], "tiles": [tiles],
                    "length": [space.length], "span": [space.length], "chunks": [1],
                    **access.space_words(batches, "row"), **access.space_words(inner, "at")}
    for place in range(len(kinds)):
        full = reduction.levels[place] == EACH
        words[reduction.steps[place]] = [*space.outer_steps[place],
                                  *(inner_steps[place] if full else (0,) * len(inner))]
    bytes_read = sum([reduction.itemsizes[place] for place in reduction.full
                      if place >= reduction.outputs and kinds[place] != REPEAT])
    batch = _batch(reduction, max(bytes_read, 1), vector)
    blocks = tiles * access.count_of(batches)
    chunks = min(-(-space.length // (high * WALK)), SINGLE_BLOCKS // blocks)
    joined = wide * vector * reduction.fold_bytes
    chunks = min(chunks, max(JOINED_BYTES // joined, -(-FEW_BLOCKS // blocks)))
    for wave in (WAVE, FEW_BLOCKS):
        if blocks * chunks > wave > blocks:
            # Whole waves of blocks.
            chunks = blocks * chunks // wave * wave // blocks
            break
    split = chunks >= 2 and space.rows * space.length >= LONG_ROW
    threads = BLOCK
    if split and blocks * chunks <= FEW_BLOCKS and (
            space.length >= chunks * TALL_BLOCK // wide * batch):
        # The last block of a column cannot join more of them: each does more by itself.
        threads, high = TALL_BLOCK, TALL_BLOCK // wide
    if split:
        span = _column_span(space.length, chunks, high * batch)
        chunks = -(-space.length // span)
        words["span"], words["chunks"] = [span], [chunks]
    least = _least(reduction, max(bytes_read, 1), vector, batch, True)
    exact = space.length % (high * batch) == 0 == words["span"][0] % (high * batch)
    plan = ReducePlan(True, tuple(kinds), (False,) * len(kinds), vector, batch, len(batches),
                      len(inner), threads, _wide(space), again=True, exact=exact,
                      least=max(least * BLOCK // threads, 1))
    made = Cut(plan, words, (wide, high), blocks, chunks if split else 1)
    return _staged(reduction, made) if split else [made]


def _column_span(length: int, chunks: int, turn: int) -> int:
    """How far a block walks: a chunk, in whole turns of its threads."""
    span = -(-length // chunks)
    return -(-span // turn) * turn if span > turn else span


def _column_block(vectors: int, length: int) -> tuple[int, int]:
    """(threads side by side, threads down the columns) of a block."""
    wide = rounded_up(vectors)
    high = max(rounded_up(length // WALK + 1) // 2, 1)
    high = min(high, BLOCK // min(wide, WARP))
    return min(wide, BLOCK // high), high

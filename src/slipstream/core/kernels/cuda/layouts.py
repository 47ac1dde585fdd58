"""From shapes and strides to the plan of a row or column kernel, its launches and its words.

The order of every reduction follows from shapes, strides and dtypes alone, never from addresses or
the card; a card decides only where rows wait and how many blocks take them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cython

from slipstream.core.kernels.cuda import access
from slipstream.core.kernels.cuda.access import (
    FLAT,
    ONCE,
    REPEAT,
    STEP,
    VECTOR,
    WIDEST,
    Words,
)
from slipstream.core.kernels.cuda.column_blocks import column_block
from slipstream.core.kernels.cuda.measures import (
    BATCH_BYTES,
    BLOCK,
    BLOCKS,
    BUSY_THREADS,
    CHUNK_BYTES,
    COLUMN_BYTES,
    EXACT,
    FEW_BLOCKS,
    FEW_ENDLESS_ROWS,
    FEW_PARTS,
    FEW_ROWS,
    HALF_SHARED,
    JOINED_BYTES,
    KEPT_BYTES,
    KEPT_BYTES_LARGE,
    KEPT_ELEMENTS,
    KEPT_VECTORS,
    LARGE_BATCH,
    LARGEST_KEPT,
    LIGHT_BYTES,
    LONE_BYTES,
    LONE_COLUMNS,
    LONG_BLOCK,
    LONG_ROW,
    MANY_OPERANDS,
    MANY_ROWS,
    MANY_THREADS,
    MOST_COLUMNS,
    MOST_THREADS,
    MOST_TURNS,
    NARROW_BATCH,
    RESIDENT,
    RESIDENT_BYTES,
    RESIDENT_FAR,
    RESIDENT_PLACES,
    SHARED_BY,
    SHELF_BATCH,
    SINGLE_BLOCKS,
    STATIC_BYTES,
    TALL_BLOCK,
    TALL_BYTES,
    UNROLLED,
    WALK,
    WARP,
    WAVE,
)
from slipstream.core.kernels.cuda.spaces import Reduction, Space, goes_down
from slipstream.core.kernels.cuda.stages import EACH
from slipstream.core.kernels.cuda.turns import ReducePlan, plan_of, staged

# The places of a plan's vector and batch among its fields.
BATCH = ReducePlan._fields.index("batch")
VECTOR_FIELD = ReducePlan._fields.index("vector")


class Cut:
    """A plan with what its launch needs: sizes of a block, blocks for rows, chunks of a row.

    ``shared``: bytes of dynamic shared memory.
    """

    plan: ReducePlan
    words: Words
    block: tuple[int, int]
    blocks: int
    chunks: int
    shared: int

    def __init__(self, plan: ReducePlan, words: Words, block: tuple[int, int], blocks: int,
                 chunks: int, shared: int = 0) -> None:
        self.plan = plan
        self.words = words
        self.block = block
        self.blocks = blocks
        self.chunks = chunks
        self.shared = shared


def cut(reduction: Reduction, space: Space,
        card: tuple[int, int, bool] = (0, 1, False)) -> list[Cut]:
    """The launches of a reduction over a space: one, or one for each stage.

    ``card``: bytes of shared memory that a block may have, how many processors there are, and
    whether blocks run in clusters.  They decide where a row is kept and how many blocks take row
    after row, and so how fast the kernel is; the order of reductions is the same.
    """
    brief = reduction.brief
    if goes_down(reduction, space):
        return _cut_columns(reduction, space) if brief is None else _briefly(
            _cut_columns(brief, space))
    cuts = _cut_rows(reduction, space)
    if brief is not None:
        fewer = _fewer_walks(reduction, brief, space, cuts[0].plan)
        if fewer is not None:
            cuts, reduction = _briefly(fewer), brief
    if cuts[0].plan.again and cuts[0].plan.stage < 0:
        return [_shelved(reduction, space, cuts[0], card)]
    return cuts


def _reads_memory_again(reduction: Reduction, space: Space, plan: ReducePlan) -> bool:
    """Whether no card could keep the rows of a plan until they are needed again."""
    if plan.stage >= 0 or not plan.again:
        return plan.stage >= 0
    return space.length * _read_bytes(reduction, plan.kinds, plan.shared) > LARGEST_KEPT


def _fewer_walks(reduction: Reduction, brief: Reduction, space: Space,
                 plan: ReducePlan) -> list[Cut] | None:
    """The cuts of the program with fewer walks, if they are faster than this plan."""
    if _reads_memory_again(reduction, space, plan):
        return _cut_rows(brief, space)
    many = plan.threads > LONG_BLOCK and plan.vector * plan.batch > KEPT_ELEMENTS
    if not plan.again and not many:
        return None
    if brief.spread and not brief.single:
        # One more walk over shared memory costs less than moments do.
        return None
    # Registers that would hold the row for one walk less are slower than shared memory.
    fewer = _cut_rows(brief, space, False)
    return fewer if fewer[0].plan.again else None


def _briefly(cuts: list[Cut]) -> list[Cut]:
    """Cuts of the program with fewer walks."""
    for each in cuts:
        each.plan = each.plan._replace(brief=True)
    return cuts


def _shelved(reduction: Reduction, space: Space, cut: Cut, card: tuple[int, int, bool]) -> Cut:
    """A cut whose rows are kept in shared memory, if they fit."""
    limit, processors, clusters = card
    end: cython.longlong = _shelves(reduction, space, cut, 1)[1]
    if not 0 < end <= limit - STATIC_BYTES:
        return cut
    lanes: cython.longlong = cut.block[0]
    cluster: cython.longlong = 1
    if clusters and lanes == MOST_THREADS and _has_company(reduction, cut.plan):
        # While the threads of one block wait for what all rows share, those of another go on.
        shared = _shelves(reduction, space, cut, SHARED_BY)[1]
        cluster = SHARED_BY if SHARED_BY * (shared + STATIC_BYTES) <= limit else 1
    words, end = _shelves(reduction, space, cut, cluster)
    least: cython.longlong = (2 if lanes < MOST_THREADS else 1) * cluster
    resident: cython.longlong = min(least, max(limit // (end + STATIC_BYTES), 1))
    plan = cut.plan._replace(shelf=True, least=least, batch=min(cut.plan.batch, SHELF_BATCH))
    if cluster > 1:
        plan = plan._replace(threads=lanes // cluster, cluster=cluster)
    groups = min(space.rows, processors * resident // cluster)
    return Cut(plan, words, (lanes // cluster, 1), groups * cluster, cut.chunks, end)


def _has_company(reduction: Reduction, plan: ReducePlan) -> bool:
    """Whether one operand lies on the shelf, and all rows share another one."""
    shelved = [value for value in reduction.stages.reread()
               if not plan.shared[reduction.outputs + value]]
    return len(shelved) == 1 and any([
        plan.shared[place] and plan.kinds[place] != ONCE for place in reduction.full
        if place >= reduction.outputs])


def _shelves(reduction: Reduction, space: Space, cut: Cut, cluster: int) -> tuple[Words, int]:
    """The words with the places of shelves in a block, and how many bytes they take there.

    The threads of a cluster's blocks take turns at a row's vectors, those of the first one first.
    """
    words, end = dict(cut.words), 0
    length: cython.longlong = space.length
    turn: cython.longlong = cut.block[0] * cut.plan.vector
    first: cython.longlong = turn // cluster
    length = length // turn * first + min(length % turn, first)
    for value in reduction.stages.reread():
        place = reduction.outputs + value
        if cut.plan.kinds[place] != ONCE and not cut.plan.shared[place]:
            words[f"shelf{value}"] = [end]
            end += _blocks(length * reduction.itemsizes[place], WIDEST) * WIDEST
    return words, end


# ---- rows ----


def _power_of_two(number: int, limit: int) -> int:
    """The largest power of two up to ``limit`` that divides a number (all divide 0)."""
    while number % limit:
        limit //= 2
    return limit


def _rounded_up(number: int) -> int:
    """The smallest power of two that is not below a number."""
    found: cython.longlong = 1
    while found < number:
        found *= 2
    return found


def _blocks(count: int, each: int) -> int:
    """How many parts of so many there must be."""
    return (count + each - 1) // each


def _near_kind(step: int) -> str:
    """The kind of access along a dim with this step."""
    if step == 1:
        return VECTOR
    return STEP if step else REPEAT


def _row_kinds(reduction: Reduction, space: Space) -> list[str]:
    kinds: list = []
    place: cython.Py_ssize_t
    inner = space.inner
    for place in range(len(reduction.levels)):
        steps = space.inner_steps[place]
        if reduction.levels[place] != EACH or not any(steps):
            # A full output has one element where all rows have.
            full_output = reduction.levels[place] == EACH and place < reduction.outputs
            kinds.append(FLAT if full_output else ONCE)
        elif steps == (1,) or access.is_flat(inner, steps):
            kinds.append(FLAT)
        else:
            kinds.append(_near_kind(steps[-1]))
    return kinds


def _row_vector(reduction: Reduction, space: Space, kinds: Sequence[str], length: int) -> int:
    """Elements of a vector: no vector crosses the end of a row or of its innermost dim."""
    whole = [place for place in range(len(kinds)) if kinds[place] in (FLAT, VECTOR)]
    if not whole:
        return 1
    vector: cython.longlong = access.elements_of(
        [reduction.itemsizes[place] for place in reduction.full if kinds[place] != ONCE])
    vector = _power_of_two(length, vector)
    if VECTOR in kinds or REPEAT in kinds or STEP in kinds:
        vector = _power_of_two(space.inner[-1], vector)
    for place in whole:
        for step in space.outer_steps[place]:
            vector = _power_of_two(step, vector)
        for step in space.inner_steps[place][:-1]:
            vector = _power_of_two(step, vector)
    return vector


def _read_bytes(reduction: Reduction, kinds: Sequence[str], shared: Sequence[bool]) -> int:
    """Bytes of an element's operands that are not the same for all rows."""
    total: cython.longlong = 0
    for place in reduction.full:
        if place >= reduction.outputs and kinds[place] != ONCE and not shared[place]:
            total += reduction.itemsizes[place]
    return total


def _batch(reduction: Reduction, bytes_read: int, vector: int) -> int:
    """How many vectors of each operand a thread asks for at once in a long loop."""
    return _most_vectors(reduction, BATCH_BYTES // (vector * bytes_read), vector)


def _most_vectors(reduction: Reduction, fitting: int, vector: int) -> int:
    """The largest power of two up to ``fitting``, and as much as unrolled code may hold."""
    work: cython.longlong = vector * reduction.work or 1
    fitting = min(fitting, UNROLLED // work)
    return min(_rounded_up(fitting + 1) // 2, KEPT_VECTORS) or 1


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
    return _most_vectors(reduction, KEPT_BYTES // (vector * bytes_kept), vector)


def _lanes(vectors: int, most: int, rows: int, large: bool) -> tuple[int, int]:
    """(threads of a row, vectors that each keeps, or 0); ``large``: more threads may be taken."""
    if vectors <= WARP:
        return _rounded_up(vectors), 1
    keep: cython.longlong = min(most, _rounded_up(_blocks(vectors, WARP)))
    lanes: cython.longlong = WARP * _blocks(vectors, WARP * keep)
    while keep > 1 and rows * lanes < BUSY_THREADS and 2 * lanes <= LONG_BLOCK:
        keep //= 2
        lanes = WARP * _blocks(vectors, WARP * keep)
    fits = lanes <= (MOST_THREADS if large else LONG_BLOCK)
    return (lanes, keep) if fits else (LONG_BLOCK, 0)


def _block_class(lanes: int) -> int:
    """Most threads of a block, as the kernel's text states them."""
    if lanes <= LONG_BLOCK:
        return BLOCK if lanes <= BLOCK else LONG_BLOCK
    return MOST_THREADS


def _cut_rows(reduction: Reduction, space: Space, largest: bool = True) -> list[Cut]:
    """The cuts of rows; ``largest``: blocks of the most threads may keep a row in registers."""
    rows: cython.longlong = space.rows
    length: cython.longlong = space.length
    kinds = _row_kinds(reduction, space)
    vector: cython.longlong = _row_vector(reduction, space, kinds, length)
    vectors: cython.longlong = length // vector
    shared = [rows > 1 and not any(steps) for steps in space.outer_steps]
    stored: cython.longlong = _read_bytes(reduction, kinds, shared)
    kept: cython.longlong = max(stored + reduction.kept_bytes, 1)
    most: cython.longlong = _keep(reduction, kept, vector)
    # What is read once only needs no more threads to be kept.
    large = largest and most * vector * kept <= KEPT_BYTES_LARGE and not reduction.single
    lanes: cython.longlong
    keep: cython.longlong
    lanes, keep = _lanes(vectors, most, rows, large)
    if rows == 1 and reduction.single and vectors > WARP:
        # Of such reductions there are many lengths: one text serves all that a block walks.
        lanes, keep = LONG_BLOCK, 0
    if not keep and length * stored > HALF_SHARED and not reduction.single:
        lanes = MOST_THREADS
    batch: cython.longlong = keep or _batch(reduction, max(stored, 1), vector)
    if not keep and lanes > LONG_BLOCK:
        # Such a block has half the registers.
        batch = min(max(batch // 2, 1), LARGE_BATCH)
    taken = VECTOR in kinds or REPEAT in kinds or STEP in kinds
    words = _row_words(reduction, space, vectors, taken)
    chunks: cython.longlong = _row_chunks(reduction, rows, length, stored)
    facts = (max(len(space.outer), 1), len(space.inner) if taken else 0)
    if chunks > 1:
        batch = _batch(reduction, max(stored, 1), vector)
        fields = (False, tuple(kinds), tuple(shared), vector, batch, *facts, BLOCK, _wide(space),
                  True, BLOCK // WARP, 1)
        least = _least(reduction, stored, vector, batch, False)
        return _split_rows(reduction, (fields, least), words, chunks)
    # A row of several warps has a block of its own.
    several: cython.longlong = BLOCK // 2 // lanes if lanes <= WARP else 1
    turns: cython.longlong = 1
    if lanes <= WARP:
        turns = _turns(reduction, vector * batch * max(reduction.work, 1), batch, rows * lanes)
    # A kernel that asks for no ends pays where there is much to read; small sizes share one.
    exact = (rows * length >= EXACT and vectors > 0 == vectors % (batch * lanes)
             and rows % (several * turns) == 0 and (keep == 0 or vectors == batch * lanes))
    threads: cython.longlong = _block_class(lanes)
    plan = plan_of(
        False, tuple(kinds), tuple(shared), vector, batch, *facts, threads, _wide(space),
        keep == 0, (lanes if lanes <= WARP else threads) // WARP, turns, exact)
    return [Cut(plan, words, (lanes, several), _blocks(rows, several * turns), 1)]


def _row_words(reduction: Reduction, space: Space, vectors: int, taken: bool) -> Words:
    """The words of a row kernel's tail; ``taken``: coordinates inside a row are."""
    words: dict = {"rows": [space.rows], "vectors": [vectors], "span": [vectors], "chunks": [1]}
    if len(space.outer) > 1:
        words.update(access.space_words(space.outer, "row"))
    if taken:
        words.update(access.space_words(space.inner, "at"))
    place: cython.Py_ssize_t
    for place in range(len(reduction.steps)):
        steps = list(space.outer_steps[place]) if space.outer else [0]
        if taken:
            steps += space.inner_steps[place]
        words[reduction.steps[place]] = steps
    return words


def _turns(reduction: Reduction, work: int, batch: int, threads: int) -> int:
    """How many short rows the same threads take at once."""
    turns: cython.longlong = 1
    while (turns < MOST_TURNS and 2 * turns * batch <= KEPT_VECTORS
           and 2 * turns * work <= UNROLLED and threads >= 2 * turns * MANY_THREADS
           and not reduction.row_inputs):
        turns *= 2
    return turns


def _row_chunks(reduction: Reduction, rows: int, length: int, stored: int) -> int:
    """Between how many blocks a row is split; ``stored``: bytes of an element's operands."""
    few: cython.longlong = FEW_ENDLESS_ROWS if length * stored > LARGEST_KEPT else FEW_ROWS
    if rows >= MANY_ROWS or (not reduction.single and (rows >= few or length < LONG_ROW)):
        return 1
    blocks: cython.longlong = SINGLE_BLOCKS if reduction.single else BLOCKS
    return min(length * reduction.itemsize // CHUNK_BYTES, max(blocks // max(rows, 1), 1))


def _wide(space: Space) -> bool:
    rows: cython.longlong = space.rows
    length: cython.longlong = space.length
    farthest: cython.longlong = 1
    for steps in space.inner_steps:
        for step in steps:
            farthest = max(farthest, abs(step))
    narrow: cython.longlong = access.NARROW
    # Loops look a few batches ahead.
    if max(rows, length) < narrow // 2 // farthest:
        return False
    return max(rows, 2 * length,
               *[access.reach(space.inner, steps) for steps in space.inner_steps]) >= access.NARROW


def _split_rows(reduction: Reduction, facts: tuple[tuple[Any, ...], int], words: Words,
                chunks: int) -> list[Cut]:
    """The cuts of rows in chunks; ``facts``: of the plan, what comes before and after `exact`."""
    fields, least = facts
    vectors: cython.longlong = words["vectors"][0]
    turn: cython.longlong = BLOCK * fields[BATCH]
    span: cython.longlong = _blocks(vectors, chunks)
    # Whole batches where all can be whole, else whole turns of the threads.
    unit: cython.longlong = turn if vectors % turn == 0 else BLOCK
    if span > unit:
        span = _blocks(span, unit) * unit
    chunks = _blocks(vectors, span)
    words = {**words, "span": [span], "chunks": [chunks]}
    exact = words["rows"][0] * vectors * fields[VECTOR_FIELD] >= EXACT and (
        vectors % turn == 0 == span % turn)
    plan = plan_of(*fields, exact, -1, least)
    return _staged(reduction, Cut(plan, words, (BLOCK, 1), words["rows"][0], chunks))


def _staged(reduction: Reduction, cut: Cut) -> list[Cut]:
    """A launch for each stage that reduces, and one for full outputs."""
    stages = reduction.stages
    count = stages.last + 1 if stages.full_outputs else max(stages.last, 1)
    return [Cut(staged(cut.plan, stage), cut.words, cut.block, cut.blocks, cut.chunks,
                cut.shared) for stage in range(count)]


# ---- columns ----


def _column_vector(reduction: Reduction, space: Space) -> int:
    """Columns of a thread."""
    outer_steps = space.outer_steps
    whole = [place for place in range(len(outer_steps)) if outer_steps[place][-1] == 1]
    walked = [place for place in whole if reduction.levels[place] == EACH] or whole
    read = [reduction.itemsizes[place] for place in range(reduction.outputs, len(reduction.levels))
            if reduction.levels[place] == EACH]
    most: cython.longlong = MOST_COLUMNS
    if len(read) == 1:
        # More threads with fewer accumulators each are faster where there is one operand.
        most = min(most, max(LONE_COLUMNS, LONE_BYTES // read[0]))
    vector: cython.longlong = min(
        access.elements_of([reduction.itemsizes[place] for place in walked]),
        most, _rounded_up(COLUMN_BYTES // reduction.fold_bytes + 1) // 2 or 1)
    vector = _power_of_two(space.outer[-1], vector)
    for place in whole:
        for step in outer_steps[place][:-1]:
            vector = _power_of_two(step, vector)
        if reduction.levels[place] == EACH:
            for step in space.inner_steps[place]:
                vector = _power_of_two(step, vector)
    return vector


def _cut_columns(reduction: Reduction, space: Space) -> list[Cut]:
    vector: cython.longlong = _column_vector(reduction, space)
    length: cython.longlong = space.length
    batches, columns = space.outer[:-1], space.outer[-1]
    rows: cython.longlong = access.count_of(batches)
    kinds: list
    bytes_read: cython.longlong
    read_operands: cython.longlong
    kinds, bytes_read, read_operands = _column_kinds(reduction, space, vector)
    wide: cython.longlong
    high: cython.longlong
    wide, high, narrow = column_block(reduction, space, vector)
    tiles: cython.longlong = _blocks(columns, wide * vector)
    words = _column_words(reduction, space, tiles, wide * vector)
    # Several operands have the registers that twice as many vectors of one would take.
    asked = bytes_read * 2 if read_operands > 1 else bytes_read
    batch: cython.longlong = _batch(reduction, max(bytes_read if narrow else asked, 1), vector)
    batch = min(batch, NARROW_BATCH) if narrow else batch
    blocks: cython.longlong = tiles * rows
    chunks: cython.longlong = _column_chunks(length, high, blocks,
                                              wide * vector * reduction.fold_bytes)
    split = not narrow and chunks >= 2 and rows * columns * length >= LONG_ROW
    span: cython.longlong = length
    threads: cython.longlong = wide * high if narrow else BLOCK
    least: cython.longlong = 1 if narrow else 0
    ahead: cython.bint = False
    tall = vector * reduction.fold_bytes <= TALL_BYTES
    if tall and split and blocks * chunks <= FEW_BLOCKS and (
            length >= chunks * TALL_BLOCK // wide * batch):
        # The last block of a column cannot join more of them: each does more by itself.
        more = 2 * batch * vector * asked <= BATCH_BYTES
        if vector * reduction.part_bytes <= LIGHT_BYTES or chunks > FEW_PARTS:
            threads, high = TALL_BLOCK, TALL_BLOCK // wide
            ahead = more and reduction.places and reduction.single
        elif more:
            batch *= 2
        # A processor holds two of them.
        least = 2 * threads // BLOCK
    if split:
        span = _column_span(length, chunks, high * batch)
        chunks = _blocks(length, span)
        words["span"], words["chunks"] = [span], [chunks]
    least = least or _least(reduction, max(bytes_read, 1), vector, batch, True)
    exact = not narrow and rows * columns * length >= EXACT and (
        length % (high * batch) == 0 == span % (high * batch))
    plan = plan_of(True, tuple(kinds), (False,) * len(kinds), vector, batch, len(batches),
                   max(len(space.inner), 1), threads, _wide(space), True, 0, 1, exact, -1,
                   max(least * BLOCK // threads, 1), False, False, 1, bool(ahead and exact), narrow)
    made = Cut(plan, words, (wide, high), blocks, chunks if split else 1)
    return _staged(reduction, made) if split else [made]


def _column_kinds(reduction: Reduction, space: Space,
                  vector: int) -> tuple[list[str], int, int]:
    """The kinds of access, and of the operands that are read: bytes of an element, and how many."""
    bytes_read: cython.longlong = 0
    read_operands: cython.longlong = 0
    kinds: list = []
    place: cython.Py_ssize_t
    for place in range(len(reduction.levels)):
        near = _near_kind(space.outer_steps[place][-1])
        if near == VECTOR and reduction.itemsizes[place] * vector > WIDEST:
            near = STEP
        if reduction.levels[place] != EACH:
            near = STEP if near == REPEAT else near
        elif near != REPEAT and place >= reduction.outputs:
            bytes_read += reduction.itemsizes[place]
            read_operands += 1
        kinds.append(near)
    return kinds, bytes_read, read_operands


def _column_words(reduction: Reduction, space: Space, tiles: int, tile: int) -> Words:
    """The words of a column kernel's tail, while nothing is split; ``tile``: a block's columns."""
    outer, inner = space.outer, space.inner
    batches = outer[:-1]
    length = space.length
    words: dict = {"rows": [access.count_of(batches)], "columns": [outer[-1]], "tiles": [tiles],
                   "across": [tiles * tile], "length": [length], "span": [length], "chunks": [1]}
    if len(batches) > 1:
        words.update(access.space_words(batches, "row"))
    if len(inner) > 1:
        words.update(access.space_words(inner, "at"))
    place: cython.Py_ssize_t
    for place in range(len(reduction.steps)):
        steps = list(space.outer_steps[place])
        if inner and reduction.levels[place] == EACH:
            steps += space.inner_steps[place]
        else:
            steps += [0] * max(len(inner), 1)
        words[reduction.steps[place]] = steps
    return words


def _column_chunks(length: int, high: int, blocks: int, joined: int) -> int:
    """Between how many blocks columns are split; ``joined``: bytes that the last one joins."""
    chunks: cython.longlong = min(_blocks(length, high * WALK), SINGLE_BLOCKS // blocks)
    chunks = min(chunks, max(JOINED_BYTES // joined, _blocks(FEW_BLOCKS, blocks)))
    wave: cython.longlong
    for wave in (WAVE, FEW_BLOCKS):
        if blocks * chunks > wave > blocks:
            # Whole waves of blocks.
            return blocks * chunks // wave * wave // blocks
    return chunks


def _column_span(length: int, chunks: int, turn: int) -> int:
    """How far a block walks: a chunk, in whole turns of its threads."""
    span: cython.longlong = _blocks(length, chunks)
    return _blocks(span, turn) * turn if span > turn else span

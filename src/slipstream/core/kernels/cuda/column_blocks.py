"""The sizes of a column kernel's block: threads side by side, and rows of threads."""

from __future__ import annotations

import cython

from slipstream.core.kernels.cuda.access import rounded_up
from slipstream.core.kernels.cuda.measures import (
    BLOCK,
    FEW_BLOCKS,
    NARROW_BLOCK,
    NARROW_ELEMENTS,
    NARROW_LEAST,
    NARROW_LENGTH,
    SECTOR,
    WALK,
    WARP,
)
from slipstream.core.kernels.cuda.spaces import Reduction, Space
from slipstream.core.kernels.cuda.stages import EACH


def column_block(reduction: Reduction, space: Space, vector: int) -> tuple[int, int, int]:
    """The threads side by side of a block, its rows of threads, and the first again if it is
    narrow.

    What a narrow block has does not follow from the length: all lengths share a text.
    """
    length: cython.longlong = space.length
    vectors: cython.longlong = space.outer[-1] // vector
    wide: cython.longlong = rounded_up(vectors)
    high: cython.longlong = max(rounded_up(length // WALK + 1) // 2, 1)
    high = min(high, BLOCK // min(wide, WARP))
    wide = min(wide, BLOCK // high)
    rows: cython.longlong = space.rows // space.outer[-1]
    # Where there are blocks enough all the same, wider ones read longer lines of memory.
    few = (vectors + wide - 1) // wide * rows < FEW_BLOCKS
    narrow: cython.longlong = _narrow(reduction, space, vector) if few else 0
    return (narrow, NARROW_BLOCK // narrow, narrow) if narrow else (wide, high, 0)


def _narrow(reduction: Reduction, space: Space, vector: int) -> int:
    """Threads side by side of a narrow block, 0 where blocks should not be narrow.

    Each has its columns to itself, so that there is nothing to be joined between blocks; a thread
    has few vectors, and warps join what they found in registers.
    """
    length: cython.longlong = space.length
    if not NARROW_LEAST < length <= NARROW_LENGTH or not reduction.single or (
            space.rows * length > NARROW_ELEMENTS):
        return 0
    read: cython.longlong = 1
    place: cython.Py_ssize_t
    for place in range(reduction.outputs, len(reduction.levels)):
        if reduction.levels[place] == EACH and space.outer_steps[place][-1]:
            read = max(read, reduction.itemsizes[place])
    columns: cython.longlong = space.outer[-1]
    narrow: cython.longlong = 2
    while 2 * narrow * vector <= columns and narrow * vector * read < SECTOR:
        narrow *= 2
    # Of very many short columns each block would have next to nothing to do.
    many = space.rows > FEW_BLOCKS * narrow * vector
    return 0 if many or narrow * vector > columns else narrow

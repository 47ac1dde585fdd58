# cython: annotation_typing=False
"""Strides, the memory layouts they describe, and the layouts that new tensors get.

Strides and offsets count elements.  A stride may be zero (a broadcast dim) or negative (a
flipped one); the stride of a dim of size 0 or 1 never matters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

Ints = tuple[int, ...]
# Shape, strides, and how many elements the first one lies after the first of the operand.
Geometry = tuple[Ints, Ints, int]

MAX_BYTES = 2**63 - 1

# Dims of the channels-last formats, innermost first: channels, then space, then batch.
_CHANNELS_LAST = (1, 3, 2, 0)
_CHANNELS_LAST_3D = (1, 4, 3, 2, 0)


def check_sizes(shape: Sequence[int]) -> None:
    """Raise RuntimeError where a size is negative."""
    for size in shape:
        if size < 0:
            raise RuntimeError(
                f"Trying to create tensor with negative dimension {size}: {list(shape)}")


def numel(shape: Sequence[int], itemsize: int = 1) -> int:
    """Number of elements; ValueError where they take more than 2**63 - 1 bytes."""
    count = prod(shape)
    if count * itemsize > MAX_BYTES:
        raise ValueError(f"numel overflow: {list(shape)} elements of {itemsize} bytes")
    return count


def contiguous_strides(shape: Sequence[int]) -> Ints:
    """Row-major strides; a size of zero counts as one, as in PyTorch."""
    return dense_strides(shape, range(len(shape) - 1, -1, -1))


def dense_strides(shape: Sequence[int], order: Sequence[int]) -> Ints:
    """Strides without gaps for dims laid out in ``order``, innermost dim first."""
    strides = [0] * len(shape)
    step = 1
    for dim in order:
        strides[dim] = step
        step *= max(shape[dim], 1)
    return tuple(strides)


def _gapless_strides(shape: Sequence[int], order: Sequence[int]) -> Ints:
    """Like dense_strides, but zero beyond a dim of size zero, as PyTorch has it in places."""
    strides = [0] * len(shape)
    step = 1
    for dim in order:
        strides[dim] = step
        step *= shape[dim]
    return tuple(strides)


def channels_last_strides(shape: Sequence[int]) -> Ints:
    """Strides of a (N, C, H, W) tensor whose channels are innermost; RuntimeError if not 4-d."""
    if len(shape) != 4:
        raise RuntimeError("required rank 4 tensor to use channels_last format")
    return _gapless_strides(shape, _CHANNELS_LAST)


def channels_last_3d_strides(shape: Sequence[int]) -> Ints:
    """Strides of a (N, C, D, H, W) tensor with innermost channels; RuntimeError if not 5-d."""
    if len(shape) != 5:
        raise RuntimeError("required rank 5 tensor to use channels_last_3d format")
    return _gapless_strides(shape, _CHANNELS_LAST_3D)


def is_contiguous(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether elements follow each other in row-major order (always so where there are none)."""
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size == 0:
            return True
        if size != 1 and stride != expected:
            return 0 in shape
        expected *= size
    return True


def is_channels_last(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether a 4-d tensor is laid out densely with its channels innermost."""
    return _is_laid_out(shape, strides, _CHANNELS_LAST)


def is_channels_last_3d(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether a 5-d tensor is laid out densely with its channels innermost."""
    return _is_laid_out(shape, strides, _CHANNELS_LAST_3D)


def _is_laid_out(shape: Sequence[int], strides: Sequence[int], order: Ints) -> bool:
    if len(shape) != len(order):
        return False
    expected = 1
    for dim in order:
        if shape[dim] == 1:
            continue
        if strides[dim] != expected:
            return False
        expected *= shape[dim]
    return True


def is_dense_non_overlapping(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether the elements fill one run of memory from the first on, in some order of dims.

    False for negative strides: their first element is not the lowest.
    """
    if 0 in shape:
        return True
    expected = 1
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if size == 1:
            continue
        if stride != expected:
            return False
        expected *= size
    return True


def element_range(shape: Sequence[int], strides: Sequence[int], offset: int = 0) -> tuple[int, int]:
    """Lowest and highest element touched; the highest is below the lowest if there are none."""
    if 0 in shape:
        return offset, offset - 1
    lowest = highest = offset
    for size, stride in zip(shape, strides, strict=True):
        if stride < 0:
            lowest += (size - 1) * stride
        else:
            highest += (size - 1) * stride
    return lowest, highest


def is_in_order(operands: Sequence[Sequence[int]]) -> bool:
    """Whether every operand's strides fall strictly from dim to dim, zeros left out.

    No pair of dims then speaks against row-major order: nothing is left to sort.
    """
    for strides in operands:
        last = 0
        for dim in range(len(strides) - 1, -1, -1):
            step = strides[dim]
            if step == 0:
                continue
            if step <= last:
                return False
            last = step
    return True


def order_of_dims(shape: Sequence[int], operands: Sequence[Sequence[int]]) -> list[int]:
    """Dims from innermost to outermost, as PyTorch's iterator orders them.

    ``operands`` are strides for the dims of ``shape``, with 0 where an operand is broadcast.
    The first operand that can tell decides; what none can tell keeps row-major order.
    """
    if is_in_order(operands):
        return list(range(len(shape) - 1, -1, -1))

    def compare(a: int, b: int) -> int:
        return _compare_dims(shape, operands, a, b)

    return _insertion_sort(list(range(len(shape) - 1, -1, -1)), compare)


def _insertion_sort(order: list[int], compare: Callable[[int, int], int]) -> list[int]:
    """Sort by a comparison that may be undecided (0): the pair then stays, the search goes on.

    Such a comparison is no order, so that the result depends on the algorithm: this is the one
    that PyTorch's layouts come from.
    """
    for start in range(1, len(order)):
        place = start
        for below in range(start - 1, -1, -1):
            verdict = compare(order[below], order[place])
            if verdict < 0:
                break
            if verdict > 0:
                order[below], order[place] = order[place], order[below]
                place = below
    return order


def _compare_dims(
    shape: Sequence[int], operands: Sequence[Sequence[int]], a: int, b: int,
) -> int:
    """-1 if dim ``a`` lies further in than ``b``, 1 if further out, 0 if nothing tells."""
    for strides in operands:
        inner, outer = abs(strides[a]), abs(strides[b])
        if inner == 0 or outer == 0:
            continue
        if inner != outer:
            return -1 if inner < outer else 1
        if shape[a] > shape[b]:
            return 1
    return 0


def strides_like(shape: Sequence[int], strides: Sequence[int]) -> Ints:
    """Strides of a new tensor that preserves the format of this one.

    Dense layouts are kept; others give dense strides in the same order of dims.
    """
    if is_contiguous(shape, strides) or is_dense_non_overlapping(shape, strides):
        # A dim of one element may run backwards and be contiguous all the same.
        return tuple([abs(stride) for stride in strides])
    return dense_strides(shape, order_of_dims(shape, [strides]))


def output_strides_of_pointwise(
    shape: Sequence[int], operands: Sequence[tuple[Sequence[int], Sequence[int]]],
) -> Ints:
    """Strides of a new output of a pointwise op over operands given as (shape, strides).

    Operands of the output's shape that are all contiguous, all channels-last, or all of the same
    dense strides hand their layout on; otherwise the dims are ordered by the operands' strides.
    A Python number is an operand of shape ``()``.
    """
    shape = tuple(shape)
    if all(tuple(own) == shape for own, _ in operands):
        kept = _common_layout(shape, [strides for _, strides in operands])
        if kept is not None:
            return kept
    order = order_of_dims(shape, [_aligned(shape, *operand) for operand in operands])
    if order == list(range(len(shape) - 1, -1, -1)):
        return contiguous_strides(shape)
    return _gapless_strides(shape, order)


def _common_layout(shape: Ints, operands: Sequence[Sequence[int]]) -> Ints | None:
    if all(is_contiguous(shape, strides) for strides in operands):
        return contiguous_strides(shape)
    if all(is_channels_last(shape, strides) for strides in operands):
        return channels_last_strides(shape)
    first = tuple(operands[0])
    if is_dense_non_overlapping(shape, first) and all(tuple(s) == first for s in operands):
        return first
    return None


def _aligned(shape: Ints, own_shape: Sequence[int], own_strides: Sequence[int]) -> Ints:
    """The operand's strides for the dims of ``shape``: 0 where it is broadcast."""
    lead = len(shape) - len(own_shape)
    stretched = zip(own_shape, own_strides, shape[lead:], strict=True)
    return (0,) * lead + tuple(
        0 if own == 1 and size != 1 else stride for own, stride, size in stretched)

# cython: annotation_typing=False
"""Collapsing: the fewest dims that walk the same elements of several operands in step."""

from __future__ import annotations

from collections.abc import Sequence

from slipstream.core.shapes.strides import Ints, is_in_order, order_of_dims


def collapse(
    shape: Sequence[int], operands: Sequence[Sequence[int]], sort: bool = False,
) -> tuple[Ints, tuple[Ints, ...]]:
    """Merged shape and each operand's strides for it, outermost dim first.

    Dims of size one go; neighbours merge where every operand walks them with one step, that is
    where ``stride[outer] == size[inner] * stride[inner]``.  With ``sort`` dims are first put in
    the order of their strides, the first operand that can tell deciding; that is right only
    where the order of visits does not matter.  No elements: shape ``(0,)``, strides ``(1,)``.
    """
    if 0 in shape:
        return (0,), ((1,),) * len(operands)
    dims = [dim for dim, size in enumerate(shape) if size != 1]
    if sort and len(dims) > 1 and not is_in_order(operands):
        ranked = order_of_dims(shape, operands)
        dims = [dim for dim in reversed(ranked) if shape[dim] != 1]
    sizes: list[int] = []
    columns: list[list[int]] = []
    for dim in dims:
        steps = [strides[dim] for strides in operands]
        size = shape[dim]
        if columns and columns[-1] == [size * step for step in steps]:
            sizes[-1] *= size
            columns[-1] = steps
        else:
            sizes.append(size)
            columns.append(steps)
    return tuple(sizes), tuple([
        tuple([column[number] for column in columns]) for number in range(len(operands))])

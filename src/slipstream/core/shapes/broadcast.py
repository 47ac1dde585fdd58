# cython: annotation_typing=False
"""Broadcasting: shapes aligned at the last dim, where a size of one stretches."""

from __future__ import annotations

from collections.abc import Sequence

from slipstream.core.shapes.strides import Ints


def broadcast_shapes(*shapes: Sequence[int]) -> Ints:
    """The shape that all shapes broadcast to; RuntimeError names the first dim that clashes."""
    result: Ints = ()
    for shape in shapes:
        shape = tuple(shape)
        if shape != result:
            result = _broadcast_two(result, shape) if result else shape
    return result


def _broadcast_two(a: Ints, b: Ints) -> Ints:
    rank = max(len(a), len(b))
    left = (1,) * (rank - len(a)) + a
    right = (1,) * (rank - len(b)) + b
    for dim in range(rank - 1, -1, -1):
        if left[dim] != right[dim] and left[dim] != 1 and right[dim] != 1:
            raise RuntimeError(
                f"The size of tensor a ({left[dim]}) must match the size of tensor b "
                f"({right[dim]}) at non-singleton dimension {dim}")
    return tuple(y if x == 1 else x for x, y in zip(left, right, strict=True))


def broadcast_strides(
    shape: Sequence[int], strides: Sequence[int], to_shape: Sequence[int],
) -> Ints:
    """Strides that read a tensor as if it had ``to_shape``: 0 in the dims that stretch.

    RuntimeError where ``shape`` does not broadcast to ``to_shape``.
    """
    lead = len(to_shape) - len(shape)
    if lead < 0:
        raise RuntimeError(f"shape {list(shape)} has more dims than {list(to_shape)}")
    result = [0] * lead
    for dim, (size, stride) in enumerate(zip(shape, strides, strict=True), lead):
        if size == to_shape[dim]:
            result.append(stride)
        elif size == 1:
            result.append(0)
        else:
            raise RuntimeError(
                f"size {size} does not broadcast to {to_shape[dim]} at dimension {dim}: "
                f"{list(shape)} to {list(to_shape)}")
    return tuple(result)


def expand_shape(shape: Sequence[int], sizes: Sequence[int]) -> Ints:
    """The shape that ``expand(sizes)`` gives, where -1 keeps a size.  RuntimeError if it cannot."""
    lead = len(sizes) - len(shape)
    if lead < 0:
        raise RuntimeError(
            f"the number of sizes provided ({len(sizes)}) must be greater or equal to the number "
            f"of dimensions in the tensor ({len(shape)})")
    for dim in range(lead):
        if sizes[dim] < 0:
            raise RuntimeError(
                f"The expanded size of the tensor ({sizes[dim]}) isn't allowed in a leading, "
                f"non-existing dimension {dim}")
    result = list(sizes[:lead])
    for dim, own in enumerate(shape, lead):
        wanted = own if sizes[dim] == -1 else sizes[dim]
        if wanted != own and (own != 1 or wanted < 0):
            raise RuntimeError(
                f"The expanded size of the tensor ({wanted}) must match the existing size ({own}) "
                f"at non-singleton dimension {dim}.  Target sizes: {list(sizes)}.  "
                f"Tensor sizes: {list(shape)}")
        result.append(wanted)
    return tuple(result)


def reduce_dims_for(shape: Sequence[int], target: Sequence[int]) -> Ints:
    """Dims of ``shape`` to sum so that what is left, reshaped, is ``target``.

    These are the dims that broadcasting ``target`` to ``shape`` added or stretched.
    RuntimeError where ``target`` does not broadcast to ``shape``.
    """
    lead = len(shape) - len(target)
    if lead < 0:
        raise RuntimeError(f"size {list(target)} is not expandable to size {list(shape)}")
    dims = list(range(lead))
    for dim, size in enumerate(target, lead):
        if size == shape[dim]:
            continue
        if size != 1:
            raise RuntimeError(f"size {list(target)} is not expandable to size {list(shape)}")
        dims.append(dim)
    return tuple(dims)

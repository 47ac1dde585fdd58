# cython: annotation_typing=False
"""Views: the geometry of tensors that share another's memory.

Functions named after a PyTorch view take ``shape`` and ``strides`` and return
``(shape, strides, offset_delta)``: the delta is where the first element of the view lies, in
elements from the first of the operand.  Dims may be negative; IndexError where out of range.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from slipstream.core.shapes.broadcast import expand_shape
from slipstream.core.shapes.strides import (
    Geometry,
    Ints,
    check_sizes,
    contiguous_strides,
    element_range,
)


def normalize_dim(dim: int, rank: int, wrap_scalar: bool = True) -> int:
    """``dim`` counted from the front; a 0-d tensor has the dims -1 and 0 if ``wrap_scalar``."""
    bound = rank
    if rank == 0:
        if not wrap_scalar:
            raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
        bound = 1
    if not -bound <= dim < bound:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-bound}, {bound - 1}], "
            f"but got {dim})")
    return dim + bound if dim < 0 else dim


def normalize_dims(dims: Sequence[int], rank: int, wrap_scalar: bool = True) -> Ints:
    """All of ``dims`` counted from the front, in their order; RuntimeError on duplicates."""
    result: list[int] = []
    for dim in dims:
        dim = normalize_dim(dim, rank, wrap_scalar)
        if dim in result:
            raise RuntimeError(f"dim {dim} appears multiple times in the list of dims")
        result.append(dim)
    return tuple(result)


def infer_shape(numel: int, shape: Sequence[int]) -> Ints:
    """``shape`` with its one -1 replaced so that it holds ``numel`` elements.

    RuntimeError for other negative sizes, two of -1, or sizes that do not fit.
    """
    shape = tuple(shape)
    for place, size in enumerate(shape):
        if size < -1:
            raise RuntimeError(
                f"invalid shape dimension {size} at index {place} of shape {list(shape)}")
    if shape.count(-1) > 1:
        raise RuntimeError("only one dimension can be inferred")
    known = prod(size for size in shape if size >= 0)
    if -1 not in shape:
        if known == numel:
            return shape
    elif known == 0 and numel == 0:
        raise RuntimeError(
            f"cannot reshape tensor of 0 elements into shape {list(shape)} because the "
            f"unspecified dimension size -1 can be any value and is ambiguous")
    elif known > 0 and numel % known == 0:
        return tuple(numel // known if size == -1 else size for size in shape)
    raise RuntimeError(f"shape '{list(shape)}' is invalid for input of size {numel}")


def view_strides(
    shape: Sequence[int], strides: Sequence[int], new_shape: Sequence[int],
) -> Ints | None:
    """Strides with which the same memory has ``new_shape``, or None where only a copy can.

    Both shapes must hold the same number of elements.
    """
    if 0 in shape:
        same = tuple(shape) == tuple(new_shape)
        return tuple(strides) if same else contiguous_strides(new_shape)
    result: list[int] = []
    pending = len(new_shape) - 1
    for size, step in _runs(shape, strides):
        # Hand out new dims, innermost first, until they use up this run exactly.
        covered = 1
        while pending >= 0 and (covered < size or new_shape[pending] == 1):
            result.append(covered * step)
            covered *= new_shape[pending]
            pending -= 1
        if covered != size:
            return None
    return tuple(reversed(result))


def _runs(shape: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int]]:
    """Maximal groups of dims walked with one step, innermost first, as (elements, step)."""
    groups: list[tuple[int, int]] = []
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if groups and (size == 1 or stride == groups[-1][0] * groups[-1][1]):
            groups[-1] = (groups[-1][0] * size, groups[-1][1])
        else:
            groups.append((size, stride))
    return groups or [(1, 1)]


def view(shape: Sequence[int], strides: Sequence[int], new_shape: Sequence[int]) -> Geometry:
    """A view of ``new_shape`` (may hold one -1); RuntimeError where only a copy could have it."""
    new_shape = infer_shape(prod(shape), new_shape)
    found = view_strides(shape, strides, new_shape)
    if found is None:
        raise RuntimeError(
            "view size is not compatible with input tensor's size and stride (at least one "
            "dimension spans across two contiguous subspaces). Use .reshape(...) instead.")
    return new_shape, found, 0


def permute(shape: Sequence[int], strides: Sequence[int], dims: Sequence[int]) -> Geometry:
    """Dims in the order ``dims``; RuntimeError unless each is named once."""
    if len(dims) != len(shape):
        raise RuntimeError(
            f"permute(): number of dimensions in the tensor input does not match the length of "
            f"the desired ordering of dimensions i.e. input.dim() = {len(shape)} is not equal to "
            f"len(dims) = {len(dims)}")
    order = [normalize_dim(dim, len(shape)) for dim in dims]
    if len(set(order)) != len(order):
        raise RuntimeError("permute(): duplicate dims are not allowed.")
    return tuple([shape[dim] for dim in order]), tuple([strides[dim] for dim in order]), 0


def transpose(shape: Sequence[int], strides: Sequence[int], dim0: int, dim1: int) -> Geometry:
    """Dims ``dim0`` and ``dim1`` swapped."""
    dim0, dim1 = normalize_dim(dim0, len(shape)), normalize_dim(dim1, len(shape))
    sizes, steps = list(shape), list(strides)
    if sizes:
        sizes[dim0], sizes[dim1] = sizes[dim1], sizes[dim0]
        steps[dim0], steps[dim1] = steps[dim1], steps[dim0]
    return tuple(sizes), tuple(steps), 0


def squeeze(
    shape: Sequence[int], strides: Sequence[int], dims: int | Sequence[int] | None = None,
) -> Geometry:
    """Without the dims of size one among ``dims`` (one, several, or None for all)."""
    rank = len(shape)
    if dims is None:
        among = tuple(range(rank))
    else:
        among = normalize_dims((dims,) if isinstance(dims, int) else dims, rank)
    kept = [dim for dim in range(rank) if dim not in among or shape[dim] != 1]
    return tuple(shape[dim] for dim in kept), tuple(strides[dim] for dim in kept), 0


def unsqueeze(shape: Sequence[int], strides: Sequence[int], dim: int) -> Geometry:
    """With a dim of size one before dim ``dim``, in the range [-rank - 1, rank]."""
    dim = normalize_dim(dim, len(shape) + 1)
    stride = shape[dim] * strides[dim] if dim < len(shape) else 1
    return (*shape[:dim], 1, *shape[dim:]), (*strides[:dim], stride, *strides[dim:]), 0


def select(shape: Sequence[int], strides: Sequence[int], dim: int, index: int) -> Geometry:
    """Element ``index`` along ``dim``, which disappears; IndexError where there is none."""
    if not shape:
        raise IndexError("select() cannot be applied to a 0-dim tensor.")
    dim = normalize_dim(dim, len(shape))
    size = shape[dim]
    if not -size <= index < size:
        raise IndexError(
            f"select(): index {index} out of range for tensor of size {list(shape)} "
            f"at dimension {dim}")
    index = index + size if index < 0 else index
    return (*shape[:dim], *shape[dim + 1:]), (*strides[:dim], *strides[dim + 1:]), (
        index * strides[dim])


def narrow(
    shape: Sequence[int], strides: Sequence[int], dim: int, start: int, length: int,
) -> Geometry:
    """``length`` elements from ``start`` along ``dim``; does not clamp: raises."""
    if not shape:
        raise RuntimeError("narrow() cannot be applied to a 0-dim tensor.")
    if length < 0:
        raise RuntimeError("narrow(): length must be non-negative.")
    dim = normalize_dim(dim, len(shape))
    size = shape[dim]
    if not -size <= start <= size:
        raise IndexError(
            f"start out of range (expected to be in range of [{-size}, {size}], but got {start})")
    start = start + size if start < 0 else start
    if start + length > size:
        raise RuntimeError(
            f"start ({start}) + length ({length}) exceeds dimension size ({size}).")
    return _resized(shape, dim, length), tuple(strides), start * strides[dim]


def _resized(values: Sequence[int], dim: int, value: int) -> Ints:
    return (*values[:dim], value, *values[dim + 1:])


def slice_(
    shape: Sequence[int], strides: Sequence[int], dim: int,
    start: int | None = None, stop: int | None = None, step: int | None = None,
) -> Geometry:
    """Part of ``dim`` with Python's rules for slices: bounds clamp, steps may be negative.

    ValueError for step zero; IndexError for a 0-d tensor.
    """
    if not shape:
        raise IndexError("slice() cannot be applied to a 0-dim tensor.")
    dim = normalize_dim(dim, len(shape))
    size, stride, delta = slice_dim(shape[dim], strides[dim], slice(start, stop, step))
    return _resized(shape, dim, size), _resized(strides, dim, stride), delta


def slice_dim(size: int, stride: int, key: slice) -> tuple[int, int, int]:
    """Size, stride and offset delta that slice ``key`` leaves of a dim."""
    start, stop, step = key.indices(size)
    count = len(range(start, stop, step))
    # A start at the very end points behind the last element: no address may be made of it.
    return count, stride * step, start * stride if count else 0


def expand(shape: Sequence[int], strides: Sequence[int], sizes: Sequence[int]) -> Geometry:
    """Broadcast to ``sizes`` (-1 keeps a size): stretched dims get stride 0."""
    to_shape = expand_shape(shape, sizes)
    if not shape:
        return to_shape, (0,) * len(to_shape), 0
    lead = len(to_shape) - len(shape)
    result = [
        stride if own == size else 0
        for own, stride, size in zip(shape, strides, to_shape[lead:], strict=True)]
    for dim in range(lead - 1, -1, -1):
        result.insert(0, to_shape[dim + 1] * result[0] if to_shape[dim] == 1 else 0)
    return to_shape, tuple(result), 0


def diagonal(
    shape: Sequence[int], strides: Sequence[int], offset: int = 0, dim1: int = 0, dim2: int = 1,
) -> Geometry:
    """The diagonal ``offset`` above the main one of dims ``dim1`` x ``dim2``, as the last dim."""
    rank = len(shape)
    named = f"{dim1}, {dim2}"
    dim1, dim2 = normalize_dim(dim1, rank), normalize_dim(dim2, rank)
    if dim1 == dim2:
        raise RuntimeError(f"diagonal dimensions cannot be identical {named}")
    rows, columns = max(-offset, 0), max(offset, 0)
    size = max(min(shape[dim1] - rows, shape[dim2] - columns), 0)
    delta = rows * strides[dim1] + columns * strides[dim2] if size else 0
    others = [dim for dim in range(rank) if dim not in (dim1, dim2)]
    return (
        (*(shape[dim] for dim in others), size),
        (*(strides[dim] for dim in others), strides[dim1] + strides[dim2]),
        delta,
    )


def unfold(
    shape: Sequence[int], strides: Sequence[int], dim: int, size: int, step: int,
) -> Geometry:
    """Windows of ``size`` elements at every ``step`` along ``dim``; the window is the last dim."""
    dim = normalize_dim(dim, len(shape))
    bound = shape[dim] if shape else 1
    if size < 0:
        raise RuntimeError(f"size is {size} but must be >= 0")
    if size > bound:
        raise RuntimeError(
            f"maximum size for tensor at dimension {dim} is {bound} but size is {size}")
    if step <= 0:
        raise RuntimeError(f"step is {step} but must be > 0")
    if not shape:
        return (size,), (1,), 0
    windows = (bound - size) // step + 1
    return (
        (*_resized(shape, dim, windows), size),
        (*_resized(strides, dim, strides[dim] * step), strides[dim]),
        0,
    )


def flatten_shape(shape: Sequence[int], start_dim: int = 0, end_dim: int = -1) -> Ints:
    """The shape with dims ``start_dim`` to ``end_dim`` made one; a 0-d tensor gets one dim."""
    rank = len(shape)
    start, end = normalize_dim(start_dim, rank), normalize_dim(end_dim, rank)
    if start > end:
        raise RuntimeError("flatten() has invalid args: start_dim cannot come after end_dim")
    if not shape:
        return (1,)
    return (*shape[:start], prod(shape[start:end + 1]), *shape[end + 1:])


def unflatten_shape(shape: Sequence[int], dim: int, sizes: Sequence[int]) -> Ints:
    """The shape with ``dim`` split in ``sizes`` (may hold one -1); RuntimeError if they clash."""
    if not sizes:
        raise RuntimeError("unflatten: sizes must be non-empty")
    dim = normalize_dim(dim, len(shape), wrap_scalar=False)
    return (*shape[:dim], *infer_shape(shape[dim], sizes), *shape[dim + 1:])


def movedim_order(
    rank: int, source: int | Sequence[int], destination: int | Sequence[int],
) -> Ints:
    """The order of dims, for ``permute``, that moves ``source`` dims to ``destination``."""
    sources = [source] if isinstance(source, int) else list(source)
    targets = [destination] if isinstance(destination, int) else list(destination)
    if len(sources) != len(targets):
        raise RuntimeError(
            f"movedim: Invalid source or destination dims: source ({sources} dims) should contain "
            f"the same number of dims as destination ({targets} dims)")
    wrapped_sources = [normalize_dim(dim, rank) for dim in sources]
    wrapped_targets = [normalize_dim(dim, rank) for dim in targets]
    _check_distinct(wrapped_sources, sources, "source")
    _check_distinct(wrapped_targets, targets, "destination")
    if rank == 0:
        return ()
    order = dict(zip(wrapped_targets, wrapped_sources, strict=True))
    others = (dim for dim in range(rank) if dim not in wrapped_sources)
    return tuple(order[dim] if dim in order else next(others) for dim in range(rank))


def _check_distinct(wrapped: list[int], written: list[int], role: str) -> None:
    if len(set(wrapped)) != len(wrapped):
        raise RuntimeError(f"movedim: repeated dim in `{role}` ({written})")


def flip(shape: Sequence[int], strides: Sequence[int], dims: Sequence[int]) -> Geometry:
    """Dims ``dims`` walked backwards, as a view with negative strides."""
    among = normalize_dims(dims, len(shape))
    if not shape or 0 in shape:
        return tuple(shape), tuple(strides), 0
    delta = sum((shape[dim] - 1) * strides[dim] for dim in among)
    turned = tuple(-stride if dim in among else stride for dim, stride in enumerate(strides))
    return tuple(shape), turned, delta


def view_dtype(
    shape: Sequence[int], strides: Sequence[int], before: int, after: int,
) -> Geometry:
    """The same bytes as elements of ``after`` bytes instead of ``before``; the last dim changes.

    RuntimeError for 0-d tensors of another size, and where elements would not lie together.
    """
    if before == after:
        return tuple(shape), tuple(strides), 0
    if not shape:
        raise RuntimeError("self.dim() cannot be 0 to view a tensor as a dtype of another element "
                           f"size ({before} to {after} bytes)")
    if strides[-1] != 1 and shape[-1] > 1:
        raise RuntimeError("self.stride(-1) must be 1 to view a tensor as a dtype of another "
                           f"element size, but got {strides[-1]}\n  mend: contiguous() first")
    if before > after:
        ratio = before // after
        return (*shape[:-1], shape[-1] * ratio), (*[s * ratio for s in strides[:-1]], 1), 0
    ratio = after // before
    if shape[-1] % ratio:
        raise RuntimeError(f"self.size(-1) must be divisible by {ratio} to view elements of "
                           f"{before} bytes as such of {after}, but got {shape[-1]}")
    wide = [(stride, size) for stride, size in zip(strides[:-1], shape[:-1], strict=True)
            if size != 1]
    if any(stride % ratio for stride, _ in wide):
        raise RuntimeError(f"self.stride() must be divisible by {ratio} to view elements of "
                           f"{before} bytes as such of {after}, but got {list(strides)}")
    return (*shape[:-1], shape[-1] // ratio), (*[s // ratio for s in strides[:-1]], 1), 0


def check_as_strided(
    shape: Sequence[int], strides: Sequence[int], offset: int, storage_numel: int,
) -> None:
    """Raise RuntimeError unless the geometry stays in a storage of ``storage_numel`` elements.

    Negative strides are fine where their lowest element is in the storage.
    """
    if len(shape) != len(strides):
        raise RuntimeError("mismatch in length of strides and shape")
    check_sizes(shape)
    if offset < 0:
        raise RuntimeError(f"Tensor: invalid storage offset {offset}")
    lowest, highest = element_range(shape, strides, offset)
    if lowest <= highest and (lowest < 0 or highest >= storage_numel):
        raise RuntimeError(
            f"sizes {list(shape)}, strides {list(strides)}, storage offset {offset} touch "
            f"elements {lowest} to {highest}, out of bounds for storage of {storage_numel}")

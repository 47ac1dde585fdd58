"""Index plans: what ``tensor[index]`` reads or writes, before any element is touched.

Integers, slices, None and the ellipsis give a view.  Tensors, arrays and lists stand in the
index as `Advanced` placeholders; they index dims of that view, as in PyTorch: an integer beside
them selects first and does not count as one of them.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace
from math import prod

from slipstream.core.shapes.broadcast import broadcast_shapes
from slipstream.core.shapes.strides import Ints
from slipstream.core.shapes.views import slice_dim


class Advanced:
    """Stands for a tensor in an index: its shape, and whether it is a boolean mask.

    ``count`` is how many elements a mask selects, None while nobody has counted.
    """

    __slots__ = ("count", "is_bool", "shape")

    def __init__(self, shape: Ints, is_bool: bool = False, count: int | None = None) -> None:
        self.shape = tuple(shape)
        self.is_bool = is_bool
        self.count = count

    def __repr__(self) -> str:
        return f"Advanced({self.shape}, is_bool={self.is_bool})"

    @property
    def index_shape(self) -> Ints | None:
        """Shape of the integer indices it stands for; None for a mask not counted."""
        if not self.is_bool:
            return self.shape
        return None if self.count is None else (self.count,)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Use:
    """One advanced index: the placeholder, and the dims of the view that it indexes.

    An integer tensor indexes one dim; a mask as many as it has; a Python bool, whose ``source``
    counts its one or zero elements, none.
    """

    source: Advanced
    dims: Ints
    is_python_bool: bool = False


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class IndexPlan:
    """The basic view, and what advanced indices do with it.

    ``shape``, ``strides`` and ``offset_delta`` describe the view; ``uses`` the advanced indices
    in the order in which they were written; ``kept_dims`` the dims of the view that none of them
    indexes; ``position`` how many kept dims come before the index dims in the result.
    """

    shape: Ints
    strides: Ints
    offset_delta: int
    uses: tuple[Use, ...] = ()
    kept_dims: Ints = ()
    position: int = 0

    @property
    def is_view(self) -> bool:
        """Whether the result shares memory with the operand."""
        return not self.uses

    @property
    def index_shape(self) -> Ints | None:
        """What the advanced indices broadcast to; None while a mask is not counted."""
        shapes = [use.source.index_shape for use in self.uses]
        known = [shape for shape in shapes if shape is not None]
        if len(known) != len(shapes):
            return None
        return _broadcast_indices(known)

    @property
    def result_shape(self) -> Ints | None:
        """Shape of ``tensor[index]``; None while a mask is not counted."""
        if not self.uses:
            return self.shape
        index_shape = self.index_shape
        if index_shape is None:
            return None
        kept = tuple(self.shape[dim] for dim in self.kept_dims)
        return kept[:self.position] + index_shape + kept[self.position:]

    def with_counts(self, counts: tuple[int, ...]) -> IndexPlan:
        """The plan once masks are counted: ``counts`` has one number for each, in their order.

        IndexError where the counts do not broadcast with the other indices.
        """
        remaining = iter(counts)
        uses = tuple(
            replace(use, source=Advanced(use.source.shape, True, next(remaining)))
            if use.source.is_bool and not use.is_python_bool else use
            for use in self.uses)
        plan = replace(self, uses=uses)
        plan.check_bounds()
        return plan

    def check_bounds(self) -> None:
        """Raise IndexError if indices do not broadcast, or index a dim that has no elements."""
        index_shape = self.index_shape
        if index_shape is None or prod(index_shape) == 0:
            return
        indexed = [dim for use in self.uses if not use.source.is_bool for dim in use.dims]
        if any(self.shape[dim] == 0 for dim in indexed):
            raise IndexError("index is out of bounds for dimension with size 0")


def plan_index(shape: Ints, strides: Ints, index: object) -> IndexPlan:
    """Plan ``tensor[index]`` for a tensor of ``shape`` and ``strides``.

    Raises IndexError for too many indices, an integer out of range, a mask of another shape,
    indices that do not broadcast, and kinds of index that do not exist; ValueError for a slice
    step of zero.  Slice bounds out of range clamp.
    """
    items = index if isinstance(index, tuple) else (index,)
    if not shape and len(items) == 1 and _is_integer(items[0]):
        raise IndexError("invalid index of a 0-dim tensor; use tensor.item() for its value")
    planner = _Planner(shape, strides)
    remaining = len(shape) - sum(_dims_taken(item) for item in items)
    if remaining < 0:
        raise IndexError(f"too many indices for tensor of dimension {len(shape)}")
    if sum(item is Ellipsis for item in items) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    for item in items:
        if item is Ellipsis:
            planner.keep(remaining)
        else:
            planner.take(item)
    planner.keep(len(shape) - planner.dim)
    return planner.plan()


def _is_integer(item: object) -> bool:
    return not isinstance(item, (bool, Advanced)) and hasattr(item, "__index__")


def _dims_taken(item: object) -> int:
    """How many dims of the tensor an item of the index uses up."""
    if item is None or item is Ellipsis or isinstance(item, bool):
        return 0
    if isinstance(item, Advanced):
        return len(item.shape) if item.is_bool else 1
    if isinstance(item, slice) or _is_integer(item):
        return 1
    raise IndexError(
        "only integers, slices (`:`), ellipsis (`...`), None and long, int, byte or bool tensors "
        f"are valid indices (got {type(item).__name__})")


def _broadcast_indices(shapes: list[Ints]) -> Ints:
    try:
        return broadcast_shapes(*shapes)
    except RuntimeError:
        listed = ", ".join(str(list(shape)) for shape in shapes)
        raise IndexError(
            "shape mismatch: indexing tensors could not be broadcast together with shapes "
            f"{listed}") from None


class _Planner:
    """Walks the dims of a tensor as the items of an index use them up."""

    def __init__(self, shape: Ints, strides: Ints) -> None:
        self.in_shape = shape
        self.in_strides = strides
        self.dim = 0
        self.delta = 0
        self.sizes: list[int] = []
        self.strides: list[int] = []
        self.uses: list[Use] = []
        # For each advanced index that has dims of its own: how many kept dims precede it.
        self.places: list[int] = []
        self.kept: list[int] = []

    def take(self, item: object) -> None:
        if item is None:
            self._add(1, self._stride_of_new_dim())
        elif isinstance(item, bool):
            self._use(Use(Advanced((), True, int(item)), (), True))
        elif isinstance(item, Advanced):
            self._advance(item)
        elif isinstance(item, slice):
            self._slice(item)
        else:
            self._select(operator.index(item))  # type: ignore[arg-type]

    def keep(self, count: int) -> None:
        for _ in range(count):
            self._add(self.in_shape[self.dim], self.in_strides[self.dim])
            self.dim += 1

    def _add(self, size: int, stride: int) -> None:
        self.kept.append(len(self.sizes))
        self.sizes.append(size)
        self.strides.append(stride)

    def _stride_of_new_dim(self) -> int:
        if self.dim == len(self.in_shape):
            return 1
        return self.in_shape[self.dim] * self.in_strides[self.dim]

    def _slice(self, key: slice) -> None:
        if not self.in_shape:
            raise IndexError("slice() cannot be applied to a 0-dim tensor.")
        size, stride, delta = slice_dim(self.in_shape[self.dim], self.in_strides[self.dim], key)
        self._add(size, stride)
        self.delta += delta
        self.dim += 1

    def _select(self, index: int) -> None:
        size = self.in_shape[self.dim]
        if not -size <= index < size:
            raise IndexError(
                f"index {index} is out of bounds for dimension {self.dim} with size {size}")
        self.delta += (index + size if index < 0 else index) * self.in_strides[self.dim]
        self.dim += 1

    def _advance(self, item: Advanced) -> None:
        rank = len(item.shape) if item.is_bool else 1
        if item.is_bool:
            self._check_mask(item.shape)
        first = len(self.sizes)
        self.sizes += self.in_shape[self.dim:self.dim + rank]
        self.strides += self.in_strides[self.dim:self.dim + rank]
        self.dim += rank
        self._use(Use(item, tuple(range(first, first + rank))))

    def _check_mask(self, mask: Ints) -> None:
        for place, size in enumerate(mask):
            if size != self.in_shape[self.dim + place]:
                raise IndexError(
                    f"The shape of the mask {list(mask)} at index {place} does not match the shape "
                    f"of the indexed tensor {list(self.in_shape)} at index {self.dim + place}")

    def _use(self, use: Use) -> None:
        self.uses.append(use)
        # A 0-d integer tensor selects, like an integer: it does not separate or place others.
        if use.source.is_bool or use.source.shape:
            self.places.append(len(self.kept))

    def plan(self) -> IndexPlan:
        adjacent = bool(self.places) and self.places[0] == self.places[-1]
        plan = IndexPlan(
            tuple(self.sizes), tuple(self.strides), self.delta, tuple(self.uses),
            tuple(self.kept), self.places[0] if adjacent else 0)
        plan.check_bounds()
        return plan

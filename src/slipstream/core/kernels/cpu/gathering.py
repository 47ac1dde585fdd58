"""Index loops on raw memory: gather, scatter, index_put, masks, copies of strided blocks.

One walk serves all: positions of a shape in row-major order, where target, source and every index
tensor have strides of their own (any, 0 and negative too), and each index tensor's value shifts one
side by ``value * step``:

* gather(dim), index_select, embedding, take, ``x[i, j]``: kind ``read``; the source is indexed;
* scatter(dim), index_copy, index_fill, ``x[i, j] = v``: kind ``write``; the target is indexed and
  the last of several writes in position order stays;
* scatter_add, index_add, ``index_put(accumulate=True)``: kind ``add``; in position order too, so
  the sum's rounding is always the same (float16 and bfloat16: see ``narrow_sums``);
* copies and the pieces of cat: kind ``read`` without indices.

The indexed side has stride 0 along the dims of the index tensors.  For gather(dim) of ``source``:
``GatherBinding(dtype, index.shape, out.strides, strides of source with 0 at dim,
(IndexOperand(index.strides, source.strides[dim], source.shape[dim]),), "read")``.

Elements are moved as 1, 2, 4, 8 or 16 bytes.  A bad index stops the walk before it touches memory.
"""

# The C functions are declared in the .pxd.
# ruff: noqa: F821
# mypy: disable-error-code="name-defined"
from __future__ import annotations

import struct
from math import prod
from typing import Any

import cython

from slipstream.core.kernels.cpu import gathering_arrays
from slipstream.core.kernels.cpu.gathering_arrays import IndexOperand
from slipstream.core.shapes.collapse import collapse
from slipstream.core.vocab.dtypes import DType

Ints = tuple[int, ...]
KINDS = ("read", "write", "add")
# Ways through the innermost dims: one index for each element, one for each row, a turned copy.
ELEMENTS, ROWS, PLANE = 0, 1, 2
# What a walk with a mask does.
COUNT_TRUE = 0
NONZERO = 1
SELECT = 2
SPREAD = 3
# Below this many elements letting go of the GIL costs more than it gives.
SMALL = 16384
LIMIT = 64


def _pack(words: list[int]) -> bytes:
    return struct.pack(f"={len(words)}q", *words)


def _merged(shape: Ints, operands: list[Ints], sort: bool) -> tuple[Ints, list[Ints]]:
    """The fewest dims, at least one; see ``collapse``."""
    sizes, strides = collapse(shape, operands, sort)
    if not sizes:
        return (1,), [(0,)] * len(operands)
    return sizes, list(strides)


def _turned(shape: Ints, strides: list[Ints]) -> tuple[Ints, list[Ints], bool]:
    """Bring the dim in which a copy's source runs next to the last; tell whether it is another.

    The target runs in the last dim: a copy that turns the two is done in tiles.
    """
    last = len(shape) - 1
    steps = [abs(stride) for stride in strides[1]]
    runs = min(range(len(shape)), key=lambda dim: (steps[dim], -dim))
    if runs == last:
        return shape, strides, False
    order = [dim for dim in range(last) if dim != runs] + [runs, last]
    turned = [tuple(walk[dim] for dim in order) for walk in strides]
    return tuple(shape[dim] for dim in order), turned, True


class GatherBinding:
    """What a plan fixes about a walk; see the module's docstring.

    Strides are in elements; ``kind`` is read, write or add.  Raises ValueError for another kind
    and for more than 64 dims or index tensors.
    """

    def __init__(
        self, dtype: DType, shape: Ints, target_strides: Ints, source_strides: Ints,
        indices: tuple[IndexOperand, ...] = (), kind: str = "read",
    ) -> None:
        if kind not in KINDS:
            raise ValueError(f"kind {kind!r} is none of {KINDS}")
        if len(shape) > LIMIT or len(indices) > LIMIT:
            raise ValueError(f"more than {LIMIT} dims or index tensors")
        self.dtype = dtype
        self.kind = kind
        self.shape = tuple(shape)
        self.target_strides = tuple(target_strides)
        self.source_strides = tuple(source_strides)
        self.indices = tuple(indices)
        self.numel = prod(self.shape)
        self.count = len(self.indices)
        self.packed = self._packed()

    def _packed(self) -> bytes:
        """The binding as the C loops read it."""
        adds = self.kind == "add"
        operands = [self.target_strides, self.source_strides]
        operands += [index.strides for index in self.indices]
        copies = not self.indices and not adds
        shape, strides = _merged(self.shape, operands, copies)
        way = ELEMENTS
        last = len(shape) - 1
        if copies:
            shape, strides, turned = _turned(shape, strides)
            way = PLANE if turned else ELEMENTS
        elif self.indices and last and not any(walk[last] for walk in strides[2:]):
            way = ROWS
        item = self.dtype.itemsize
        words = [len(shape), self.count, int(adds), int(self.kind != "read"),
                 self.dtype.code if adds else item, way, *shape]
        words += [stride * item for walk in strides[:2] for stride in walk]
        for index, walk in zip(self.indices, strides[2:], strict=True):
            words += [index.step * item, index.size, index.itemsize, int(index.wraps)]
            words += [stride * index.itemsize for stride in walk]
        return _pack(words)


class MaskBinding:
    """What a plan fixes about a walk with a bool mask: strides of data and mask, in elements."""

    def __init__(self, dtype: DType, shape: Ints, strides: Ints, mask_strides: Ints) -> None:
        self.dtype = dtype
        self.shape = tuple(shape)
        self.strides = tuple(strides)
        self.mask_strides = tuple(mask_strides)
        self.numel = prod(self.shape)
        item = dtype.itemsize
        sizes, (data, mask) = _merged(self.shape, [self.strides, self.mask_strides], False)
        head = [len(sizes), item, *sizes]
        self.packed = _pack([*head, *(stride * item for stride in data), *mask])
        # Coordinates need the dims as they are.
        sizes, mask = (self.shape, self.mask_strides) if self.shape else ((1,), (0,))
        self.unmerged = _pack([len(sizes), item, *sizes, *([0] * len(sizes)), *mask])


class Gathering:
    """Runs bindings on addresses.  The caller keeps the memory alive and checked its extent."""

    def run(
        self, binding: GatherBinding, target: cython.size_t, source: cython.size_t, indices: Any
    ) -> cython.Py_ssize_t:
        """Run a walk; ``indices`` are the addresses of the index tensors, a tuple.

        Returns -1, or for the first bad index, whose position and what follows was left alone, the
        code that ``failure`` explains.  Raises ValueError for another number of addresses than the
        binding has index tensors.
        """
        if len(indices) != binding.count:
            raise ValueError(f"{len(indices)} addresses for {binding.count} index tensors")
        if cython.compiled:
            if binding.numel == 0:
                return -1
            at = cython.declare(cython.p_char[66])
            at[0] = cython.cast(cython.p_char, target)
            at[1] = cython.cast(cython.p_char, source)
            number: cython.Py_ssize_t
            for number in range(binding.count):
                address: cython.size_t = indices[number]
                at[number + 2] = cython.cast(cython.p_char, address)
            plan: cython.p_char = binding.packed
            if binding.numel < SMALL:
                return slip_gather(plan, at)
            bad: cython.Py_ssize_t
            tasks: cython.size_t = pool.parallel
            threads: cython.int = pool.threads
            with cython.nogil:
                bad = slip_walk(plan, at, 0, tasks, threads)
            return bad
        else:  # noqa: RET505 - Cython compiles one branch only
            return gathering_arrays.run(binding, target, source, indices)

    def check(self, binding: GatherBinding, indices: Any) -> cython.Py_ssize_t:
        """Look at every index of a walk and move nothing; return what ``run`` would return."""
        if binding.numel == 0 or binding.count == 0:
            return -1
        if cython.compiled:
            at = cython.declare(cython.p_char[66])
            number: cython.Py_ssize_t
            for number in range(binding.count):
                address: cython.size_t = indices[number]
                at[number + 2] = cython.cast(cython.p_char, address)
            # Nothing lies at the sides' addresses: they are moved but never followed.
            at[0] = at[1] = at[2]
            plan: cython.p_char = binding.packed
            bad: cython.Py_ssize_t
            if binding.numel < SMALL:
                return slip_check(plan, at)
            tasks: cython.size_t = pool.parallel
            threads: cython.int = pool.threads
            with cython.nogil:
                bad = slip_walk(plan, at, 1, tasks, threads)
            return bad
        else:  # noqa: RET505 - Cython compiles one branch only
            return gathering_arrays.resolve(binding.shape, binding.indices, indices)[1]

    def failure(self, binding: GatherBinding, code: int, indices: tuple[int, ...]) -> IndexError:
        """Return the error that a code of ``run`` stands for, in PyTorch's words."""
        position, number = divmod(code, len(binding.indices))
        index = binding.indices[number]
        place = 0
        for size, stride in zip(reversed(binding.shape), reversed(index.strides), strict=True):
            position, coordinate = divmod(position, size)
            place += coordinate * stride
        found = gathering_arrays.element(indices[number], place, index.itemsize)
        return IndexError(
            f"index {found} is out of bounds for dimension {index.dim} with size {index.size}"
        )

    def count(self, binding: MaskBinding, mask: cython.size_t) -> cython.Py_ssize_t:
        """Return how many elements of a mask are true."""
        if cython.compiled:
            return self._masked(COUNT_TRUE, binding, mask, mask, mask)
        else:  # noqa: RET505
            return len(gathering_arrays.chosen(binding, mask))

    def nonzero(
        self, binding: MaskBinding, target: cython.size_t, mask: cython.size_t, steps: Any
    ) -> cython.Py_ssize_t:
        """Store the coordinates of the true elements as int64[count, ndim]; return the count.

        ``steps``: the strides of the target, in elements.
        """
        if cython.compiled:
            if binding.numel == 0:
                return 0
            if len(binding.shape) == 0:
                return self.count(binding, mask)
            at = cython.declare(cython.p_char[2])
            at[0] = at[1] = cython.cast(cython.p_char, mask)
            plan: cython.p_char = binding.unmerged
            row: cython.longlong = steps[0] * 8
            column: cython.longlong = steps[1] * 8
            out: cython.p_char = cython.cast(cython.p_char, target)
            found: cython.Py_ssize_t
            with cython.nogil:
                found = slip_mask(NONZERO, plan, at, out, row, column)
            return found
        else:  # noqa: RET505 - Cython compiles one branch only
            return gathering_arrays.nonzero(binding, target, mask, steps)

    def select(
        self, binding: MaskBinding, target: cython.size_t, source: cython.size_t,
        mask: cython.size_t,
    ) -> cython.Py_ssize_t:
        """Store the elements where the mask is true one after another; return the count."""
        if cython.compiled:
            return self._masked(SELECT, binding, source, mask, target)
        else:  # noqa: RET505 - Cython compiles one branch only
            return gathering_arrays.select(binding, target, source, mask)

    def spread(
        self, binding: MaskBinding, target: cython.size_t, source: cython.size_t,
        mask: cython.size_t,
    ) -> cython.Py_ssize_t:
        """Store a contiguous source's elements in turn where the mask is true; return the count."""
        if cython.compiled:
            return self._masked(SPREAD, binding, target, mask, source)
        else:  # noqa: RET505 - Cython compiles one branch only
            return gathering_arrays.spread(binding, target, source, mask)

    def _masked(
        self, what: cython.int, binding: MaskBinding, data: cython.size_t, mask: cython.size_t,
        dense: cython.size_t,
    ) -> cython.Py_ssize_t:
        """Run the C loop over a mask's merged dims."""
        if binding.numel == 0:
            return 0
        found: cython.Py_ssize_t = 0
        if cython.compiled:
            at = cython.declare(cython.p_char[2])
            at[0] = cython.cast(cython.p_char, data)
            at[1] = cython.cast(cython.p_char, mask)
            plan: cython.p_char = binding.packed
            out: cython.p_char = cython.cast(cython.p_char, dense)
            item: cython.longlong = binding.dtype.itemsize
            with cython.nogil:
                found = slip_mask(what, plan, at, out, item, 0)
        return found


gathering = Gathering()

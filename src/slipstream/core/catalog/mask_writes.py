"""Writes under one mask: a choice at every place, so that nothing counts where it is true."""

from __future__ import annotations

from typing import Any

from slipstream.core.catalog.table import ops
from slipstream.core.vocab import dtypes
from slipstream.core.vocab.devices import CPU
from slipstream.core.vocab.records import TensorBase


def put(self: Any, items: tuple[Any, ...], value: Any) -> bool:
    """Write a number or tensor where the index is a mask; False where this is not the way.

    That is: for another index, for values that differ from place to place, and on the CPU for
    tensors of values, where writing the true places alone is faster.
    """
    if not is_mask(self, items):
        return False
    if not isinstance(value, TensorBase) or not value.spec.ndim:
        _fill(self, items[0], value)
        return True
    if (self.spec.device is CPU or value.spec.dtype is not self.spec.dtype
            or not _is_alike(self, items[0], value)):
        return False
    _choose(self, items[0], value)
    return True


def is_mask(self: Any, items: tuple[Any, ...]) -> bool:
    """Whether the index is one mask of the tensor's first dims."""
    if len(items) != 1 or not isinstance(items[0], TensorBase):
        return False
    mask = items[0].spec
    if mask.dtype is not dtypes.bool_ or not mask.ndim:
        return False
    return bool(self.spec.shape[:mask.ndim] == mask.shape)


def _fill(self: Any, mask: Any, value: Any) -> None:
    """One value wherever the mask is true."""
    category = self.spec.dtype.category
    if not isinstance(value, TensorBase) and category < 2:
        value = int(value) if category else bool(value)
    missing = self.spec.ndim - mask.spec.ndim
    if missing:
        mask = ops.reshape.call((mask, (*mask.spec.shape, *(1,) * missing)), None)
    ops.masked_fill.call_inplace((self, mask, value), None)


def _is_alike(self: Any, mask: Any, value: Any) -> bool:
    """Whether each place where a mask is true gets the same values."""
    rest = self.spec.ndim - mask.spec.ndim
    shape = value.spec.shape
    return len(shape) <= rest or (len(shape) == rest + 1 and shape[0] == 1)


def _choose(self: Any, mask: Any, value: Any) -> None:
    """The same values wherever the mask is true."""
    rest = self.spec.ndim - mask.spec.ndim
    value = without_leading_ones(value, rest)
    value = ops.expand.call((value, self.spec.shape[mask.spec.ndim:]), None)
    wide = ops.reshape.call((mask, (*mask.spec.shape, *(1,) * rest)), None)
    chosen = ops.where.call((wide, ops.cast.call((value, self.spec.dtype), None), self), None)
    ops.copy.call_inplace((self, chosen), None)


def without_leading_ones(value: Any, rank: int) -> Any:
    """A value with more dims than its place has, as long as these are of size one."""
    shape = value.spec.shape
    extra = len(shape) - rank
    if extra > 0 and all(size == 1 for size in shape[:extra]):
        return ops.reshape.call((value, shape[extra:]), None)
    return value

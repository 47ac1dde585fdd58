"""``tensor[index]`` and ``tensor[index] = value``.

Integers, slices (of any step), None and the ellipsis give a view.  Tensors, arrays, lists and
bools give a copy, by the rules of NumPy and PyTorch.  A 0-dim integer tensor selects as an
integer does: reading it waits for its device.  A mask waits too, where it is
read: the result's shape depends on it.  Written with the same values everywhere it does not.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from slipstream.core.api import interop
from slipstream.core.catalog import indexing as catalog
from slipstream.core.catalog import mask_writes
from slipstream.core.catalog.table import ops
from slipstream.core.dispatch.mixing import mixing
from slipstream.core.dispatch.numbers import check_fits
from slipstream.core.dispatch.op import Op
from slipstream.core.dispatch.writing import check_single
from slipstream.core.launch.door import backend_of
from slipstream.core.launch.waiting import asked
from slipstream.core.vocab import dtypes
from slipstream.core.vocab.devices import CPU
from slipstream.core.vocab.errors import MixedDeviceError, explain, is_refusal, restate
from slipstream.core.vocab.records import Spec, TensorBase

_FIRST = (catalog.SELECT,)
# Layouts of one tensor that indexes one of the first dims.
ONE_DIM: tuple[Any, ...] = tuple([((dim,), dim, ()) for dim in range(8)])
_basic: Op = ops.basic_index
_read: Op = ops.index_read


def get_item(self: Any, index: Any) -> Any:
    """The part of the tensor that ``index`` selects: a view for a basic index, else a copy.

    Raises IndexError for indices out of range, too many or of no known kind.
    """
    if self is None:
        raise TypeError("expected a Tensor, but got None")
    tensor: TensorBase = self
    spec: Spec = tensor.spec
    if spec.ndim:
        if type(index) is int:
            if 0 <= index < spec.shape[0]:
                return _basic.call((self, _FIRST, (index,)), None)
        elif type(index) is slice:
            start, length, step = catalog.bounds(index, spec.shape[0])
            return _basic.call((self, ((length, step),), (start,)), None)
        elif isinstance(index, TensorBase) and _is_plain(index, spec):
            return _read.call((self, (index,), catalog.FIRST_DIM), None)
        elif type(index) is tuple:
            dim = _lone_tensor(index, spec)
            if dim >= 0:
                return _read.call((self, (index[dim],), ONE_DIM[dim]), None)
    try:
        items = items_of(self, index)
        pattern, starts, tensors = catalog.split(self.spec.shape, items)
        if tensors:
            return catalog.read(self, items)
    except IndexError as failure:
        name_call(failure, "getitem", {"self": self, "index": index})
        raise
    return _basic.call((self, pattern, starts), None)


def name_call(failure: IndexError, name: str, arguments: dict[str, Any]) -> None:
    """Let an error about an index show what was indexed, and by what, where it does not yet."""
    if not is_refusal(failure):
        restate(failure, name, arguments, anew=True)


def _lone_tensor(index: tuple[Any, ...], spec: Any) -> int:
    """Where the one plain tensor stands among full slices, as in ``x[:, i]``; -1 for the rest."""
    found: int = -1
    place: int = 0
    if len(index) > spec.ndim or len(index) > len(ONE_DIM):
        return -1
    for item in index:
        if type(item) is slice:
            if item.start is not None or item.stop is not None or item.step is not None:
                return -1
        elif found < 0 and isinstance(item, TensorBase) and _is_plain(item, spec):
            found = place
        else:
            return -1
        place += 1
    return found


def _is_plain(index: Any, spec: Any) -> bool:
    """Whether an index is a tensor of integers where the indexed one is, no scalar."""
    tensor: TensorBase = index
    own: Spec = tensor.spec
    return (own.ndim > 0 and own.device is spec.device
            and (own.dtype is dtypes.int64 or own.dtype is dtypes.int32))


def set_item(self: Any, index: Any, value: Any) -> None:
    """Write ``value``, broadcast and cast, to the part of the tensor that ``index`` selects.

    Of several writes to one place the last in index order stays.  Raises IndexError as get_item
    does, RuntimeError for values that do not fit; the tensor is unchanged then.
    """
    try:
        items = items_of(self, index)
        pattern, starts, tensors = catalog.split(self.spec.shape, items)
    except IndexError as failure:
        name_call(failure, "setitem", {"self": self, "index": index, "value": value})
        raise
    if not tensors:
        _write_view(self, _basic.call((self, pattern, starts), None), value)
        return
    value = _value_of(self, value)
    if isinstance(value, TensorBase):
        value = catalog.fitted(self, items, value, False)
    if mask_writes.put(self, items, value):
        return
    if self.spec.device is CPU:
        catalog.write(self, items, value)
    else:
        asked("index_put_", self, catalog.write, self, items, value)


def _write_view(self: Any, part: Any, value: Any) -> None:
    if not part.spec.contiguous:
        check_single(ops.copy, (part, value, False), part)
    if isinstance(value, (bool, int, float, complex)):
        ops.fill.call_inplace((part, value), None)
        return
    value = _value_of(self, value, cast=False)
    if not isinstance(value, TensorBase):
        ops.fill.call_inplace((part, value), None)
    elif not _is_itself(part, value):
        value = mask_writes.without_leading_ones(value, part.spec.ndim)
        ops.copy.call_inplace((part, value), None)


def _is_itself(part: Any, value: Any) -> bool:
    """What ``x[i] += v`` writes last: the part itself; nothing is left to do without history."""
    return (part.storage is value.storage and part.offset == value.offset
            and part.spec is value.spec and part.record is None and value.record is None
            and not part.storage.read_only)


def _value_of(self: Any, value: Any, cast: bool = True) -> Any:
    """A value to be written: a Python number, or a tensor; one number on the tensor's device."""
    if isinstance(value, (bool, int, float, complex)):
        return _checked(self, value)
    if isinstance(value, np.generic):
        return _checked(self, value.item())
    if isinstance(value, TensorBase):
        # Elements elsewhere are the op's to refuse, or to copy where that is allowed.
        if value.spec.device is self.spec.device or (cast and value.spec.ndim):
            return value
        return interop.to(value, self.spec.device)
    made = interop.as_tensor(value)
    return interop.to(made, self.spec.device, self.spec.dtype if cast else None)


def _checked(self: Any, value: Any) -> Any:
    if isinstance(value, complex) and self.spec.dtype.category < 3:
        raise RuntimeError(f"value cannot be converted to type {self.spec.dtype.name} without "
                           "loss: it is complex")
    check_fits(self.spec.dtype, value)
    return value


def items_of(self: Any, index: Any) -> tuple[Any, ...]:
    """The index as a tuple of ints, slices, None, Ellipsis, bools and tensors."""
    if type(index) is not tuple:
        index = (index,)
    for item in index:
        kind = type(item)
        if kind is not int and kind is not slice and item is not None and item is not Ellipsis:
            return tuple([_item(self, each) for each in index])
    return index


def _item(self: Any, item: Any) -> Any:
    if isinstance(item, slice) or item is None or item is Ellipsis or isinstance(item, (bool, int)):
        return item
    if isinstance(item, np.bool_):
        return bool(item)
    if isinstance(item, (list, tuple, range, np.ndarray)):
        item = _tensor_of(self, item)
    if isinstance(item, TensorBase):
        return _index_tensor(self, item)
    return item


def _tensor_of(self: Any, item: Any) -> Any:
    """A list or an array as an index tensor."""
    if isinstance(item, np.ndarray):
        if item.dtype.kind in "iu" and item.dtype not in (np.uint8, np.int32, np.int64):
            item = item.astype(np.int64)
        made = interop.tensor(item)
    else:
        made = interop.tensor(list(item), device=CPU)
    if not made.spec.numel and made.spec.dtype.category == 2:
        made = interop.to(made, dtypes.int64)
    return made


def _allow(self: Any, index: Any) -> None:
    """Count the copy of a device's index to another one; MixedDeviceError where none is allowed."""
    if not mixing.allowed:
        place = self.spec.device
        raise MixedDeviceError(explain(
            "index", {"self": self, "index": index}, "indices should be either on cpu or on the "
            f"same device as the indexed tensor ({place})", f"move the index, index.to('{place}')"))
    mixing.count(index.spec.nbytes)


def _index_tensor(self: Any, item: Any) -> Any:
    """An index tensor on the tensor's device; bytes as a mask, 0-dim ones as Python values."""
    dtype = item.spec.dtype
    if dtype.category > 1:
        raise IndexError("tensors used as indices must be long, int, byte or bool tensors, but got "
                         f"{item.spec!r}")
    if not item.spec.ndim and backend_of(item.spec.device).has_data:
        found = asked("__index__", item, interop.item, item)
        return bool(found) if dtype in (dtypes.bool_, dtypes.uint8) else found
    if item.spec.device is not self.spec.device:
        if item.spec.device is not CPU:
            _allow(self, item)
        item = interop.to(item, self.spec.device)
    if dtype is dtypes.uint8:
        return ops.ne.call((item, 0), None)
    if dtype not in (dtypes.bool_, dtypes.int64, dtypes.int32):
        raise IndexError("tensors used as indices must be long, int, byte or bool tensors, but got "
                         f"{item.spec!r}")
    return item
